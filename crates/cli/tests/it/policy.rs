//! `policy test`: tests the bundles and scenarios of a directory offline.

use crate::{Terminal, make_directory, path_text, root};
use fairway_domain::policy::{DecisionOutcome, Obligation};
use serde_json::Value;
use std::fmt::Write as _;

const BUNDLE: &str = "kind: policy_bundle\nslug: b\nowner_ref: team:x\ncontent:\n  rules:\n    - {id: dev, condition: 'environment == \"dev\"', outcome: allow, reason_code: dev}\n    - {id: again, condition: 'environment == \"dev\"', outcome: allow, reason_code: again}\n    - {id: none, condition: never, outcome: deny, reason_code: none}\n    - {id: big, condition: 'inputs.n > 5', outcome: deny, reason_code: big}\n  tests:\n    - {name: in dev, input: {environment: dev, inputs: {n: 5.0}}, expect: {outcome: allow, reason_code: dev}}\n";

#[test]
fn examples_pass_with_full_rule_coverage() {
    let terminal = Terminal::offline();
    let printed = terminal.run_ok(&["policy", "test", "examples/policy", "--require-coverage"]);
    assert_eq!(printed, "1 bundles, 4 tests, 0 failed; 3 of 3 rules matched\n");
    let printed = terminal.run_ok(&["policy", "test", "demo", "--require-coverage"]);
    assert_eq!(printed, "1 bundles, 5 tests, 0 failed; 3 of 3 rules matched\n");
}

#[test]
fn reports_failures_and_unreachable_rules_with_position() {
    let scenarios = "bundle: b\nscenarios:\n  - name: big is refused\n    input: {environment: dev, inputs: {n: 6}}\n    expect: {outcome: allow, obligations: []}\n  - name: right\n    input: {environment: prod, inputs: {n: 1}}\n    expect: {outcome: deny, reason_code: no_matching_rule, matched_rules: []}\n";
    let files =
        make_directory(&[("b.yaml", BUNDLE), ("deep/er/scenarios.yaml", scenarios), ("notes.md", "passed over")]);
    let report = files.path().join("report.xml");
    let terminal = Terminal::offline();
    let output = terminal.run(&["policy", "test", path_text(files.path()), "--junit", path_text(&report)]);
    assert_eq!(output.code, 1);
    assert!(
        output.out.contains("scenarios.yaml:3: b: big is refused: outcome: expected allow, decided deny"),
        "{}",
        output.out
    );
    assert!(
        output.err.contains("`again` never decides: `dev` matches") && output.err.contains("`none` can never match"),
        "{}",
        output.err
    );
    let xml = std::fs::read_to_string(&report).unwrap();
    assert!(xml.contains("tests=\"3\"") && xml.contains("failures=\"1\"") && xml.contains("big is refused"), "{xml}");
    let output = terminal.run(&["policy", "test", path_text(files.path()), "--output", "json"]);
    let printed: Value = serde_json::from_str(&output.out).unwrap();
    let rules = &printed["bundles"][0]["rules"];
    assert_eq!((&rules[0]["met"], &rules[1]["idle"]["shadowed_by"]), (&2.into(), &"dev".into()), "{printed}");
    assert_eq!(rules[2]["idle"], "unreachable");
}

#[test]
fn failed_tests_name_rules_that_cannot_be_evaluated() {
    let scenarios = "bundle: b\nscenarios: [{name: no n, input: {environment: dev}, expect: {outcome: allow}}]\n";
    let files = make_directory(&[("b.yaml", BUNDLE), ("scenarios.yaml", scenarios)]);
    let output = Terminal::offline().run(&["policy", "test", path_text(files.path())]);
    let reason = "decided deny; rule `big` cannot be evaluated, because the input has no `n`";
    assert!(output.code == 1 && output.out.contains(reason), "{}", output.out);
}

#[test]
fn require_coverage_fails_for_unmatched_rules() {
    let text = "rules:\n  - {id: a, condition: always, outcome: allow, reason_code: a}\n  - {id: b, condition: 'lane == \"x\"', outcome: deny, reason_code: b}\ntests:\n  - {name: t, input: {}, expect: {outcome: allow}}\n";
    let files = make_directory(&[("plain.yaml", text)]);
    let terminal = Terminal::offline();
    let output = terminal.run(&["policy", "test", path_text(files.path())]);
    assert!(output.code == 0 && output.err.contains("`b` is matched by no test"), "{}", output.err);
    let report = files.path().join("report.xml");
    let junit = |args: &[&str]| {
        let args = [&["policy", "test", path_text(files.path()), "--junit", path_text(&report)], args].concat();
        (terminal.run(&args).code, std::fs::read_to_string(&report).unwrap())
    };
    let (code, xml) = junit(&["--require-coverage"]);
    assert_eq!(code, 1);
    let failed = xml.split("<testcase").find(|case| case.contains("coverage of rule b")).unwrap();
    assert!(failed.contains("<failure") && failed.contains("is matched by no test"), "{xml}");
    assert!(xml.contains("failures=\"1\"") && !xml.contains("coverage of rule a"), "{xml}");
    let (code, xml) = junit(&[]);
    assert!(code == 0 && xml.contains("failures=\"0\"") && !xml.contains("coverage of"), "{xml}");
}

#[test]
fn reports_invalid_files_in_one_line_with_position() {
    let contents = BUNDLE.replace("content:", "contents:");
    let misspelt = BUNDLE.replace("policy_bundle", "policy_bundel");
    let camel = BUNDLE.replace("policy_bundle", "PolicyBundle");
    for (name, text, code) in [
        ("b.yaml", contents.as_str(), "invalid_manifest"),
        ("b.yaml", "kind: policy_bundle\nrules: []\n", "invalid_manifest"),
        ("b.yaml", &misspelt, "invalid_asset_kind"),
        ("b.yaml", &camel, "invalid_asset_kind"),
        ("s.yaml", "bundle: b\nscenario: [{name: x}]\n", "invalid_scenario"),
        ("s.yaml", "bundle: b\nscenarios: {name: x}\n", "invalid_scenario"),
        ("s.yaml", "bundle: [b]\nscenarios: []\n", "invalid_scenario"),
        (
            "b.yaml",
            "rules: [{id: a, condition: 'actor.nam == 1', outcome: allow, reason_code: a}]\n",
            "policy_unknown_field",
        ),
        ("b.yaml", "rules: [\n", "yaml_syntax"),
        ("b.yaml", "rules: &r\n  - *r\n", "yaml_expansion"),
        ("s.yaml", "bundle: nobody\nscenarios: []\n", "unknown_bundle"),
        ("none.txt", "", "no_bundles"),
    ] {
        let files = make_directory(&[(name, text)]);
        let output = Terminal::offline().run(&["policy", "test", path_text(files.path())]);
        assert_eq!(output.code, 1, "{text}");
        let line = output.err.lines().next().unwrap();
        assert!(line.starts_with(path_text(files.path())) && line.contains(&format!(": {code}: ")), "{}", output.err);
    }
    let others = [("b.yaml", BUNDLE), ("skill.yaml", "kind: skill\ncontent: {}\n"), ("k8s.yaml", "kind: ConfigMap\n")];
    Terminal::offline().run_ok(&["policy", "test", path_text(make_directory(&others).path())]);
    let files = make_directory(&[
        ("b.yaml", BUNDLE),
        ("s.yaml", "bundle: b\nscenarios: [{name: x, expect: {outcome: perhaps}}]\n"),
    ]);
    let output = Terminal::offline().run(&["policy", "test", path_text(files.path())]);
    assert!(output.code == 1 && output.err.contains("s.yaml:2:13: invalid_scenario"), "{}", output.err);
    std::os::unix::fs::symlink("/etc/passwd", files.path().join("out.yaml")).unwrap();
    let output = Terminal::offline().run(&["policy", "test", path_text(files.path())]);
    assert!(output.code == 1 && output.err.contains("out.yaml:1:1: link_leads_out"), "{}", output.err);
}

/// In an optimized build, 10,000 tests take at most 1 s of CPU time. A debug build takes about seven times as long.
#[test]
fn runs_ten_thousand_tests_within_the_cpu_bound() {
    let mut files = Vec::new();
    for number in 0..1000 {
        let mut text = format!("kind: policy_bundle\nslug: b{number}\nowner_ref: team:x\ncontent:\n  rules:\n");
        text.push_str("    - {id: dev, condition: 'environment == \"dev\" && size(inputs.text) < 100', outcome: allow, reason_code: dev}\n");
        text.push_str(
            "    - {id: loud, condition: 'inputs.text.contains(\"!\")', outcome: deny, reason_code: loud}\n  tests:\n",
        );
        for test in 0..10 {
            let (suffix, outcome) = if test % 2 == 0 { ("", "allow") } else { ("!", "deny") };
            writeln!(text, "    - {{name: t{test}, input: {{environment: dev, inputs: {{text: 'a{test}{suffix}'}}}}, expect: {{outcome: {outcome}}}}}").unwrap();
        }
        files.push((format!("b{number}.yaml"), text));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let files = make_directory(&files);
    let (printed, cpu_seconds) = Terminal::offline().run_timed(&["policy", "test", path_text(files.path())]);
    assert_eq!(printed, "1000 bundles, 10000 tests, 0 failed; 2000 of 2000 rules matched\n");
    let max_cpu_seconds = if cfg!(debug_assertions) { 8.0 } else { 1.0 };
    assert!(cpu_seconds < max_cpu_seconds, "{cpu_seconds} s");
}

/// The command reads a condition from a sidecar file, as `sync` does.
#[test]
fn reads_sidecar_texts_of_bundles() {
    let manifest = |name: &str| {
        format!(
            "kind: policy_bundle\nslug: b\nowner_ref: team:x\ncontent:\n  rules:\n    - {{id: dev, outcome: allow, reason_code: dev}}\n  tests:\n    - {{name: in dev, input: {{environment: dev}}, expect: {{outcome: allow, reason_code: dev}}}}\ntexts:\n  /rules/0/condition: {name}\n"
        )
    };
    let terminal = Terminal::offline();
    let files =
        make_directory(&[("assets/b.yaml", &manifest("dev.cel")), ("assets/dev.cel", "environment == \"dev\"")]);
    let printed = terminal.run_ok(&["policy", "test", path_text(files.path()), "--require-coverage"]);
    assert_eq!(printed, "1 bundles, 1 tests, 0 failed; 1 of 1 rules matched\n");
    std::fs::write(files.path().join("assets/dev.cel"), "environment == \"prod\"").unwrap();
    let output = terminal.run(&["policy", "test", path_text(files.path())]);
    assert!(output.code == 1 && output.out.contains("in dev: outcome: expected allow, decided deny"), "{}", output.out);
    for (name, code) in [("gone.cel", "gone.cel:1:1: file_unreadable"), ("../b.cel", "b.yaml:10:3: link_leads_out")] {
        std::fs::write(files.path().join("assets/b.yaml"), manifest(name)).unwrap();
        let tested = terminal.run(&["policy", "test", path_text(files.path())]);
        let planned = Terminal { server: Some("http://127.0.0.1:9".to_owned()), ..Terminal::offline() };
        let planned = planned.run(&["sync", "plan", path_text(files.path())]);
        assert!(tested.code == 1 && tested.err.contains(code), "{}", tested.err);
        assert_eq!(tested.err.lines().next(), planned.err.lines().next(), "both commands report the same error");
    }
}

#[test]
fn reports_an_invalid_bundle_once() {
    let scenarios = "bundle: b\nscenarios: [{name: n, input: {}, expect: {outcome: deny}}]\n";
    let broken = BUNDLE.replace("outcome: deny", "outcome: dance");
    let files = make_directory(&[("rules.yaml", broken.as_str()), ("scenarios.yaml", scenarios)]);
    let output = Terminal::offline().run(&["policy", "test", path_text(files.path())]);
    assert!(
        output.code == 1 && output.err.contains("rules.yaml:8:") && !output.err.contains("unknown_bundle"),
        "{}",
        output.err
    );
    let files = make_directory(&[("rules.yaml", &BUNDLE.replace("slug: b", "slug: c")), ("scenarios.yaml", scenarios)]);
    let output = Terminal::offline().run(&["policy", "test", path_text(files.path())]);
    assert!(output.code == 1 && output.err.contains("scenarios.yaml:1:9: unknown_bundle"), "{}", output.err);
}

/// The names in a list that follows a phrase in a message.
fn names_after<'m>(message: &'m str, phrase: &str) -> Vec<&'m str> {
    let list = message.split(phrase).nth(1).unwrap_or_else(|| panic!("`{phrase}` in {message}"));
    let list = list.split(" (").next().unwrap_or(list).split(['\n', ';']).next().unwrap_or(list);
    list.split([',', ' ']).filter(|word| !["", "and", "after", "a", "value"].contains(word)).collect()
}

#[test]
fn handbook_examples_pass_and_cover_the_language() {
    let handbook = std::fs::read_to_string(root().join("docs/policy-handbook.md")).unwrap();
    let bundles: Vec<(String, &str)> = handbook
        .split("```yaml\n")
        .skip(1)
        .enumerate()
        .map(|(number, rest)| (format!("b{number}.yaml"), rest.split("```").next().unwrap()))
        .collect();
    assert!(bundles.len() >= 4);
    let files: Vec<(&str, &str)> = bundles.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let files = make_directory(&files);
    let terminal = Terminal::offline();
    let printed = terminal.run_ok(&["policy", "test", path_text(files.path()), "--require-coverage"]);
    assert!(printed.contains(" 0 failed"), "{printed}");
    // Refusals list all existing names. Comparing them with the handbook ensures that the handbook is complete.
    let refusal = |condition: &str| {
        let text = format!("rules: [{{id: r, condition: '{condition}', outcome: allow, reason_code: r}}]\n");
        let files = make_directory(&[("b.yaml", &text)]);
        let refused = terminal.run(&["policy", "test", path_text(files.path())]);
        assert_eq!(refused.code, 1, "{condition}");
        refused.out + &refused.err
    };
    let mut names: Vec<String> = Vec::new();
    for (condition, phrase) in [("fetch(1)", "the functions are "), ("users == 1", "the variables are ")] {
        names.extend(names_after(&refusal(condition), phrase).iter().map(|name| (*name).to_owned()));
    }
    for record in ["actor", "workload", "release"] {
        let refused = refusal(&format!("{record}.nothing == 1"));
        names.extend(names_after(&refused, "the fields are ").iter().map(|field| format!("{record}.{field}")));
    }
    names.extend(Obligation::ALL.iter().map(|obligation| obligation.as_str().to_owned()));
    names.extend(DecisionOutcome::ALL.iter().map(|outcome| outcome.as_str().to_owned()));
    assert!(names.len() > 45, "{names:?}");
    for name in names {
        assert!(handbook.contains(&name), "the handbook does not mention `{name}`");
    }
}
