use super::*;

#[test]
fn failure_codes_and_languages_round_trip() {
    for failure in ScriptFailure::ALL {
        assert_eq!(ScriptFailure::from_code(failure.code()), Some(failure));
    }
    for failure in GatewayFailure::ALL {
        assert_eq!(GatewayFailure::from_code(failure.code()), Some(failure));
    }
    for language in Language::ALL {
        assert_eq!(Language::parse(language.as_str()), Some(language));
    }
    assert_eq!(Language::parse("Starlark"), None);
}

#[test]
fn lost_and_timed_out_scripts_have_unknown_outcome() {
    assert_eq!(GatewayFailure::Unreachable.status_and_outcome(), (Status::Failed, ExecutionOutcome::Failure));
    assert_eq!(GatewayFailure::Lost.status_and_outcome(), (Status::Unknown, ExecutionOutcome::Unknown));
    assert_eq!(GatewayFailure::TimedOut.status_and_outcome(), (Status::Unknown, ExecutionOutcome::Unknown));
}

#[test]
fn detects_forbidden_names_in_any_spelling() {
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
        "Execution.Mode",
        "EXECUTION-MODE",
        "executionMode",
        "my-actor-ref",
        "myActorRef",
        "XActor",
        "xactor",
        "2actor",
        "aCtOr",
        "a.c.t.o.r",
        "run_as",
        "runAs",
        "RUNAS",
        "as",
        "user",
        "user_id",
        "username",
        "current-user",
        "sub",
        "token.sub",
        "act",
        "org",
        "organisation_id",
        "context.actor_ref",
        "mytenantid",
        "\u{ff41}\u{ff43}\u{ff54}\u{ff4f}\u{ff52}",
        "\u{ff35}\u{ff33}\u{ff25}\u{ff32}",
        "\u{24d0}ctor",
        "ac\u{200b}tor",
        "act\u{ad}or",
        "\u{e1}ctor",
        "actor\u{ff0e}ref",
        "\u{430}\u{441}tor",
        "u\u{17f}er",
    ] {
        assert!(is_forbidden_request_field(name), "{name}");
    }
    for name in [
        "workspace_id",
        "workload_slug",
        "code",
        "language",
        "environment",
        "factor",
        "reactor",
        "inputs",
        "subscription",
        "model",
        "has",
        "exact",
        "task",
        "reuse",
        "lane",
        "",
    ] {
        assert!(!is_forbidden_request_field(name), "{name}");
    }
}

/// Names are untrusted and can be as long as a request body, so long names are refused without comparison.
#[test]
fn forbids_names_over_256_bytes() {
    assert!(!is_forbidden_request_field(&"a".repeat(256)));
    assert!(is_forbidden_request_field(&"a".repeat(257)));
}
