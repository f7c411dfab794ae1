use super::*;
use crate::policy::Obligation;

fn hook(fields: Value) -> Hook {
    let mut content = json!({ "event": "pre_llm", "handler": { "type": "http", "ref": "https://hooks.example.com" } });
    content.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Hook::parse("hook", &content, None).unwrap()
}

#[test]
fn rejects_malformed_responses() {
    let parse = |body: Value| HookResponse::parse(body);
    let allowed = parse(json!({ "decision": "allow", "reason_code": "fine.1", "and": "more" })).unwrap();
    assert_eq!((allowed.decision, allowed.reason_code.as_deref()), (Decision::Allow, Some("fine.1")));
    assert_eq!(parse(json!({ "decision": "modify", "modified": [] })).unwrap().modified, Some(json!([])));
    for malformed in [
        json!(null),
        json!("allow"),
        json!({}),
        json!({ "decision": "ALLOW" }),
        json!({ "decision": "modify" }),
        json!({ "decision": "modify", "modified": null }),
        json!({ "decision": "deny", "modified": 1 }),
        json!({ "decision": "deny", "reason_code": "" }),
        json!({ "decision": "deny", "reason_code": "two words" }),
        json!({ "decision": "deny", "reason_code": "x".repeat(129) }),
    ] {
        assert_eq!(parse(malformed.clone()), Err(HookError::Malformed), "{malformed}");
    }
}

#[test]
fn selects_hooks_by_order_and_full_name_match() {
    let hooks = Hooks::in_execution_order(vec![
        hook(json!({ "order": 5, "matcher": "ask|find_.*" })),
        hook(json!({ "order": 5 })),
        hook(json!({ "order": 1, "matcher": "*" })),
        hook(json!({ "order": 0, "event": "post_llm" })),
    ]);
    let indexes = |subject: &str| {
        let (mut indexes, mut start) = (Vec::new(), 0);
        while let Some((index, _)) = hooks.next_matching(Event::PreLlm, subject, start) {
            indexes.push(index);
            start = index + 1;
        }
        indexes
    };
    assert_eq!(indexes("ask"), [1, 2, 3]);
    assert_eq!(indexes("find_all"), [1, 2, 3]);
    assert_eq!(indexes("asking"), [1, 3]);
}

#[test]
fn default_decisions_are_allow_and_deny() {
    let default_hook = hook(json!({}));
    assert_eq!(default_hook.allowed_decisions, [Decision::Allow, Decision::Deny]);
    assert_eq!(
        (default_hook.mode, default_hook.on_error, default_hook.timeout),
        (EnforcementMode::Enforce, OnError::FailClosed, Duration::from_secs(5))
    );
}

#[test]
fn buffers_responses_for_later_hooks() {
    for (fields, expected) in [
        (json!({}), false),
        (json!({ "may": ["ask"] }), true),
        (json!({ "event": "post_llm" }), true),
        (json!({ "event": "post_execute" }), true),
        (json!({ "event": "post_execute", "mode": "observe" }), false),
        (json!({ "event": "on_error" }), false),
    ] {
        assert_eq!(hook(fields.clone()).requires_buffering(), expected, "{fields}");
    }
}

#[test]
fn reports_unsupported_parts() {
    let pointers = |content: Value| unsupported_parts(&content).unwrap();
    for kind in ["mcp_tool", "prompt", "code"] {
        let handler = json!({ "type": kind, "ref": { "slug": "x" } });
        assert_eq!(
            pointers(json!({ "event": "pre_llm", "handler": handler, "mode": "observe" })),
            ["/handler/type"],
            "{kind}"
        );
    }
    let policy = json!({ "type": "policy", "ref": { "slug": "x" } });
    assert!(pointers(json!({ "event": "pre_llm", "handler": policy })).is_empty());
    // Versions stored by an earlier server may contain unsupported parts.
    let content = json!({ "event": "pre_llm", "handler": policy, "matcher": "(a)\\1", "if": "amount > 1" });
    assert_eq!(pointers(content.clone()), ["/matcher", "/if"]);
    let parsed_hook = Hook::parse("hook", &content, None).unwrap();
    assert!(parsed_hook.matches("anything"), "an unreadable matcher matches every subject");
    assert_eq!(
        parsed_hook.evaluate_condition(|_| panic!("an unreadable condition is not evaluated")),
        HookConditionResult::Unknown
    );
    assert!(matches!(parsed_hook.handler, HookHandler::Unavailable));
}

#[test]
fn converts_policy_decisions_to_responses() {
    let decision = |outcome| PolicyDecision {
        outcome,
        reason_code: "why".to_owned(),
        obligations: vec![Obligation::NotifyOwner],
        matched_rules: Vec::new(),
        failed_rules: Vec::new(),
    };
    use crate::policy::{DecisionOutcome, PolicyDecision};
    let response = HookResponse::from_policy(decision(DecisionOutcome::AllowWithObligations));
    assert_eq!((response.decision, response.obligations), (Decision::Allow, vec![Obligation::NotifyOwner]));
    assert_eq!(HookResponse::from_policy(decision(DecisionOutcome::Deny)).decision, Decision::Deny);
}
