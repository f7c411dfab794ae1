//! `sync`: synchronizes a server's workspace with a directory.

mod bad_input;
mod concurrent_apply;
mod concurrent_changes;
mod existing_releases;
mod plan_permissions;
mod prune;
mod pull;
mod server_conflicts;
mod transitive_references;
mod unusable_references;

use crate::{Terminal, make_directory, path_text, root};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A writable copy of a directory of the repository.
fn copy_directory(folder: &str) -> TempDir {
    let copied = tempfile::tempdir().unwrap();
    let status =
        std::process::Command::new("cp").arg("-r").arg(root().join(folder).join(".")).arg(copied.path()).status();
    assert!(status.unwrap().success());
    copied
}

/// All files of a directory with their content.
fn file_contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contents.extend(file_contents(&path));
        } else {
            contents.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    contents
}

#[tokio::test]
async fn plan_apply_and_status_follow_changes() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let folder = path_text(files.path());
    let plan = terminal.run_ok(&["sync", "plan", folder]);
    assert!(
        plan.contains("+ prompt_template letters-prompt is created")
            && plan.contains("+ release of letters for dev is drafted"),
        "{plan}"
    );
    assert_eq!(terminal.run(&["sync", "status", folder]).code, 2);
    let assets = terminal.run_json(&["assets", "list"]);
    assert!(!assets.to_string().contains("letters-prompt"), "a plan changes nothing");

    let applied = terminal.run_json(&["sync", "apply", folder]);
    assert_eq!(applied["releases"][0]["state"], "draft", "never more than a draft: {applied}");
    let release = applied["releases"][0]["release_id"].as_str().unwrap().to_owned();
    assert_eq!(terminal.run_json(&["releases", "show", &release])["bindings"].as_array().unwrap().len(), 4);
    assert!(terminal.run_ok(&["assets", "content", "letters-prompt"]).contains("You sort letters"), "the sidecar text");
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
    let second_apply = terminal.run_json(&["sync", "apply", folder]);
    assert_eq!(second_apply["releases"][0]["release_id"], release.as_str(), "applying again changes nothing");
    assert_eq!(terminal.run_json(&["assets", "versions", "letters-prompt"]).as_array().unwrap().len(), 1);

    // A changed file causes a new version and a new release.
    let prompt = files.path().join("assets/letters-prompt.md");
    let text = fs::read_to_string(&prompt).unwrap();
    fs::write(&prompt, text.replace("sort letters", "sort letters and cards")).unwrap();
    let plan = terminal.run_ok(&["sync", "plan", folder]);
    assert!(
        plan.contains("~ prompt_template letters-prompt gets a version")
            && plan.contains("+  You sort letters and cards"),
        "{plan}"
    );
    // `status` reports the changed files without their diffs.
    let status = terminal.run(&["sync", "status", folder]);
    assert!(status.code == 2 && status.out.contains("letters-prompt gets a version\n"), "{}", status.err);
    assert!(!status.out.contains("sort letters"), "{}", status.out);
    let next = terminal.run_json(&["sync", "apply", folder]);
    assert_ne!(next["releases"][0]["release_id"], release.as_str());
    assert_eq!(terminal.run_json(&["assets", "versions", "letters-prompt"]).as_array().unwrap().len(), 2);
    // If the file is reverted, `apply` reuses the earlier version.
    fs::write(&prompt, &text).unwrap();
    let reverted = terminal.run_json(&["sync", "apply", folder]);
    assert_eq!(reverted["releases"][0]["release_id"], release.as_str());
    assert_eq!(terminal.run_json(&["assets", "versions", "letters-prompt"]).as_array().unwrap().len(), 2);
    let workload = files.path().join("workloads/letters.yaml");
    let text = fs::read_to_string(&workload).unwrap();
    fs::write(&workload, text.replace("name: Letters", "name: Letters and cards")).unwrap();
    let effect = "workload settings take effect at once in all environments, without an approval";
    let plan = terminal.run_ok(&["sync", "plan", folder]);
    assert!(plan.contains(&format!("~ workload letters changes: name\n    {effect}\n")), "{plan}");
    let applied = terminal.run(&["sync", "apply", folder]);
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert!(applied.err.contains(&format!("changed workload letters; {effect}\n")), "{}", applied.err);
    assert_eq!(terminal.run_json(&["workloads", "show", "letters"])["name"], "Letters and cards");
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
}

#[tokio::test]
async fn refuses_a_stale_plan() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let (folder, plan) = (path_text(files.path()), terminal.home.path().join("plan.json"));
    let plan = path_text(&plan).to_owned();
    terminal.run_ok(&["sync", "plan", folder, "--out", &plan]);
    terminal.run_ok(&["sync", "apply", folder, "--plan", &plan]);
    let stale = terminal.run(&["sync", "apply", folder, "--plan", &plan]);
    assert!(stale.code == 1 && stale.err.contains("stale_plan"), "the server changed: {}", stale.err);
    terminal.run_ok(&["sync", "plan", folder, "--out", &plan]);
    fs::write(files.path().join("assets/letters-prompt.md"), "Something else: $arg:letter\n").unwrap();
    let stale = terminal.run(&["sync", "apply", folder, "--plan", &plan]);
    assert!(stale.code == 1 && stale.err.contains("stale_plan"), "the directory changed: {}", stale.err);
    assert_eq!(
        terminal.run_json(&["assets", "versions", "letters-prompt"]).as_array().unwrap().len(),
        1,
        "nothing was done"
    );
}

#[tokio::test]
async fn prune_archives_only_unused_assets() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let folder = path_text(files.path());
    terminal.run_ok(&["sync", "apply", folder]);
    app.fixtures().ticket_prompt("forgotten").await;
    assert!(terminal.run_ok(&["sync", "plan", folder]).contains("? asset forgotten is not in the directory; kept"));
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n", "unmanaged assets are no difference");
    fs::remove_dir_all(files.path().join("releases")).unwrap();
    fs::remove_file(files.path().join("assets/letters-model.yaml")).unwrap();
    let blocked = terminal.run(&["sync", "apply", folder, "--prune"]);
    assert!(
        blocked.code == 1 && blocked.err.contains("asset_in_use") && blocked.err.contains("letters-model"),
        "{}",
        blocked.err
    );
    assert!(terminal.run_ok(&["assets", "list", "--state", "active"]).contains("forgotten"), "nothing was done");
    let release =
        terminal.run_json(&["releases", "list", "--workload", "letters"])[0]["release_id"].as_str().unwrap().to_owned();
    terminal.run_ok(&["releases", "retire", &release]);
    terminal.run_ok(&["sync", "apply", folder, "--prune"]);
    let archived = terminal.run_ok(&["assets", "list", "--state", "archived"]);
    assert!(archived.contains("forgotten") && archived.contains("letters-model"), "{archived}");
    let copied = copy_directory("examples/sync");
    let refused = terminal.run(&["sync", "plan", path_text(copied.path())]);
    assert!(refused.code == 1 && refused.err.contains("letters-model.yaml:2:7: asset_not_active"), "{}", refused.err);
}

#[tokio::test]
async fn pulled_files_are_in_sync() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let approver = Terminal::connected(&app).acting_as("user:grace");
    let applied = terminal.run_json(&["sync", "apply", "examples/sync"]);
    let release = applied["releases"][0]["release_id"].as_str().unwrap();
    terminal.run_ok(&["releases", "submit", release]);
    approver.run_ok(&["releases", "approve", release]);
    approver.run_ok(&["releases", "activate", release]);

    let pulled = terminal.home.path().join("pulled");
    let folder = path_text(&pulled);
    terminal.run_ok(&["sync", "pull", folder]);
    let first = file_contents(&pulled);
    assert_eq!(first.len(), 8, "{:?}", first.keys());
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
    terminal.run_ok(&["sync", "pull", folder]);
    assert_eq!(file_contents(&pulled), first, "equal server states produce equal bytes");
    fs::remove_dir_all(&pulled).unwrap();
    terminal.run_ok(&["sync", "pull", folder]);
    assert_eq!(file_contents(&pulled), first);
    // A file whose content equals the server's is not rewritten, so its comments remain.
    let local = copy_directory("examples/sync");
    let before = file_contents(local.path());
    let printed = terminal.run_ok(&["sync", "pull", path_text(local.path())]);
    let unchanged_file = "assets/letters-policy.yaml";
    assert_eq!(
        fs::read(local.path().join(unchanged_file)).unwrap(),
        fs::read(root().join("examples/sync").join(unchanged_file)).unwrap()
    );
    let changed: Vec<&String> =
        before.keys().filter(|path| fs::read(path).ok().as_ref() != before.get(*path)).collect();
    assert!(changed.iter().all(|path| path.ends_with("letters-prompt.yaml")), "{printed}{changed:?}");
}

#[tokio::test]
async fn invalid_directory_changes_nothing() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let good = "kind: skill\nslug: good\nowner_ref: team:x\ncontent: {name: good, description: d, body: b}\n";
    let skill = |slug: &str, body: &str| {
        format!(
            "kind: skill\nslug: {slug}\nowner_ref: team:x\ncontent: {{name: {slug}, description: d, body: {body}}}\n"
        )
    };
    let prompt = |slug: &str, other: &str| {
        format!(
            "kind: prompt_template\nslug: {slug}\nowner_ref: team:x\ncontent: {{system_prompt: '@asset-ref:{other}'}}\n"
        )
    };
    let agent = |slug: &str, other: &str| {
        format!(
            "kind: agent\nslug: {slug}\nowner_ref: team:x\ncontent: {{name: {slug}, instructions: i, sub_agents: [{{ref: {{slug: {other}}}, when: w}}]}}\n"
        )
    };
    for (name, text, code) in [
        ("assets/other.yaml", skill("another", "b"), "misnamed_file"),
        ("assets/b.yaml", skill("b", "[1, 2]"), "invalid_content|wrong_type"),
        ("assets/b.yaml", "kind: dance\nslug: b\n".to_owned(), "invalid_manifest"),
        ("assets/b.yaml", "a: &a [*a]\n".to_owned(), "yaml_expansion"),
        ("assets/b.yaml", "slug: \u{0}".to_owned(), "file_binary"),
        ("assets/b.yaml", prompt("b", "nowhere"), "unknown_asset"),
        ("assets/b.yaml", agent("b", "b"), "reference_cycle"),
        ("assets/f.yaml", "kind: orchestration_flow\nslug: f\nowner_ref: team:x\ncontent: {}\n".to_owned(), "misplaced_flow"),
        ("flows/f.yaml", "entry_step: x\nsteps: [{id: x, type: return, output: {a: 1}}]\n".to_owned(), "flow_metadata_missing"),
        ("flows/f.meta.yaml", "owner_ref: team:x\n".to_owned(), "flow_missing"),
        ("releases/w.dev.yaml", "workload: w\nenvironment: dev\nbindings: [{role: skill, asset: good}]\n".to_owned(), "unknown_workload"),
        ("releases/w.dev.yaml", "workload: w\nenvironment: dev\nbindings: [{role: skill, asset: gone}]\n".to_owned(), "unknown_asset"),
        ("workloads/w.yaml", "slug: w\nowner_ref: team:x\ninvocation_mode: form\ninterface_config: {presentation_mode: dance}\n".to_owned(), "invalid_interface"),
        ("assets/b.yaml", "kind: prompt_template\nslug: b\nowner_ref: team:x\ncontent: {}\ntexts: {/system_prompt: ../../etc/passwd}\n".to_owned(), "link_leads_out"),
    ] {
        let files = make_directory(&[("assets/good.yaml", good), (name, &text)]);
        let output = terminal.run(&["sync", "apply", path_text(files.path())]);
        assert_eq!(output.code, 1, "{name} {code}: {}{}", output.out, output.err);
        let line = output.err.lines().next().unwrap();
        let is_reported = code.split('|').any(|code| line.contains(&format!(": {code}: ")));
        assert!(is_reported && line.starts_with(path_text(&files.path().join(name))), "{code}: {}", output.err);
        assert_eq!(terminal.run(&["assets", "show", "good"]).code, 1, "{code}: nothing was created");
    }
    // An unknown reference is named with its position and the nearest slug.
    let files = make_directory(&[("assets/good.yaml", good), ("assets/b.yaml", &prompt("b", "goood"))]);
    let output = terminal.run(&["sync", "plan", path_text(files.path())]);
    let message =
        "the referenced asset `goood` exists neither in the directory nor on the server; did you mean `good`?";
    assert!(output.code == 1 && output.err.contains(&format!("{message}, at byte 0 of the prompt")), "{}", output.err);
    let files = make_directory(&[("assets/good.yaml", good)]);
    std::os::unix::fs::symlink("/etc", files.path().join("flows")).unwrap();
    let output = terminal.run(&["sync", "plan", path_text(files.path())]);
    assert!(output.code == 1 && output.err.contains("link_leads_out"), "{}", output.err);
    assert_eq!(terminal.run(&["sync", "plan", "/nowhere/at/all"]).code, 1);
}

#[tokio::test]
async fn apply_continues_an_interrupted_attempt() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    // An interrupted apply left some assets, a workload without its interface, and a draft without all bindings.
    let policy = app.fixtures().as_actor("user:ada").allow_all_policy("letters-policy").await;
    let workload = json!({ "slug": "letters", "owner_ref": "team:post", "invocation_mode": "form", "name": "Letters" });
    let workload = app.post("/v1/workloads", workload).as_actor("user:ada").await.expect(201);
    let body = json!({ "workload_id": workload["workload_id"], "environment": "dev", "target_lane": "all", "policy_bundle_id": policy.asset_id });
    let draft = app.post("/v1/releases", body).as_actor("user:ada").await.expect(201);
    // The interrupted apply also left an asset without a version. The diff of this asset has only added lines.
    let style = json!({ "slug": "house-style", "asset_kind": "skill", "owner_ref": "team:post" });
    app.post("/v1/assets", style).as_actor("user:ada").await.expect(201);
    let printed = terminal.run_ok(&["sync", "plan", "examples/sync"]);
    assert!(
        printed.contains("~ skill house-style gets a version\n") && printed.contains("    +body: Be brief"),
        "{printed}"
    );
    assert!(!printed.contains("null"), "{printed}");
    let plan = terminal.run_json(&["sync", "plan", "examples/sync"]);
    assert_eq!(plan["releases"][0]["action"], "complete", "{plan}");
    assert_eq!(plan["workloads"][0]["fields"].as_object().unwrap().keys().collect::<Vec<_>>(), ["interface_config"]);
    let applied = terminal.run_json(&["sync", "apply", "examples/sync"]);
    assert_eq!(applied["releases"][0]["release_id"], draft["release_id"]);
    assert_eq!(terminal.run_ok(&["sync", "status", "examples/sync"]), "in sync\n");
    let lanes: Value = terminal.run_json(&["releases", "lanes", "letters", "--env", "dev"]);
    assert!(lanes.as_array().unwrap().iter().all(|lane| lane["holder"].is_null()), "nothing was activated: {lanes}");
}

/// To compare 1,000 unchanged files in time, the client must send concurrent requests. An optimized build has 2 s. A
/// debug build needs about 3 ms for each file and has 20 ms; the short form uses fewer files.
#[tokio::test]
async fn compares_unchanged_files_within_the_time_bound() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let is_optimised = !cfg!(debug_assertions);
    let file_count: usize = if is_optimised || fairway_testkit::is_long_form_requested() { 1000 } else { 200 };
    let max_duration = Duration::from_millis(if is_optimised { 2 } else { 20 }) * u32::try_from(file_count).unwrap();
    let files: Vec<(String, String)> = (0..file_count)
        .map(|number| {
            let text = format!("kind: skill\nslug: s{number}\nowner_ref: team:x\ncontent: {{name: s{number}, description: d, body: b}}\n");
            (format!("assets/s{number}.yaml"), text)
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let files = make_directory(&files);
    terminal.run_ok(&["sync", "apply", path_text(files.path())]);
    // Using the best of three runs reduces the influence of other load.
    let durations = (0..3).map(|_| {
        let started = Instant::now();
        let printed = terminal.run_ok(&["sync", "plan", path_text(files.path())]);
        assert_eq!(printed, format!("{file_count} up to date; nothing to do\n"));
        started.elapsed()
    });
    let best = durations.min().unwrap();
    println!("{file_count} files in {best:?}");
    assert!(best < max_duration, "{best:?}");
}
