//! One corpus, told about in the same words by the server and by the command line without one.

use crate::{Terminal, directory, root, shown};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// What the command line says of a file, wherever it ends.
fn said(words: &[&str], path: &Path) -> Value {
    let words: Vec<&str> = words.iter().copied().chain([shown(path), "--output", "json"]).collect();
    let came = Terminal::offline().run(&words);
    let said: Value = serde_json::from_str(&came.out).unwrap_or_else(|_| panic!("{words:?}: {}{}", came.out, came.err));
    assert_eq!(came.code == 0, said["valid"] == true, "{words:?}");
    if came.code != 0 {
        // For a person: a line each, which an editor can jump to.
        let lines: Vec<&str> = came.err.lines().filter(|line| !line.starts_with("warning")).collect();
        assert_eq!(lines.len(), said["errors"].as_array().unwrap().len(), "{}", came.err);
        assert!(lines.iter().all(|line| line.starts_with(shown(path))), "{}", came.err);
    }
    said
}

/// The parts of each problem, in an order that does not depend on who tells of them.
fn parts(problems: &Value, names: &[&str]) -> Vec<String> {
    let problems = problems.as_array().into_iter().flatten();
    let mut parts: Vec<String> = problems
        .map(|problem| names.iter().map(|name| problem[*name].to_string()).collect::<Vec<_>>().join(" "))
        .collect();
    parts.sort();
    parts
}

#[tokio::test]
async fn flows_are_refused_in_the_same_words_at_the_same_places() {
    let app = TestApp::start().await;
    let flow =
        app.given().flow("any-flow", "entry_step: end\nsteps: [{id: end, type: return, output: {said: yes}}]\n").await;
    let workspace = "00000000-0000-7000-8000-000000000003";
    let path = format!("/v1/flows/{}/validate?workspace_id={workspace}", flow.asset_id);
    let mut refused = 0;
    for file in
        [files("examples/flows"), files("examples/flows/refused"), vec![root().join("demo/flows/ticket-flow.yaml")]]
            .concat()
    {
        let text = std::fs::read_to_string(&file).unwrap();
        let told = app.post(path.as_str(), json!({ "content_yaml": text })).await.expect(200);
        let here = said(&["flow", "validate"], &file);
        let names = ["line", "column", "code", "message"];
        assert_eq!(parts(&here["errors"], &names), parts(&told["errors"], &names), "{}", file.display());
        assert_eq!(here["valid"], told["valid"]);
        refused += usize::from(told["valid"] == false);
    }
    assert_eq!(refused, files("examples/flows/refused").len());
}

#[tokio::test]
async fn content_is_refused_with_the_same_codes_and_paths() {
    let app = TestApp::start().await;
    let mut refused = 0;
    for (place, file) in [files("examples/assets"), files("examples/assets/refused")].concat().iter().enumerate() {
        let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let named_after = file.file_stem().unwrap().to_str().unwrap().split('-').next().unwrap();
        let (kind, content) = match (&document["asset_kind"], document.get("content")) {
            (Value::String(kind), Some(content)) => (kind.as_str(), content),
            _ => (named_after, &document),
        };
        let asset = app.given().asset(kind, &format!("corpus-{place}")).await;
        let answer = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": content })).await;
        let here = said(&["asset", "check"], file);
        if answer.status == 201 {
            assert_eq!(here["valid"], true, "{}: {here}", file.display());
            continue;
        }
        refused += 1;
        let told = answer.json();
        // References outside of the content are looked up by the server alone.
        if answer.code() == "invalid_content" {
            let names = ["path", "code", "message"];
            assert_eq!(parts(&here["errors"], &names), parts(&told["detail"]["fields"], &names), "{}", file.display());
        } else {
            assert_eq!(here["errors"][0]["code"], told["detail"]["error"], "{}", file.display());
            assert_eq!(here["errors"][0]["offset"], told["detail"]["offset"], "{}", file.display());
        }
        assert!(here["errors"][0]["line"].is_u64(), "{here}");
    }
    assert!(refused > 50, "{refused} of the corpus are refused");
}

#[test]
fn prompts_are_put_together_from_files() {
    let files = directory(&[
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
    let args = path("args.yaml");
    let rendered = terminal.done(&["prompt", "render", shown(&path("main.yaml")), "--args", shown(&args)]);
    assert_eq!(rendered, "Be brief.\nCount 3 of boats.\n");
    let one =
        terminal.done(&["prompt", "render", shown(&path("main.yaml")), "--arg", "count=4", "--arg", "word=$arg:count"]);
    assert_eq!(one, "Be brief.\nCount 4 of $arg:count.\n", "a value is never read as a template");
    for (file, words, code) in [
        ("main.yaml", &["--arg", "word=x"][..], "prompt_argument_missing"),
        ("main.yaml", &["--arg", "word=x", "--arg", "count=many"], "prompt_argument_type"),
        ("lost.yaml", &[], "prompt_unknown_asset"),
        ("bad.yaml", &[], "prompt_malformed_token"),
    ] {
        let file = path(file);
        let words: Vec<&str> = ["prompt", "render", shown(&file)].into_iter().chain(words.iter().copied()).collect();
        let came = terminal.run(&words);
        assert_eq!(came.code, 1);
        assert!(came.err.starts_with(shown(&file)) && came.err.contains(code), "{}", came.err);
    }
}
