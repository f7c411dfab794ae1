//! Runs every command against a real server. The test fails for a command known to clap that no scenario runs.

use crate::{
    CommandOutput, Terminal,
    commands::{create_contents, create_workload},
    make_directory, path_text,
};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{cell::RefCell, collections::BTreeSet, fs};

/// All leaf commands with their words joined by `-`, taken from the names of the generated manual pages.
fn known_commands() -> BTreeSet<String> {
    let terminal = Terminal::offline();
    let folder = terminal.home.path().join("man");
    terminal.run_ok(&["man", path_text(&folder)]);
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .filter_map(|page| {
            let name = page.unwrap().file_name().into_string().unwrap();
            Some(name.strip_prefix("fairway-")?.strip_suffix(".1")?.to_owned())
        })
        .collect();
    let is_group = |page: &str| pages.iter().any(|other| other.starts_with(&format!("{page}-")));
    pages.iter().filter(|page| !is_group(page)).cloned().collect()
}

/// A terminal that records its successful commands.
struct CommandRecorder<'w> {
    terminal: Terminal,
    known: &'w BTreeSet<String>,
    recorded: &'w RefCell<BTreeSet<String>>,
}

impl CommandRecorder<'_> {
    fn record(&self, words: &[&str]) {
        let command = (1..=words.len()).map(|most| words[..most].join("-")).find(|name| self.known.contains(name));
        self.recorded.borrow_mut().insert(command.unwrap_or_else(|| panic!("{words:?} is not a command")));
    }

    fn run_ok(&self, words: &[&str]) -> String {
        let out = self.terminal.run_ok(words);
        self.record(words);
        out
    }

    fn run_json(&self, words: &[&str]) -> Value {
        let value = self.terminal.run_json(words);
        self.record(words);
        value
    }

    /// A refused command does not count as covered.
    fn run_refused(&self, words: &[&str], code: i32) -> CommandOutput {
        let output = self.terminal.run(words);
        assert_eq!(output.code, code, "{words:?}: {}{}", output.out, output.err);
        output
    }
}

#[tokio::test]
async fn runs_every_command_against_a_server() {
    // Without a worker, queued runs stay queued and can be cancelled.
    let app = TestApp::builder().without_worker().start().await;
    create_workload(&app).await;
    let (known, walked) = (known_commands(), RefCell::default());
    let (ada, grace) = create_contents(&app);
    let ada = CommandRecorder { terminal: ada, known: &known, recorded: &walked };
    let grace = CommandRecorder { terminal: grace, known: &known, recorded: &walked };

    without_a_server(&ada);
    let address = ada.terminal.server.clone().unwrap();
    assert!(ada.run_ok(&["login", "--server", &address]).contains("profile `default` uses"));
    assets(&ada);
    flows(&ada);
    let (first, second) = releases(&ada, &grace);
    self_approval(&ada);
    runs(&ada);
    // Rolling back the second release returns its lanes to the first.
    let back = grace.run_json(&["releases", "rollback", &second, "--reason", "Too curt."]);
    assert_eq!(back["rolled_back_to"], first.as_str(), "{back}");
    let watched = grace.run_refused(&["releases", "watch", &second], 1);
    assert!(watched.err.contains("superseded"), "{}", watched.err);
    assert_eq!(held_lanes(&ada, &first).len(), 3);
    assert_eq!(grace.run_json(&["releases", "retire", &second])["state"], "retired");
    directories(&ada);

    let missed: Vec<String> = known.difference(&walked.borrow()).cloned().collect();
    assert!(missed.is_empty(), "no scenario runs {missed:?}");
}

fn without_a_server(ada: &CommandRecorder<'_>) {
    assert_eq!(ada.run_ok(&["asset", "check", "demo/assets/ticket-policy.yaml"]), "valid\n");
    assert_eq!(ada.run_ok(&["flow", "validate", "demo/flows/ticket-flow.yaml"]), "valid\n");
    let rendered =
        ada.run_ok(&["prompt", "render", "demo/assets/ticket-prompt.yaml", "--arg", "ticket=I was charged twice"]);
    assert!(rendered.contains("I was charged twice"), "{rendered}");
    assert!(ada.run_ok(&["policy", "test", "examples/policy"]).contains("0 failed"));
    assert!(ada.run_ok(&["completions", "fish"]).contains("request-changes"));
    let pages = ada.terminal.home.path().join("pages");
    ada.run_ok(&["man", path_text(&pages)]);
    assert!(pages.join("fairway-releases-advance.1").exists());
}

fn assets(ada: &CommandRecorder<'_>) {
    let files = make_directory(&[
        ("style.yaml", "{name: style, description: How, body: Be brief.}\n"),
        ("next.yaml", "{name: style, description: How, body: Be kind.}\n"),
    ]);
    let (style, next) = (files.path().join("style.yaml"), files.path().join("next.yaml"));
    ada.run_ok(&["assets", "create", "style", "--kind", "skill", "--owner", "team:sorting", path_text(&style)]);
    ada.run_ok(&["assets", "add-version", "style", path_text(&next), "--note", "Kinder."]);
    assert_eq!(ada.run_json(&["assets", "show", "style"])["asset_kind"], "skill");
    assert_eq!(ada.run_json(&["assets", "versions", "style"]).as_array().unwrap().len(), 2);
    assert_eq!(ada.run_json(&["assets", "content", "style"])["body"], "Be kind.");
    assert!(ada.run_ok(&["assets", "diff", "style", "v1", "v2"]).contains("Be kind."));
    assert!(ada.run_json(&["assets", "impact", "style"]).is_object());
    for (verb, state) in [("retire", "retired"), ("activate", "active"), ("archive", "archived")] {
        assert_eq!(ada.run_json(&["assets", verb, "style"])["lifecycle_state"], state);
        assert!(ada.run_ok(&["assets", "list", "--state", state]).contains("style"));
    }
}

fn flows(ada: &CommandRecorder<'_>) {
    let text =
        |answer: &str| format!("entry_step: end\nsteps: [{{id: end, type: return, output: {{said: {answer}}}}}]\n");
    let files = make_directory(&[("one.yaml", &text("one")), ("two.yaml", &text("two"))]);
    let (one, two) = (files.path().join("one.yaml"), files.path().join("two.yaml"));
    ada.run_ok(&["flows", "create", "short", "--owner", "team:sorting", path_text(&one)]);
    assert!(ada.run_ok(&["flows", "list"]).contains("short"));
    assert!(ada.run_ok(&["flows", "show", "short"]).contains("said: one"));
    ada.run_ok(&["flows", "add-version", "short", path_text(&two), "--label", "second", "--note", "Says two."]);
    assert!(ada.run_ok(&["flows", "show", "short"]).contains("said: two"), "the newest one");
    assert!(ada.run_ok(&["assets", "versions", "short"]).contains("second"));
}

/// The lanes that a release holds.
fn held_lanes(ada: &CommandRecorder<'_>, by: &str) -> Vec<String> {
    let lanes = ada.run_json(&["releases", "lanes", "sorter", "--env", "dev"]);
    let lanes = lanes.as_array().unwrap().iter().filter(|lane| lane["holder"] == by);
    lanes.map(|lane| lane["lane"].as_str().unwrap().to_owned()).collect()
}

/// Submits a release outside `dev`, whose author may not approve it.
fn self_approval(ada: &CommandRecorder<'_>) {
    let create = ["releases", "create", "sorter", "--env", "staging", "--bind", "sort-policy"];
    let release = ada.run_json(&create)["release_id"].as_str().unwrap().to_owned();
    let submitted = ada.terminal.run(&["releases", "submit", &release]);
    assert!(submitted.code == 0 && submitted.err.contains("`allow_self_approval`"), "{}", submitted.err);
    let refused = ada.run_refused(&["releases", "approve", &release], 1);
    assert!(refused.err.contains("`allow_self_approval`"), "{}", refused.err);
}

/// Creates two releases that serve one after the other, the second by a rollout.
fn releases(ada: &CommandRecorder<'_>, grace: &CommandRecorder<'_>) -> (String, String) {
    let draft = |bound: &[&str]| {
        let words = [&["releases", "create", "sorter", "--env", "dev", "--policy", "sort-policy"], bound].concat();
        let release = ada.run_json(&words);
        assert_eq!(release["state"], "draft");
        release["release_id"].as_str().unwrap().to_owned()
    };
    let state = |release: &str| ada.run_json(&["releases", "show", release])["state"].as_str().unwrap().to_owned();
    let first = draft(&["--bind", "sort-prompt"]);
    let bound = ada.run_json(&["releases", "bind", &first, "sort-model@v1", "sort-policy"]);
    assert_eq!(bound["bindings"].as_array().unwrap().len(), 3, "{bound}");

    assert_eq!(ada.run_json(&["releases", "submit", &first])["state"], "review_ready");
    grace.run_ok(&["releases", "request-changes", &first, "--note", "Ask for the order number."]);
    assert_eq!(state(&first), "draft", "the release returns to draft");
    ada.run_ok(&["releases", "submit", &first]);
    assert_eq!(ada.run_json(&["releases", "withdraw", &first])["state"], "draft");
    ada.run_ok(&["releases", "submit", &first]);
    grace.run_ok(&["releases", "reject", &first, "--note", "It shows names."]);
    assert!(
        grace.run_refused(&["releases", "activate", &first], 1).err.contains("approval_required"),
        "a rejection counts"
    );
    grace.run_ok(&["releases", "approve", &first, "--note", "It does not any more."]);
    assert!(grace.run_ok(&["releases", "gates", &first]).contains("approved"));
    grace.run_ok(&["releases", "activate", &first, "--lane", "restricted"]);
    assert_eq!(held_lanes(ada, &first), ["restricted"], "that lane alone");
    assert!(grace.run_ok(&["releases", "watch", &first]).ends_with("active\n"));
    assert!(ada.run_ok(&["releases", "list", "--workload", "sorter", "--state", "active"]).contains(&first));
    for lane in ["guided", "standard"] {
        grace.run_ok(&["releases", "activate", &first, "--lane", lane]);
    }

    let second = draft(&["--bind", "sort-prompt", "--bind", "sort-model", "--bind", "sort-policy"]);
    ada.run_ok(&["releases", "submit", &second]);
    grace.run_ok(&["releases", "approve", &second]);
    let active =
        grace.run_json(&["releases", "activate", &second, "--rollout", "restricted,guided,standard", "--soak", "60"]);
    assert_eq!(active["rollout_state"]["status"], "in_progress", "{active}");
    assert_eq!(grace.run_refused(&["releases", "watch", &second, "--wait", "0s"], 5).out.lines().count(), 1);
    for taken in [2, 3, 3] {
        grace.run_ok(&["releases", "advance", &second]);
        assert_eq!(held_lanes(ada, &second).len(), taken);
    }
    let watched = grace.run_ok(&["releases", "watch", &second]);
    assert!(watched.contains("rollout completed"), "{watched}");
    (first, second)
}

fn runs(ada: &CommandRecorder<'_>) {
    assert!(ada.run_ok(&["workloads", "list"]).contains("sorter"));
    assert_eq!(ada.run_json(&["workloads", "show", "sorter"])["slug"], "sorter");
    assert_eq!(ada.run_json(&["workloads", "suspend", "sorter"])["status"], "suspended");
    let refused = ada.run_refused(&["run", "sorter", "--env", "dev", "--input", "text=x"], 1);
    assert!(refused.err.contains("workload_suspended"), "{}", refused.err);
    assert_eq!(ada.run_json(&["workloads", "resume", "sorter"])["status"], "registered");
    let printed = ada.run_ok(&["run", "sorter", "--env", "dev", "--lane", "guided", "--input", "text=Thanks, great!"]);
    assert_eq!(printed, "praise\n");
    let runs = ada.run_json(&["executions", "list", "--workload", "sorter", "--status", "completed"]);
    let run = runs[0]["execution_id"].as_str().unwrap();
    assert_eq!(ada.run_json(&["executions", "show", run])["lane"], "guided");
    assert_eq!(ada.run_ok(&["executions", "wait", run]), "praise\n");
    let waiting = ada.run_ok(&["run", "sorter", "--env", "dev", "--input", "text=x", "--no-wait"]);
    assert_eq!(ada.run_json(&["executions", "cancel", waiting.trim()])["status"], "cancelled");

    assert_eq!(ada.run_json(&["evidence", "graph", run])["approvals"][0]["approved_by"], "user:grace");
    let lineage = ada.run_json(&["evidence", "lineage", run]);
    assert!(lineage.is_object() || lineage.is_array(), "{lineage}");
    assert!(ada.run_ok(&["audit", "list", "--limit", "200"]).contains("execution.ended"));
}

fn directories(ada: &CommandRecorder<'_>) {
    assert!(ada.run_ok(&["sync", "plan", "examples/sync"]).contains("+ release of letters for dev is drafted"));
    let applied = ada.run_json(&["sync", "apply", "examples/sync"]);
    assert_eq!(applied["releases"][0]["state"], json!("draft"), "{applied}");
    assert_eq!(ada.run_ok(&["sync", "status", "examples/sync"]), "in sync\n");
    let pulled = tempfile::tempdir().unwrap();
    ada.run_ok(&["sync", "pull", path_text(pulled.path())]);
    assert!(fs::read_dir(pulled.path()).unwrap().count() > 0);
}
