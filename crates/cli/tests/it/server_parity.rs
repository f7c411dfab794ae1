//! Checks that offline commands and the server report the same findings for the same set of files.

use crate::{Terminal, make_directory, path_text, root};
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp, app::Version};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn list_files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// The JSON output of an offline command for a file.
fn check_offline(args: &[&str], path: &Path) -> Value {
    let args: Vec<&str> = args.iter().copied().chain([path_text(path), "--output", "json"]).collect();
    let output = Terminal::offline().run(&args);
    let report: Value =
        serde_json::from_str(&output.out).unwrap_or_else(|_| panic!("{args:?}: {}{}", output.out, output.err));
    assert_eq!(output.code == 0, report["valid"] == true, "{args:?}");
    if output.code != 0 {
        let failure: Value = serde_json::from_str(output.err.lines().next_back().unwrap()).unwrap();
        assert_eq!(failure["detail"]["findings"], report["errors"], "{}", output.err);
        // The text output contains one line for each error, in a format that editors can jump to.
        let output = Terminal::offline().run(&args[..args.len() - 2]);
        let lines: Vec<&str> = output.err.lines().filter(|line| !line.starts_with("warning")).collect();
        assert_eq!(lines.len(), report["errors"].as_array().unwrap().len(), "{}", output.err);
        assert!(lines.iter().all(|line| line.starts_with(path_text(path))), "{}", output.err);
    }
    report
}

/// The selected fields of each problem, sorted.
fn problem_fields(problems: &Value, names: &[&str]) -> Vec<String> {
    let problems = problems.as_array().into_iter().flatten();
    let mut parts: Vec<String> = problems
        .map(|problem| names.iter().map(|name| problem[*name].to_string()).collect::<Vec<_>>().join(" "))
        .collect();
    parts.sort();
    parts
}

#[tokio::test]
async fn flow_findings_equal_the_server_s() {
    let app = TestApp::start().await;
    let flow = app
        .fixtures()
        .flow("any-flow", "entry_step: end\nsteps: [{id: end, type: return, output: {said: yes}}]\n")
        .await;
    let workspace = "00000000-0000-7000-8000-000000000003";
    let path = format!("/v1/flows/{}/validate?workspace_id={workspace}", flow.asset_id);
    let mut refused = 0;
    for file in [
        list_files("examples/flows"),
        list_files("examples/flows/refused"),
        vec![root().join("demo/flows/ticket-flow.yaml")],
    ]
    .concat()
    {
        let text = std::fs::read_to_string(&file).unwrap();
        let remote = app.post(path.as_str(), json!({ "content_yaml": text })).await.expect(200);
        let local = check_offline(&["flow", "validate"], &file);
        let names = ["line", "column", "code"];
        assert_eq!(
            problem_fields(&local["errors"], &names),
            problem_fields(&remote["errors"], &names),
            "{}",
            file.display()
        );
        // The command line may append the names in the file to the server's message.
        for (local, remote) in local["errors"].as_array().unwrap().iter().zip(remote["errors"].as_array().unwrap()) {
            assert!(local["message"].as_str().unwrap().starts_with(remote["message"].as_str().unwrap()), "{local}");
        }
        assert_eq!(local["valid"], remote["valid"]);
        refused += usize::from(remote["valid"] == false);
    }
    assert_eq!(refused, list_files("examples/flows/refused").len());
}

#[tokio::test]
async fn content_findings_equal_the_server_s() {
    let app = TestApp::start().await;
    let mut refused = 0;
    for (index, file) in
        [list_files("examples/assets"), list_files("examples/assets/refused")].concat().iter().enumerate()
    {
        let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let kind_in_name = file.file_stem().unwrap().to_str().unwrap().split('-').next().unwrap();
        let (kind, content) = match (&document["asset_kind"], document.get("content")) {
            (Value::String(kind), Some(content)) => (kind.as_str(), content),
            _ => (kind_in_name, &document),
        };
        let asset = app.fixtures().asset_without_versions(kind, &format!("corpus-{index}")).await;
        let response = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": content })).await;
        let local = check_offline(&["asset", "check"], file);
        if response.status == 201 {
            assert_eq!(local["valid"], true, "{}: {local}", file.display());
            continue;
        }
        refused += 1;
        let remote = response.json();
        // Only the server can resolve references to other assets, so its other refusals are not compared.
        if response.code() == "invalid_content" {
            let (local, remote) = (&local["errors"], &remote["detail"]["fields"]);
            let names = ["path", "code"];
            assert_eq!(problem_fields(local, &names), problem_fields(remote, &names), "{}", file.display());
            // The command line may append the nearest valid name to the server's message.
            let names = ["path", "code", "message"];
            for (local, remote) in problem_fields(local, &names).iter().zip(problem_fields(remote, &names)) {
                assert!(local.starts_with(remote.trim_end_matches('"')), "{}: {local}, {remote}", file.display());
            }
        } else {
            assert_eq!(local["errors"][0]["code"], remote["detail"]["error"], "{}", file.display());
            assert_eq!(local["errors"][0]["offset"], remote["detail"]["offset"], "{}", file.display());
        }
        assert!(local["errors"][0]["line"].is_u64(), "{local}");
    }
    assert!(refused > 50, "{refused} corpus entries are refused");
}

#[test]
fn renders_prompts_from_files() {
    let files = make_directory(&[
        (
            "main.yaml",
            "kind: prompt_template\ncontent:\n  system_prompt: \"@asset-ref:style\\nCount $arg:count of {{word}}.\"\n  variables: [{name: count, type: number}]\n",
        ),
        ("style.yaml", "kind: skill\ncontent: {name: style, description: How, body: Be brief.}\n"),
        ("args.yaml", "count: 3\nword: boats\n"),
        ("lost.yaml", "system_prompt: '@asset-ref:nothing'\n"),
        ("bad.yaml", "system_prompt: 'a $arg:gone'\n"),
    ]);
    let path = |name: &str| files.path().join(name);
    let terminal = Terminal::offline();
    let arguments_file = path("args.yaml");
    let rendered =
        terminal.run_ok(&["prompt", "render", path_text(&path("main.yaml")), "--args", path_text(&arguments_file)]);
    assert_eq!(rendered, "Be brief.\nCount 3 of boats.\n");
    let overridden = terminal.run_ok(&[
        "prompt",
        "render",
        path_text(&path("main.yaml")),
        "--arg",
        "count=4",
        "--arg",
        "word=$arg:count",
    ]);
    assert_eq!(overridden, "Be brief.\nCount 4 of $arg:count.\n", "a value is never rendered as a template");
    for (file, args, code) in [
        ("main.yaml", &["--arg", "word=x"][..], "prompt_argument_missing"),
        ("main.yaml", &["--arg", "word=x", "--arg", "count=many"], "prompt_argument_type"),
        ("lost.yaml", &[], "prompt_unknown_asset"),
        ("bad.yaml", &[], "prompt_malformed_token"),
    ] {
        let file = path(file);
        let args: Vec<&str> = ["prompt", "render", path_text(&file)].into_iter().chain(args.iter().copied()).collect();
        let output = terminal.run(&args);
        assert_eq!(output.code, 1);
        assert!(output.err.starts_with(path_text(&file)) && output.err.contains(code), "{}", output.err);
    }
}

/// Prompt cases: name, text, variables, and sets of arguments.
fn prompt_cases() -> Vec<(&'static str, &'static str, Value, Vec<Value>)> {
    let number = json!([{ "name": "count", "type": "number" }]);
    let typed = json!([
        { "name": "text", "type": "string" }, { "name": "loud", "type": "boolean" }, { "name": "list", "type": "array" },
    ]);
    vec![
        (
            "included",
            "@asset-ref:style\nCount $arg:count of {{word}}. @asset-ref:tone@v1",
            number.clone(),
            vec![
                json!({ "count": 3, "word": "boats" }),
                json!({ "count": 3.0, "word": "@asset-ref:style $arg:count {{word}}" }),
                json!({ "count": -0.5, "word": ["a", 1, null] }),
                json!({ "count": "3", "word": "boats" }),
                json!({ "count": 3 }),
                json!({ "word": "boats" }),
            ],
        ),
        (
            "typed",
            "é $arg:text, $arg:loud, $arg:list",
            typed,
            vec![
                json!({ "text": "ü\u{301} 😀 \"x\"", "loud": true, "list": [1, "two", { "three": 3.0 }] }),
                json!({ "text": "", "loud": "true", "list": [] }),
                json!({ "text": "", "loud": false, "list": "none" }),
                json!({ "text": 5, "loud": false, "list": [] }),
                json!({ "text": null, "loud": false, "list": [] }),
            ],
        ),
        ("commanded", "!command:summarize this: {{text}}", json!([]), vec![json!({ "text": "!command:drop" })]),
        ("undeclared", "é $arg:gone", number.clone(), vec![json!({})]),
        ("misspelled", "é {{ {{x}} }}", json!([]), vec![json!({})]),
        ("forbidden", "é !command:drop", json!([]), vec![json!({})]),
        ("lost", "é @asset-ref:nothing", json!([]), vec![json!({})]),
        ("nested", "é é @asset-ref:outer", json!([]), vec![json!({})]),
        ("bodiless", "@asset-ref:rules", json!([]), vec![json!({})]),
        ("hidden", "@asset-ref:st\u{200b}yle", json!([]), vec![json!({})]),
        ("unnamed", "@asset-ref:", json!([]), vec![json!({})]),
    ]
}

#[tokio::test]
async fn prompt_rendering_equals_the_server_s() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("x".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let (terminal, files) = (Terminal::offline(), tempfile::tempdir().unwrap());
    let fixtures = app.fixtures();
    let write = |name: &str, value: &Value| {
        let path = files.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path
    };
    for (slug, kind, content) in [
        ("style", "skill", json!({ "name": "style", "description": "How", "body": "Be brief." })),
        ("tone", "prompt_template", json!({ "system_prompt": "Like {{word}}." })),
        ("outer", "prompt_template", json!({ "system_prompt": "See @asset-ref:style" })),
        (
            "rules",
            "policy_bundle",
            json!({ "rules": [{ "id": "all", "condition": "always", "outcome": "allow", "reason_code": "all" }] }),
        ),
    ] {
        fixtures.asset_with_version(kind, slug, content.clone()).await;
        write(&format!("{slug}.json"), &json!({ "kind": kind, "content": content }));
    }
    let (model, policy) = (fixtures.model_policy("model").await, fixtures.allow_all_policy("policy").await);
    let (mut rendered, mut refused) = (0, 0);
    for (name, text, variables, argument_sets) in prompt_cases() {
        let content = json!({ "system_prompt": text, "variables": variables, "allowed_commands": ["summarize"] });
        let file = write(&format!("{name}.json"), &json!({ "kind": "prompt_template", "content": content }));
        let render = |arguments: &Value| {
            let arguments = write("arguments.json", arguments);
            terminal.run(&["prompt", "render", path_text(&file), "--args", path_text(&arguments)])
        };
        let asset_id = fixtures.asset_without_versions("prompt_template", name).await;
        let version_response = app.post(format!("/v1/assets/{asset_id}/versions"), json!({ "content": content })).await;
        if version_response.status != 201 {
            let local = render(&json!({}));
            let remote = version_response.json();
            let (code, offset) = (version_response.code(), &remote["detail"]["offset"]);
            assert_eq!((local.code, local.out.as_str()), (1, ""), "{name}");
            assert!(local.err.contains(&format!(": {code}: ")), "{name}: {code}: {}", local.err);
            assert!(local.err.contains(&format!("at byte {offset} of the prompt")), "{name}: {remote}: {}", local.err);
            refused += 1;
            continue;
        }
        let asset_version_id = version_response.json()["asset_version_id"].as_str().unwrap().to_owned();
        let kind = "prompt_template".to_owned();
        let prompt = Version { asset_id, asset_version_id, kind, slug: name.to_owned() };
        let workload = fixtures.active_workload_with_bindings(name, vec![prompt, model.clone(), policy.clone()]).await;
        for arguments in argument_sets {
            let local = render(&arguments);
            let body = json!({ "environment": "dev", "inputs": arguments });
            let response = app.post(workload.execute_path(), body).await;
            if response.status == 200 {
                let sent = provider.calls().last().unwrap().conversation.system_prompt.clone();
                assert_eq!((local.code, local.out), (0, format!("{sent}\n")), "{name}: {arguments}: {}", local.err);
                rendered += 1;
            } else {
                let code = response.code();
                assert!(code.starts_with("prompt_"), "{name}: {arguments}: {response}");
                assert_eq!((local.code, local.out.as_str()), (1, ""), "{name}: {arguments}");
                assert!(local.err.contains(&format!(": {code}: ")), "{name}: {arguments}: {code}: {}", local.err);
                refused += 1;
            }
        }
    }
    assert!(rendered >= 5 && refused >= 14, "{rendered} rendered, {refused} refused");
}

/// Policy bundles, each with test cases: of an example, of the demo, and one with conditions on missing and mistyped
/// inputs.
fn policy_cases() -> Vec<(Value, Vec<Value>)> {
    let read =
        |path: &str| -> Value { serde_yaml::from_str(&std::fs::read_to_string(root().join(path)).unwrap()).unwrap() };
    let expenses = read("examples/policy/bundles/expenses.yaml")["content"].clone();
    let mut expense_cases: Vec<Value> = expenses["tests"].as_array().unwrap().clone();
    expense_cases.extend(read("examples/policy/scenarios/expenses.yaml")["scenarios"].as_array().unwrap().clone());
    let demo = read("demo/assets/ticket-policy.yaml")["content"].clone();
    let demo_cases = demo["tests"].as_array().unwrap().clone();
    let strict = json!({ "rules": [
        { "id": "big", "condition": "inputs.n > 5", "outcome": "allow_with_obligations", "reason_code": "big",
          "obligations": ["notify_owner", "record_transcript"] },
        { "id": "small", "condition": "inputs.n == 5", "outcome": "allow", "reason_code": "small" },
        { "id": "late", "condition": "now > timestamp(\"2026-01-01T00:00:00Z\")", "outcome": "deny", "reason_code": "late" },
        { "id": "odd", "condition": "inputs.word.matches(\"^x+$\")", "outcome": "deny", "reason_code": "odd" },
    ]});
    let inputs = [
        json!({ "n": 5, "word": "a" }),
        json!({ "n": 5.0, "word": "a" }),
        json!({ "n": 6, "word": "xx" }),
        json!({ "n": 6.5, "word": "é" }),
        json!({ "n": "6", "word": "a" }),
        json!({ "n": 6 }),
        json!({}),
    ];
    let mut strict_cases: Vec<Value> = inputs.into_iter().map(|inputs| json!({ "inputs": inputs })).collect();
    strict_cases.push(json!({ "inputs": { "n": 6, "word": "a" }, "now": "2026-01-01T00:00:00.000000001Z" }));
    strict_cases.push(json!({ "inputs": { "n": 6, "word": "a" }, "now": "2026-01-01T00:00:00+01:00" }));
    let strict_cases = strict_cases.into_iter().map(|input| json!({ "input": input })).collect();
    vec![(expenses, expense_cases), (demo, demo_cases), (strict, strict_cases)]
}

#[tokio::test]
async fn policy_decisions_equal_the_server_s() {
    let app = TestApp::start().await;
    let terminal = Terminal::offline();
    let mut compared = 0;
    for (index, (bundle, cases)) in policy_cases().into_iter().enumerate() {
        let asset = app.fixtures().asset_without_versions("policy_bundle", &format!("bundle-{index}")).await;
        // An expectation that never holds makes both sides report the actual decision.
        let tests: Vec<Value> = cases.iter().enumerate().map(|(number, case)| {
            let input = case.get("input").cloned().unwrap_or_else(|| json!({}));
            let outcome = if case["expect"]["outcome"] == "deny" { "allow" } else { "deny" };
            json!({ "name": format!("t{number}"), "input": input, "expect": { "outcome": outcome, "reason_code": "unheard-of" } })
        }).collect();
        let content = json!({ "rules": bundle["rules"], "tests": tests });
        let response = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": content })).await;
        assert_eq!(response.code(), "invalid_content", "{response}");
        let fields = response.json()["detail"]["fields"].as_array().unwrap().clone();
        let files = make_directory(&[("bundle.json", content.to_string().as_str())]);
        let output = terminal.run(&["policy", "test", path_text(files.path()), "--output", "json"]);
        assert_eq!(output.code, 1, "{}", output.err);
        let local: Value = serde_json::from_str(&output.out).unwrap();
        let local = local["tests"].as_array().unwrap();
        assert_eq!((local.len(), fields.len()), (tests.len(), tests.len()), "{response}");
        for (remote, local) in fields.iter().zip(local) {
            let parts: Vec<&str> = remote["message"].as_str().unwrap().split('`').collect();
            let [_, name, _, outcome, _, reason, ..] = parts.as_slice() else { panic!("{remote}") };
            assert_eq!((&remote["code"], &local["name"]), (&json!("policy_test_failed"), &json!(name)));
            let difference = local["difference"].as_str().unwrap();
            // If the expected outcome happens to match, only the reason differs.
            let expected = if difference.starts_with("outcome") { *outcome } else { "" };
            assert!(difference.contains(&format!("decided {expected}")), "{remote}: {difference}");
            assert!(
                difference.contains(&format!("reason_code: expected unheard-of, decided {reason}")),
                "{remote}: {difference}"
            );
            compared += 1;
        }
    }
    assert!(compared > 15, "{compared} decisions are compared");
}

#[tokio::test]
async fn run_decisions_equal_scenario_decisions() {
    let app = TestApp::start().await;
    let rules = json!([
        { "id": "big", "condition": "inputs.n > 5 && workload.slug == \"main\"", "outcome": "allow_with_obligations",
          "reason_code": "big", "obligations": ["record_transcript", "redact_output"] },
        { "id": "any", "condition": "lane == \"standard\" && release.state == \"active\"", "outcome": "allow", "reason_code": "any" },
        { "id": "owed", "condition": "actor.ref == \"user:ada\" && inputs.n > 7", "outcome": "allow_with_obligations",
          "reason_code": "owed", "obligations": ["redact_output"] },
    ]);
    let policy = app.fixtures().policy_with_rules("policy", rules.clone()).await;
    let workload = app.fixtures().active_workload_with_policy("main", policy).await;
    let terminal = Terminal::offline();
    let mut scenarios = Vec::new();
    for n in [json!(5), json!(6.0), json!(8)] {
        let inputs = json!({ "ticket": "x", "n": n });
        let body = json!({ "environment": "dev", "inputs": inputs });
        let run = app.post(workload.execute_path(), body).as_actor("user:ada").await.expect(200);
        let path = format!("/v1/executions/{}/evidence-graph", run["execution_id"].as_str().unwrap());
        let evidence = app.get(path).await.expect(200);
        let decision = &evidence["policy_decision"];
        let obligations: Vec<&Value> = evidence["obligations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|obligation| &obligation["obligation_name"])
            .collect();
        scenarios.push(json!({
            "name": format!("n is {n}"),
            "input": {
                "actor": { "ref": "user:ada", "type": "user" }, "workload": { "slug": "main" },
                "release": { "state": "active" }, "environment": "dev", "lane": "standard", "inputs": inputs,
            },
            "expect": {
                "outcome": decision["outcome"], "reason_code": decision["reason_code"], "obligations": obligations,
                "matched_rules": decision["rules"],
            },
        }));
    }
    let test_policy = |scenarios: &[Value]| {
        let files = make_directory(&[
            ("policy.json", json!({ "rules": rules }).to_string().as_str()),
            ("scenarios.json", json!({ "bundle": "policy", "scenarios": scenarios }).to_string().as_str()),
        ]);
        terminal.run(&["policy", "test", path_text(files.path()), "--require-coverage"])
    };
    let output = test_policy(&scenarios);
    assert_eq!(
        (output.code, output.out.as_str()),
        (0, "1 bundles, 3 tests, 0 failed; 3 of 3 rules matched\n"),
        "{}",
        output.err
    );
    scenarios[2]["expect"]["obligations"] = json!([]);
    assert_eq!(test_policy(&scenarios).code, 1, "a different decision is reported");
}
