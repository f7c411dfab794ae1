//! Existing releases on the server, and the permissions that a plan requires.

use super::copy_directory;
use crate::{Terminal, make_directory, path_text};
use fairway_testkit::TestApp;
use serde_json::json;
use std::fs;

const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

fn approve(app: &TestApp, release: &str) -> Terminal {
    Terminal::connected(app).acting_as("user:ada").run_ok(&["releases", "submit", release]);
    let approver = Terminal::connected(app).acting_as("user:grace");
    approver.run_ok(&["releases", "approve", release]);
    approver
}

#[tokio::test]
async fn running_rollout_satisfies_the_manifest() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let folder = path_text(files.path());
    let first = terminal.run_json(&["sync", "apply", folder])["releases"][0]["release_id"].as_str().unwrap().to_owned();
    approve(&app, &first).run_ok(&["releases", "activate", &first]);
    let prompt = files.path().join("assets/letters-prompt.md");
    let text = fs::read_to_string(&prompt).unwrap();
    fs::write(&prompt, text.replace("sort letters", "sort letters and cards")).unwrap();
    let next = terminal.run_json(&["sync", "apply", folder])["releases"][0]["release_id"].as_str().unwrap().to_owned();
    assert_ne!(next, first);
    let rollout = ["releases", "activate", &next, "--rollout", "restricted,standard", "--soak", "60"];
    approve(&app, &next).run_ok(&rollout);
    assert_eq!(
        terminal.run_ok(&["sync", "status", folder]),
        "in sync\n",
        "the running rollout counts as the desired release"
    );
    let second_apply = terminal.run_json(&["sync", "apply", folder]);
    assert_eq!(
        (&second_apply["releases"][0]["release_id"], &second_apply["releases"][0]["state"]),
        (&json!(next), &json!("active"))
    );
    assert_eq!(terminal.run_json(&["releases", "list", "--workload", "letters"]).as_array().unwrap().len(), 2);
}

/// A release for one lane does not satisfy a manifest that requires all lanes.
#[tokio::test]
async fn one_lane_release_does_not_satisfy_all_lanes() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let (folder, path) = (path_text(files.path()), files.path().join("releases/letters.dev.yaml"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("bindings:", "target_lane: standard\nbindings:")).unwrap();
    let one_lane_release =
        terminal.run_json(&["sync", "apply", folder])["releases"][0]["release_id"].as_str().unwrap().to_owned();
    approve(&app, &one_lane_release).run_ok(&["releases", "activate", &one_lane_release]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
    fs::write(&path, text).unwrap();
    assert_eq!(terminal.run_json(&["sync", "plan", folder])["releases"][0]["action"], "draft");
}

#[tokio::test]
async fn plan_names_the_binding_that_the_release_file_lost() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let (folder, path) = (path_text(files.path()), files.path().join("releases/letters.dev.yaml"));
    let first = terminal.run_json(&["sync", "apply", folder])["releases"][0]["release_id"].as_str().unwrap().to_owned();
    approve(&app, &first).run_ok(&["releases", "activate", &first]);
    let text = fs::read_to_string(&path).unwrap();
    let remaining_lines: Vec<&str> = text.lines().filter(|line| !line.contains("letters-policy")).collect();
    fs::write(&path, remaining_lines.join("\n")).unwrap();
    let plan = terminal.run_ok(&["sync", "plan", folder]);
    let because = format!("the active release {first} binds letters-policy, which the release file does not bind\n");
    assert!(plan.contains(&because) && !plan.contains("outside the directory"), "{plan}");
}

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

/// The guide lets pull requests use the token of a `viewer`, so planning must need no other permission.
#[tokio::test]
async fn plan_needs_only_viewer_permissions() {
    let app = TestApp::start().await;
    let author = Terminal::connected(&app).acting_as("user:ada");
    author.run_ok(&["sync", "apply", "examples/sync"]);
    app.fixtures().prompt("forgotten").await;
    app.fixtures().bind_role("service:ci", "viewer", "workspace", Some(WORKSPACE)).await;
    let viewer = Terminal::connected(&app).acting_as("service:ci");
    for args in [vec!["sync", "plan", "examples/sync"], vec!["sync", "plan", "examples/sync", "--prune"]] {
        assert_eq!(viewer.run_ok(&args), author.run_ok(&args));
    }
    assert_eq!(viewer.run_ok(&["sync", "status", "examples/sync"]), "in sync\n");
    let pulled = viewer.home.path().join("pulled");
    viewer.run_ok(&["sync", "pull", path_text(&pulled)]);
    let new_directory = make_directory(&[("workloads/w.yaml", "slug: w\nowner_ref: team:x\ninvocation_mode: form\n")]);
    viewer.run_ok(&["sync", "plan", path_text(new_directory.path())]);
    let output = viewer.run(&["sync", "apply", path_text(new_directory.path())]);
    assert!(output.code == 1 && output.err.contains("forbidden"), "{}", output.err);
    let refused = viewer.run(&["workloads", "suspend", "letters"]);
    assert!(refused.err.contains("forbidden: ") && refused.err.contains("the actor is service:ci"), "{}", refused.err);
    assert!(refused.err.contains("`fairway role-bindings create service:ci ROLE`"), "{}", refused.err);
}
