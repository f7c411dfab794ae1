//! `--prune` never archives an asset on which something else depends.

use crate::{Terminal, make_directory, path_text};
use fairway_testkit::TestApp;
use serde_json::json;
use std::fs;

fn skill(slug: &str) -> String {
    format!("kind: skill\nslug: {slug}\nowner_ref: team:x\ncontent: {{name: n, description: d, body: b}}\n")
}

fn prompt(slug: &str, text: &str) -> String {
    format!("kind: prompt_template\nslug: {slug}\nowner_ref: team:x\ncontent: {{system_prompt: '{text}'}}\n")
}

/// Asserts that pruning is refused for this asset only, and that no change was made.
fn assert_in_use(terminal: &Terminal, folder: &str, slug: &str) {
    let plan = terminal.run(&["sync", "plan", folder, "--prune"]);
    assert!(
        plan.code == 1 && plan.out.contains(&format!("! asset {slug} cannot be archived")),
        "{} {}",
        plan.out,
        plan.err
    );
    let output = terminal.run(&["sync", "apply", folder, "--prune"]);
    assert!(
        output.code == 1
            && output.err.contains(&format!("asset_in_use: remaining releases or contents depend on {slug};")),
        "{}",
        output.err
    );
    assert_eq!(terminal.run_json(&["assets", "list", "--state", "archived"]), json!([]));
}

#[tokio::test]
async fn keeps_assets_that_remaining_contents_reference() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = make_directory(&[
        ("assets/tone.yaml", &skill("tone")),
        ("assets/letter.yaml", &prompt("letter", "@asset-ref:tone Hello.")),
    ]);
    let folder = path_text(files.path());
    terminal.run_ok(&["sync", "apply", folder]);
    fs::remove_file(files.path().join("assets/tone.yaml")).unwrap();
    assert_in_use(&terminal, folder, "tone");
    // After this change, the directory's current content no longer references the asset. References in earlier
    // versions are ignored.
    fs::write(files.path().join("assets/letter.yaml"), prompt("letter", "Hello.")).unwrap();
    terminal.run_ok(&["sync", "apply", folder, "--prune"]);
    let archived = terminal.run_json(&["assets", "list", "--state", "archived"]);
    assert_eq!((archived.as_array().unwrap().len(), &archived[0]["slug"]), (1, &json!("tone")), "{archived}");
}

#[tokio::test]
async fn prunes_assets_that_reference_one_another() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = make_directory(&[
        ("assets/tone.yaml", &skill("tone")),
        ("assets/letter.yaml", &prompt("letter", "@asset-ref:tone Hello.")),
        ("assets/stays.yaml", &skill("stays")),
    ]);
    terminal.run_ok(&["sync", "apply", path_text(files.path())]);
    for name in ["tone", "letter"] {
        fs::remove_file(files.path().join(format!("assets/{name}.yaml"))).unwrap();
    }
    terminal.run_ok(&["sync", "apply", path_text(files.path()), "--prune"]);
    assert_eq!(terminal.run_json(&["assets", "list", "--state", "archived"]).as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn keeps_assets_that_a_release_pins_by_label() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let release = "workload: w\nenvironment: dev\nbindings: [{role: skill, asset: tone, version: v1}]\n";
    let files = make_directory(&[
        ("workloads/w.yaml", "slug: w\nowner_ref: team:x\ninvocation_mode: form\n"),
        ("assets/tone.yaml", &skill("tone")),
    ]);
    terminal.run_ok(&["sync", "apply", path_text(files.path())]);
    let files = make_directory(&[
        ("workloads/w.yaml", "slug: w\nowner_ref: team:x\ninvocation_mode: form\n"),
        ("releases/w.dev.yaml", release),
    ]);
    assert_in_use(&terminal, path_text(files.path()), "tone");
}

#[tokio::test]
async fn keeps_assets_that_another_workspace_references() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = make_directory(&[("assets/tone.yaml", &skill("tone")), ("assets/other.yaml", &skill("other"))]);
    let folder = path_text(files.path());
    terminal.run_ok(&["sync", "apply", folder]);
    let neighbour = app.fixtures().workspace("neighbour", "default").await;
    let fixtures = app.fixtures().in_workspace(&neighbour);
    let other_prompt = fixtures
        .asset_with_version("prompt_template", "theirs", json!({ "system_prompt": "@asset-ref:tone Hi." }))
        .await;
    fs::remove_file(files.path().join("assets/tone.yaml")).unwrap();
    assert_in_use(&terminal, folder, "tone");
    fixtures.add_version(&other_prompt.asset_id, json!({ "system_prompt": "Hi." })).await;
    terminal.run_ok(&["sync", "apply", folder, "--prune"]);
}
