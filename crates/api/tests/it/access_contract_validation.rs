//! Promise R16 in `docs/security.md`: a malformed access contract of a knowledge base is refused at creation, so its
//! permissions are never ambiguous.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A valid contract with every member.
fn valid_contract() -> Value {
    json!({
        "contract_id": "handbook",
        "version": "1.0",
        "default_decision": "deny",
        "allowed_principals": ["service:ticket-desk"],
        "allowed_groups": ["support"],
        "allowed_workspaces": ["00000000-0000-7000-8000-000000000003"],
        "allowed_access_modes": ["retrieve"],
        "citation_required": true,
        "revoked": false,
        "revoked_at": null,
    })
}

/// JSON values that are invalid for a member because of their type.
fn values_of_wrong_type(member: &str) -> Vec<Value> {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1.5),
        json!("true"),
        json!(""),
        json!({}),
        json!({ "deny": true }),
        json!([]),
        json!([null]),
        json!([7]),
        json!([true]),
        json!([""]),
        json!([[]]),
        json!([{}]),
    ];
    let may_be = |value: &Value| match member {
        "contract_id" | "version" => value == "true",
        "revoked_at" => value.is_null(),
        "citation_required" | "revoked" => value.is_boolean(),
        "default_decision" => false,
        _ => *value == json!([]),
    };
    values.into_iter().filter(|value| !may_be(value)).collect()
}

/// Values of the right JSON type that are invalid for a member.
const INVALID_VALUES: &[(&str, &[&str])] = &[
    ("contract_id", &[" x", "x ", "-x", "a/b", "x\n", "x\0", "ä", "a b", "../x"]),
    ("version", &[" 1", "1 ", "-1", "1\n", "1/2", "ä", "1:2"]),
    (
        "default_decision",
        &[
            "allow",
            "ALLOW",
            "Allow",
            "Deny",
            "DENY",
            " deny",
            "deny ",
            "deny\n",
            "de\u{200b}ny",
            "none",
            "permit",
            "dеny",
        ],
    ),
    (
        "allowed_principals",
        &["*", "ada", "user:", "USER:ada", "User:ada", "user:*", "user:ada ", "user:ada\n", "user: ada", "robot:ada"],
    ),
    ("allowed_groups", &["*", "Support", "group:", "group:*", "support ", "support\n", "user:ada", "-x"]),
    (
        "allowed_workspaces",
        &[
            "*",
            "here",
            "00000000000070008000000000000003",
            "{00000000-0000-7000-8000-000000000003}",
            "urn:uuid:00000000-0000-7000-8000-000000000003",
            "00000000-0000-7000-8000-00000000000g",
            "00000000-0000-7000-8000-000000000003\n",
        ],
    ),
    ("allowed_access_modes", &["*", "Retrieve", "RETRIEVE", "retrieve ", "retrieve\n", "read", "memory-replay", "all"]),
    (
        "revoked_at",
        &[
            // Timestamps are invalid while `revoked` is false.
            "2020-01-01T00:00:00Z",
            "2099-01-01T00:00:00Z",
            "now",
            "0",
            "null",
        ],
    ),
];

/// Invalid timestamps of a revocation.
const INVALID_TIMESTAMPS: &[&str] = &[
    "yesterday",
    "2026-02-30T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-01-01T24:30:00Z",
    "2026-01-01T00:00:00",
    "2026-01-01",
    "2026-01-01 00:00:00Z",
    "2026-01-01T00:00:00Z ",
    "20260101T000000Z",
    "1767225600",
];

/// Unknown members that resemble members of a contract.
const UNKNOWN_MEMBERS: &[&str] = &[
    "default_decison",
    "Default_decision",
    "defaultDecision",
    "default",
    "decision",
    "allow",
    "allow_all",
    "allowed_principal",
    "allowedPrincipals",
    "principals",
    "denied_principals",
    "allowed_roles",
    "revoked_on",
    "Revoked",
    "expires_at",
    "__proto__",
    "revoked ",
    "",
];

/// Contracts with one defect each, and a description of the defect.
fn invalid_contracts() -> Vec<(String, Value)> {
    let mut mutants = Vec::new();
    let mut add_mutant = |description: String, change: &dyn Fn(&mut Value)| {
        let mut contract = valid_contract();
        change(&mut contract);
        mutants.push((description, contract));
    };
    for (member, value_of_member) in valid_contract().as_object().unwrap() {
        for value in values_of_wrong_type(member) {
            add_mutant(format!("{member} = {value}"), &|contract| contract[member] = value.clone());
        }
        if let Some(items) = value_of_member.as_array() {
            add_mutant(format!("{member} with an item twice"), &|contract| {
                contract[member] = json!([items[0], items[0]]);
            });
            add_mutant(format!("{member} with too many"), &|contract| {
                let too_many = (0..=1_000).map(|number| json!(format!("{}{number}", items[0].as_str().unwrap())));
                contract[member] = too_many.collect();
            });
        }
    }
    for member in ["contract_id", "version", "default_decision", "allowed_workspaces", "allowed_access_modes"] {
        add_mutant(format!("no {member}"), &|contract| drop(contract.as_object_mut().unwrap().remove(member)));
    }
    for (member, values) in INVALID_VALUES {
        for value in *values {
            let value = if valid_contract()[*member].is_array() { json!([value]) } else { json!(value) };
            add_mutant(format!("{member} = {value}"), &|contract| contract[*member] = value.clone());
        }
    }
    for (member, max_length) in [("contract_id", 128), ("version", 64)] {
        add_mutant(format!("{member} too long"), &|contract| contract[member] = json!("x".repeat(max_length + 1)));
    }
    for timestamp in INVALID_TIMESTAMPS {
        add_mutant(format!("revoked at {timestamp}"), &|contract| {
            contract["revoked"] = json!(true);
            contract["revoked_at"] = json!(timestamp);
        });
    }
    add_mutant("revoked without revoked_at".to_owned(), &|contract| contract["revoked"] = json!(true));
    add_mutant("revoked_at without revoked".to_owned(), &|contract| {
        contract.as_object_mut().unwrap().remove("revoked");
        contract["revoked_at"] = json!("2020-01-01T00:00:00Z");
    });
    for unknown in UNKNOWN_MEMBERS {
        add_mutant(format!("unknown member {unknown:?}"), &|contract| contract[*unknown] = json!("deny"));
    }
    for replacement in
        [json!(null), json!(true), json!(7), json!("deny"), json!([]), json!([valid_contract()]), json!({})]
    {
        add_mutant(format!("{replacement} instead of a contract"), &|contract| *contract = replacement.clone());
    }
    mutants
}

/// The content of a knowledge base under this contract.
fn content_with(contract: &Value) -> Value {
    json!({ "content": { "source_type": "inline", "access_contract": contract } })
}

#[tokio::test]
async fn malformed_access_contracts_are_refused_at_creation() {
    let app = TestApp::start().await;
    let path =
        format!("/v1/assets/{}/versions", app.fixtures().asset_without_versions("knowledge_base", "handbook").await);
    // Equivalent spellings of a contract are accepted.
    for equivalent in [
        json!({}),
        json!({ "revoked_at": null }),
        json!({ "allowed_workspaces": ["00000000-0000-7000-8000-00000000000A"] }),
    ] {
        let mut contract = valid_contract();
        contract.as_object_mut().unwrap().extend(equivalent.as_object().unwrap().clone());
        app.post(&path, content_with(&contract)).await.expect(201);
    }
    let version_count =
        async || app.get(format!("{path}?workspace_id={WORKSPACE}")).await.expect(200).as_array().unwrap().len();
    let valid_count = version_count().await;

    let mutants = invalid_contracts();
    assert!(mutants.len() > 250, "{}", mutants.len());
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    for (description, contract) in &mutants {
        let response = app.post(&path, content_with(contract)).await;
        assert_eq!(response.status, 400, "{description}: {response}");
        *codes.entry(response.code()).or_default() += 1;
    }
    let malformed = codes.remove("malformed_json").unwrap_or_default();
    assert_eq!((malformed, codes.remove("invalid_content")), (1, Some(mutants.len() - 1)), "{codes:?}");

    // Duplicate members are malformed JSON.
    let text = content_with(&valid_contract()).to_string();
    for (member, duplicated_member) in [
        (r#""default_decision":"deny""#, r#""default_decision":"allow","default_decision":"deny""#),
        (r#""revoked":false"#, r#""revoked":true,"revoked":false"#),
        (r#""access_contract":{"#, r#""access_contract":null,"access_contract":{"#),
    ] {
        assert!(text.contains(member), "{text}");
        let with_duplicate = text.replace(member, duplicated_member);
        app.post(&path, Value::Null)
            .with_body("application/json", with_duplicate)
            .await
            .expect_refusal(400, "malformed_json");
    }
    let bare = json!({ "content": { "source_type": "inline" } });
    app.post(&path, bare).await.expect_refusal(400, "invalid_content");
    assert_eq!(version_count().await, valid_count, "refused versions must not be stored");
}

#[tokio::test]
async fn contract_without_revoked_counts_as_not_revoked() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("knowledge_base", "handbook").await;
    let path = format!("/v1/assets/{asset}/versions");
    let mut contract = valid_contract();
    let members = contract.as_object_mut().unwrap();
    members.retain(|name, _| !name.starts_with("revoked"));
    app.post(&path, content_with(&contract)).await.expect(201);
    let stored = "SELECT contract_id, revoked FROM access_contract";
    let stored = app.database().connect_as_owner().await.unwrap().query_one(stored, &[]).await.unwrap();
    assert_eq!((stored.get::<_, &str>(0), stored.get::<_, bool>(1)), ("handbook", false));
    // A version without `revoked` does not restore a revoked contract.
    let revoke = format!("/v1/assets/{asset}/access-contract/revoke?workspace_id={WORKSPACE}");
    app.post(revoke, json!({ "contract_id": "handbook", "reason": "over" })).await.expect(200);
    app.post(&path, content_with(&contract)).await.expect_refusal(400, "invalid_content");
}
