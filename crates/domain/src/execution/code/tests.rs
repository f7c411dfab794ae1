use super::*;

#[test]
fn codes_and_languages_are_read_back() {
    for failure in ScriptFailure::ALL {
        assert_eq!(ScriptFailure::of_code(failure.code()), Some(failure));
    }
    for failure in GatewayFailure::ALL {
        assert_eq!(GatewayFailure::of_code(failure.code()), Some(failure));
    }
    for language in Language::ALL {
        assert_eq!(Language::parse(language.as_str()), Some(language));
    }
    assert_eq!(Language::parse("Starlark"), None);
}

#[test]
fn what_is_ambiguous_is_unknown_and_nothing_else_is() {
    assert_eq!(GatewayFailure::Unreachable.end(), (Status::Failed, Outcome::Failure));
    assert_eq!(GatewayFailure::Lost.end(), (Status::Unknown, Outcome::Unknown));
    assert_eq!(GatewayFailure::TimedOut.end(), (Status::Unknown, Outcome::Unknown));
}

#[test]
fn no_spelling_of_a_forbidden_name_passes() {
    for name in [
        "actor",
        "Actor",
        "actor_ref",
        "actorRef",
        "ACTOR-TYPE",
        "actor_auth_mode",
        "tenant",
        "tenant_id",
        "X-Tenant-Id",
        "principal",
        "principal.id",
        "delegation",
        "delegate",
        "delegated_by",
        "on_behalf_of",
        "onBehalfOf",
        "execution_mode",
        "execution.mode.actor",
        "context.actor",
        "context/actor",
        "context[actor]",
        " actor ",
        "_actor",
    ] {
        assert!(is_forbidden(name), "{name}");
    }
    for name in ["workspace_id", "workload_slug", "code", "language", "environment", "factor", "reactor", "inputs"] {
        assert!(!is_forbidden(name), "{name}");
    }
}
