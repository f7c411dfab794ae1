//! Runs every command against a real server. The test fails if a command that clap defines is not covered by any
//! scenario.

use crate::{
    CommandOutput, Terminal, make_directory, path_text,
    sample_resources::{create_contents, create_workload},
};
use fairway_testkit::{SmtpServer, TestApp};
use serde_json::{Value, json};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

/// All leaf commands with their words joined by `-`. They are derived from the file names of the generated manual
/// pages.
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

/// A terminal that records which commands succeeded.
struct CommandRecorder<'w> {
    terminal: Terminal,
    known: &'w BTreeSet<String>,
    recorded: &'w RefCell<BTreeSet<String>>,
}

impl CommandRecorder<'_> {
    fn record(&self, args: &[&str]) {
        let command = (1..=args.len()).map(|length| args[..length].join("-")).find(|name| self.known.contains(name));
        self.recorded.borrow_mut().insert(command.unwrap_or_else(|| panic!("{args:?} is not a command")));
    }

    fn run_ok(&self, args: &[&str]) -> String {
        let output = self.terminal.run_ok(args);
        self.record(args);
        output
    }

    fn run_json(&self, args: &[&str]) -> Value {
        let value = self.terminal.run_json(args);
        self.record(args);
        value
    }

    /// Runs a command that must be refused. A refused command does not count as covered.
    fn run_refused(&self, args: &[&str], code: i32) -> CommandOutput {
        let output = self.terminal.run(args);
        assert_eq!(output.code, code, "{args:?}: {}{}", output.out, output.err);
        output
    }
}

#[tokio::test]
async fn runs_every_command_against_a_server() {
    // The server has no worker, so queued runs stay queued and can be cancelled.
    let smtp = SmtpServer::start().unwrap();
    let app = TestApp::builder()
        .without_worker()
        .setting("FAIRWAY_SMTP_URL", smtp.url())
        .setting("FAIRWAY_MAIL_FROM", "fairway@example.com")
        .start()
        .await;
    create_workload(&app).await;
    let on = serde_json::json!({ "advanced_notifications_enabled": true });
    app.patch("/v1/tenants/00000000-0000-7000-8000-000000000001/settings", on).await.expect(200);
    let (known, recorded) = (known_commands(), RefCell::default());
    let (ada, grace) = create_contents(&app);
    let ada = CommandRecorder { terminal: ada, known: &known, recorded: &recorded };
    let grace = CommandRecorder { terminal: grace, known: &known, recorded: &recorded };

    without_a_server(&ada);
    let address = ada.terminal.server.clone().unwrap();
    assert!(ada.run_ok(&["login", "--server", &address]).contains("profile `default` uses"));
    assets(&ada);
    flows(&ada);
    let (first, second) = releases(&ada, &grace);
    self_approval(&ada);
    runs(&ada);
    // A rollback of the second release returns its lanes to the first release.
    let rolled_back = grace.run_json(&["releases", "rollback", &second, "--reason", "Too curt."]);
    assert_eq!(rolled_back["rolled_back_to"], first.as_str(), "{rolled_back}");
    let watched = grace.run_refused(&["releases", "watch", &second], 1);
    assert!(watched.err.contains("superseded"), "{}", watched.err);
    assert_eq!(held_lanes(&ada, &first).len(), 3);
    assert_eq!(grace.run_json(&["releases", "retire", &second])["state"], "retired");
    directories(&ada);
    local_identity(&ada);
    administration(&ada);
    knowledge(&ada);
    reviews(&ada, &grace);
    use_cases(&ada);
    erasures(&ada, &grace);
    notifications(&ada);

    let missing: Vec<String> = known.difference(&recorded.borrow()).cloned().collect();
    assert!(missing.is_empty(), "no scenario runs {missing:?}");
}

/// One administrator requests erasures, and another decides on them.
fn erasures(ada: &CommandRecorder<'_>, grace: &CommandRecorder<'_>) {
    let request = || {
        let requested = ada.run_json(&["erasures", "request", "user:eve"]);
        requested["erasure_id"].as_str().unwrap().to_owned()
    };
    let first = request();
    let self_approval = ada.run_refused(&["erasures", "approve", &first], 1);
    assert!(self_approval.err.contains("approved by another person"), "{}", self_approval.err);
    assert_eq!(grace.run_json(&["erasures", "approve", &first])["status"], "approved");
    assert_eq!(ada.run_json(&["erasures", "refuse", &request()])["status"], "refused");
    let refused = ada.run_ok(&["erasures", "list", "--status", "refused"]);
    assert!(refused.contains("user:eve") && !refused.contains(&first), "{refused}");
    assert_eq!(ada.run_json(&["erasures", "show", &first])["decided_by"], "user:grace");
}

fn notifications(ada: &CommandRecorder<'_>) {
    ada.run_ok(&["notifications", "preferences", "--category", "incidents", "--channel", "webhook", "--on"]);
    assert!(ada.run_ok(&["notifications", "explain", "incidents"]).contains("global"));
    let url = ["--url", "https://127.0.0.1/in"];
    let destination = ada.run_json(&["notifications", "destinations", "create", "webhook", "Hook", url[0], url[1]]);
    let id = destination["destination_id"].as_str().unwrap();
    assert!(ada.run_ok(&["notifications", "destinations", "list"]).contains("Hook"));
    let refused = ada.run_refused(&["notifications", "destinations", "test", id], 1);
    assert!(refused.err.contains("did not accept the test message"), "{}", refused.err);
    let address = ["--address", "team@example.org"];
    let team = ada.run_json(&["notifications", "destinations", "create", "email", "Team", address[0], address[1]]);
    let team = team["destination_id"].as_str().unwrap();
    assert_eq!(ada.run_json(&["notifications", "destinations", "test", team])["status"], "sent");
    assert_eq!(ada.run_json(&["notifications", "destinations", "set", id, "--off"])["is_enabled"], false);
    assert_eq!(ada.run_json(&["notifications", "destinations", "delete", id])["deleted"], true);
    ada.run_ok(&["notifications", "deliveries"]);
    ada.run_ok(&["notifications", "suppressed"]);
    let is_watch_over = AtomicBool::new(false);
    let (terminal, is_over) = (&ada.terminal, &is_watch_over);
    std::thread::scope(|scope| {
        // A watch shows only events after its start, so this thread repeats the incident until the watch ends.
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                terminal.run_ok(&["workloads", "suspend", "sorter"]);
                terminal.run_ok(&["workloads", "resume", "sorter"]);
            }
        });
        // The thread is stopped before any assertion, because a failed assertion would leave it running.
        let watched = ada.terminal.run(&["notifications", "watch", "--count", "1"]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(watched.code, 0, "{}{}", watched.out, watched.err);
        assert!(watched.out.contains("was suspended"), "{}", watched.out);
        ada.record(&["notifications", "watch"]);
    });
    ada.run_ok(&["notifications", "announce", "Done", "It works again."]);
    ada.run_ok(&["notifications", "inbox", "--status", "unread"]);
    assert!(ada.run_json(&["notifications", "mark", "--all"])["unread_count"].is_u64());
}

fn without_a_server(ada: &CommandRecorder<'_>) {
    assert_eq!(ada.run_ok(&["assets", "check", "demo/assets/ticket-policy.yaml"]), "valid\n");
    assert_eq!(ada.run_ok(&["flows", "validate", "demo/flows/ticket-flow.yaml"]), "valid\n");
    let rendered =
        ada.run_ok(&["prompt", "render", "demo/assets/ticket-prompt.yaml", "--arg", "ticket=I was charged twice"]);
    assert!(rendered.contains("I was charged twice"), "{rendered}");
    assert!(ada.run_ok(&["policy", "test", "examples/policy"]).contains("0 failed"));
    let explanation = ada.run_ok(&["policy", "try", "demo", "--input", "examples/cli/ticket-input.yaml"]);
    assert!(
        explanation.contains("allow (dev_ticket)") && explanation.contains("- long-tickets: does not hold"),
        "{explanation}"
    );
    let directory = ada.terminal.home.path().join("fresh");
    ada.run_ok(&["init", path_text(&directory)]);
    assert!(ada.run_ok(&["completions", "fish"]).contains("COMPLETE"));
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
    // A release may bind several skills, so `--replace` identifies the replaced binding by the asset.
    let draft = ada.run_json(&["releases", "create", "sorter", "--env", "dev", "--bind", "style@v1"]);
    let draft = draft["release_id"].as_str().unwrap();
    for attempt in ["the other version", "the bound version"] {
        let replaced = ada.run_json(&["releases", "bind", draft, "style@v2", "--replace"]);
        assert_eq!(replaced["bindings"].as_array().unwrap().len(), 1, "{attempt}: {replaced}");
    }
    let refusal = ada.run_refused(&["assets", "archive", "style"], 1).err;
    assert!(refusal.contains(&format!("{draft}: draft: of the workload `sorter` in `dev`")), "{refusal}");
    assert!(refusal.contains(&format!("next: fairway releases unbind {draft} style")), "{refusal}");
    ada.run_ok(&["releases", "retire", draft]);
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
fn held_lanes(ada: &CommandRecorder<'_>, release: &str) -> Vec<String> {
    let lanes = ada.run_json(&["releases", "lanes", "sorter", "--env", "dev"]);
    let lanes = lanes.as_array().unwrap().iter().filter(|lane| lane["holder"] == release);
    lanes.map(|lane| lane["lane"].as_str().unwrap().to_owned()).collect()
}

/// Submits a release outside `dev`. Its author may not approve it there.
fn self_approval(ada: &CommandRecorder<'_>) {
    let create = ["releases", "create", "sorter", "--env", "staging", "--bind", "sort-policy"];
    let release = ada.run_json(&create)["release_id"].as_str().unwrap().to_owned();
    let submitted = ada.terminal.run(&["releases", "submit", &release]);
    assert!(submitted.code == 0 && submitted.err.contains("`allow_self_approval`"), "{}", submitted.err);
    let refused = ada.run_refused(&["releases", "approve", &release], 1);
    assert!(refused.err.contains("`allow_self_approval`") && !refused.err.contains("PUT "), "{}", refused.err);
    let command = "`fairway environments set staging --allow-self-approval true`";
    assert!(refused.err.contains(command), "{}", refused.err);
    // The server accepts an empty draft for review, but then it can neither be activated nor changed. The command
    // therefore refuses it.
    let empty = ada.run_json(&["releases", "create", "sorter", "--env", "staging"]);
    let empty = empty["release_id"].as_str().unwrap();
    let refused = ada.run_refused(&["releases", "submit", empty], 1);
    assert!(refused.err.contains("binds no version") && refused.err.contains("releases bind"), "{}", refused.err);
}

/// Creates two releases that are active one after the other. The second one is activated by a rollout.
fn releases(ada: &CommandRecorder<'_>, grace: &CommandRecorder<'_>) -> (String, String) {
    let draft = |bound: &[&str]| {
        let args = [&["releases", "create", "sorter", "--env", "dev", "--policy", "sort-policy"], bound].concat();
        let release = ada.run_json(&args);
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
    let refused = ada.run_refused(&["releases", "unbind", &first, "sort-model"], 1);
    assert!(refused.err.contains(&format!("`fairway releases withdraw {first}`")), "{}", refused.err);
    assert_eq!(ada.run_json(&["releases", "withdraw", &first])["state"], "draft");
    let refused = ada.run_refused(&["releases", "bind", &first, "sort-policy"], 1);
    assert!(
        refused.err.contains("in the role `policy_bundle`") && refused.err.contains("--replace"),
        "{}",
        refused.err
    );
    let replaced = ada.run_json(&["releases", "bind", &first, "sort-policy", "--replace"]);
    assert_eq!(replaced["bindings"].as_array().unwrap().len(), 3, "{replaced}");
    let unbound = ada.run_json(&["releases", "unbind", &first, "sort-model"]);
    assert_eq!(unbound["bindings"].as_array().unwrap().len(), 2, "{unbound}");
    ada.run_ok(&["releases", "bind", &first, "sort-model@v1"]);
    ada.run_ok(&["releases", "submit", &first]);
    grace.run_ok(&["releases", "reject", &first, "--note", "It shows names."]);
    let rejected = grace.run_refused(&["releases", "activate", &first], 1).err;
    assert!(rejected.contains("approval_required: rejected by user:grace: It shows names."), "{rejected}");
    assert!(rejected.contains(&format!("`fairway releases withdraw {first}`")), "{rejected}");
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
    let same = ada.run_json(&["releases", "diff", &second]);
    assert_eq!((&same["base_release_id"], &same["changes"]), (&json!(first), &json!([])), "{same}");
    ada.run_ok(&["releases", "submit", &second]);
    grace.run_ok(&["releases", "approve", &second]);
    let active =
        grace.run_json(&["releases", "activate", &second, "--rollout", "restricted,guided,standard", "--soak", "60"]);
    assert_eq!(active["rollout_state"]["status"], "in_progress", "{active}");
    assert_eq!(grace.run_refused(&["releases", "watch", &second, "--wait", "0s"], 5).out.lines().count(), 1);
    for lane_count in [2, 3, 3] {
        grace.run_ok(&["releases", "advance", &second]);
        assert_eq!(held_lanes(ada, &second).len(), lane_count);
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
    assert!(refused.err.ends_with("next: fairway workloads resume sorter\n"), "{}", refused.err);
    assert_eq!(ada.run_json(&["workloads", "resume", "sorter"])["status"], "registered");
    let printed = ada.run_ok(&["run", "sorter", "--env", "dev", "--lane", "guided", "--input", "text=Thanks, great!"]);
    assert_eq!(printed, "praise\n");
    let runs = ada.run_json(&["executions", "list", "--workload", "sorter", "--status", "completed"]);
    let run = runs[0]["execution_id"].as_str().unwrap();
    assert_eq!(ada.run_json(&["executions", "show", run])["lane"], "guided");
    assert_eq!(ada.run_json(&["executions", "explain", run])["execution"]["execution_id"], run);
    assert_eq!(ada.run_json(&["usage", "--by", "workload,day"])[0]["workload_slug"], "sorter");
    assert_eq!(ada.run_ok(&["executions", "wait", run]), "praise\n");
    let queued_run = ada.run_ok(&["run", "sorter", "--env", "dev", "--input", "text=x", "--no-wait"]);
    assert_eq!(ada.run_json(&["executions", "cancel", "latest"])["status"], "cancelled");
    let refused = ada.run_refused(&["executions", "cancel", queued_run.trim()], 1);
    assert!(
        refused.err.contains("execution_not_cancellable") && refused.err.contains("status is cancelled"),
        "{}",
        refused.err
    );

    assert_eq!(ada.run_json(&["evidence", "graph", run])["approvals"][0]["approved_by"], "user:grace");
    let lineage = ada.run_json(&["evidence", "lineage", run]);
    assert!(lineage.is_object() || lineage.is_array(), "{lineage}");
    assert!(ada.run_ok(&["audit", "list", "--limit", "200"]).contains("execution.ended"));
    proofs(ada, run);
}

/// Creates the evidence bundle of a run, which an auditor verifies without the server.
fn proofs(ada: &CommandRecorder<'_>, run: &str) {
    // The command waits until a checkpoint covers the end of the run.
    let bundle = ada.run_ok(&["evidence", "bundle", run]);
    let summary = ada.run_ok(&["releases", "summary", "sorter@dev"]);
    assert!(summary.contains("application/vnd.in-toto+json"), "{summary}");
    let keys = ada.run_json(&["audit", "keys"]);
    let key = keys[0]["verifier_key"].as_str().unwrap();
    let event = ada.run_json(&["audit", "list", "--limit", "200"]).as_array().unwrap().last().unwrap().clone();
    let proof = ada.run_json(&["audit", "proof", event["event_id"].as_str().unwrap()]);
    assert_eq!(proof["index"], event["index"]);
    assert_eq!(ada.run_json(&["audit", "consistency", "1", "2"])["tree_size"], 2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.json");
    fs::write(&file, &bundle).unwrap();
    let report = ada.run_ok(&["verify", path_text(&file), "--key", key]);
    assert!(report.contains("This bundle shows:") && report.contains("It does not show:"), "{report}");
    let refused = ada.run_refused(&["verify", path_text(&file)], 1);
    assert!(refused.err.contains("give a key with --key"), "{}", refused.err);
    fs::write(&file, bundle.replacen("eyJ", "eyK", 1)).unwrap();
    ada.run_refused(&["verify", path_text(&file), "--key", key], 1);
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

/// A server in local mode reports that it checks no names and tokens.
fn local_identity(ada: &CommandRecorder<'_>) {
    let without_token = ada.terminal.run(&["whoami"]);
    assert!(without_token.out.contains("local mode: names and tokens are not checked"), "{}", without_token.out);
    assert!(!without_token.err.contains("warning:"), "{}", without_token.err);
    let with_token = ada.terminal.run(&["whoami", "--token", "nonsense"]);
    assert!(with_token.err.contains("warning: the token has no effect, because a server in local mode"));
    assert_eq!(ada.run_json(&["whoami"])["sign_in_mode"], "local");
}

/// Commands for workloads, share links, roles, environments, and the caller's own identity.
fn administration(ada: &CommandRecorder<'_>) {
    assert!(ada.run_ok(&["logout"]).contains("has no token"));
    let session = ada.run_json(&["whoami"]);
    assert_eq!(session["actor"], "user:ada");
    assert!(session["permissions"].as_array().unwrap().contains(&json!("release.approve")), "{session}");

    let files = make_directory(&[(
        "form.yaml",
        "interface_config:\n  presentation_mode: form\n  input_fields: [{name: text, type: text}]\n",
    )]);
    let form = files.path().join("form.yaml");
    let workload =
        ada.run_json(&["workloads", "create", "echo", "--owner", "team:sorting", "--interface", path_text(&form)]);
    assert_eq!(workload["interface_config"]["input_fields"][0]["name"], "text", "{workload}");
    let edited = ada.run_json(&["workloads", "edit", "echo", "--name", "Echo", "--no-interface"]);
    assert_eq!((&edited["name"], &edited["interface_config"]), (&json!("Echo"), &Value::Null));
    assert_eq!(edited["owner_ref"], "team:sorting", "other fields stay");
    ada.run_refused(&["workloads", "edit", "echo"], 2);

    let link =
        ada.run_json(&["share-links", "create", "sorter", "--label", "For Tina", "--hours", "2", "--max-uses", "3"]);
    let address = ada.terminal.server.clone().unwrap();
    let link_address = format!("{address}/workload-runtime/sorter?token={}", link["token"].as_str().unwrap());
    assert_eq!((&link["address"], &link["max_uses"]), (&json!(link_address), &json!(3)));
    let printed = ada.run_ok(&["share-links", "create", "sorter"]);
    assert!(
        printed.starts_with(&format!("{address}/workload-runtime/sorter?token=fws_")) && printed.lines().count() == 1
    );
    let listed = ada.run_ok(&["share-links", "list", "sorter"]);
    assert!(listed.contains("For Tina") && !listed.contains("fws_"), "{listed}");
    assert_eq!(ada.run_json(&["share-links", "revoke", "sorter", "For Tina"])["revoked"], true);
    let repeated = ada.terminal.run(&["share-links", "revoke", "sorter", "For Tina"]);
    assert!(repeated.code == 0 && repeated.err.contains("the link is revoked already"), "{}", repeated.err);
    let listed = ada.run_ok(&["share-links", "list", "sorter"]);
    assert!(["STATE", "revoked", "active"].iter().all(|text| listed.contains(text)), "{listed}");
    let refused = ada.run_refused(&["share-links", "revoke", "sorter", "For Bea"], 1);
    assert!(refused.err.contains("has no share link `For Bea`"), "{}", refused.err);

    assert!(ada.run_ok(&["roles", "list"]).contains("approver"));
    let binding = ada.run_json(&["role-bindings", "create", "user:bea", "approver", "--workload", "sorter"]);
    assert_eq!((&binding["scope_kind"], &binding["role"]), (&json!("workload"), &json!("approver")));
    let id = binding["role_binding_id"].as_str().unwrap();
    ada.run_ok(&["role-bindings", "create", "user:bea", "viewer"]);
    let bindings = ada.run_json(&["role-bindings", "list", "--principal", "user:bea"]);
    assert!(bindings.as_array().unwrap().iter().any(|item| item["scope_kind"] == "workspace"), "{bindings}");
    ada.run_ok(&["role-bindings", "delete", id]);
    ada.run_refused(&["role-bindings", "delete", id], 1);

    let settings = ada.run_json(&["environments", "set", "staging", "--min-approvals", "2"]);
    assert_eq!(settings["min_approvals"], 2);
    let settings = ada.run_json(&["environments", "set", "staging", "--pin-documents", "true"]);
    assert_eq!((&settings["min_approvals"], &settings["pin_documents"]), (&json!(2), &json!(true)), "the others stay");
    assert_eq!(ada.run_json(&["environments", "show", "staging"])["min_approvals"], 2);
    assert_eq!(ada.run_json(&["environments", "show", "--env", "staging"])["min_approvals"], 2);
    let listed = ada.run_json(&["environments", "list"]);
    let staging = listed.as_array().unwrap().iter().find(|row| row["environment"] == "staging").unwrap();
    assert_eq!((&staging["min_approvals"], staging["releases"].as_u64()), (&json!(2), Some(2)), "{listed}");
    for (option, noun) in [("--tenant", "tenant"), ("--workspace", "workspace")] {
        let refused = ada.run_refused(&["whoami", option, "nope"], 2);
        assert!(refused.err.contains(&format!("no {noun} `nope` is visible to you")), "{}", refused.err);
        let refused = ada.run_refused(&["run", "sorter", "--env", "dev", option, "nope", "--input", "text=x"], 2);
        assert!(refused.err.contains(&format!("no {noun} `nope` is visible to you")), "{}", refused.err);
    }
    let misspelt = ada.terminal.run(&["environments", "show", "stagin"]);
    assert!(misspelt.code == 0 && misspelt.err.contains("did you mean `staging`?"), "{}", misspelt.err);
    ada.run_refused(&["environments", "show", "staging", "--env", "dev"], 2);
    let set_command = ["environments", "set", "stagin", "--min-approvals", "2"];
    let first = ada.terminal.run(&set_command);
    assert!(first.err.contains("and this command makes it one; did you mean `staging`?"), "{}", first.err);
    for args in [&set_command[..], &["environments", "show", "stagin"][..]] {
        let output = ada.terminal.run(args);
        let notice = "`stagin` has settings but no release, so `fairway environments list` omits it; did you mean \
                      `staging`?";
        assert!(output.code == 0 && output.err.contains(notice), "{args:?}: {}", output.err);
    }
}

/// Documents are uploaded once, and again only after their text has changed.
fn knowledge(ada: &CommandRecorder<'_>) {
    let base = json!({ "source_type": "inline", "chunk_strategy": "sentence", "retrieval": { "strategy": "lexical", "top_k": 3 },
        "access_contract": { "contract_id": "handbook", "version": "1", "default_decision": "deny", "allowed_principals": ["user:ada"],
            "allowed_groups": [], "allowed_workspaces": [], "allowed_access_modes": ["retrieve"], "citation_required": false,
            "revoked": false, "revoked_at": null } });
    let files = make_directory(&[
        ("base.json", &base.to_string()),
        ("docs/leave.md", "# Holidays\nThirty days of leave."),
        ("docs/more/travel.txt", "Take the train."),
        ("docs/picture.png", "not a text"),
    ]);
    let file = files.path().join("base.json");
    let create =
        ["assets", "create", "handbook", "--kind", "knowledge_base", "--owner", "team:people", path_text(&file)];
    ada.terminal.run_ok(&create);
    let docs = files.path().join("docs");
    let upload = ["documents", "upload", path_text(&docs), "--to", "handbook"];
    let first_upload = ada.run_json(&upload);
    assert_eq!((&first_upload["uploaded"], &first_upload["unchanged"]), (&json!(2), &json!(0)), "{first_upload}");
    let second_upload = ada.run_json(&upload);
    assert_eq!((&second_upload["uploaded"], &second_upload["unchanged"]), (&json!(0), &json!(2)), "{second_upload}");
    fs::write(docs.join("leave.md"), "# Holidays\nThirty-one days.").unwrap();
    assert_eq!(ada.run_json(&upload)["uploaded"], 1);
    fs::write(docs.join("leave.md"), "# Holidays\nThirty days of leave.").unwrap();
    assert_eq!(ada.run_json(&upload)["uploaded"], 1, "an earlier text is a change again");
    let listed = ada.run_json(&["documents", "list", "handbook"]);
    let ids: BTreeSet<_> =
        listed.as_array().unwrap().iter().map(|document| document["document_id"].as_str().unwrap()).collect();
    assert_eq!(ids, BTreeSet::from(["leave.md", "more/travel.txt"]), "{listed}");
    assert_eq!(ada.run_json(&["documents", "list", "handbook", "--all"]).as_array().unwrap().len(), 4);
    fs::write(docs.join("empty.md"), " ").unwrap();
    let empty = ada.run_refused(&upload, 1);
    assert!(empty.err.contains("empty.md:1:1: empty_document"), "{}", empty.err);
    let wrong_kind = ada.run_refused(&["documents", "upload", path_text(&docs), "--to", "sort-prompt"], 1);
    assert!(wrong_kind.err.contains("empty_document"), "files are checked first: {}", wrong_kind.err);
    let runs = ada.run_json(&["executions", "list", "--workload", "sorter", "--status", "completed"]);
    let run = runs[0]["execution_id"].as_str().unwrap();
    assert_eq!(ada.run_json(&["evidence", "documents", run]), json!([]), "the run retrieved nothing");
}

/// A policy with `human_review` withholds the result until a reviewer decides.
fn reviews(ada: &CommandRecorder<'_>, grace: &CommandRecorder<'_>) {
    let policy = "rules: [{id: all, condition: always, outcome: allow_with_obligations, obligations: [human_review], \
                  reason_code: reviewed}]\n";
    let files = make_directory(&[("policy.yaml", policy)]);
    let policy = files.path().join("policy.yaml");
    ada.terminal.run_ok(&["assets", "add-version", "sort-policy", path_text(&policy)]);
    let bound = ["--bind", "sort-prompt", "--bind", "sort-model", "--bind", "sort-policy"];
    ada.terminal.run_ok(&[&["releases", "create", "sorter", "--env", "dev"], &bound[..]].concat());
    let changes = ada.run_json(&["releases", "diff", "sorter@dev"]);
    assert_eq!(changes["changes"][0]["change"], "changed", "{changes}");
    for verb in ["submit", "approve", "activate"] {
        grace.run_ok(&["releases", verb, "sorter@dev"]);
    }
    let run = |text: &str| {
        let output = ada.run_refused(&["run", "sorter", "--env", "dev", "--input", text], 5);
        output.err.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned()
    };
    let first = run("text=Thanks!");
    assert!(grace.run_ok(&["reviews", "list"]).contains(&first));
    assert!(grace.run_json(&["reviews", "show", "latest"])["output"].to_string().contains("praise"));
    assert_eq!(grace.run_json(&["reviews", "answer", &first, "--approve", "--note", "Fine."])["status"], "completed");
    let second = run("text=It is broken.");
    assert_eq!(grace.run_json(&["reviews", "answer", "latest", "--reject"])["status"], "denied");
    let refused = grace.run_refused(&["reviews", "answer", second.get(..13).unwrap(), "--approve"], 1);
    assert!(refused.err.contains("`fairway reviews list` lists all"), "{}", refused.err);
    grace.run_refused(&["reviews", "answer", "latest"], 2);
}

/// An author publishes without the permission to create connections, and the platform team decides on the access
/// requests.
fn use_cases(ada: &CommandRecorder<'_>) {
    let refused = ada.run_refused(&["use-cases", "generate", "Complaints"], 1);
    assert!(refused.err.contains("the generator asks: "), "{}", refused.err);
    let sentence = "Answer a `letter` with data of the `crm` connection.";
    let plan = ada.run_ok(&["use-cases", "generate", sentence]);
    assert!(plan.contains("? connection crm (missing"), "{plan}");
    let generated = ada.run_json(&["use-cases", "generate", sentence]);
    let files = make_directory(&[("plan.json", &generated.to_string())]);
    let file = files.path().join("plan.json");
    let create = || {
        let created = ada.run_json(&["use-cases", "create", sentence, "--bundle", path_text(&file)]);
        created["use_case_id"].as_str().unwrap().to_owned()
    };
    let refined = ada.run_json(&["use-cases", "refine", &create(), "--note", "Be brief."]);
    let id = refined["use_case_id"].as_str().unwrap();
    let comparison = ada.run_json(&["use-cases", "changes", id]);
    assert_eq!(comparison["changes"][0]["path"], "prompt_template", "{comparison}");
    let printed = ada.run_ok(&["use-cases", "changes", id]);
    assert!(printed.contains("Be brief.") && printed.contains("= flow.steps.answer"), "{printed}");
    ada.run_ok(&["role-bindings", "create", "user:publisher", "author"]);
    let publish = |id: &str| ada.run_json(&["use-cases", "publish", id, "--actor", "user:publisher"]);
    assert_eq!(publish(id)["status"], "pending_access");
    let request = || {
        let pending = ada.run_json(&["access-requests", "list", "--status", "pending"]);
        pending[0]["access_request_id"].as_str().unwrap().to_owned()
    };
    let denied = ada.run_json(&["access-requests", "deny", &request(), "--reason", "Not yet."]);
    assert_eq!(denied["status"], "denied");
    let request_record = ada.run_json(&["access-requests", "show", denied["access_request_id"].as_str().unwrap()]);
    assert_eq!((&request_record, &request_record["reason"]), (&denied, &json!("Not yet.")));
    assert_eq!(ada.run_json(&["use-cases", "reopen", id])["status"], "draft");
    publish(id);
    let grant = ["access-requests", "grant", &request(), "--secret", "token=env:CRM_TOKEN", "--kind", "other"];
    assert_eq!(ada.run_json(&grant)["status"], "granted");
    assert_eq!(ada.run_json(&["use-cases", "show", id])["status"], "active");
    assert_eq!(ada.run_json(&["use-cases", "archive", id])["status"], "archived");

    ada.run_ok(&["connections", "set", "crm", "--status", "disabled"]);
    let second = create();
    assert_eq!(publish(&second)["status"], "pending_access");
    ada.run_ok(&["connections", "set", "crm", "--status", "active"]);
    let ready = ada.run_json(&["use-cases", "list", "--activation-ready"]);
    assert_eq!(ready[0]["use_case_id"], second.as_str());
    assert_eq!(ada.run_json(&["use-cases", "activate", &second])["status"], "active");

    ada.run_ok(&["connections", "create", "mail", "--kind", "smtp", "--expires-at", "2099-01-01T00:00:00Z"]);
    assert_eq!(ada.run_json(&["connections", "check", "mail"])["health"], "not_checkable");
    assert_eq!(ada.run_json(&["connections", "show", "mail"])["checks"].as_array().unwrap().len(), 1);
    assert!(ada.run_ok(&["connections", "list"]).contains("not_checkable"));
    let refused = ada.run_refused(&["connections", "create", "x", "--secret", "sk-canary"], 2);
    assert!(!refused.err.contains("sk-canary"), "{}", refused.err);
    assert_eq!(ada.run_json(&["connections", "delete", "mail"])["deleted"], true);
}
