//! A plan is applied exactly or not at all, despite other servers, changed directories and concurrent clients.

use super::copy_directory;
use crate::{Terminal, make_directory, path_text};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp};
use serde_json::{Value, json};
use std::fs;

const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";
const RELEASE: &str = "01890000-0000-7000-8000-00000000000a";
const WORKLOAD: &str = "slug: w\nowner_ref: team:x\ninvocation_mode: form\n";

#[tokio::test]
async fn refuses_a_plan_of_another_server() {
    let (app, other) = (TestApp::start().await, TestApp::start().await);
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let plan = terminal.home.path().join("plan.json");
    terminal.run_ok(&["sync", "plan", "examples/sync", "--out", path_text(&plan)]);
    let other_terminal = Terminal::connected(&other).acting_as("user:ada");
    let output = other_terminal.run(&["sync", "apply", "examples/sync", "--plan", path_text(&plan)]);
    assert!(output.code == 1 && output.err.contains("plan_of_another_server"), "{}", output.err);
    assert_eq!(other_terminal.run(&["assets", "show", "letters-prompt"]).code, 1, "nothing was created");
    terminal.run_ok(&["sync", "apply", "examples/sync", "--plan", path_text(&plan)]);
}

#[tokio::test]
async fn refuses_a_plan_after_any_file_change() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let plan = terminal.home.path().join("plan.json");
    for (name, before, after) in [
        ("releases/letters.dev.yaml", "bindings:", "target_lane: restricted\nbindings:"),
        ("assets/letters-policy.yaml", "owner_ref: team:risk", "owner_ref: team:other"),
        ("flows/letters-flow.meta.yaml", "owner_ref: team:post", "owner_ref: team:other"),
        ("flows/letters-flow.yaml", "entry_step:", "# Another remark.\nentry_step:"),
    ] {
        let files = copy_directory("examples/sync");
        terminal.run_ok(&["sync", "plan", path_text(files.path()), "--out", path_text(&plan)]);
        let path = files.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(before), "{name}");
        fs::write(&path, text.replace(before, after)).unwrap();
        let output = terminal.run(&["sync", "apply", path_text(files.path()), "--plan", path_text(&plan)]);
        assert!(output.code == 1 && output.err.contains("stale_plan"), "{name}: {}", output.err);
    }
    fs::write(&plan, "{\"server\": 1,\n").unwrap();
    let output = terminal.run(&["sync", "apply", "examples/sync", "--plan", path_text(&plan)]);
    assert!(output.code == 1 && output.err.contains("plan.json:2:"), "{}", output.err);
    assert_eq!(terminal.run(&["assets", "show", "letters-prompt"]).code, 1, "nothing was created");
}

fn workload(name: &str, updated_at: &str) -> Value {
    json!({ "workload_id": WORKSPACE, "slug": "w", "name": name, "owner_ref": "team:x", "invocation_mode": "form", "status": "registered", "updated_at": updated_at })
}

/// Applies a directory to a server with scripted responses. Returns the output, and the server with the received
/// requests.
async fn apply_to(
    responses: Vec<ScriptedResponse>,
    files: &[(&str, &str)],
) -> (crate::CommandOutput, ScriptedEndpoint) {
    let server = ScriptedEndpoint::start().await;
    server.respond_in_sequence(responses);
    let files = make_directory(files);
    let terminal = Terminal { server: Some(server.url("")), ..Terminal::offline() };
    let output = terminal.run(&["sync", "apply", path_text(files.path()), "--workspace", WORKSPACE]);
    (output, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_to_change_a_workload_changed_since_the_plan() {
    let files = [("workloads/w.yaml", &*format!("{WORKLOAD}name: Mine\n"))];
    let (planned_at, changed_at) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let lists =
        || vec![ScriptedResponse::json(&json!([])), ScriptedResponse::json(&json!([workload("Before", planned_at)]))];
    let get_response =
        |updated_at: &str| ScriptedResponse::json(&workload("Before", updated_at)).header("ETag", "\"3\"");

    let (output, server) = apply_to([lists(), vec![get_response(changed_at)]].concat(), &files).await;
    assert!(output.code == 1 && output.err.contains("stale_plan: workload w changed"), "{}", output.err);
    assert!(server.requests().iter().all(|request| request.method == "GET"), "nothing was changed");

    // The workload changes between the client's read and its write.
    let refused = json!({ "detail": { "error": "precondition_failed", "message": "m" }, "request_id": WORKSPACE });
    let refused = || vec![get_response(planned_at), ScriptedResponse::status(412, &refused.to_string())];
    let (output, server) = apply_to([lists(), refused(), vec![get_response(changed_at)]].concat(), &files).await;
    assert!(output.code == 1 && output.err.contains("stale_plan: workload w changed"), "{}", output.err);
    let patch = server.requests().into_iter().rev().nth(1).unwrap();
    assert_eq!(
        (patch.method.as_str(), patch.header("if-match"), patch.json()),
        ("PATCH", Some("\"3\""), json!({ "name": "Mine" }))
    );

    // If a concurrent client made the same change, `apply` succeeds.
    let same_change = || ScriptedResponse::json(&workload("Mine", changed_at)).header("ETag", "\"4\"");
    for responses in [vec![same_change()], [refused(), vec![same_change()]].concat()] {
        let (output, _) = apply_to([lists(), responses].concat(), &files).await;
        assert_eq!(output.code, 0, "{}", output.err);
    }
}

/// Two clients prune concurrently. The second client finds the asset already archived, and succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepts_an_asset_archived_concurrently() {
    for (state, code) in [("archived", 0), ("draft", 1)] {
        let server = ScriptedEndpoint::start().await;
        let asset = json!({ "asset_id": RELEASE, "slug": "tone", "asset_kind": "skill", "lifecycle_state": "active", "ownership_tier": "workspace", "workspace_id": WORKSPACE });
        let detail = json!({ "error": "invalid_transition", "message": "m", "current_state": state });
        let refused = json!({ "detail": detail, "request_id": WORKSPACE }).to_string();
        server.respond_in_sequence(vec![
            ScriptedResponse::json(&json!([asset])),
            ScriptedResponse::json(&json!([workload("W", "2026-01-01T00:00:00Z")])),
            ScriptedResponse::json(&json!({ "truncated": false, "releases": [], "via": [] })),
            ScriptedResponse::status(409, &refused),
        ]);
        let files = make_directory(&[("workloads/w.yaml", &format!("{WORKLOAD}name: W\n"))]);
        let terminal = Terminal { server: Some(server.url("")), ..Terminal::offline() };
        let output = terminal.run(&["sync", "apply", path_text(files.path()), "--workspace", WORKSPACE, "--prune"]);
        assert_eq!(output.code, code, "{state}: {}", output.err);
        let last = server.requests().into_iter().next_back().unwrap();
        assert!(last.method == "POST" && !output.err.contains("archived tone"), "{state}: {}", output.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_to_complete_a_draft_changed_since_the_plan() {
    let files = [
        ("workloads/w.yaml", WORKLOAD),
        ("releases/w.dev.yaml", "workload: w\nenvironment: dev\nbindings: [{role: skill, asset: tone, version: v1}]\n"),
    ];
    let id = |last: char| format!("01890000-0000-7000-8000-00000000000{last}");
    let asset = json!({ "asset_id": id('1'), "slug": "tone", "asset_kind": "skill", "lifecycle_state": "active" });
    let version = json!({ "asset_id": id('1'), "asset_version_id": id('2'), "version_label": "v1", "content": {} });
    let draft = |state: &str, updated_at: &str, bound: &[char]| {
        let bindings: Vec<Value> =
            bound.iter().map(|last| json!({ "asset_version_id": id(*last), "role": "skill" })).collect();
        json!({ "release_id": RELEASE, "state": state, "target_lane": "all", "environment": "dev", "policy_bundle_id": null, "updated_at": updated_at, "bindings": bindings })
    };
    let missing = json!({ "detail": { "error": "not_found", "message": "m" }, "request_id": WORKSPACE }).to_string();
    let planned_draft = draft("draft", "2026-01-01T00:00:00Z", &[]);
    let plan_responses = || {
        vec![
            ScriptedResponse::json(&json!([asset])),
            ScriptedResponse::json(&json!([workload("W", "2026-01-01T00:00:00Z")])),
            ScriptedResponse::json(&json!([version])),
            ScriptedResponse::status(404, &missing),
            ScriptedResponse::json(&json!([planned_draft])),
            ScriptedResponse::json(&planned_draft),
        ]
    };
    for changed in [draft("draft", "2026-01-02T00:00:00Z", &['3']), draft("review_ready", "2026-01-01T00:00:00Z", &[])]
    {
        let (output, server) =
            apply_to([plan_responses(), vec![ScriptedResponse::json(&changed)]].concat(), &files).await;
        assert!(
            output.code == 1 && output.err.contains(&format!("stale_plan: the draft {RELEASE} changed")),
            "{}",
            output.err
        );
        assert!(server.requests().iter().all(|request| request.method == "GET"), "nothing was bound");
    }
    // The client detects a concurrent binding after it has bound its own versions.
    let with_other_binding = draft("draft", "2026-01-02T00:00:00Z", &['2', '3']);
    let responses = vec![
        ScriptedResponse::json(&planned_draft),
        ScriptedResponse::json(&json!({})),
        ScriptedResponse::json(&with_other_binding),
    ];
    let (output, server) = apply_to([plan_responses(), responses].concat(), &files).await;
    assert!(output.code == 1 && output.err.contains("stale_plan"), "{}", output.err);
    assert_eq!(server.requests().iter().filter(|request| request.method == "POST").count(), 1);
    let complete = draft("draft", "2026-01-02T00:00:00Z", &['2']);
    let responses = vec![
        ScriptedResponse::json(&planned_draft),
        ScriptedResponse::json(&json!({})),
        ScriptedResponse::json(&complete),
    ];
    let (output, _) = apply_to([plan_responses(), responses].concat(), &files).await;
    assert_eq!(output.code, 0, "{}", output.err);
}

/// Identifiers are assigned before drafts become visible. When a client creates a draft, it can therefore not know
/// the order of drafts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn keeps_one_of_two_concurrent_drafts_complete() {
    let files = [
        ("workloads/w.yaml", WORKLOAD),
        ("releases/w.dev.yaml", "workload: w\nenvironment: dev\nbindings: [{role: skill, asset: tone, version: v1}]\n"),
    ];
    let id = |last: char| format!("01890000-0000-7000-8000-00000000000{last}");
    let asset = json!({ "asset_id": id('1'), "slug": "tone", "asset_kind": "skill", "lifecycle_state": "active" });
    let version = json!({ "asset_id": id('1'), "asset_version_id": id('2'), "version_label": "v1", "content": {} });
    let draft = |last: char, is_complete: bool| {
        let binding = json!({ "binding_id": id('3'), "asset_version_id": id('2'), "role": "skill" });
        let bindings = if is_complete { vec![binding] } else { Vec::new() };
        json!({ "release_id": id(last), "state": "draft", "target_lane": "all", "environment": "dev", "policy_bundle_id": null, "updated_at": "2026-01-01T00:00:00Z", "bindings": bindings })
    };
    let missing = json!({ "detail": { "error": "not_found", "message": "m" }, "request_id": WORKSPACE }).to_string();
    let listed =
        |last: &[char]| ScriptedResponse::json(&json!(last.iter().map(|last| draft(*last, false)).collect::<Vec<_>>()));
    let response = |release: Value| ScriptedResponse::json(&release);
    let draft_responses = || {
        let workloads = || ScriptedResponse::json(&json!([workload("W", "2026-01-01T00:00:00Z")]));
        let plan =
            vec![ScriptedResponse::json(&json!([asset])), workloads(), ScriptedResponse::json(&json!([version]))];
        let creation = vec![
            ScriptedResponse::status(404, &missing),
            listed(&[]),
            workloads(),
            listed(&[]),
            response(draft('a', false)),
        ];
        [plan, creation].concat()
    };
    let bind_responses = || vec![ScriptedResponse::json(&json!({})), response(draft('a', true))];
    let empty_responses = |last: char| vec![response(draft(last, true)), ScriptedResponse::status(204, "")];
    let bindings_of = |last: char| format!("/v1/releases/{}/bindings", id(last));
    // Each case: the responses after the creation of draft `a`, the responses after its bindings, whether versions are
    // bound, whether `apply` succeeds, and the draft that is emptied.
    for (responses, is_bound, succeeds, emptied_draft) in [
        // An earlier draft `9` is visible at once.
        (vec![listed(&['a', '9'])], false, false, None),
        // Draft `9` becomes visible after draft `a` is complete. Of the two, the complete draft is kept.
        (
            [
                vec![listed(&['a'])],
                bind_responses(),
                vec![listed(&['a', '9']), response(draft('9', true))],
                empty_responses('a'),
            ]
            .concat(),
            true,
            false,
            Some('a'),
        ),
        (
            [vec![listed(&['a'])], bind_responses(), vec![listed(&['a', '9']), response(draft('9', false))]].concat(),
            true,
            false,
            None,
        ),
        // The later draft `b` is already complete, because its client could not see draft `a`.
        (vec![listed(&['b', 'a']), response(draft('b', true))], false, false, None),
        // The later draft `b` is incomplete. Its client will see draft `a`; otherwise this client empties draft `b`.
        (
            [
                vec![listed(&['b', 'a']), response(draft('b', false))],
                bind_responses(),
                vec![listed(&['b', 'a'])],
                vec![response(draft('b', false))],
            ]
            .concat(),
            true,
            true,
            None,
        ),
        (
            [
                vec![listed(&['b', 'a']), response(draft('b', false))],
                bind_responses(),
                vec![listed(&['b', 'a'])],
                empty_responses('b'),
            ]
            .concat(),
            true,
            true,
            Some('b'),
        ),
    ] {
        let (output, server) = apply_to([draft_responses(), responses].concat(), &files).await;
        assert_eq!(output.code, i32::from(!succeeds), "{}", output.err);
        assert_eq!(output.err.contains("stale_plan: the releases of w for dev changed"), !succeeds, "{}", output.err);
        let count = |method: &str, path: &str| {
            server.requests().iter().filter(|request| request.method == method && request.path == path).count()
        };
        assert_eq!(count("POST", &bindings_of('a')), usize::from(is_bound));
        for draft in ['9', 'a', 'b'] {
            let removed = count("DELETE", &format!("{}/{}", bindings_of(draft), id('3')));
            assert_eq!(removed, usize::from(emptied_draft == Some(draft)), "{draft}");
        }
    }
}

/// A version with a custom label does not change the next generated label.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detects_a_version_added_since_the_plan() {
    let manifest = "kind: skill\nslug: tone\nowner_ref: team:x\ncontent: {name: n, description: d, body: New.}\n";
    let files = [("assets/tone.yaml", manifest)];
    let id = |last: char| format!("01890000-0000-7000-8000-00000000000{last}");
    let asset = json!({ "asset_id": id('1'), "slug": "tone", "asset_kind": "skill", "owner_ref": "team:x", "lifecycle_state": "active" });
    let version = |last: char, label: &str| json!({ "asset_id": id('1'), "asset_version_id": id(last), "version_label": label, "checksum": label, "content": {} });
    let (first, hotfix, created) = (version('2', "v1"), version('3', "hotfix"), version('4', "v2"));
    let listed = |versions: &[&Value]| ScriptedResponse::json(&json!(versions));
    let plan_responses =
        || vec![ScriptedResponse::json(&json!([asset])), ScriptedResponse::json(&json!([])), listed(&[&first])];
    for (responses, post_count, is_stale) in [
        (vec![listed(&[&hotfix])], 0, true),
        (vec![listed(&[&first]), ScriptedResponse::json(&created), listed(&[&created, &hotfix])], 1, true),
        (vec![listed(&[&first]), ScriptedResponse::json(&created), listed(&[&hotfix, &created])], 1, true),
        (vec![listed(&[&first]), ScriptedResponse::json(&created), listed(&[&created, &first])], 1, false),
    ] {
        let (output, server) = apply_to([plan_responses(), responses].concat(), &files).await;
        assert_eq!(output.code, i32::from(is_stale), "{}", output.err);
        assert_eq!(output.err.contains("stale_plan: asset tone changed"), is_stale, "{}", output.err);
        assert_eq!(server.requests().iter().filter(|request| request.method == "POST").count(), post_count);
    }
}
