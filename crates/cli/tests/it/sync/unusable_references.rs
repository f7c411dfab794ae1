//! References that no release can include any more are reported before any change is made.

use crate::{Terminal, make_directory, path_text};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{fs, path::Path};

const RULES: &str = "kind: policy_bundle\nslug: P-policy\nowner_ref: team:x\ncontent:\n  rules:\n    - {id: in-dev, condition: environment == \"dev\", outcome: allow, reason_code: dev}\n  tests:\n    - {name: in dev, input: {environment: dev}, expect: {outcome: allow}}\n";
const MODEL: &str = "kind: model_policy\nslug: P-model\nowner_ref: team:x\ncontent:\n  provider_route: {route_id: local-rules, provider: local, model: rules, account_slot: local, state: approved}\n";
const SKILL: &str = "kind: skill\nslug: P-skill\nowner_ref: team:x\ncontent: {name: n, description: d, body: b}\n";
const PROMPT: &str =
    "kind: prompt_template\nslug: P-prompt\nowner_ref: team:x\ncontent:\n  system_prompt: '@asset-ref:P-skill Sort.'\n";
const FLOW: &str = "name: Answer\ntrigger:\n  type: api_request\nentry_step: answer\nsteps:\n  - id: answer\n    type: return\n    output:\n      text: one\n";
const WORKLOAD: &str = "slug: P\nowner_ref: team:x\ninvocation_mode: form\n";
const RELEASE: &str = "workload: P\nenvironment: dev\nbindings:\n  - {role: prompt_template, asset: P-prompt}\n  - {role: model_policy, asset: P-model}\n  - {role: policy_bundle, asset: P-policy}\n  - {role: orchestration_flow, asset: P-flow}\n";
const INNER: &str = "kind: agent\nslug: P-inner\nowner_ref: team:x\ncontent: {name: n, instructions: i}\n";
const MIDDLE: &str = "kind: agent\nslug: P-middle\nowner_ref: team:x\ncontent:\n  name: n\n  instructions: i\n  sub_agents:\n    - {ref: {slug: P-inner}, when: w}\n";
const OUTER: &str = "kind: agent\nslug: P-outer\nowner_ref: team:x\ncontent:\n  name: n\n  instructions: i\n  sub_agents:\n    - {ref: {slug: P-middle}, when: w}\n";
const OUTER_RELEASE: &str = "workload: P\nenvironment: dev\nbindings:\n  - {role: agent, asset: P-outer}\n  - {role: policy_bundle, asset: P-policy}\n";

/// The files of a complete release that includes a skill.
const SERVING: [(&str, &str); 8] = [
    ("assets/P-policy.yaml", RULES),
    ("assets/P-model.yaml", MODEL),
    ("assets/P-skill.yaml", SKILL),
    ("assets/P-prompt.yaml", PROMPT),
    ("flows/P-flow.yaml", FLOW),
    ("flows/P-flow.meta.yaml", "owner_ref: team:x\n"),
    ("workloads/P.yaml", WORKLOAD),
    ("releases/P.dev.yaml", RELEASE),
];
const AGENTS: [(&str, &str); 6] = [
    ("assets/P-policy.yaml", RULES),
    ("assets/P-inner.yaml", INNER),
    ("assets/P-middle.yaml", MIDDLE),
    ("assets/P-outer.yaml", OUTER),
    ("workloads/P.yaml", WORKLOAD),
    ("releases/P.dev.yaml", OUTER_RELEASE),
];
const SOLO: [(&str, &str); 2] = [
    (
        "assets/P-prompt.yaml",
        "kind: prompt_template\nslug: P-prompt\nowner_ref: team:x\ncontent: {system_prompt: Hi.}\n",
    ),
    ("assets/P-skill.yaml", SKILL),
];

struct Case {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// A lifecycle action on an asset of the server: the action and the asset.
    lifecycle_action: Option<(&'static str, &'static str)>,
    removed_files: &'static [&'static str],
    /// Changes of files afterwards: the file, the old text and the new text. An empty old text replaces the whole file.
    changes: &'static [(&'static str, &'static str, &'static str)],
    /// The expected finding: the file with its line, and the code.
    expected: (&'static str, &'static str),
}

const NEW_RULES: (&str, &str, &str) = ("assets/P-policy.yaml", "reason_code: dev", "reason_code: inside");
const NEW_PROMPT: (&str, &str, &str) = ("assets/P-prompt.yaml", "Sort.", "Sort well.");
const NEW_FLOW: (&str, &str, &str) = ("flows/P-flow.yaml", "text: one", "text: two");
const PROMPT_REFERS: (&str, &str) = ("assets/P-prompt.yaml:5:", "asset_not_active");

const CASES: [Case; 9] = [
    Case {
        name: "a-archived",
        files: &SERVING,
        lifecycle_action: Some(("archive", "P-skill")),
        removed_files: &["assets/P-skill.yaml"],
        changes: &[NEW_RULES, NEW_PROMPT],
        expected: PROMPT_REFERS,
    },
    Case {
        name: "b-flow",
        files: &SERVING,
        lifecycle_action: Some(("archive", "P-skill")),
        removed_files: &["assets/P-skill.yaml"],
        changes: &[NEW_FLOW],
        expected: PROMPT_REFERS,
    },
    Case {
        name: "c-retired",
        files: &SERVING,
        lifecycle_action: Some(("retire", "P-skill")),
        removed_files: &["assets/P-skill.yaml"],
        changes: &[NEW_RULES, NEW_PROMPT],
        expected: PROMPT_REFERS,
    },
    Case {
        name: "c-retired-flow",
        files: &SERVING,
        lifecycle_action: Some(("retire", "P-skill")),
        removed_files: &["assets/P-skill.yaml"],
        changes: &[NEW_FLOW],
        expected: PROMPT_REFERS,
    },
    Case {
        name: "d-agent",
        files: &AGENTS,
        lifecycle_action: Some(("archive", "P-inner")),
        removed_files: &["assets/P-inner.yaml"],
        changes: &[("assets/P-middle.yaml", "instructions: i", "instructions: more")],
        expected: ("assets/P-middle.yaml:8:", "asset_not_active"),
    },
    // The agent between the release and the unusable asset exists only on the server.
    Case {
        name: "d-deep",
        files: &AGENTS,
        lifecycle_action: Some(("archive", "P-inner")),
        removed_files: &["assets/P-inner.yaml", "assets/P-middle.yaml"],
        changes: &[("assets/P-outer.yaml", "instructions: i", "instructions: more")],
        expected: ("assets/P-outer.yaml:8:", "asset_not_active"),
    },
    Case {
        name: "e-version",
        files: &SOLO,
        lifecycle_action: None,
        removed_files: &[],
        changes: &[
            NEW_BODY,
            (
                "assets/P-agent.yaml",
                "",
                "kind: agent\nslug: P-agent\nowner_ref: team:x\ncontent:\n  name: n\n  prompt_ref: {slug: P-prompt, version: v9}\n",
            ),
        ],
        expected: ("assets/P-agent.yaml:6:", "unknown_version"),
    },
    Case {
        name: "f-kind",
        files: &SOLO,
        lifecycle_action: None,
        removed_files: &[],
        changes: &[
            NEW_BODY,
            (
                "assets/P-agent.yaml",
                "",
                "kind: agent\nslug: P-agent\nowner_ref: team:x\ncontent:\n  name: n\n  instructions: i\n  skills: [{slug: P-prompt}]\n",
            ),
        ],
        expected: ("assets/P-agent.yaml:7:", "role_kind_mismatch"),
    },
    Case {
        name: "f-server",
        files: &SOLO,
        lifecycle_action: None,
        removed_files: &["assets/P-prompt.yaml"],
        changes: &[
            NEW_BODY,
            (
                "assets/P-agent.yaml",
                "",
                "kind: agent\nslug: P-agent\nowner_ref: team:x\ncontent:\n  name: n\n  instructions: i\n  skills: [{slug: P-prompt}]\n",
            ),
        ],
        expected: ("assets/P-agent.yaml:7:", "role_kind_mismatch"),
    },
];
const NEW_BODY: (&str, &str, &str) = ("assets/P-skill.yaml", "body: b", "body: c");

/// The complete server state of all assets whose slugs have this prefix.
fn server_state(terminal: &Terminal, prefix: &str) -> Vec<Value> {
    let assets = terminal.run_json(&["assets", "list"]);
    let slugs = assets.as_array().unwrap().iter().map(|asset| asset["slug"].as_str().unwrap());
    let matching = slugs.filter(|slug| slug.starts_with(prefix));
    let mut remote_state: Vec<Value> = matching.map(|slug| terminal.run_json(&["assets", "versions", slug])).collect();
    assert!(!remote_state.is_empty());
    remote_state.extend([terminal.run_json(&["workloads", "list"]), terminal.run_json(&["releases", "list"]), assets]);
    remote_state
}

fn activate(app: &TestApp, applied: &Value) {
    for release in applied["releases"].as_array().unwrap() {
        let release = release["release_id"].as_str().unwrap();
        Terminal::connected(app).acting_as("user:ada").run_ok(&["releases", "submit", release]);
        let approver = Terminal::connected(app).acting_as("user:grace");
        approver.run_ok(&["releases", "approve", release]);
        approver.run_ok(&["releases", "activate", release]);
    }
}

fn replace_in_file(root: &Path, rename: impl Fn(&str) -> String, file: &str, before: &str, after: &str) {
    let path = root.join(rename(file));
    let text = if before.is_empty() { String::new() } else { fs::read_to_string(&path).unwrap() };
    assert!(text.contains(before), "{text}");
    fs::write(path, if before.is_empty() { rename(after) } else { text.replace(before, after) }).unwrap();
}

#[tokio::test]
async fn reports_unusable_references_before_any_change() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    for Case { name, files, lifecycle_action, removed_files, changes, expected: (location, code) } in CASES {
        let rename = |text: &str| {
            text.replace("P.", &format!("{name}."))
                .replace("P-", &format!("{name}-"))
                .replace(": P\n", &format!(": {name}\n"))
        };
        let files: Vec<(String, String)> = files.iter().map(|(file, text)| (rename(file), rename(text))).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
        let files = make_directory(&files);
        let folder = path_text(files.path());
        activate(&app, &terminal.run_json(&["sync", "apply", folder]));
        for file in removed_files {
            fs::remove_file(files.path().join(rename(file))).unwrap();
        }
        if let Some((action, slug)) = lifecycle_action {
            terminal.run_ok(&["assets", action, &rename(slug)]);
        }
        assert_eq!(
            terminal.run_ok(&["sync", "status", folder]),
            "in sync\n",
            "{name}: a serving release stays in sync"
        );
        for (file, before, after) in changes {
            replace_in_file(files.path(), rename, file, before, after);
        }
        let before = server_state(&terminal, name);
        for command in ["plan", "apply", "status"] {
            let output = terminal.run(&["sync", command, folder]);
            let lines: Vec<&str> = output.err.lines().collect();
            let start = path_text(&files.path().join(rename(location))).to_owned();
            let is_reported =
                lines.len() == 1 && lines[0].starts_with(&start) && lines[0].contains(&format!(": {code}: "));
            assert!(output.code == 1 && is_reported, "{name} {command}: {}{}", output.out, output.err);
        }
        assert_eq!(server_state(&terminal, name), before, "{name}: nothing was changed");
    }
}

/// Content may reference a version that the same `apply` creates.
#[tokio::test]
async fn accepts_references_to_planned_versions() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let agent = "kind: agent\nslug: lead\nowner_ref: team:x\ncontent: {name: n, instructions: i, skills: [{slug: tone, version: v1}]}\n";
    let files = make_directory(&[("assets/lead.yaml", agent), ("assets/tone.yaml", &SKILL.replace("P-skill", "tone"))]);
    let folder = path_text(files.path());
    terminal.run_ok(&["sync", "apply", folder]);
    let versions = terminal.run_json(&["assets", "versions", "lead"]);
    assert_eq!(versions[0]["content"]["skills"], json!([{ "slug": "tone", "version": "v1" }]));
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
}

/// References of a draft are not yet frozen. An archived asset therefore blocks the submission of the draft.
#[tokio::test]
async fn status_fails_for_a_draft_that_cannot_be_submitted() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let rename = |text: &str| text.replace("P-", "w-").replace("P.", "w.").replace(": P\n", ": w\n");
    let files: Vec<(String, String)> = SERVING.iter().map(|(file, text)| (rename(file), rename(text))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let files = make_directory(&files);
    let folder = path_text(files.path());
    terminal.run_ok(&["sync", "apply", folder]);
    fs::remove_file(files.path().join("assets/w-skill.yaml")).unwrap();
    terminal.run_ok(&["assets", "archive", "w-skill"]);
    let output = terminal.run(&["sync", "status", folder]);
    assert!(
        output.code == 1 && output.err.contains("w-prompt.yaml:5:") && output.err.contains("asset_not_active"),
        "{}{}",
        output.out,
        output.err
    );
}
