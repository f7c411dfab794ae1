//! Content that releases include through references, without a binding, several levels deep.

use super::{copy_directory, file_contents};
use crate::{Terminal, make_directory, path_text};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{fs, path::Path};

fn submit(app: &TestApp, release: &str) {
    Terminal::connected(app).acting_as("user:ada").run_ok(&["releases", "submit", release]);
}

fn activate(app: &TestApp, release: &str) {
    submit(app, release);
    let approver = Terminal::connected(app).acting_as("user:grace");
    approver.run_ok(&["releases", "approve", release]);
    approver.run_ok(&["releases", "activate", release]);
}

/// Applies a directory with one release. Returns the release's identifier.
fn apply_one_release(terminal: &Terminal, folder: &str) -> String {
    let applied = terminal.run_json(&["sync", "apply", folder]);
    applied["releases"][0]["release_id"].as_str().unwrap().to_owned()
}

/// The versions that a release includes, as slugs with labels.
fn included_versions(terminal: &Terminal, release: &str) -> Vec<String> {
    let shown = terminal.run_json(&["releases", "show", release]);
    let references = shown["references"].as_array().unwrap();
    let member = |reference: &Value, name: &str| reference[name].as_str().unwrap().to_owned();
    let mut included: Vec<String> = references
        .iter()
        .map(|reference| member(reference, "asset_slug") + " " + &member(reference, "version_label"))
        .collect();
    included.sort();
    included
}

fn replace_in_file(path: &Path, before: &str, after: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(before), "{text}");
    fs::write(path, text.replace(before, after)).unwrap();
}

#[tokio::test]
async fn changed_inclusion_drafts_a_release() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let (folder, style) = (path_text(files.path()), files.path().join("assets/house-style.yaml"));
    let first = apply_one_release(&terminal, folder);
    activate(&app, &first);
    assert_eq!(included_versions(&terminal, &first), ["house-style v1"]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");

    // Only the included text changes. The prompt that includes it stays unchanged.
    replace_in_file(&style, "brief and kind", "brief and stern");
    let plan = terminal.run_ok(&["sync", "plan", folder]);
    assert!(
        plan.contains("~ skill house-style gets a version\n") && plan.contains("+body: Be brief and stern"),
        "{plan}"
    );
    let because = format!("    the active release {first} includes house-style v1, which differs from the directory\n");
    assert!(plan.contains(&format!("+ release of letters for dev is drafted\n{because}")), "{plan}");
    let second = apply_one_release(&terminal, folder);
    assert_ne!(second, first);
    assert_eq!(terminal.run_json(&["assets", "versions", "letters-prompt"]).as_array().unwrap().len(), 1);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n", "the draft will include the newest version");
    assert_eq!(apply_one_release(&terminal, folder), second, "the release is drafted once");
    activate(&app, &second);
    assert_eq!(included_versions(&terminal, &second), ["house-style v2"]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");

    // A reference by slug resolves to the newest version. Reverting the text therefore creates another version.
    replace_in_file(&style, "brief and stern", "brief and kind");
    let plan = terminal.run_ok(&["sync", "plan", folder]);
    let reason = "    an earlier version has the same content, but references resolve to the newest\n";
    assert!(plan.contains(reason) && plan.contains("includes house-style v2"), "{plan}");
    let third = apply_one_release(&terminal, folder);
    activate(&app, &third);
    assert_eq!(included_versions(&terminal, &third), ["house-style v3"]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
}

/// A submitted release includes the versions that were newest at its submission. These may differ from the directory.
#[tokio::test]
async fn newer_server_version_is_reported_and_replaced() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let folder = path_text(files.path());
    let first = apply_one_release(&terminal, folder);
    let assets = terminal.run_json(&["assets", "list"]);
    let style = assets.as_array().unwrap().iter().find(|asset| asset["slug"] == "house-style").unwrap();
    let other = json!({ "name": "house-style", "description": "How we answer.", "body": "Be loud." });
    app.fixtures().add_version(style["asset_id"].as_str().unwrap(), other).await;
    // The draft would include the server's text, so `status` reports a difference even before submission.
    let status = terminal.run(&["sync", "status", folder]);
    assert!(status.code == 2 && status.out.contains("house-style gets a version"), "{}{}", status.out, status.err);
    submit(&app, &first);
    assert_eq!(included_versions(&terminal, &first), ["house-style v2"]);
    let status = terminal.run(&["sync", "status", folder]);
    let because = format!("the review_ready release {first} includes house-style v2");
    assert!(status.code == 2 && status.out.contains(&because), "{}", status.out);
    let second = apply_one_release(&terminal, folder);
    submit(&app, &second);
    assert_eq!(included_versions(&terminal, &second), ["house-style v3"]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
    let before = file_contents(files.path());
    terminal.run_ok(&["sync", "pull", folder]);
    assert_eq!(file_contents(files.path()), before, "files that are in sync stay unchanged");
}

const WORKLOAD: &str = "slug: w\nowner_ref: team:x\ninvocation_mode: form\n";

fn skill(body: &str) -> String {
    format!("kind: skill\nslug: tone\nowner_ref: team:x\ncontent: {{name: tone, description: d, body: {body}}}\n")
}

/// An agent with these references.
fn agent(slug: &str, references: &str) -> String {
    format!("kind: agent\nslug: {slug}\nowner_ref: team:x\ncontent: {{name: {slug}, instructions: i, {references}}}\n")
}

#[tokio::test]
async fn compares_inclusions_at_any_depth_and_respects_labels() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let sub_agent = |slug: &str| format!("sub_agents: [{{ref: {{slug: {slug}}}, when: w}}]");
    let release = "workload: w\nenvironment: dev\nbindings: [{role: agent, asset: outer}]\n";
    let files = make_directory(&[
        ("assets/tone.yaml", &skill("kind")),
        ("assets/inner.yaml", &agent("inner", "skills: [{slug: tone}]")),
        ("assets/middle.yaml", &agent("middle", &sub_agent("inner"))),
        ("assets/outer.yaml", &agent("outer", &sub_agent("middle"))),
        ("workloads/w.yaml", WORKLOAD),
        ("releases/w.dev.yaml", release),
    ]);
    let (folder, write) =
        (path_text(files.path()), |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap());
    let first = apply_one_release(&terminal, folder);
    submit(&app, &first);
    write("assets/tone.yaml", &skill("stern"));
    let plan = terminal.run_ok(&["sync", "plan", folder]);
    assert!(plan.contains(&format!("the review_ready release {first} includes tone v1")), "{plan}");
    let second = apply_one_release(&terminal, folder);
    submit(&app, &second);
    assert_eq!(included_versions(&terminal, &second), ["inner v1", "middle v1", "tone v2"]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");

    // A pinned reference keeps its version, whatever text the directory contains.
    write("assets/inner.yaml", &agent("inner", "skills: [{slug: tone, version: v1}]"));
    let third = apply_one_release(&terminal, folder);
    submit(&app, &third);
    assert_eq!(included_versions(&terminal, &third), ["inner v2", "middle v1", "tone v1"]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
    write("assets/tone.yaml", &skill("loud"));
    terminal.run_ok(&["sync", "apply", folder]);
    let releases = terminal.run_json(&["releases", "list", "--workload", "w"]);
    assert_eq!(releases.as_array().unwrap().len(), 3, "no release includes the new text: {releases}");

    // The path from the release to the directory's texts may lead through an agent that exists only on the server.
    fs::remove_file(files.path().join("assets/outer.yaml")).unwrap();
    fs::remove_file(files.path().join("assets/middle.yaml")).unwrap();
    write("assets/inner.yaml", &agent("inner", "skills: [{slug: tone}]"));
    write("releases/w.dev.yaml", &release.replace("outer}", "outer, version: v1}"));
    let fourth = apply_one_release(&terminal, folder);
    assert_ne!(fourth, third);
    submit(&app, &fourth);
    assert_eq!(included_versions(&terminal, &fourth), ["inner v3", "middle v1", "tone v3"]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
}

/// References between assets of the server may form a cycle. The traversal must still terminate.
#[tokio::test]
async fn reference_cycles_on_the_server_terminate() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let content = |reference: Value| json!({ "name": "n", "instructions": "i", "skills": [{ "slug": "tone" }], "sub_agents": [{ "ref": reference, "when": "w" }] });
    app.fixtures().asset_with_version("agent", "one", content(json!({ "slug": "other" }))).await;
    app.fixtures().asset_with_version("agent", "other", content(json!({ "slug": "one" }))).await;
    let inner = "sub_agents: [{ref: {slug: one}, when: w}]";
    let files = make_directory(&[("assets/tone.yaml", &skill("kind")), ("assets/inner.yaml", &agent("inner", inner))]);
    let folder = path_text(files.path());
    terminal.run_ok(&["sync", "apply", folder]);
    fs::write(files.path().join("assets/tone.yaml"), skill("stern")).unwrap();
    terminal.run_ok(&["sync", "apply", folder]);
    // The server's agents reference this asset without a version, so the reference resolves to the newest version.
    fs::write(files.path().join("assets/tone.yaml"), skill("kind")).unwrap();
    assert!(terminal.run_ok(&["sync", "plan", folder]).contains("an earlier version has the same content"));
    terminal.run_ok(&["sync", "apply", folder]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
}
