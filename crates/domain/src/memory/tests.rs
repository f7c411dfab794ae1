//! Tests of session identifiers, memory settings, and the question that memory stores for a run.

use super::*;

#[test]
fn accepts_only_safe_session_ids() {
    for id in ["a", "0", "_x", "-x", "2026-11-22T10:00:00+01:00", "ada@example.com", "a.b~c=", &"x".repeat(128)] {
        assert_eq!(ConversationSessionId::parse(id).unwrap().as_str(), id);
    }
    let long = "x".repeat(129);
    let invalid_ids = [
        "", ".", "..", ".a", "~a", "a b", " a", "a\n", "a/b", "a\\b", "a%2e", "a?b", "a#b", "é", "a\u{0}", "a'", &long,
    ];
    for id in invalid_ids {
        assert_eq!(ConversationSessionId::parse(id), Err(MalformedConversationSessionId), "{id:?}");
    }
}

#[test]
fn anonymous_callers_own_no_conversation() {
    let session = || ConversationSessionId::parse("s").unwrap();
    let workload = WorkloadId::from(Uuid::from_u128(1));
    for owner in ["user:ada", "service:bot"] {
        let owner = ActorRef::parse(owner).unwrap();
        assert_eq!(ConversationKey::for_caller(workload, &owner, session()).unwrap().owner, owner);
    }
    for guest in ["anonymous", "share_link:0190"] {
        assert_eq!(ConversationKey::for_caller(workload, &ActorRef::parse(guest).unwrap(), session()), None, "{guest}");
    }
}

#[test]
fn applies_cautious_defaults_and_bounds() {
    let config = MemoryConfig::parse(&json!({ "scope": "session", "type": "buffer" })).unwrap();
    let expected = MemoryConfig {
        scope: MemoryScope::Session,
        max_turns: DEFAULT_MAX_STORED_TURNS,
        retention_days: DEFAULT_RETENTION_DAYS,
        write_policy: WritePolicy::Auto,
        personal_data: PersonalDataPolicy::Mask,
        on_revoke: OnRevoke::Keep,
    };
    assert_eq!(config, expected);
    let full_content = json!({ "scope": "user", "type": "buffer", "max_items": 1_000_000, "ttl_days": 2,
        "write_policy": "off", "pii": "allow", "erase_on_revoke": true, "consent_required": false, "description": "x" });
    let expected = MemoryConfig {
        scope: MemoryScope::User,
        max_turns: MAX_STORED_TURNS,
        retention_days: 2,
        write_policy: WritePolicy::Off,
        personal_data: PersonalDataPolicy::Allow,
        on_revoke: OnRevoke::Erase,
    };
    assert_eq!(MemoryConfig::parse(&full_content).unwrap(), expected);
}

#[test]
fn reports_unsupported_settings() {
    for (field, value) in [
        ("scope", json!("workload")),
        ("scope", json!("workspace")),
        ("type", json!("summary")),
        ("type", json!("semantic")),
        ("type", json!("blocks")),
        ("write_policy", json!("explicit")),
        ("consent_required", json!(true)),
        ("store_ref", json!({ "slug": "elsewhere" })),
        ("retrieval", json!({ "top_k": 3 })),
        ("embedding_route", json!("vectors")),
    ] {
        let mut content = json!({ "scope": "session", "type": "buffer" });
        content[field] = value;
        assert_eq!(MemoryConfig::parse(&content), Err(vec![format!("/{field}").leak() as &str]), "{content}");
    }
    assert_eq!(MemoryConfig::parse(&json!({})), Err(vec!["/scope", "/type"]));
}

#[test]
fn stores_the_last_user_message_or_the_inputs() {
    let question = |inputs: Value| question_of(inputs.as_object().unwrap());
    let messages = json!([
        { "role": "user", "content": "first" }, { "role": "user", "content": "last" },
        { "role": "assistant", "content": "answer" },
    ]);
    assert_eq!(question(json!({ "messages": messages, "message": "other" })), "last");
    assert_eq!(question(json!({ "message": "hello", "x": 1 })), "hello");
    assert_eq!(question(json!({ "message": { "a": 1 } })), r#"{"a":1}"#);
    assert_eq!(question(json!({ "ticket": "broken" })), r#"{"ticket":"broken"}"#);
    let without_user_message = json!({ "messages": [{ "role": "assistant", "content": "x" }] });
    assert_eq!(question(without_user_message.clone()), without_user_message.to_string());
}

#[test]
fn turn_digests_depend_on_content_and_salt() {
    assert_eq!(turn_digest("a", "b", [1; 16]), turn_digest("a", "b", [1; 16]));
    assert_ne!(turn_digest("a", "b", [1; 16]), turn_digest("a", "b", [2; 16]));
    assert_ne!(turn_digest("ab", "", [1; 16]), turn_digest("a", "b", [1; 16]));
}
