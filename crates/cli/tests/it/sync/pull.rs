//! `sync pull`: the files that it writes, preserves, and refuses to write.

use super::{copy_directory, file_contents};
use crate::{Terminal, make_directory, path_text};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::symlink, path::Path};

const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

/// Applies and activates `examples/sync`.
fn apply_and_activate(app: &TestApp) -> Terminal {
    let terminal = Terminal::connected(app).acting_as("user:ada");
    let applied = terminal.run_json(&["sync", "apply", "examples/sync"]);
    let release = applied["releases"][0]["release_id"].as_str().unwrap();
    terminal.run_ok(&["releases", "submit", release]);
    let approver = Terminal::connected(app).acting_as("user:grace");
    approver.run_ok(&["releases", "approve", release]);
    approver.run_ok(&["releases", "activate", release]);
    terminal
}

/// Replaces a YAML manifest with an equivalent JSON manifest.
fn convert_to_json(folder: &Path, name: &str) {
    let yaml = folder.join(format!("{name}.yaml"));
    let manifest: Value = serde_yaml::from_str(&fs::read_to_string(&yaml).unwrap()).unwrap();
    fs::remove_file(&yaml).unwrap();
    fs::write(folder.join(format!("{name}.json")), manifest.to_string()).unwrap();
}

#[tokio::test]
async fn keeps_files_that_are_in_sync() {
    let app = TestApp::start().await;
    let terminal = apply_and_activate(&app);
    let local = copy_directory("examples/sync");
    let (assets, workloads) = (local.path().join("assets"), local.path().join("workloads"));
    convert_to_json(&assets, "house-style");
    for (folder, name) in [
        ("assets", "letters-policy"),
        ("flows", "letters-flow"),
        ("flows", "letters-flow.meta"),
        ("releases", "letters.dev"),
    ] {
        let folder = local.path().join(folder);
        fs::rename(folder.join(format!("{name}.yaml")), folder.join(format!("{name}.yml"))).unwrap();
    }
    // Omitted fields and a different owner do not count as differences.
    let workload = fs::read_to_string(workloads.join("letters.yaml")).unwrap();
    fs::write(workloads.join("letters.yaml"), workload.replace("name: Letters\n", "")).unwrap();
    let model = fs::read_to_string(assets.join("letters-model.yaml")).unwrap();
    fs::write(assets.join("letters-model.yaml"), model.replace("team:platform", "team:other")).unwrap();
    assert_eq!(terminal.run_ok(&["sync", "status", path_text(local.path())]), "in sync\n");
    let before = file_contents(local.path());
    for _ in 0..2 {
        let printed = terminal.run_ok(&["sync", "pull", path_text(local.path())]);
        assert_eq!(printed, "0 files written, 8 unchanged\n");
        assert_eq!(file_contents(local.path()), before);
    }
}

#[tokio::test]
async fn rewrites_differing_files_in_place() {
    let app = TestApp::start().await;
    let terminal = apply_and_activate(&app);
    let local = copy_directory("examples/sync");
    let folder = path_text(local.path());
    let assets = local.path().join("assets");
    convert_to_json(&assets, "house-style");
    let style = assets.join("house-style.json");
    fs::write(&style, fs::read_to_string(&style).unwrap().replace("Be brief", "Be long")).unwrap();
    // `pull` writes the text of a prompt into its existing sidecar file.
    let (manifest, text) = (assets.join("letters-prompt.yaml"), assets.join("letters-prompt.md"));
    let (manifest_before, text_before) = (fs::read(&manifest).unwrap(), fs::read(&text).unwrap());
    fs::write(&text, "Something else: $arg:letter\n").unwrap();
    // `pull` replaces an invalid file with the server's content.
    fs::write(assets.join("letters-policy.yaml"), "kind: [").unwrap();
    let release = local.path().join("releases/letters.dev.yaml");
    let text_of_release = fs::read_to_string(&release).unwrap();
    fs::write(&release, text_of_release.replace("  - {role: orchestration_flow, asset: letters-flow}\n", "")).unwrap();
    assert_eq!(terminal.run_ok(&["sync", "pull", folder]), "4 files written, 5 unchanged\n");
    assert_eq!((fs::read(&manifest).unwrap(), fs::read(&text).unwrap()), (manifest_before, text_before));
    let style: Value = serde_json::from_slice(&fs::read(&style).unwrap()).unwrap();
    assert_eq!(style["content"]["body"], "Be brief and kind.");
    assert!(!assets.join("house-style.yaml").exists(), "an asset has one file");
    let release = fs::read_to_string(&release).unwrap();
    assert!(release.contains("letters-flow") && release.contains("It came late"), "examples stay: {release}");
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
    let before = file_contents(local.path());
    terminal.run_ok(&["sync", "pull", folder]);
    assert_eq!(file_contents(local.path()), before);
}

#[tokio::test]
async fn writes_the_exact_text_of_a_flow() {
    let app = TestApp::start().await;
    let terminal = apply_and_activate(&app);
    let pulled = terminal.home.path().join("pulled");
    terminal.run_ok(&["sync", "pull", path_text(&pulled)]);
    let flow = "flows/letters-flow.yaml";
    let expected = fs::read_to_string(crate::root().join("examples/sync").join(flow)).unwrap();
    assert_eq!(fs::read_to_string(pulled.join(flow)).unwrap(), expected);
}

/// The file equals an earlier version, so `apply` would change nothing, and `pull` preserves the file. The message
/// explains how to pull the newest version.
#[tokio::test]
async fn keeps_and_reports_content_of_an_earlier_version() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let style = |body: &str| {
        format!("kind: skill\nslug: style\nowner_ref: team:x\ncontent: {{name: s, description: d, body: {body}}}\n")
    };
    let files = make_directory(&[("assets/style.yaml", &style("kind"))]);
    let (folder, file) = (path_text(files.path()), files.path().join("assets/style.yaml"));
    terminal.run_ok(&["sync", "apply", folder]);
    fs::write(&file, style("stern")).unwrap();
    terminal.run_ok(&["sync", "apply", folder]);
    fs::write(&file, style("kind")).unwrap();
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
    let output = terminal.run(&["sync", "pull", folder]);
    assert!(output.code == 0 && output.err.contains("style.yaml has the content of v1 and was kept"), "{}", output.err);
    assert_eq!(fs::read_to_string(&file).unwrap(), style("kind"));
    fs::remove_file(&file).unwrap();
    terminal.run_ok(&["sync", "pull", folder]);
    assert!(fs::read_to_string(&file).unwrap().contains("stern"));
}

#[tokio::test]
async fn refuses_links_before_the_first_write() {
    let app = TestApp::start().await;
    let terminal = apply_and_activate(&app);
    for (name, target) in [("workloads", "elsewhere"), ("workloads/letters.yaml", "elsewhere/letters.yaml")] {
        let temp_dir = tempfile::tempdir().unwrap();
        let (outside, pulled) = (temp_dir.path().join("elsewhere"), temp_dir.path().join("pulled"));
        fs::create_dir_all(&outside).unwrap();
        fs::create_dir_all(pulled.join(name).parent().unwrap()).unwrap();
        symlink(temp_dir.path().join(target), pulled.join(name)).unwrap();
        let output = terminal.run(&["sync", "pull", path_text(&pulled)]);
        assert!(output.code == 1 && output.err.contains("link_leads_out"), "{name}: {}", output.err);
        assert!(file_contents(&outside).is_empty() && !pulled.join("assets").exists(), "nothing was written");
    }
    let pulled = tempfile::tempdir().unwrap();
    fs::create_dir_all(pulled.path().join("workloads/letters.yaml")).unwrap();
    let output = terminal.run(&["sync", "pull", path_text(pulled.path())]);
    assert!(output.code == 1 && output.err.contains("not a file, so it was not replaced"), "{}", output.err);
    assert!(!pulled.path().join("assets").exists(), "nothing was written");
}

/// Names from a hostile server never create files outside the directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_server_names_that_leave_the_directory() {
    let asset = |slug: &str| json!({ "asset_id": WORKSPACE, "slug": slug, "asset_kind": "skill", "owner_ref": "team:x", "lifecycle_state": "active", "ownership_tier": "workspace", "workspace_id": WORKSPACE });
    let version = json!({ "asset_version_id": WORKSPACE, "asset_id": WORKSPACE, "version_label": "v1", "content": {} });
    let workload = |slug: &str| json!({ "workload_id": WORKSPACE, "slug": slug, "owner_ref": "team:x", "invocation_mode": "form", "status": "registered" });
    let release = |environment: &str| json!([{ "release_id": WORKSPACE, "environment": environment, "target_lane": "all", "state": "active", "bindings": [] }]);
    for slug in ["../../evil", "/etc/evil", "a/b", "..", "", "a\\b", "a\nb", "C:evil"] {
        for responses in [
            vec![json!([asset(slug)]), json!([]), json!([version])],
            vec![json!([]), json!([workload(slug)]), json!([])],
            vec![json!([]), json!([workload("w")]), release(slug), release(slug)[0].clone()],
        ] {
            let server = ScriptedEndpoint::start().await;
            server.respond_in_sequence(responses.iter().map(ScriptedResponse::json));
            let temp_dir = tempfile::tempdir().unwrap();
            let pulled = temp_dir.path().join("a/b/pulled");
            let terminal = Terminal { server: Some(server.url("")), ..Terminal::offline() };
            let output = terminal.run(&["sync", "pull", path_text(&pulled), "--workspace", WORKSPACE]);
            assert!(output.code == 1 && output.err.contains("invalid_slug"), "{slug}: {} {}", output.out, output.err);
            assert!(slug.is_empty() || !output.err.contains(slug), "the server's text is not repeated: {}", output.err);
            assert_eq!(file_contents(temp_dir.path()).len(), 0, "{slug}");
        }
    }
}

/// An archived asset can never be applied again. `pull` removes its files only if `pull` itself wrote them.
#[tokio::test]
async fn removes_generated_files_of_archived_assets() {
    let app = TestApp::start().await;
    let terminal = apply_and_activate(&app);
    let pulled = terminal.home.path().join("pulled");
    let (folder, local) = (path_text(&pulled), copy_directory("examples/sync"));
    terminal.run_ok(&["sync", "pull", folder]);
    let file_count = file_contents(&pulled).len();
    let releases = terminal.run_json(&["releases", "list", "--workload", "letters"]);
    let release = releases[0]["release_id"].as_str().unwrap();
    terminal.run_ok(&["releases", "retire", release]);
    for slug in ["letters-flow", "letters-policy"] {
        terminal.run_ok(&["assets", "archive", slug]);
    }
    let planned = terminal.run(&["sync", "plan", folder]);
    assert!(
        planned.code == 1 && planned.err.contains("letters-policy.yaml:2:7: asset_not_active: the asset is permanently archived on the server: remove this file"),
        "{}",
        planned.err
    );
    let printed = terminal.run_ok(&["sync", "pull", folder]);
    // The removed files are the policy, the flow with its metadata, and the release that bound both.
    assert_eq!(printed, format!("0 files written, {} unchanged, 4 removed\n", file_count - 4));
    let remaining: Vec<String> =
        file_contents(&pulled).into_keys().map(|path| path[folder.len() + 1..].to_owned()).collect();
    let expected = [
        "assets/house-style.yaml",
        "assets/letters-model.yaml",
        "assets/letters-prompt.yaml",
        "workloads/letters.yaml",
    ];
    assert_eq!(remaining, expected);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");

    // Edited files with comments and the example files remain. The flow file equals the server's text, so it is
    // removed.
    let policy = local.path().join("assets/letters-policy.yaml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, format!("# Why it is so.\n{text}")).unwrap();
    let mut before = file_contents(local.path());
    let output = terminal.run(&["sync", "pull", path_text(local.path())]);
    let lines_with = |text: &str| output.err.lines().filter(|line| line.contains(text)).collect::<Vec<_>>();
    let kept_messages = lines_with("refers to an archived asset and was kept");
    assert!(
        output.code == 0 && kept_messages.len() == 2 && kept_messages[0].contains("letters-policy.yaml"),
        "{}",
        output.err
    );
    assert!(lines_with("removed ").len() == 2 && kept_messages[1].contains("letters.dev.yaml"), "{}", output.err);
    before.retain(|path, _| !path.contains("letters-flow"));
    assert_eq!(file_contents(local.path()), before);
    // Following the instructions in the messages brings the directory in sync.
    for name in ["assets/letters-policy.yaml", "releases/letters.dev.yaml"] {
        fs::remove_file(local.path().join(name)).unwrap();
    }
    assert_eq!(terminal.run_ok(&["sync", "status", path_text(local.path())]), "in sync\n");
}
