use super::*;
use crate::knowledge::KnowledgeBase;
use proptest::prelude::*;
use serde_json::json;

const WORKSPACE: u128 = 0x00a0;

fn valid_contract() -> Value {
    json!({
        "contract_id": "handbook", "version": "1.0", "default_decision": "deny",
        "allowed_principals": ["user:ada"], "allowed_groups": ["support"],
        "allowed_workspaces": [Uuid::from_u128(WORKSPACE)], "allowed_access_modes": ["retrieve"],
        "citation_required": true, "revoked": false, "revoked_at": null,
    })
}

fn actors(names: &[&str]) -> Vec<ActorRef> {
    names.iter().map(|name| ActorRef::parse(name).unwrap()).collect()
}

/// Decides on a request by a contract that is in force.
fn decide(contract: &Value, names: &[&str], workspace: u128, mode: AccessMode) -> ContractDecision {
    let principals = actors(names);
    let request =
        KnowledgeAccessRequest { principals: &principals, workspace: Uuid::from_u128(workspace).into(), mode };
    let content = json!({ "source_type": "inline", "access_contract": contract });
    KnowledgeBase::parse(&content).unwrap().decide_access(&request, ContractState::InForce)
}

fn codes(decision: &ContractDecision) -> Vec<&'static str> {
    decision.reasons.iter().map(|reason| reason.as_str()).collect()
}

#[test]
fn requires_principal_or_group_and_workspace_and_mode() {
    use AccessMode::{MemoryReplay, Retrieve};
    let (principal_allowed, workspace_allowed, mode_allowed) =
        ("principal_allowed", "workspace_allowed", "access_mode_allowed");
    for (names, workspace, requested, expected, allowed) in [
        (&["user:ada"][..], WORKSPACE, Retrieve, vec![principal_allowed, workspace_allowed, mode_allowed], true),
        (
            &["user:eve", "group:support"],
            WORKSPACE,
            Retrieve,
            vec!["group_allowed", workspace_allowed, mode_allowed],
            true,
        ),
        (
            &["user:ada", "group:support"],
            WORKSPACE,
            Retrieve,
            vec![principal_allowed, "group_allowed", workspace_allowed, mode_allowed],
            true,
        ),
        (&["user:eve"], WORKSPACE, Retrieve, vec!["principal_not_allowed", workspace_allowed, mode_allowed], false),
        (&["user:support"], WORKSPACE, Retrieve, vec!["principal_not_allowed", workspace_allowed, mode_allowed], false),
        (&[], WORKSPACE, Retrieve, vec!["principal_not_allowed", workspace_allowed, mode_allowed], false),
        (&["user:ada"], 1, Retrieve, vec![principal_allowed, "workspace_not_allowed", mode_allowed], false),
        (
            &["user:ada"],
            WORKSPACE,
            MemoryReplay,
            vec![principal_allowed, workspace_allowed, "access_mode_not_allowed"],
            false,
        ),
    ] {
        let decision = decide(&valid_contract(), names, workspace, requested);
        assert_eq!((codes(&decision), decision.is_allowed()), (expected, allowed), "{names:?}");
        assert_eq!((decision.contract_id.as_deref(), decision.version.as_deref()), (Some("handbook"), Some("1.0")));
    }
}

#[test]
fn accepts_equivalent_spellings() {
    for (field, value) in [
        ("allowed_groups", json!(["group:support"])),
        ("allowed_workspaces", json!([Uuid::from_u128(WORKSPACE).to_string().to_uppercase()])),
        ("allowed_principals", json!(["user:ada", "anonymous", "service:desk"])),
        ("revoked", json!(false)),
    ] {
        let mut contract = valid_contract();
        contract[field] = value;
        assert!(decide(&contract, &["group:support"], WORKSPACE, AccessMode::Retrieve).is_allowed(), "{field}");
    }
    let mut public_contract = valid_contract();
    public_contract["allowed_principals"] = json!(["anonymous"]);
    assert!(decide(&public_contract, &["anonymous"], WORKSPACE, AccessMode::Retrieve).is_allowed());
    assert!(!decide(&public_contract, &["share_link:1"], WORKSPACE, AccessMode::Retrieve).is_allowed());
}

#[test]
fn treats_missing_revoked_as_false() {
    for fields in [json!({}), json!({ "revoked_at": null })] {
        let mut contract = valid_contract();
        let members = contract.as_object_mut().unwrap();
        members.retain(|name, _| !name.starts_with("revoked"));
        members.extend(fields.as_object().unwrap().clone());
        assert!(decide(&contract, &["user:ada"], WORKSPACE, AccessMode::Retrieve).is_allowed(), "{contract}");
        contract["revoked_at"] = json!("2020-01-01T00:00:00Z");
        assert!(!decide(&contract, &["user:ada"], WORKSPACE, AccessMode::Retrieve).is_allowed(), "{contract}");
    }
}

#[test]
fn empty_lists_deny() {
    for field in ["allowed_principals", "allowed_groups", "allowed_workspaces", "allowed_access_modes"] {
        let mut contract = valid_contract();
        contract[field] = json!([]);
        let names: &[&str] = if field == "allowed_groups" { &["group:support"] } else { &["user:ada"] };
        let decision = decide(&contract, names, WORKSPACE, AccessMode::Retrieve);
        assert!(!decision.is_allowed(), "{field}: {decision:?}");
    }
    let mut empty_contract = valid_contract();
    empty_contract["allowed_principals"] = json!([]);
    empty_contract["allowed_groups"] = json!([]);
    assert!(!decide(&empty_contract, &["user:ada", "group:support"], WORKSPACE, AccessMode::Retrieve).is_allowed());
}

#[test]
fn revoked_or_unknown_contracts_deny() {
    let principals = actors(&["user:ada"]);
    let workspace = Uuid::from_u128(WORKSPACE).into();
    let request = KnowledgeAccessRequest { principals: &principals, workspace, mode: AccessMode::Retrieve };
    let contract = AccessContract::parse(&valid_contract()).unwrap();
    for (state, reason, allowed) in [
        (ContractState::InForce, ContractReason::PrincipalAllowed, true),
        (ContractState::Revoked, ContractReason::Revoked, false),
        (ContractState::Unknown, ContractReason::Unknown, false),
    ] {
        let decision = contract.decide(&request, state);
        assert_eq!((decision.reasons[0], decision.is_allowed()), (reason, allowed));
    }
    // Content that marks its own contract as revoked denies access, whatever the recorded state and the time of the
    // revocation are.
    for revoked_at in ["2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"] {
        let mut revoked_contract = valid_contract();
        revoked_contract["revoked"] = json!(true);
        revoked_contract["revoked_at"] = json!(revoked_at);
        let decision = decide(&revoked_contract, &["user:ada"], WORKSPACE, AccessMode::Retrieve);
        assert_eq!((decision.reasons[0], decision.is_allowed()), (ContractReason::Revoked, false));
    }
}

/// Values that at least one field of a contract refuses.
fn invalid_values() -> Vec<Value> {
    let texts = ["", " ", "allow", "Deny", "deny ", "*", "true", "user:*", "null", "2020-01-01T00:00:00Z", "now", "д"];
    let mut values = vec![json!(null), json!(true), json!(0), json!(-1.5), json!({}), json!({ "deny": true })];
    values.extend(texts.map(|text| json!(text)));
    values.extend(texts.map(|text| json!([text])));
    values.extend([
        json!([[]]),
        json!([null]),
        json!([7]),
        json!([{}]),
        json!([true]),
        json!(["user:ada", "user:ada"]),
    ]);
    values
}

/// Whether the schema accepts the value for this field. The value then leaves the contract valid.
fn is_valid(field: &str, value: &Value) -> bool {
    match field {
        "contract_id" if *value == "2020-01-01T00:00:00Z" => true,
        "contract_id" | "version" => ["allow", "Deny", "true", "null", "now"].iter().any(|text| value == text),
        "revoked_at" => value.is_null(),
        "citation_required" => value.is_boolean(),
        "allowed_groups" => ["allow", "true", "null", "now"].iter().any(|text| *value == json!([text])),
        _ => false,
    }
}

/// Requirement R16 of docs/security.md: a contract with one invalid part denies every access. The test tries hundreds
/// of such contracts.
#[test]
fn malformed_contracts_deny_every_mode() {
    let (mut contract_count, mut malformed) = (0, 0);
    let mut check_denied = |label: String, contract: &Value| {
        for mode in AccessMode::ALL {
            let decision = decide(contract, &["user:ada", "group:support"], WORKSPACE, mode);
            assert!(!decision.is_allowed(), "{label}: {decision:?}");
            malformed += usize::from(decision.reasons == [ContractReason::Malformed]);
        }
        contract_count += 1;
    };
    let fields: Vec<String> = valid_contract().as_object().unwrap().keys().cloned().collect();
    for field in &fields {
        for value in invalid_values() {
            if is_valid(field, &value) || (field == "revoked" && value.is_null()) {
                continue;
            }
            let mut contract = valid_contract();
            contract[field.as_str()] = value.clone();
            check_denied(format!("{field} = {value}"), &contract);
        }
        let mut duplicated = valid_contract();
        if let Some(items) = duplicated[field.as_str()].as_array().cloned() {
            duplicated[field.as_str()] = [items.clone(), items].concat().into();
            check_denied(format!("{field} twice"), &duplicated);
        }
    }
    for field in ["contract_id", "version", "default_decision", "allowed_workspaces", "allowed_access_modes"] {
        let mut contract = valid_contract();
        contract.as_object_mut().unwrap().remove(field);
        check_denied(format!("no {field}"), &contract);
    }
    for unknown_field in ["allow", "default", "allowed_roles", "expires_at", "__proto__", "Revoked", "revoked ", ""] {
        let mut contract = valid_contract();
        contract[unknown_field] = json!("deny");
        check_denied(format!("unknown {unknown_field:?}"), &contract);
    }
    for document in [json!(null), json!(true), json!("deny"), json!([]), json!([valid_contract()]), json!({})] {
        check_denied(format!("{document}"), &document);
    }
    assert!(contract_count >= 200, "{contract_count}");
    assert!(malformed >= 3 * 200, "{malformed}");
}

/// Generates arbitrary JSON values.
fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        Just(json!("user:ada")),
        Just(json!("deny")),
        Just(json!("retrieve")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(Value::from))
}

proptest! {
    /// Replaces one field by an arbitrary value. The contract then allows only the principals, workspaces and modes
    /// that it lists.
    #[test]
    fn allows_only_listed_principals_workspaces_and_modes(field in 0..FIELDS.len(), value in arbitrary_json(), name in "(user:ada|user:eve|group:support)") {
        let mut contract = valid_contract();
        contract[FIELDS[field]] = value;
        for mode in AccessMode::ALL {
            if decide(&contract, &[&name], WORKSPACE, mode).is_allowed() {
                let lists = |field: &str, text: &str| {
                    contract[field].as_array().unwrap().iter().any(|item| item == text)
                };
                prop_assert!(
                    lists("allowed_principals", &name)
                        || lists("allowed_groups", name.trim_start_matches("group:"))
                        || lists("allowed_groups", &name)
                );
                prop_assert!(lists("allowed_workspaces", &Uuid::from_u128(WORKSPACE).to_string()));
                prop_assert!(lists("allowed_access_modes", mode.as_str()));
                prop_assert_eq!(&contract["default_decision"], "deny");
                prop_assert!(contract["revoked"] == false && contract["revoked_at"].is_null());
            }
        }
    }
}
