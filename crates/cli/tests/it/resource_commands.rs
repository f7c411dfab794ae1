//! Commands of each resource with a server: releases, runs, evidence, erasures, usage, assets and flows.

use crate::{
    Terminal, make_directory, path_text,
    sample_resources::{create_contents, create_workload},
};
use fairway_testkit::TestApp;
use serde_json::{Value, json};

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
    let lane_table = ada.run_ok(&["releases", "lanes", "sorter", "--env", "dev"]);
    assert_eq!(lane_table.matches(id).count(), 3, "{lane_table}");

    let answer =
        ada.run(&["run", "sorter", "--env", "dev", "--input", "text=Thanks, great!", "--input", "urgent=true"]);
    assert_eq!((answer.code, answer.out.as_str()), (0, "praise\n"), "{}", answer.err);
    assert!(answer.err.contains("started"), "progress goes to standard error: {}", answer.err);
    let streamed = ada.run(&["run", "sorter", "-e", "dev", "-i", "text:=\"It came late.\"", "--stream"]);
    assert_eq!((streamed.code, streamed.out.as_str()), (0, "complaint\n"), "{}", streamed.err);
    let denied = ada.run(&["run", "sorter", "--env", "dev", "--input", "text=broken!!!"]);
    assert_eq!(denied.code, 1);
    assert!(denied.err.contains("policy_denied") && denied.err.contains("reason_code: too_loud"), "{}", denied.err);
    let run_id = denied.err.trim_end().rsplit("next: fairway executions explain ").next().unwrap();
    let latest = ada.run_json(&["executions", "explain", "latest"]);
    assert_eq!(latest["execution"]["execution_id"], run_id, "{}", denied.err);
    assert_eq!(ada.run_json(&["executions", "show", &run_id[..35]])["execution_id"], run_id, "a unique beginning");
    let refused = ada.run(&["run", "sorter", "--env", "dev", "--input", "text=x", "--input", "urgent=perhaps"]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("urgent"), "{}", refused.err);

    let runs = ada.run_json(&["executions", "list", "--workload", "sorter"]);
    let completed = runs.as_array().unwrap().iter().find(|run| run["status"] == "completed").unwrap();
    let run = completed["execution_id"].as_str().unwrap();
    assert_eq!(ada.run_json(&["executions", "show", run])["outcome"], "success");
    assert_eq!(ada.run_ok(&["executions", "wait", run]), "complaint\n", "the newest completed run");
    let flat = ada.run_json(&["evidence", "graph", run]);
    assert_eq!(flat["approvals"][0]["approved_by"], "user:grace", "{flat}");
    assert!(ada.run_ok(&["evidence", "graph", run]).contains("# policy_decision"));
    assert!(ada.run_ok(&["evidence", "graph", run, "--format", "mermaid"]).contains("-->|\"executed_under\"|"));
    let page = ada.run_ok(&["evidence", "graph", run, "--format", "html"]);
    assert!(page.contains("<svg") && page.contains("sort-policy") && !page.contains("<script"), "{page}");
    for text in ["sort-policy v1", ">Models<", "sorter in dev", "tokens "] {
        assert!(page.contains(text), "{text}: {page}");
    }
    // The graph has an incoming edge for every box except the first. The three edges to bindings are dashed.
    let edges = page.matches("<path").count();
    assert_eq!((page.matches("<rect").count(), page.matches("class=\"dashed\"").count()), (edges + 1, 3), "{page}");
    let page = ada.run_json(&["evidence", "graph", run, "--format", "graph"]);
    assert_eq!(page["format"], "graph");

    runs_for_people(&ada, run);
    erased_run(&app, &ada, &grace, run).await;

    ada.run_ok(&["audit", "list"]);
    let approval = grace.run(&["releases", "approve", id]);
    assert!(approval.code == 0 && approval.err.contains("the release is active; the verdict"), "{}", approval.err);
    assert!(!approval.err.contains("next:"), "{}", approval.err);
    let refused = grace.run(&["releases", "rollback", id, "--reason", "Too curt."]);
    assert!(refused.code == 1 && refused.err.contains("no_previous_release"), "{}", refused.err);
    grace.run_ok(&["workloads", "suspend", "sorter"]);
    let refused = ada.run(&["run", "sorter", "--env", "dev", "--input", "text=x"]);
    assert!(refused.code == 1 && refused.err.contains("workload_suspended"), "{}", refused.err);
    grace.run_ok(&["workloads", "resume", "sorter"]);
}

/// Commands for evidence accept the same references to runs as `executions`.
fn evidence_by_short_references(ada: &Terminal, run: &str) {
    let runs = ada.run_json(&["executions", "list"]);
    for verb in ["graph", "lineage", "documents"] {
        let by_id = ada.run_json(&["evidence", verb, run]);
        assert_eq!(ada.run_json(&["evidence", verb, &run[..35]]), by_id, "{verb}: a unique beginning");
    }
    let newest = ada.run_json(&["evidence", "graph", "latest"]);
    assert_eq!(newest["execution"]["execution_id"], runs[0]["execution_id"], "{newest}");
    let unknown = ada.run(&["evidence", "bundle", "ffffffff"]);
    assert!(
        unknown.code == 1 && unknown.err.contains("the unique beginning of its id, or `latest`"),
        "{}",
        unknown.err
    );
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
    app.database().set_clock_offset(200).await.unwrap();
    carry_out_erasures(app).await;
    assert_eq!(ada.run_json(&["erasures", "show", erasure])["status"], "completed");
    assert_eq!(ada.run_json(&["executions", "show", run])["queued_result"], Value::Null);
    assert_eq!(ada.run_json(&["evidence", "graph", run])["execution"]["erasure_id"], erasure);
    let notice = format!("(erasure {erasure}); their digests stay");
    assert!(ada.run_ok(&["executions", "explain", run]).contains(&notice));
    let page = ada.run_ok(&["evidence", "graph", run, "--format", "html"]);
    assert!(page.contains(&notice) && page.contains("<th scope=\"row\">erased at</th>"), "{page}");
    let key = ada.run_json(&["audit", "keys"])[0]["verifier_key"].as_str().unwrap().to_owned();
    let files = make_directory(&[("bundle.json", ada.run_ok(&["evidence", "bundle", run]).trim_end())]);
    let report = ada.run_ok(&["verify", path_text(&files.path().join("bundle.json")), "--key", &key]);
    assert!(report.contains(&format!("pass  erasure in the log ({erasure})")), "{report}");
}

/// Executes approved erasures as far as possible now.
async fn carry_out_erasures(app: &TestApp) {
    while app.services().erasures.erase_next_batches().await.unwrap() {}
}

/// Lists, explains and totals the scenario's runs: two completed runs and one denied run.
fn runs_for_people(ada: &Terminal, completed: &str) {
    evidence_by_short_references(ada, completed);
    let list = |args: &[&str]| ada.run_ok(&[&["executions", "list"], args].concat());
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
    let mut args: Vec<&str> = next.split_whitespace().collect();
    args.extend(["--output", "json"]);
    let second = ada.run(&args);
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
    let refused = ada.run(&["assets", "create", "sort-policy", "--kind", "skill", "--owner", "team:x"]);
    assert!(refused.code == 1 && refused.err.contains("duplicate_slug"), "{}", refused.err);
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

/// Creating an asset with its first version takes two requests. The server may refuse the second one.
#[tokio::test]
async fn create_continues_after_a_refused_version() {
    let app = TestApp::start().await;
    let ada = Terminal::connected(&app).acting_as("user:ada");
    let files = make_directory(&[
        ("prompt.json", r#"{"system_prompt": "@asset-ref:tone Sort."}"#),
        ("wrong.json", r#"{"rules": 1}"#),
    ]);
    let (prompt, invalid) = (files.path().join("prompt.json"), files.path().join("wrong.json"));
    let create = ["assets", "create", "outer", "--kind", "prompt_template", "--owner", "team:x", path_text(&prompt)];
    let output = ada.run(&create);
    assert!(output.code == 1 && output.err.contains("prompt_unknown_asset"), "{}", output.err);
    assert!(output.err.contains("the asset was created without a version"), "{}", output.err);
    assert_eq!(ada.run_json(&["assets", "versions", "outer"]), json!([]));
    let refused =
        ada.run(&["assets", "create", "outer", "--kind", "prompt_template", "--owner", "team:y", path_text(&prompt)]);
    assert!(
        refused.code == 1 && refused.err.contains("duplicate_slug"),
        "an asset with another owner is a conflict: {}",
        refused.err
    );
    app.fixtures().asset_with_version("skill", "tone", json!({ "name": "n", "description": "d", "body": "b" })).await;
    ada.run_ok(&create);
    assert_eq!(ada.run_json(&["assets", "versions", "outer"]).as_array().unwrap().len(), 1);
    let refused = ada.run(&create);
    assert!(refused.code == 1 && refused.err.contains("duplicate_slug"), "{}", refused.err);
    // If the client itself detects an error, nothing is created.
    for (options, code) in [(vec![], 1), (vec!["--label", "v 1"], 2), (vec!["--note", "\u{7}"], 2)] {
        let mut args =
            vec!["assets", "create", "rules", "--kind", "policy_bundle", "--owner", "team:x", path_text(&invalid)];
        args.extend(options);
        let output = ada.run(&args);
        assert_eq!(output.code, code, "{}", output.err);
        assert_eq!(ada.run(&["assets", "show", "rules"]).code, 1, "{}", output.err);
    }
}

#[tokio::test]
async fn explains_that_no_rule_of_the_policy_matched() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, grace) = create_contents(&app);
    let bound = ["--bind", "sort-prompt", "--bind", "sort-model", "--bind", "sort-policy"];
    let create: Vec<&str> = ["releases", "create", "sorter", "--env", "staging"].into_iter().chain(bound).collect();
    let release = ada.run_json(&create);
    let id = release["release_id"].as_str().unwrap();
    ada.run_ok(&["releases", "submit", id]);
    grace.run_ok(&["releases", "approve", id]);
    grace.run_ok(&["releases", "activate", id]);
    let denied = ada.run(&["run", "sorter", "--env", "staging", "--input", "text=x", "--input", "urgent=true"]);
    assert!(denied.code == 1 && denied.err.contains("no_matching_rule"), "{}", denied.err);
    let page = ada.run_ok(&["executions", "explain", "latest"]);
    for text in [
        "rule in-dev: its condition was false",
        "rule loud: its condition was false",
        "fairway assets content sort-policy@v1",
        "fairway policy try policy.json --env staging",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[tokio::test]
async fn submissions_and_approvals_warn_of_a_refused_activation() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, grace) = create_contents(&app);
    let release = ada.run_json(&["releases", "create", "sorter", "--env", "dev", "--bind", "sort-prompt"]);
    let id = release["release_id"].as_str().unwrap();
    let warning = "warning: an activation would be refused: bind a version with the role `policy_bundle`";
    for (person, verb) in [(&ada, "submit"), (&grace, "approve")] {
        let output = person.run(&["releases", verb, id]);
        assert!(output.code == 0 && output.err.contains(warning), "{verb}: {}", output.err);
    }
}
