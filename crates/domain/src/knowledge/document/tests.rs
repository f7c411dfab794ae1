use super::*;

fn draft(document_id: &str, text: &str) -> DocumentDraft {
    DocumentDraft {
        document_id: document_id.to_owned(),
        title: None,
        source: DocumentSource::Text(text.to_owned()),
        metadata: Map::new(),
    }
}

fn refusal_of(drafts: &[DocumentDraft], from: SourceType) -> (usize, DocumentFault) {
    match validate_drafts(drafts, from) {
        Err(KnowledgeRefusal::InvalidDocument { position, fault }) => (position, fault),
        other => panic!("{other:?}"),
    }
}

#[test]
fn accepts_only_citable_document_ids() {
    for good in ["a", "leave", "hr/leave.md", "urn:doc:1", "A-b_c.d", &"x".repeat(128)] {
        assert_eq!(DocumentId::parse(good).unwrap().as_str(), good);
    }
    for bad in ["", "[a]", "a]", "a b", "-a", ".a", "/a", "a\n", "ä", &"x".repeat(129)] {
        assert_eq!(DocumentId::parse(bad), None, "{bad}");
    }
}

#[test]
fn reports_the_first_fault_of_the_drafts() {
    let sound = draft("a", "text");
    assert_eq!(validate_drafts(std::slice::from_ref(&sound), SourceType::Inline).unwrap().len(), 1);
    assert_eq!(validate_drafts(&[], SourceType::Inline), Err(KnowledgeRefusal::DocumentCount));
    let many: Vec<_> = (0..=MAX_DOCUMENTS).map(|number| draft(&format!("d{number}"), "text")).collect();
    assert_eq!(validate_drafts(&many, SourceType::Inline), Err(KnowledgeRefusal::DocumentCount));
    let of = |change: &dyn Fn(&mut DocumentDraft)| {
        let mut other = draft("b", "text");
        change(&mut other);
        [sound.clone(), other]
    };
    let long = "x".repeat(MAX_TEXT_BYTES + 1);
    let fat: Map<String, Value> = [("k".to_owned(), json!("x".repeat(MAX_METADATA_BYTES)))].into_iter().collect();
    let wide: Map<String, Value> = (0..=MAX_METADATA_MEMBERS).map(|number| (number.to_string(), json!(1))).collect();
    let beyond: Map<String, Value> = [("k".to_owned(), json!(1_u64 << 60))].into_iter().collect();
    for (drafts, fault) in [
        (of(&|other| other.document_id = "a b".to_owned()), DocumentFault::InvalidId),
        (of(&|other| other.document_id = "a".to_owned()), DocumentFault::DuplicateId),
        (of(&|other| other.title = Some("a\nb".to_owned())), DocumentFault::InvalidTitle),
        (of(&|other| other.metadata = fat.clone()), DocumentFault::InvalidMetadata),
        (of(&|other| other.metadata = wide.clone()), DocumentFault::InvalidMetadata),
        (of(&|other| other.metadata = beyond.clone()), DocumentFault::InvalidMetadata),
        (of(&|other| other.source = DocumentSource::Text(" \n".to_owned())), DocumentFault::NoText),
        (of(&|other| other.source = DocumentSource::Text(long.clone())), DocumentFault::TextTooLong),
        (of(&|other| other.source = DocumentSource::Text("a\0b".to_owned())), DocumentFault::NulInText),
        (of(&|other| other.source = DocumentSource::Reference("x".to_owned())), DocumentFault::TextExpected),
    ] {
        assert_eq!(refusal_of(&drafts, SourceType::Inline), (1, fault));
    }
    for from in [SourceType::Artifact, SourceType::Http] {
        assert_eq!(refusal_of(std::slice::from_ref(&sound), from), (0, DocumentFault::SourceExpected));
        let mut other = sound.clone();
        other.source = DocumentSource::Reference("x".repeat(MAX_SOURCE_REF_BYTES + 1));
        assert_eq!(refusal_of(&[other.clone()], from), (0, DocumentFault::SourceNotFound));
        other.source = DocumentSource::Reference("x".to_owned());
        assert!(validate_drafts(&[other], from).is_ok());
    }
}

#[test]
fn metadata_hashes_identify_name_and_value() {
    let of = |metadata: Value| metadata_hashes(metadata.as_object().unwrap());
    assert_eq!(of(json!({ "a": 1, "b": { "x": 1, "y": [2] } })), of(json!({ "b": { "y": [2], "x": 1.0 }, "a": 1 })));
    assert_ne!(of(json!({ "a": 1 })), of(json!({ "a": "1" })));
    assert_ne!(of(json!({ "a": 1 })), of(json!({ "b": 1 })));
    for hash in of(json!({ "a'b": "'); DROP TABLE fact; --" })) {
        assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    }
}
