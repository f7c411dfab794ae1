use super::*;

fn draft(document_id: &str, text: &str) -> DocumentDraft {
    DocumentDraft {
        document_id: document_id.to_owned(),
        title: None,
        source: DocumentSource::Text(text.to_owned()),
        metadata: Map::new(),
    }
}

fn refusal_of(drafts: &[DocumentDraft], source_type: SourceType) -> (usize, DocumentFault) {
    match validate_drafts(drafts, source_type) {
        Err(KnowledgeRefusal::InvalidDocument { position, fault }) => (position, fault),
        other => panic!("{other:?}"),
    }
}

#[test]
fn accepts_only_citable_document_ids() {
    for id in ["a", "leave", "hr/leave.md", "urn:doc:1", "A-b_c.d", &"x".repeat(128)] {
        assert_eq!(DocumentId::parse(id).unwrap().as_str(), id);
    }
    for id in ["", "[a]", "a]", "a b", "-a", ".a", "/a", "a\n", "ä", &"x".repeat(129)] {
        assert_eq!(DocumentId::parse(id), None, "{id}");
    }
}

#[test]
fn reports_the_first_fault_of_the_drafts() {
    let valid = draft("a", "text");
    assert_eq!(validate_drafts(std::slice::from_ref(&valid), SourceType::Inline).unwrap().len(), 1);
    assert_eq!(validate_drafts(&[], SourceType::Inline), Err(KnowledgeRefusal::DocumentCount));
    let too_many: Vec<_> = (0..=MAX_DOCUMENTS_PER_INGEST).map(|number| draft(&format!("d{number}"), "text")).collect();
    assert_eq!(validate_drafts(&too_many, SourceType::Inline), Err(KnowledgeRefusal::DocumentCount));
    let with_change = |change: &dyn Fn(&mut DocumentDraft)| {
        let mut changed = draft("b", "text");
        change(&mut changed);
        [valid.clone(), changed]
    };
    let long_text = "x".repeat(MAX_TEXT_BYTES + 1);
    let large_metadata: Map<String, Value> =
        [("k".to_owned(), json!("x".repeat(MAX_METADATA_BYTES)))].into_iter().collect();
    let many_members: Map<String, Value> =
        (0..=MAX_METADATA_MEMBERS).map(|number| (number.to_string(), json!(1))).collect();
    let large_number: Map<String, Value> = [("k".to_owned(), json!(1_u64 << 60))].into_iter().collect();
    for (drafts, fault) in [
        (with_change(&|changed| changed.document_id = "a b".to_owned()), DocumentFault::InvalidId),
        (with_change(&|changed| changed.document_id = "a".to_owned()), DocumentFault::DuplicateId),
        (with_change(&|changed| changed.title = Some("a\nb".to_owned())), DocumentFault::InvalidTitle),
        (with_change(&|changed| changed.metadata = large_metadata.clone()), DocumentFault::InvalidMetadata),
        (with_change(&|changed| changed.metadata = many_members.clone()), DocumentFault::InvalidMetadata),
        (with_change(&|changed| changed.metadata = large_number.clone()), DocumentFault::InvalidMetadata),
        (with_change(&|changed| changed.source = DocumentSource::Text(" \n".to_owned())), DocumentFault::NoText),
        (with_change(&|changed| changed.source = DocumentSource::Text(long_text.clone())), DocumentFault::TextTooLong),
        (with_change(&|changed| changed.source = DocumentSource::Text("a\0b".to_owned())), DocumentFault::NulInText),
        (
            with_change(&|changed| changed.source = DocumentSource::Reference("x".to_owned())),
            DocumentFault::TextExpected,
        ),
    ] {
        assert_eq!(refusal_of(&drafts, SourceType::Inline), (1, fault));
    }
    for source_type in [SourceType::Artifact, SourceType::Http] {
        assert_eq!(refusal_of(std::slice::from_ref(&valid), source_type), (0, DocumentFault::SourceExpected));
        let mut document = valid.clone();
        document.source = DocumentSource::Reference("x".repeat(MAX_SOURCE_REF_BYTES + 1));
        assert_eq!(refusal_of(&[document.clone()], source_type), (0, DocumentFault::SourceNotFound));
        document.source = DocumentSource::Reference("x".to_owned());
        assert!(validate_drafts(&[document], source_type).is_ok());
    }
}

#[test]
fn metadata_hashes_identify_name_and_value() {
    let hashes = |metadata: Value| metadata_hashes(metadata.as_object().unwrap());
    assert_eq!(
        hashes(json!({ "a": 1, "b": { "x": 1, "y": [2] } })),
        hashes(json!({ "b": { "y": [2], "x": 1.0 }, "a": 1 }))
    );
    assert_ne!(hashes(json!({ "a": 1 })), hashes(json!({ "a": "1" })));
    assert_ne!(hashes(json!({ "a": 1 })), hashes(json!({ "b": 1 })));
    for hash in hashes(json!({ "a'b": "'); DROP TABLE fact; --" })) {
        assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    }
}
