use crate::{
    id::TenantId,
    transparency_log::{
        Checkpoint, LogOriginBase, NoteRefusal, NoteSignature, NoteSigningKey, SignedNote, TreeHash, VerifierKey,
        VerifierKeyRefusal, WitnessKey, WitnessRequest, cosigned_message,
    },
};
use uuid::Uuid;

/// The key and the note of the reference implementation in Go. The C2SP specification has the same example.
const PUBLISHED_KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const PUBLISHED_SEED: &str = "gQoUAtUUbI2E8kQzMPVAgOv5juF9nHT2JS/F1ccoMXM=";
const PUBLISHED_TEXT: &str =
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
const PUBLISHED_SIGNATURE: &str = "\u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

fn published_note() -> String {
    format!("{PUBLISHED_TEXT}\n{PUBLISHED_SIGNATURE}")
}

fn sign(key: &NoteSigningKey, name: &str, text: &str) -> NoteSignature {
    NoteSignature::new(&VerifierKey::new(name, &key.public_key()).unwrap(), &key.sign(text.as_bytes()))
}

#[test]
fn verifies_and_reproduces_published_note() {
    let key = VerifierKey::parse(PUBLISHED_KEY).unwrap();
    assert_eq!(key.to_string(), PUBLISHED_KEY);
    let note = SignedNote::parse(published_note().as_bytes()).unwrap();
    assert_eq!(note.text(), PUBLISHED_TEXT);
    assert!(note.is_signed_by(&key));
    assert_eq!(note.to_string(), published_note());
}

#[test]
fn refuses_every_change_of_one_byte_in_a_note() {
    let key = VerifierKey::parse(PUBLISHED_KEY).unwrap();
    let note = published_note().into_bytes();
    for index in 0..note.len() {
        for mask in [1, 0x20, 0x80] {
            let mut changed = note.clone();
            changed[index] ^= mask;
            let verified = SignedNote::parse(&changed).is_ok_and(|note| note.is_signed_by(&key));
            assert!(!verified, "byte {index} changed by {mask}");
        }
    }
    for end in 0..note.len() {
        assert!(!SignedNote::parse(&note[..end]).is_ok_and(|note| note.is_signed_by(&key)), "cut at {end}");
    }
}

#[test]
fn refuses_malformed_notes_and_keys() {
    let too_long = format!("{}\n{PUBLISHED_SIGNATURE}", "x\n".repeat(40_000));
    let many_signatures = format!("{PUBLISHED_TEXT}\n{}", PUBLISHED_SIGNATURE.repeat(65));
    for (note, refusal) in [
        ("", NoteRefusal::Form),
        ("text\n", NoteRefusal::Form),
        ("text\n\n", NoteRefusal::Form),
        ("te\txt\n\n\u{2014} a AAAAAAA=\n", NoteRefusal::Form),
        ("text\n\n- a AAAAAAA=\n", NoteRefusal::SignatureLine),
        ("text\n\n\u{2014} a\n", NoteRefusal::SignatureLine),
        ("text\n\n\u{2014} a AAAA\n", NoteRefusal::SignatureLine),
        ("text\n\n\u{2014} a+b AAAAAAA=\n", NoteRefusal::SignatureLine),
        ("text\n\n\u{2014} a AAAAAAA\n", NoteRefusal::SignatureLine),
        (too_long.as_str(), NoteRefusal::Form),
        (many_signatures.as_str(), NoteRefusal::TooManySignatures),
    ] {
        assert_eq!(SignedNote::parse(note.as_bytes()), Err(refusal), "{}", note.chars().take(40).collect::<String>());
    }
    let (name, rest) = PUBLISHED_KEY.split_once('+').unwrap();
    let zeros = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for (key, refusal) in [
        (name.to_owned(), VerifierKeyRefusal::Form),
        (format!("{name}+c74f20a3"), VerifierKeyRefusal::Form),
        (format!("Other+{rest}"), VerifierKeyRefusal::KeyId),
        (PUBLISHED_KEY.replace("c74f20a3", "c74f20a4"), VerifierKeyRefusal::KeyId),
        (PUBLISHED_KEY.replace("+ARpc", "+Ahpc"), VerifierKeyRefusal::Key),
        // Keys of small order would verify signatures that their owners never made.
        (format!("{name}+00000000+{zeros}"), VerifierKeyRefusal::Key),
        (format!("+{rest}"), VerifierKeyRefusal::Key),
    ] {
        assert_eq!(VerifierKey::parse(&key), Err(refusal), "{key}");
    }
}

#[test]
fn one_note_carries_signatures_of_several_keys() {
    let (old_key, new_key) = (NoteSigningKey::from_seed(&[1; 32]), NoteSigningKey::from_seed(&[2; 32]));
    let text = "origin/t\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n";
    let signatures = vec![sign(&new_key, "origin/t", text), sign(&old_key, "origin/t", text)];
    let note = SignedNote::new(text.to_owned(), signatures).unwrap();
    let parsed = SignedNote::parse(note.to_string().as_bytes()).unwrap();
    assert_eq!(parsed, note);
    for (seed, expected) in [(1, true), (2, true), (3, false)] {
        let key = NoteSigningKey::from_seed(&[seed; 32]);
        assert_eq!(parsed.is_signed_by(&VerifierKey::new("origin/t", &key.public_key()).unwrap()), expected);
        assert!(!parsed.is_signed_by(&VerifierKey::new("origin/other", &key.public_key()).unwrap()));
    }
}

#[test]
fn parses_only_canonical_checkpoints() {
    let root = TreeHash::of_empty_tree();
    let origin =
        LogOriginBase::parse("fairway.example/logs").unwrap().origin_of_tenant(TenantId::from(Uuid::from_u128(7)));
    assert_eq!(origin, "fairway.example/logs/00000000-0000-0000-0000-000000000007");
    let checkpoint = Checkpoint { origin, size: 20_852_163, root };
    let text = checkpoint.to_string();
    assert_eq!(Checkpoint::parse(&text), Ok(checkpoint.clone()));
    assert_eq!(Checkpoint::parse(&format!("{text}extension\n")), Ok(checkpoint));
    for text in [
        "",
        "o\n1\n",
        "o\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        "\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n",
        "o\n01\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n",
        "o\n+1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n",
        "o\n\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n",
        "o\n18446744073709551616\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n",
        "o\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU\n",
        "o\n1\nAAAA\n",
        "o\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n",
    ] {
        assert!(Checkpoint::parse(text).is_err(), "{text:?}");
    }
    for base in ["", "a b", "a+b", "a/", "a\u{0}", &"x".repeat(201)] {
        assert!(LogOriginBase::parse(base).is_err(), "{base:?}");
    }
}

#[test]
fn signing_key_is_read_from_base64_and_never_shown() {
    let key = NoteSigningKey::parse(&format!("{PUBLISHED_SEED}\n")).unwrap();
    assert_eq!(format!("{key:?}"), "[signing key]");
    assert!(NoteSigningKey::parse("AAAA").is_none());
    assert!(NoteSigningKey::parse("not base64").is_none());
    // Ed25519 is deterministic, so the published private key reproduces the published signature.
    let note = SignedNote::new(PUBLISHED_TEXT.to_owned(), vec![sign(&key, "PeterNeumann", PUBLISHED_TEXT)]).unwrap();
    assert_eq!(note.to_string(), published_note());
}

/// The example in the specification of cosignatures. It shows only the form of the lines, because its keys are not
/// published.
const PUBLISHED_COSIGNED: &str = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
    \u{2014} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n\
    \u{2014} witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n";

#[test]
fn reads_published_cosignature() {
    let note = SignedNote::parse(PUBLISHED_COSIGNED.as_bytes()).unwrap();
    let line = &note.signatures()[1];
    assert_eq!((line.name.as_str(), line.key_id), ("witness.example.com/w1", [0x8d, 0x66, 0xcf, 0x3f]));
    let (seconds, signature) = line.signature.split_first_chunk::<8>().unwrap();
    assert_eq!((u64::from_be_bytes(*seconds), signature.len()), (1_679_315_147, 64));
    let expected = format!("cosignature/v1\ntime 1679315147\n{}", note.text());
    assert_eq!(cosigned_message(note.text(), 1_679_315_147), expected.into_bytes());
    assert_eq!(note.to_string(), PUBLISHED_COSIGNED);
}

#[test]
fn cosignature_holds_for_its_witness_text_and_time_alone() {
    let signing_key = NoteSigningKey::from_seed(&[7; 32]);
    let witness = WitnessKey::new("witness.example/w", &signing_key.public_key()).unwrap();
    assert_eq!(WitnessKey::parse(&witness.to_string()), Ok(witness.clone()));
    // The key of a log is refused as the key of a witness, even if both have the same bytes.
    let log_key = VerifierKey::new("witness.example/w", &signing_key.public_key()).unwrap();
    assert_ne!(log_key.id_hex(), witness.id_hex());
    assert_eq!(WitnessKey::parse(&log_key.to_string()), Err(VerifierKeyRefusal::Key));
    assert_eq!(VerifierKey::parse(&witness.to_string()), Err(VerifierKeyRefusal::Key));

    let text = "logs.example/a\n5\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
    let note = SignedNote::new(text.to_owned(), vec![sign(&signing_key, "logs.example/a", text)]).unwrap();
    let signature_line =
        |seconds| witness.cosignature_line(seconds, &signing_key.sign(&cosigned_message(text, seconds)));
    assert_eq!(witness.cosigned_at(&note), None, "the signature of the log is no cosignature");
    let cosigned = note.clone().with_signatures([signature_line(1_700_000_000), signature_line(1_700_000_060)]);
    assert_eq!(witness.cosigned_at(&cosigned), Some(1_700_000_060));
    let parsed = SignedNote::parse(cosigned.to_string().as_bytes()).unwrap();
    assert_eq!(parsed, cosigned);

    let time_after_change = |change: fn(&mut NoteSignature)| {
        let mut signature_line = signature_line(1_700_000_000);
        change(&mut signature_line);
        witness.cosigned_at(&note.clone().with_signatures([signature_line]))
    };
    assert_eq!(time_after_change(|signature_line| signature_line.signature[7] ^= 1), None, "another time");
    assert_eq!(time_after_change(|signature_line| signature_line.signature[20] ^= 1), None, "another signature");
    assert_eq!(time_after_change(|signature_line| signature_line.signature.truncate(8)), None, "no signature");
    assert_eq!(time_after_change(|signature_line| signature_line.signature.truncate(3)), None, "no time");
    assert_eq!(time_after_change(|signature_line| signature_line.name.push('x')), None, "another name");
    assert_eq!(time_after_change(|signature_line| signature_line.key_id[0] ^= 1), None, "another key");
    // One invalid line under the name of a witness invalidates its valid cosignature too.
    let mut invalid = signature_line(1_700_000_000);
    invalid.signature[20] ^= 1;
    assert_eq!(witness.cosigned_at(&note.clone().with_signatures([signature_line(1_700_000_000), invalid])), None);
    let other_checkpoint =
        SignedNote::new(text.replace("\n5\n", "\n6\n"), vec![signature_line(1_700_000_000)]).unwrap();
    assert_eq!(witness.cosigned_at(&other_checkpoint), None, "another checkpoint");
    let late_seconds = u64::MAX;
    assert_eq!(
        witness.cosigned_at(&note.clone().with_signatures([signature_line(late_seconds)])),
        None,
        "no time of this epoch"
    );

    let request = WitnessRequest { old_size: 3, proof: vec![TreeHash::new([1; 32])], checkpoint: note.clone() };
    let body = format!("old 3\nAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n\n{note}");
    assert_eq!(request.to_string(), body);
}
