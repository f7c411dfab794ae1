//! Commands with a server: profiles, exit codes, and the commands of each resource.

use crate::{CommandOutput, Terminal, make_directory, path_text};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    time::{Duration, Instant},
};

const PROMPT: &str = r#"{"system_prompt": "Sort this.\nOne of: praise (thanks, great), complaint (broken, late).\nText: $arg:text", "variables": [{"name": "text", "type": "string"}]}"#;
const MODEL: &str = r#"{"provider_route": {"route_id": "local-rules", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved"}}"#;
const POLICY: &str = "rules:\n  - {id: in-dev, condition: environment == \"dev\", outcome: allow, reason_code: dev}\n  - {id: loud, condition: 'inputs.text.contains(\"!!!\")', outcome: deny, reason_code: too_loud}\n";

/// Creates a prompt, a model policy and a policy with commands. Returns the terminals of two people.
pub(crate) fn create_contents(app: &TestApp) -> (Terminal, Terminal) {
    let (ada, grace) =
        (Terminal::connected(app).acting_as("user:ada"), Terminal::connected(app).acting_as("user:grace"));
    let files = make_directory(&[("prompt.json", PROMPT), ("model.json", MODEL), ("policy.yaml", POLICY)]);
    for (slug, kind, file) in [
        ("sort-prompt", "prompt_template", "prompt.json"),
        ("sort-model", "model_policy", "model.json"),
        ("sort-policy", "policy_bundle", "policy.yaml"),
    ] {
        let file = files.path().join(file);
        ada.run_ok(&["assets", "create", slug, "--kind", kind, "--owner", "team:sorting", path_text(&file)]);
    }
    (ada, grace)
}

/// Creates the workload `sorter` with a form.
pub(crate) async fn create_workload(app: &TestApp) {
    let fields =
        json!([{ "name": "text", "type": "textarea", "required": true }, { "name": "urgent", "type": "boolean" }]);
    let interface = json!({ "presentation_mode": "form", "input_fields": fields, "output_display": "text" });
    let body = json!({ "slug": "sorter", "owner_ref": "team:sorting", "invocation_mode": "form" });
    let made = app.post("/v1/workloads", body).as_actor("user:ada").await.expect(201);
    let path = format!("/v1/workloads/{}", made["workload_id"].as_str().unwrap());
    app.patch(path, json!({ "interface_config": interface })).as_actor("user:ada").await.expect(200);
}

#[tokio::test]
async fn releases_runs_and_explains_a_workload_by_commands() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, grace) = create_contents(&app);
    let bound = ["--bind", "sort-prompt", "--bind", "sort-model@v1", "--bind", "sort-policy"];
    let create: Vec<&str> = ["releases", "create", "sorter", "--env", "dev"].into_iter().chain(bound).collect();
    let release = ada.run_json(&create);
    let id = release["release_id"].as_str().unwrap();
    assert_eq!(release["bindings"].as_array().unwrap().len(), 3, "{release}");
    ada.run_ok(&["releases", "submit", id]);
    let early = ada.run(&["releases", "activate", id]);
    assert_eq!(early.code, 1);
    assert!(early.err.starts_with("fairway: approval_required: ") && early.err.contains("(request "), "{}", early.err);
    assert!(early.err.contains("approvals: 0 of 1; approvals of earlier bindings do not count"), "{}", early.err);
    assert!(early.err.contains("`fairway environments set dev "), "{}", early.err);
    assert!(grace.run_ok(&["releases", "gates", id]).contains("blocked"));
    let approved = grace.run(&["releases", "approve", id, "--note", "Read all three."]);
    assert!(approved.err.ends_with(&format!("next: fairway releases activate {id}\n")), "{}", approved.err);
    let listed = ada.run_ok(&["releases", "list"]);
    assert!(listed.contains("WORKLOAD") && listed.contains("sorter"), "{listed}");
    let active = grace.run_json(&["releases", "activate", id]);
    assert_eq!(active["state"], "active");
    assert!(grace.run_ok(&["releases", "watch", id]).ends_with("active\n"));
    let board = ada.run_ok(&["releases", "lanes", "sorter", "--env", "dev"]);
    assert_eq!(board.matches(id).count(), 3, "{board}");

    let answer =
        ada.run(&["run", "sorter", "--env", "dev", "--input", "text=Thanks, great!", "--input", "urgent=true"]);
    assert_eq!((answer.code, answer.out.as_str()), (0, "praise\n"), "{}", answer.err);
    assert!(answer.err.contains("started"), "progress goes to standard error: {}", answer.err);
    let streamed = ada.run(&["run", "sorter", "-e", "dev", "-i", "text:=\"It came late.\"", "--stream"]);
    assert_eq!((streamed.code, streamed.out.as_str()), (0, "complaint\n"), "{}", streamed.err);
    let denied = ada.run(&["run", "sorter", "--env", "dev", "--input", "text=broken!!!"]);
    assert_eq!(denied.code, 1);
    assert!(denied.err.contains("policy_denied") && denied.err.contains("reason_code: too_loud"), "{}", denied.err);
    let named = denied.err.trim_end().rsplit("next: fairway executions explain ").next().unwrap();
    let latest = ada.run_json(&["executions", "explain", "latest"]);
    assert_eq!(latest["execution"]["execution_id"], named, "{}", denied.err);
    assert_eq!(ada.run_json(&["executions", "show", &named[..35]])["execution_id"], named, "a unique beginning");
    let wrong = ada.run(&["run", "sorter", "--env", "dev", "--input", "text=x", "--input", "urgent=perhaps"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("urgent"), "{}", wrong.err);

    let runs = ada.run_json(&["executions", "list", "--workload", "sorter"]);
    let done = runs.as_array().unwrap().iter().find(|run| run["status"] == "completed").unwrap();
    let run = done["execution_id"].as_str().unwrap();
    assert_eq!(ada.run_json(&["executions", "show", run])["outcome"], "success");
    assert_eq!(ada.run_ok(&["executions", "wait", run]), "complaint\n", "the newest completed run");
    let flat = ada.run_json(&["evidence", "graph", run]);
    assert_eq!(flat["approvals"][0]["approved_by"], "user:grace", "{flat}");
    assert!(ada.run_ok(&["evidence", "graph", run]).contains("# policy_decision"));
    assert!(ada.run_ok(&["evidence", "graph", run, "--format", "mermaid"]).contains("-->|\"executed_under\"|"));
    let page = ada.run_ok(&["evidence", "graph", run, "--format", "html"]);
    assert!(page.contains("<svg") && page.contains("sort-policy") && !page.contains("<script"), "{page}");
    for shown in ["sort-policy v1", ">Models<", "sorter in dev", "tokens "] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    // The graph has an incoming edge for every box except the first. The three edges to bindings are dashed.
    let lines = page.matches("<path").count();
    assert_eq!((page.matches("<rect").count(), page.matches("class=\"dashed\"").count()), (lines + 1, 3), "{page}");
    let page = ada.run_json(&["evidence", "graph", run, "--format", "graph"]);
    assert_eq!(page["format"], "graph");

    runs_for_people(&ada, run);
    erased_run(&app, &ada, &grace, run).await;

    ada.run_ok(&["audit", "list"]);
    let late = grace.run(&["releases", "approve", id]);
    assert!(late.code == 0 && late.err.contains("the release is active; the verdict"), "{}", late.err);
    assert!(!late.err.contains("next:"), "{}", late.err);
    let rolled = grace.run(&["releases", "rollback", id, "--reason", "Too curt."]);
    assert!(rolled.code == 1 && rolled.err.contains("no_previous_release"), "{}", rolled.err);
    grace.run_ok(&["workloads", "suspend", "sorter"]);
    let stopped = ada.run(&["run", "sorter", "--env", "dev", "--input", "text=x"]);
    assert!(stopped.code == 1 && stopped.err.contains("workload_suspended"), "{}", stopped.err);
    grace.run_ok(&["workloads", "resume", "sorter"]);
}

/// Erases the texts of a run's submitter. Every form of the evidence must report the erasure, and the bundle must
/// verify.
async fn erased_run(app: &TestApp, ada: &Terminal, grace: &Terminal, run: &str) {
    let requested = grace.run_json(&["erasures", "request", "user:ada"]);
    let erasure = requested["erasure_id"].as_str().unwrap();
    ada.run_ok(&["erasures", "approve", erasure]);
    // The server completes an erasure 180 s after its approval, when all runs and requests that were active at the
    // approval have ended.
    carry_out_erasures(app).await;
    assert_eq!(ada.run_json(&["erasures", "show", erasure])["status"], "approved");
    app.database().move_clock(200).await.unwrap();
    carry_out_erasures(app).await;
    assert_eq!(ada.run_json(&["erasures", "show", erasure])["status"], "completed");
    assert_eq!(ada.run_json(&["executions", "show", run])["queued_result"], Value::Null);
    assert_eq!(ada.run_json(&["evidence", "graph", run])["execution"]["erasure_id"], erasure);
    let stated = format!("(erasure {erasure}); their digests stay");
    assert!(ada.run_ok(&["executions", "explain", run]).contains(&stated));
    let page = ada.run_ok(&["evidence", "graph", run, "--format", "html"]);
    assert!(page.contains(&stated) && page.contains("<th scope=\"row\">erased at</th>"), "{page}");
    let key = ada.run_json(&["audit", "keys"])[0]["verifier_key"].as_str().unwrap().to_owned();
    let files = make_directory(&[("bundle.json", ada.run_ok(&["evidence", "bundle", run]).trim_end())]);
    let report = ada.run_ok(&["verify", path_text(&files.path().join("bundle.json")), "--key", &key]);
    assert!(report.contains(&format!("pass  erasure in the log ({erasure})")), "{report}");
}

/// Executes approved erasures as far as possible now.
async fn carry_out_erasures(app: &TestApp) {
    while app.services().erasures.carry_out_approved().await.unwrap() {}
}

/// Lists, explains and totals the scenario's runs: two completed runs and one denied run.
fn runs_for_people(ada: &Terminal, completed: &str) {
    let list = |words: &[&str]| ada.run_ok(&[&["executions", "list"], words].concat());
    let all = list(&["--workload", "sorter", "--env", "dev", "--since", "2h", "--by", "user:ada"]);
    let lines: Vec<&str> = all.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(head, ["ID", "WORKLOAD", "STATUS", "ERROR", "DURATION", "TOKENS", "COST", "STARTED"]);
    assert_eq!(lines.len(), 4, "{all}");
    let row = lines.iter().find(|line| line.starts_with(completed)).unwrap();
    assert!(row.contains("sorter") && row.contains("completed") && row.contains(" ms"), "{row}");
    assert_eq!(list(&["--error", "deadline_exceeded"]), "no items\n");
    assert_eq!(list(&["--until", "1h"]), "no items\n");
    assert_eq!(list(&["--env", "production"]), "no items\n");
    assert_eq!(ada.run(&["executions", "list", "--since", "yesterday"]).code, 2);

    // The output reports the command for the next page, which works even with a relative time.
    let first = ada.run(&["executions", "list", "--limit", "2", "--since", "2h", "--output", "json"]);
    let note: Value = serde_json::from_str(first.err.trim()).unwrap();
    let (_, next) = note["message"].as_str().unwrap().split_once("more executions follow: fairway ").unwrap();
    let mut words: Vec<&str> = next.split_whitespace().collect();
    words.extend(["--output", "json"]);
    let second = ada.run(&words);
    assert_eq!(second.code, 0, "{}", second.err);
    let count = |text: &str| serde_json::from_str::<Value>(text).unwrap().as_array().unwrap().len();
    assert_eq!((count(&first.out), count(&second.out), second.err.contains("follow")), (2, 1, false), "{}", second.err);

    let page = ada.run_ok(&["executions", "explain", completed]);
    for text in ["completed (outcome success)", "Policy", "matched rules", "Models", "model ", "Next", "Nothing."] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let runs = ada.run_json(&["executions", "list", "--status", "denied"]);
    let denied = runs[0]["execution_id"].as_str().unwrap();
    let page = ada.run_ok(&["executions", "explain", denied]);
    for text in ["denied (outcome denied)", "deny, matched rules", "reason too_loud", "policy test"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert_eq!(ada.run(&["executions", "explain", "0190f000-0000-7000-8000-00000000abcd"]).code, 1);

    let totals = ada.run_json(&["usage", "--workload", "sorter", "--since", "2h"]);
    assert_eq!((&totals[0]["runs"], &totals[0]["failures"]), (&json!(3), &json!(0)), "{totals}");
    let table = ada.run_ok(&["usage", "--by", "day,model"]);
    assert!(table.starts_with("DAY") && table.contains("P95"), "{table}");
    assert_eq!(ada.run(&["usage", "--by", "hour"]).code, 2);
}

#[tokio::test]
async fn creates_versions_diffs_and_archives_assets() {
    let app = TestApp::start().await;
    let (ada, _) = create_contents(&app);
    let files = make_directory(&[
        ("next.yaml", "rules: [{id: all, condition: always, outcome: allow, reason_code: open}]\n"),
        ("flow.yaml", "entry_step: end\nsteps: [{id: end, type: return, output: {said: yes}}]\n"),
    ]);
    let next = files.path().join("next.yaml");
    ada.run_ok(&["assets", "add-version", "sort-policy", path_text(&next), "--note", "Everybody."]);
    let versions = ada.run_json(&["assets", "versions", "sort-policy"]);
    assert_eq!(versions.as_array().unwrap().len(), 2);
    assert!(ada.run_ok(&["assets", "content", "sort-policy@v1", "-o", "yaml"]).contains("too_loud"));
    assert!(!ada.run_ok(&["assets", "content", "sort-policy"]).contains("too_loud"), "the newest version");
    let labelled = ada.run_ok(&["assets", "diff", "sort-policy", "v1", "v2"]);
    assert!(labelled.contains("too_loud"));
    assert_eq!(ada.run_ok(&["assets", "diff", "sort-policy", "v1"]), labelled, "the newest version is the default");
    assert_eq!(ada.run_ok(&["assets", "diff", "sort-policy"]), labelled, "the newest two versions are the default");
    let single = ada.run(&["assets", "diff", "sort-model"]);
    assert!(single.code == 1 && single.err.contains("a comparison needs two"), "{}", single.err);
    let again = ada.run(&["assets", "create", "sort-policy", "--kind", "skill", "--owner", "team:x"]);
    assert!(again.code == 1 && again.err.contains("duplicate_slug"), "{}", again.err);
    ada.run_ok(&["assets", "impact", "sort-policy"]);
    ada.run_ok(&["assets", "retire", "sort-policy"]);
    assert!(ada.run_ok(&["assets", "list", "--state", "retired"]).contains("sort-policy"));
    ada.run_ok(&["assets", "activate", "sort-policy"]);
    ada.run_ok(&["assets", "archive", "sort-policy"]);

    let flow = files.path().join("flow.yaml");
    ada.run_ok(&["flows", "create", "short", "--owner", "team:sorting", path_text(&flow)]);
    assert!(ada.run_ok(&["flows", "show", "short"]).contains("{id: end"), "the original text");
    assert!(ada.run_ok(&["flows", "list"]).contains("short"));
    let workloads = ada.run_json(&["workloads", "list"]);
    assert!(workloads.as_array().unwrap().iter().any(|workload| workload["management_source"] == "workspace_builtin"));
}

#[tokio::test]
async fn exit_codes_distinguish_failures() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app);
    let missing = terminal.run(&["executions", "show", "01890000-0000-7000-8000-000000000000"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.starts_with("fairway: not_found: ") && missing.err.contains("(request "), "{}", missing.err);
    assert_eq!(terminal.run(&["executions", "shew"]).code, 2);
    assert_eq!(terminal.run(&["run", "x", "--env", "dev", "--wait", "soon"]).code, 2);
    let elsewhere = Terminal::offline().run(&["workloads", "list", "--server", "http://127.0.0.1:9"]);
    assert_eq!(elsewhere.code, 3, "{}", elsewhere.err);
    let in_clear = Terminal::offline().run(&[
        "workloads",
        "list",
        "--server",
        "http://fairway.example.org",
        "--token",
        "secret-token",
    ]);
    assert_eq!(in_clear.code, 2);
    assert!(!in_clear.err.contains("secret-token"), "{}", in_clear.err);
    assert_eq!(terminal.run(&["assets", "show", "nothing"]).code, 1);
}

#[tokio::test]
async fn profile_file_is_readable_by_its_owner_only() {
    let app = TestApp::start().await;
    let address = format!("http://{}", app.address());
    let terminal = Terminal::offline();
    let unheard = terminal.run(&["login", "--server", "http://127.0.0.1:9"]);
    assert!(
        unheard.code == 3 && !terminal.config().exists(),
        "a profile is stored only after a successful request: {}",
        unheard.err
    );
    let login = ["login", "--profile", "by-token", "--server", &address, "--token-stdin"];
    let mut child = terminal.command(&login).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"the-token\n").unwrap();
    let output = CommandOutput::of(child.wait_with_output().unwrap());
    assert!(output.code == 0 && !output.out.contains("the-token"), "{}{}", output.out, output.err);
    assert!(std::fs::read_to_string(terminal.config()).unwrap().contains("token = \"the-token\""));
    terminal.run_ok(&["login", "--server", &address, "--actor", "user:ada", "--output", "json"]);
    let listed = terminal.run_ok(&["workloads", "list", "--profile", "default"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(listed.is_array(), "the profile stores server, actor and output");

    terminal.run_ok(&[
        "login",
        "--profile",
        "far",
        "--server",
        "https://fairway.example.org",
        "--token",
        "far-token",
        "--unchecked",
    ]);
    let mode = std::fs::metadata(terminal.config()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(terminal.config()).unwrap();
    assert!(text.contains("far-token") && text.contains("user:ada"), "{text}");
    std::fs::set_permissions(terminal.config(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = terminal.run(&["workloads", "list"]);
    assert_eq!(open.code, 2);
    assert!(open.err.contains("chmod 600") && !open.err.contains("far-token"), "{}", open.err);
    std::fs::set_permissions(terminal.config(), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(terminal.run(&["workloads", "list", "--profile", "none"]).code, 2);
    std::fs::write(terminal.config(), "profile = [").unwrap();
    assert_eq!(terminal.run(&["workloads", "list"]).code, 2);
}

/// A login makes its profile the default. A login that names no profile but another server does not overwrite a
/// named profile.
#[tokio::test]
async fn login_sets_the_default_profile() {
    let app = TestApp::start().await;
    let (address, terminal) = (format!("http://{}", app.address()), Terminal::offline());
    let files = make_directory(&[("style.yaml", "{name: style, description: How, body: Be brief.}\n")]);
    let style = files.path().join("style.yaml");
    // Creates an asset, and returns the actor that created its version.
    let made_by = |slug: &str| {
        terminal.run_ok(&["assets", "create", slug, "--kind", "skill", "--owner", "team:sorting", path_text(&style)]);
        terminal.run_json(&["assets", "versions", slug])[0]["created_by"].as_str().unwrap().to_owned()
    };
    for name in ["ada", "grace"] {
        let actor = format!("user:{name}");
        let printed = terminal.run_ok(&["login", "--profile", name, "--server", &address, "--actor", &actor]);
        let expected = format!("profile `{name}` uses {address} and is now the default; saved in ");
        assert!(printed.starts_with(&expected), "{printed}");
        assert_eq!(made_by(name), actor);
    }
    let printed = terminal.run_ok(&["login", "--actor", "user:grace-hopper"]);
    assert!(printed.starts_with("profile `grace` uses"), "the default profile is updated: {printed}");
    assert_eq!(made_by("renewed"), "user:grace-hopper");
    let printed = terminal.run_ok(&["login", "--server", &address, "--actor", "user:eve"]);
    assert!(printed.starts_with("profile `default` uses"), "{printed}");
    assert_eq!(made_by("other"), "user:eve");
    let kept = std::fs::read_to_string(terminal.config()).unwrap();
    assert!(kept.contains("user:ada") && kept.contains("user:grace-hopper"), "{kept}");
}

#[test]
fn login_to_another_server_drops_the_identity() {
    let terminal = Terminal::offline();
    for name in ["", " ", "a\u{1b}[31m", "two\nlines", "\u{202e}ada"] {
        let output = terminal.run(&["login", "--profile", name, "--unchecked"]);
        assert!(output.code == 2 && !terminal.config().exists(), "{name:?}: {}", output.err);
    }
    let login = |words: &[&str]| {
        terminal.run_ok(&[&["login", "--unchecked", "--profile", "ada"][..], words].concat());
        std::fs::read_to_string(terminal.config()).unwrap()
    };
    let who = ["--actor", "user:ada", "--tenant", "acme", "--workspace", "main", "--token", "a-token", "-o", "yaml"];
    let here = ["--server", "https://one.example.org"];
    login(&[&here[..], &who].concat());
    let kept = login(&here);
    assert!(["user:ada", "acme", "main", "a-token"].iter().all(|printed| kept.contains(printed)), "{kept}");
    let kept = login(&["--server", "https://two.example.org"]);
    assert!(["user:ada", "acme", "main", "a-token"].iter().all(|printed| !kept.contains(printed)), "{kept}");
    assert!(kept.contains("https://two.example.org") && kept.contains("yaml"), "the output format stays: {kept}");
}

#[test]
fn generates_help_completions_and_manual_pages() {
    let terminal = Terminal::offline();
    assert!(terminal.run_ok(&["--help"]).contains("Exit codes"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = terminal.run_ok(&["completions", shell]);
        assert!(script.contains("COMPLETE") && script.contains("fairway"), "{shell}");
    }
    let folder = terminal.home.path().join("man");
    terminal.run_ok(&["man", path_text(&folder)]);
    let page = std::fs::read_to_string(folder.join("fairway-run.1")).unwrap();
    assert!(page.contains("Ctrl") && folder.join("fairway-sync-plan.1").exists(), "{page}");
    // A shell can load the completion script without errors.
    let script = terminal.home.path().join("fairway.bash");
    std::fs::write(&script, terminal.run_ok(&["completions", "bash"])).unwrap();
    let read = "source \"$0\" && complete -p fairway";
    let read = std::process::Command::new("bash").args(["-ec", read]).arg(&script).output().unwrap();
    assert!(read.status.success() && read.stderr.is_empty(), "{}", String::from_utf8_lossy(&read.stderr));
}

/// The time bound is the same for all builds. Using the best of several runs reduces the influence of other load.
#[test]
fn help_prints_within_the_time_bound() {
    let terminal = Terminal::offline();
    let help = || {
        let since = Instant::now();
        terminal.run_ok(&["--help"]);
        since.elapsed()
    };
    let best = (0..20).map(|_| help()).min().unwrap();
    assert!(best < Duration::from_millis(20), "{best:?}");
}

/// Creating an asset with its first version takes two requests. The server may refuse the second one.
#[tokio::test]
async fn create_continues_after_a_refused_version() {
    let app = TestApp::start().await;
    let ada = Terminal::connected(&app).acting_as("user:ada");
    let files = make_directory(&[
        ("prompt.json", r#"{"system_prompt": "@asset-ref:tone Sort."}"#),
        ("wrong.json", r#"{"rules": 1}"#),
    ]);
    let (prompt, wrong) = (files.path().join("prompt.json"), files.path().join("wrong.json"));
    let create = ["assets", "create", "outer", "--kind", "prompt_template", "--owner", "team:x", path_text(&prompt)];
    let output = ada.run(&create);
    assert!(output.code == 1 && output.err.contains("prompt_unknown_asset"), "{}", output.err);
    assert!(output.err.contains("the asset was created without a version"), "{}", output.err);
    assert_eq!(ada.run_json(&["assets", "versions", "outer"]), json!([]));
    let other =
        ada.run(&["assets", "create", "outer", "--kind", "prompt_template", "--owner", "team:y", path_text(&prompt)]);
    assert!(
        other.code == 1 && other.err.contains("duplicate_slug"),
        "an asset with another owner is a conflict: {}",
        other.err
    );
    app.fixtures().asset_with_version("skill", "tone", json!({ "name": "n", "description": "d", "body": "b" })).await;
    ada.run_ok(&create);
    assert_eq!(ada.run_json(&["assets", "versions", "outer"]).as_array().unwrap().len(), 1);
    let again = ada.run(&create);
    assert!(again.code == 1 && again.err.contains("duplicate_slug"), "{}", again.err);
    // If the client itself detects an error, nothing is created.
    for (more, code) in [(vec![], 1), (vec!["--label", "v 1"], 2), (vec!["--note", "\u{7}"], 2)] {
        let mut words =
            vec!["assets", "create", "rules", "--kind", "policy_bundle", "--owner", "team:x", path_text(&wrong)];
        words.extend(more);
        let output = ada.run(&words);
        assert_eq!(output.code, code, "{}", output.err);
        assert_eq!(ada.run(&["assets", "show", "rules"]).code, 1, "{}", output.err);
    }
}
