//! Conflicts of a directory with the server, which `sync apply` reports before any change.

use crate::{Terminal, make_directory, path_text};
use fairway_testkit::TestApp;
use serde_json::json;

const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

#[tokio::test]
async fn reports_server_conflicts_before_any_change() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let tone = app
        .fixtures()
        .asset_with_version("skill", "tone", json!({ "name": "n", "description": "d", "body": "b" }))
        .await;
    let good = "kind: skill\nslug: good\nowner_ref: team:x\ncontent: {name: good, description: d, body: b}\n";
    let workload = "slug: w\nowner_ref: team:x\ninvocation_mode: form\n";
    let assert_refused = |binding: &str, finding: &str| {
        let release = format!("workload: w\nenvironment: dev\nbindings:\n  - {binding}\n");
        let files = make_directory(&[
            ("assets/good.yaml", good),
            ("workloads/w.yaml", workload),
            ("releases/w.dev.yaml", &release),
        ]);
        let output = terminal.run(&["sync", "apply", path_text(files.path())]);
        assert!(output.code == 1 && output.err.contains(&format!("releases/w.dev.yaml:4:{finding}")), "{}", output.err);
        assert_eq!(terminal.run(&["assets", "show", "good"]).code, 1, "{finding}: nothing was created");
    };
    assert_refused("{role: memory, asset: tone, version: v1}", "12: role_kind_mismatch");
    assert_refused("{role: skill, asset: tone, version: v2}", "41: unknown_version");
    app.post(format!("/v1/assets/{}/retire", tone.asset_id), json!({ "workspace_id": WORKSPACE })).await.expect(200);
    assert_refused("{role: skill, asset: tone, version: v1}", "26: asset_not_active");
    let reserved_workload = format!("{}slug: knowledge-assistant-x\n", workload.replace("slug: w\n", ""));
    let files =
        make_directory(&[("assets/good.yaml", good), ("workloads/knowledge-assistant-x.yaml", &reserved_workload)]);
    let output = terminal.run(&["sync", "apply", path_text(files.path())]);
    assert!(output.code == 1 && output.err.contains("knowledge-assistant-x.yaml:3:7: reserved_slug"), "{}", output.err);
    let prompt = |slug: &str, text: &str| {
        format!("kind: prompt_template\nslug: {slug}\nowner_ref: team:x\ncontent: {{system_prompt: '{text}'}}\n")
    };
    for (text, code) in
        [("@asset-ref:nested", "prompt_nested_reference"), ("@asset-ref:tone@v7", "prompt_unknown_asset")]
    {
        let files = make_directory(&[
            ("assets/good.yaml", good),
            ("assets/nested.yaml", &prompt("nested", "@asset-ref:good")),
            ("assets/outer.yaml", &prompt("outer", text)),
        ]);
        let output = terminal.run(&["sync", "apply", path_text(files.path())]);
        assert!(output.code == 1 && output.err.contains(&format!("outer.yaml:4:26: {code}")), "{}", output.err);
        assert_eq!(terminal.run(&["assets", "show", "good"]).code, 1, "{code}: nothing was created");
    }
}
