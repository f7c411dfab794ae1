use super::{condition::ConditionRefusal, *};
use crate::asset::content::ContentProblem;
use proptest::prelude::*;
use serde_json::json;
use time::OffsetDateTime;

fn timestamp(text: &str) -> Timestamp {
    serde_json::from_value(json!(text)).unwrap()
}

fn rule(id: &str, condition: &str, outcome: &str) -> Value {
    json!({"id": id, "condition": condition, "outcome": outcome, "reason_code": format!("because_{id}")})
}

fn obligation_rule(id: &str, condition: &str, obligations: &[&str]) -> Value {
    let mut rule = rule(id, condition, "allow_with_obligations");
    rule["obligations"] = json!(obligations);
    rule
}

fn compile(rules: Value) -> Result<CompiledPolicy, Vec<ContentProblem>> {
    CompiledPolicy::compile(&json!({"rules": rules}))
}

fn decide(rules: Value, inputs: Value) -> PolicyDecision {
    let Value::Object(inputs) = inputs else { panic!("inputs are an object") };
    let groups = ["staff".to_owned(), "eu".to_owned()];
    compile(rules).unwrap().decide(&PolicyInput {
        actor: PolicyActor { reference: "user:ada", kind: "user", groups: &groups, roles: &[] },
        workload: PolicyWorkload { slug: "desk", owner_ref: "team:x", workload_id: "w" },
        release: PolicyRelease { release_id: "r", state: "active", environment: "production" },
        inputs: &inputs,
        environment: "production",
        lane: "standard",
        now: timestamp("2026-03-01T12:30:00Z"),
    })
}

fn holds(condition: &str, inputs: Value) -> &'static str {
    let decision = decide(json!([rule("r", condition, "allow")]), inputs);
    match decision.reason_code.as_str() {
        "because_r" => "yes",
        NO_MATCHING_RULE => "no",
        _ => "error",
    }
}

fn refusal(condition: &str) -> &'static str {
    compile(json!([rule("r", condition, "allow")])).map_or_else(|problems| problems[0].code, |_| "accepted")
}

#[test]
fn deny_wins_then_errors_then_obligations_then_allow() {
    let allow = rule("allow", "always", "allow");
    let deny = rule("deny", "actor.ref == 'user:ada'", "deny");
    let failing = rule("broken", "inputs.absent == 1", "allow");
    let first = obligation_rule("first", "lane == 'standard'", &["redact_output", "notify_owner"]);
    let second = obligation_rule("second", "always", &["notify_owner", "human_review"]);

    let cases = [
        (json!([allow, first, failing, deny]), "deny", "because_deny", 3),
        (json!([allow, first, failing]), "deny", EVALUATION_ERROR, 2),
        (json!([allow, first, second]), "allow_with_obligations", "because_first", 3),
        (json!([rule("no", "never", "deny"), allow]), "allow", "because_allow", 1),
        (json!([rule("no", "never", "allow")]), "deny", NO_MATCHING_RULE, 0),
    ];
    for (rules, outcome, reason, matched) in cases {
        let decision = decide(rules, json!({}));
        assert_eq!((decision.outcome.as_str(), decision.reason_code.as_str()), (outcome, reason));
        assert_eq!(decision.matched_rules.len(), matched);
    }
    let combined = decide(json!([allow, first, second]), json!({}));
    let expected = [Obligation::RedactOutput, Obligation::NotifyOwner, Obligation::HumanReview];
    assert_eq!(combined.obligations, expected);
    assert!(decide(json!([first, deny]), json!({})).obligations.is_empty());
}

#[test]
fn combines_decisions_to_the_strictest() {
    let decision = |outcome, reason: &str, obligations: &[Obligation]| PolicyDecision {
        outcome,
        reason_code: reason.to_owned(),
        obligations: obligations.to_vec(),
        matched_rules: vec![reason.to_owned()],
        failed_rules: Vec::new(),
    };
    let allow = decision(DecisionOutcome::Allow, "a", &[]);
    let review = decision(DecisionOutcome::AllowWithObligations, "b", &[Obligation::HumanReview]);
    let redact = decision(DecisionOutcome::AllowWithObligations, "c", &[Obligation::RedactOutput]);
    let deny = decision(DecisionOutcome::Deny, "d", &[]);

    assert_eq!(stricter_decision(allow.clone(), deny.clone()).reason_code, "d");
    assert_eq!(stricter_decision(deny, review.clone()).obligations, []);
    assert_eq!(stricter_decision(allow, review.clone()).obligations, [Obligation::HumanReview]);
    let combined = stricter_decision(review, redact);
    assert_eq!(combined.reason_code, "b");
    assert_eq!(combined.obligations, [Obligation::HumanReview, Obligation::RedactOutput]);
    assert_eq!(combined.matched_rules, ["b", "c"]);
}

#[test]
fn evaluates_conditions_over_variables() {
    let inputs =
        json!({"amount": 12, "price": 2.5, "tags": ["a", "b"], "who": {"age": 40}, "text": "héllo", "n": null});
    for condition in [
        "actor.ref == 'user:ada' && actor.type == 'user' && 'staff' in actor.groups && size(actor.roles) == 0",
        "actor['ref'].startsWith('user:')",
        "workload.slug == 'desk' && workload.owner_ref == 'team:x' && workload.workload_id == 'w'",
        "release.release_id == 'r' && release.state == 'active' && release.environment == environment",
        "lane == 'standard' && environment == \"production\"",
        "now > timestamp('2026-01-01T00:00:00Z') && now.getHours() == 12 && now.getFullYear() == 2026",
        "now - timestamp('2026-03-01T12:00:00Z') == duration('30m')",
        "inputs.amount + 1 == 13 && inputs.price * 2.0 == 5.0 && inputs.who.age >= 18",
        "inputs.tags.exists(tag, tag == 'b') && inputs.tags.all(tag, size(tag) == 1)",
        "inputs.tags.filter(tag, tag != 'a') == ['b'] && inputs.tags.map(tag, tag + '!')[1] == 'b!'",
        "has(inputs.who) && !has(inputs.absent) && inputs.n == null",
        "inputs.text.contains('llo') && size(inputs.text) == 5",
        "['eu', 'us'].exists(region, actor.groups.exists(group, group == region))",
        "(inputs.amount > 10 ? 'big' : 'small') == 'big' && {'a': 1}.a == 1",
        "string(inputs.amount) == '12' && int('3') % 2 == 1 && -1 < 0",
        "inputs.absent == 1 || lane == 'standard'",
        "inputs.text.matches('^h.llo$') && !inputs.text.matches('^x') && 'aaab'.matches('(a+)+b')",
        "inputs.tags.all(tag, tag.matches('^[a-z]$'))",
    ] {
        assert_eq!(holds(condition, inputs.clone()), "yes", "{condition}");
    }
    for condition in ["inputs.absent == 1", "inputs.amount", "1 / 0 == 1", "inputs.tags[7] == 'a'", "inputs.text < 3"] {
        assert_eq!(holds(condition, inputs.clone()), "error", "{condition}");
    }
}

#[test]
fn refuses_unknown_names_with_position() {
    for (condition, code) in [
        ("user == 'x'", "policy_unknown_variable"),
        ("Actor.ref == 'x'", "policy_unknown_variable"),
        (".actor.ref == 'x'", "policy_unknown_variable"),
        ("actor.name == 'x'", "policy_unknown_field"),
        ("has(actor.name)", "policy_unknown_field"),
        ("actor['name'] == 'x'", "policy_unknown_field"),
        ("actor[inputs.field] == 'x'", "policy_unknown_field"),
        ("actor.ref.length == 1", "policy_unknown_field"),
        ("environment.name == 'x'", "policy_unknown_field"),
        ("size(actor) == 4", "policy_unknown_field"),
        ("actor == workload", "policy_unknown_field"),
        ("workload.status == 'x'", "policy_unknown_field"),
        ("release.lane == 'x'", "policy_unknown_field"),
        ("inputs.a.all(x, y == 1)", "policy_unknown_variable"),
        ("inputs.a.all(actor, actor.x == 1)", "policy_unsupported"),
        ("inputs.a.exists(x, x == 1) && x == 1", "policy_unknown_variable"),
        ("fetch('http://x')", "policy_unknown_function"),
        ("matches(inputs.a, 'x')", "policy_unknown_function"),
        ("inputs.a.matches(inputs.b)", "policy_pattern"),
        ("inputs.a.matches('a' + 'b')", "policy_pattern"),
        ("inputs.a.matches('(')", "policy_pattern"),
        ("inputs.a.matches('(?=a)b')", "policy_pattern"),
        ("inputs.a.matches('(a)\\\\1')", "policy_pattern"),
        ("inputs.a.matches('a{1000}{1000}')", "policy_pattern"),
        ("optional.of(1).hasValue()", "policy_unknown_function"),
        ("inputs.?a == 1", "policy_syntax"),
        ("google.protobuf.Duration{seconds: 1} == 1", "policy_unsupported"),
        ("", "policy_syntax"),
        ("1 ==", "policy_syntax"),
        ("lane == 'x' lane", "policy_syntax"),
        ("'open", "policy_syntax"),
    ] {
        assert_eq!(refusal(condition), code, "{condition}");
    }
    let problems = compile(json!([rule("r", "lane == 'x'\n  && actor.name == 'y'", "allow")])).unwrap_err();
    assert_eq!(problems[0].pointer, "/rules/0/condition");
    assert_eq!(
        problems[0].message,
        "unknown field `name` at line 2, column 12; the fields are ref, type, groups, roles"
    );
}

#[test]
fn enforces_every_condition_bound() {
    let long = format!("lane == '{}'", "x".repeat(condition::MAX_SOURCE_BYTES));
    assert_eq!(refusal(&long), ConditionRefusal::SourceTooLong.code());

    let sum = |count: usize| format!("{} == 3", vec!["1"; count].join(" + "));
    assert_eq!(refusal(&sum(30)), "accepted");
    assert_eq!(refusal(&sum(33)), ConditionRefusal::TooDeep.code());
    assert_eq!(refusal(&format!("{}1{} == 1", "[".repeat(40), "]".repeat(40))), ConditionRefusal::TooDeep.code());
    assert_eq!(refusal(&format!("{}true", "true ? true : ".repeat(290))), ConditionRefusal::TooDeep.code());
    assert_eq!(refusal(&format!("inputs{}", ".a".repeat(600))), ConditionRefusal::TooDeep.code());

    let wide = |count: usize| format!("lane in [{}]", vec!["''"; count].join(","));
    assert_eq!(refusal(&wide(490)), "accepted");
    assert_eq!(refusal(&wide(500)), ConditionRefusal::TooManyNodes.code());
    assert_eq!(refusal(&wide(1_200)), ConditionRefusal::TooManyNodes.code());

    assert_eq!(refusal("inputs.a.exists(x, inputs.b.exists(y, y == 1))"), "accepted");
    let three_levels = "inputs.a.exists(x, x.exists(y, y.exists(z, z == 1)))";
    assert_eq!(refusal(three_levels), ConditionRefusal::NestedMacros.code());

    let product = "inputs.a.map(x, inputs.b.map(y, inputs)) == inputs.c";
    assert_eq!(refusal(product), ConditionRefusal::TooCostly.code());
}

#[test]
fn limits_patterns_to_linear_time_and_count() {
    let long = format!("inputs.a.matches('{}')", "a".repeat(pattern::MAX_PATTERN + 1));
    assert_eq!(refusal(&long), "policy_pattern");
    let rules = |count: usize| -> Vec<Value> {
        (0..count).map(|id| rule(&id.to_string(), &format!("inputs.a.matches('a{id}')"), "allow")).collect()
    };
    assert!(compile(json!(rules(pattern::MAX_PATTERNS))).is_ok());
    assert_eq!(compile(json!(rules(pattern::MAX_PATTERNS + 1))).unwrap_err()[0].code, "policy_pattern");
    let same_pattern = vec![rule("r", "inputs.a.matches('a+')", "allow"), rule("s", "inputs.a.matches('a+')", "allow")];
    assert!(compile(json!(same_pattern)).is_ok());
    // A backtracking regex engine would not finish this search in reasonable time.
    let hostile = json!({"text": format!("{}!", "a".repeat(20_000))});
    assert_eq!(holds("inputs.text.matches('^(a+)+$')", hostile), "no");
    assert_eq!(holds("inputs.text.matches('a')", json!({"text": 1})), "error");
    assert_eq!(holds("inputs.text.matches('a')", json!({"text": "x".repeat(3 << 20)})), "error");
}

#[test]
fn slow_pattern_exhausts_steps_of_decision() {
    // The pattern visits 802 states for each byte, so 20,000 bytes exceed the steps of a decision.
    let slow = "inputs.text.matches('1[01]{0,400}[2-9a-z]')";
    assert_eq!(holds(slow, json!({"text": "01".repeat(500)})), "no");
    assert_eq!(holds(slow, json!({"text": "01".repeat(10_000)})), "error");
    let many_texts = "inputs.texts.exists(text, text.matches('1[01]{0,400}[2-9a-z]'))";
    assert_eq!(holds(many_texts, json!({"texts": vec!["01".repeat(50); 10]})), "no");
    assert_eq!(holds(many_texts, json!({"texts": vec!["01".repeat(50); 200]})), "error");
    // A failed rule denies the run even if an allow rule matches.
    let rules = json!([rule("slow", slow, "deny"), rule("all", "always", "allow")]);
    let decision = decide(rules.clone(), json!({"text": "01".repeat(10_000)}));
    assert_eq!((decision.outcome, decision.reason_code.as_str()), (DecisionOutcome::Deny, EVALUATION_ERROR));
    // Patterns with low weight can search long texts within the steps.
    for light in ["^[01]{0,100}$", "2$", "[2-9]+@"] {
        assert_eq!(holds(&format!("inputs.text.matches('{light}')"), json!({"text": "01".repeat(500_000)})), "no");
    }

    // The embedded tests of a bundle have the same limit and reach the same decision.
    let test =
        json!({"name": "long", "input": {"inputs": {"text": "01".repeat(10_000)}}, "expect": {"outcome": "deny"}});
    let offline = Scenario::parse(&test).unwrap().decide(&compile(rules).unwrap());
    assert_eq!(offline, decision);
}

#[test]
fn denies_when_steps_are_exhausted() {
    let condition = "inputs.list.all(x, inputs.list.exists(y, x == y))";
    let list = |count: usize| json!({"list": (0..count).collect::<Vec<_>>()});
    assert_eq!(holds(condition, list(20)), "yes");
    assert_eq!(holds(condition, list(5_000)), "error");
    assert_eq!(holds("inputs.text + inputs.text != ''", json!({"text": "x".repeat(1 << 20)})), "yes");
    let rules: Vec<Value> = (0..200).map(|id| rule(&id.to_string(), "inputs.text + 'x' == ''", "allow")).collect();
    let decision = decide(json!(rules), json!({"text": "x".repeat(1 << 20)}));
    assert_eq!(decision.reason_code, EVALUATION_ERROR);
}

#[test]
fn reports_all_bundle_problems_at_once() {
    let problems = compile(json!([
        rule("a", "always", "allow"),
        rule("a", "nothing", "deny"),
        obligation_rule("b", "always", &[]),
        obligation_rule("c", "always", &["shred", "human_review", "human_review"]),
        {"id": "d", "condition": "always", "outcome": "deny", "reason_code": "x", "obligations": ["human_review"]},
    ]))
    .unwrap_err();
    let reported: Vec<_> = problems.iter().map(|problem| (problem.pointer.as_str(), problem.code)).collect();
    assert_eq!(
        reported,
        [
            ("/rules/1/id", "duplicate_rule_id"),
            ("/rules/1/condition", "policy_unknown_variable"),
            ("/rules/2/obligations", "obligations_missing"),
            ("/rules/3/obligations/0", "unknown_obligation"),
            ("/rules/3/obligations/2", "duplicate_obligation"),
            ("/rules/4/obligations", "obligations_not_allowed"),
        ]
    );
    assert_eq!(CompiledPolicy::compile(&json!({"rules": 1})).unwrap_err()[0].code, "invalid_content");
    assert_eq!(compile(json!(vec![rule("a", "always", "allow"); 201])).unwrap_err()[0].code, "out_of_bounds");
}

/// Compiles the content of a new bundle, and runs its tests.
fn compile_and_test(content: &Value) -> Result<(), Vec<ContentProblem>> {
    CompiledPolicy::compile(content)?.run_tests(content)
}

#[test]
fn runs_embedded_bundle_tests() {
    let bundle = |outcome: &str, reason: &str| {
        json!({
            "rules": [rule("eu", "'eu' in actor.groups && now == timestamp('1970-01-01T00:00:00Z')", "allow")],
            "tests": [
                {"name": "nobody", "expect": {"outcome": "deny"}},
                {"name": "europe", "input": {"actor": {"groups": ["eu"]}}, "expect": {"outcome": outcome, "reason_code": reason}},
            ],
        })
    };
    assert!(compile_and_test(&bundle("allow", "because_eu")).is_ok());
    for (outcome, reason) in [("deny", "because_eu"), ("allow", "other")] {
        let problems = compile_and_test(&bundle(outcome, reason)).unwrap_err();
        assert_eq!((problems[0].pointer.as_str(), problems[0].code), ("/tests/1", "policy_test_failed"));
        assert!(problems[0].message.contains("`europe`"));
    }
}

#[test]
fn failed_bundle_tests_name_rules_that_cannot_be_evaluated() {
    let content = json!({
        "rules": [rule("vip", "inputs.custmer == 'x'", "allow"), rule("big", "inputs.n > 5", "allow")],
        "tests": [{"name": "t", "input": {"inputs": {"n": "many"}}, "expect": {"outcome": "allow"}}],
    });
    let message = compile_and_test(&content).unwrap_err().remove(0).message;
    let expected = "reason `policy_evaluation_error`: rule `vip` cannot be evaluated, because the input has no \
                    `custmer`; rule `big` cannot be evaluated with this input";
    assert!(message.ends_with(expected), "{message}");
}

#[test]
fn limits_total_steps_of_bundle_tests() {
    let numbers: Vec<usize> = (0..50).collect();
    let test = |index: usize| json!({"name": format!("t{index}"), "input": {"inputs": {"list": numbers}}, "expect": {"outcome": "deny"}});
    let bundle = |count: usize| {
        let rules = [rule("r", "inputs.list.exists(x, inputs.list.exists(y, x == y + 1000))", "allow")];
        json!({"rules": rules, "tests": (0..count).map(test).collect::<Vec<_>>()})
    };
    assert!(compile_and_test(&bundle(1)).is_ok());
    let problems = compile_and_test(&bundle(100)).unwrap_err();
    assert_eq!((problems.len(), problems[0].code), (1, "policy_tests_too_costly"));
}

#[test]
fn counts_pattern_memory() {
    let pattern_bytes = |rules: Value| compile(rules).unwrap().compiled_pattern_bytes();
    let one_pattern =
        pattern_bytes(json!([rule("r", "lane.matches('^a+$')", "allow"), rule("s", "lane.matches('^a+$')", "allow")]));
    assert!(one_pattern > 64 << 10, "{one_pattern}");
    assert_eq!(
        pattern_bytes(json!([rule("r", "lane.matches('^a+$') || lane.matches('^b+$')", "allow")])),
        2 * one_pattern
    );
    assert_eq!(pattern_bytes(json!([rule("r", "lane == 'x'", "allow")])), 0);
}

#[test]
fn compiled_policy_is_send_and_sync() {
    fn assert_send_and_sync<T: Send + Sync>(_: &T) {}
    assert_send_and_sync(&compile(json!([rule("r", "lane == 'x'", "allow")])).unwrap());
    assert_eq!(Timestamp::new(OffsetDateTime::UNIX_EPOCH).micros(), 0);
}

proptest! {
    #[test]
    fn compiles_or_refuses_any_condition(
        source in "(actor|inputs|\\.|[a-z]{1,3}|\\(|\\)|\\[|\\]|\\{|\\}|\\?|:|==|&&|!|-|'|\"|[0-9]|exists|,| |\\\\|\\PC){0,40}",
    ) {
        let rules = json!([rule("r", &source, "allow")]);
        if compile(rules.clone()).is_ok() {
            let _ = decide(rules, json!({"a": [1, "b", {"c": null}]}));
        }
    }
}

#[test]
fn decision_names_failed_rules_and_absent_fields() {
    let rule = |id: &str, condition: &str, outcome: &str| json!({ "id": id, "condition": condition, "outcome": outcome, "reason_code": id });
    let failed =
        |rule: &str, field: Option<&str>| FailedRule { rule: rule.to_owned(), missing_field: field.map(str::to_owned) };
    let rules = json!([
        rule("absent", "inputs.ticket == 'x'", "allow"),
        rule("typed", "inputs.text < 3", "allow"),
        rule("dynamic", "inputs.map[inputs.key] == 1", "allow"),
        rule("guarded", "has(inputs.ticket) && inputs.ticket == 'x'", "allow"),
    ]);
    let inputs = json!({ "text": "t", "map": {}, "key": "secret of the caller" });
    let decision = decide(rules.clone(), inputs.clone());
    assert_eq!((decision.outcome, decision.reason_code.as_str()), (DecisionOutcome::Deny, EVALUATION_ERROR));
    let expected = [failed("absent", Some("ticket")), failed("typed", None), failed("dynamic", None)];
    assert_eq!(decision.failed_rules, expected, "values of the caller are no names");
    // The decision of a matching deny rule reports no failed rules.
    let mut with_denial = rules.as_array().unwrap().clone();
    with_denial.push(rule("no", "true", "deny"));
    assert!(decide(Value::Array(with_denial), inputs).failed_rules.is_empty());
    let failing_rules: Vec<Value> =
        (0..50).map(|number| rule(&format!("r{number}"), "inputs.x == 1", "allow")).collect();
    assert_eq!(decide(Value::Array(failing_rules), json!({})).failed_rules.len(), MAX_FAILED_RULES);
}

#[test]
fn refusals_name_the_unknown_and_the_existing_names() {
    for (condition, expected) in [
        (
            "user.ref == 'x'",
            "unknown variable `user` at line 1, column 1; the variables are actor, workload, release, inputs, \
             environment, lane and now",
        ),
        ("actor.name == 'x'", "unknown field `name` at line 1, column 7; the fields are ref, type, groups, roles"),
        ("environment.name == 'x'", "unknown field `name` at line 1, column 13: this value has no fields"),
        (
            "(lane == 'a' || lane == 'b'",
            "the condition is not valid CEL at line 1, column 28: the `(` at line 1, column 1 has no `)`",
        ),
        ("lane == 'a')", "the condition is not valid CEL at line 1, column 12: a `)` has no `(`"),
        ("lane = 'a'", "the condition is not valid CEL at line 1, column 6: a comparison is written `==`"),
        ("size(lane = 'a')", "the condition is not valid CEL at line 1, column 11: a comparison is written `==`"),
        (
            "lane == 'a' and lane == 'b'",
            "the condition is not valid CEL at line 1, column 13: an operator such as `&&` or `==` is expected here",
        ),
        ("lane == 'a' & true", "the condition is not valid CEL at line 1, column 13: the operator is written `&&`"),
        ("lane == 'a", "the condition is not valid CEL at line 1, column 9: a text has no closing quote"),
        ("lane ==", "the condition is not valid CEL at line 1, column 8: an expression is expected here"),
    ] {
        let bundle =
            json!({ "rules": [{ "id": "r", "condition": condition, "outcome": "allow", "reason_code": "x" }] });
        let problems = CompiledPolicy::compile(&bundle).unwrap_err();
        assert_eq!(problems[0].message, expected, "{condition}");
    }
    let bundle = |condition: String| json!({ "rules": [{ "id": "r", "condition": condition, "outcome": "allow", "reason_code": "x" }] });
    let unknown = CompiledPolicy::compile(&bundle("fetch('x')".to_owned())).unwrap_err().remove(0).message;
    assert!(unknown.starts_with("unknown function `fetch`") && unknown.contains("startsWith"), "{unknown}");
    let long = CompiledPolicy::compile(&bundle("x".repeat(3000) + " == 1")).unwrap_err().remove(0).message;
    assert!(long.len() < 300, "a name is shortened: {long}");
}
