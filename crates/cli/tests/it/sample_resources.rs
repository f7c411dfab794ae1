//! Resources that several tests create on their server: assets and a workload.

use crate::{Terminal, make_directory, path_text};
use fairway_testkit::TestApp;
use serde_json::json;

const PROMPT: &str = r#"{"system_prompt": "Sort this.\nOne of: praise (thanks, great), complaint (broken, late).\nText: $arg:text", "variables": [{"name": "text", "type": "string"}]}"#;
const MODEL: &str = r#"{"provider_route": {"route_id": "local-rules", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved"}}"#;
const POLICY: &str = "rules:\n  - {id: in-dev, condition: environment == \"dev\", outcome: allow, reason_code: dev}\n  - {id: loud, condition: 'inputs.text.contains(\"!!!\")', outcome: deny, reason_code: too_loud}\n";

/// Options of `releases create` that bind the assets of [`create_contents`].
pub(crate) const BOUND: [&str; 6] = ["--bind", "sort-prompt", "--bind", "sort-model", "--bind", "sort-policy"];

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
    let workload = app.post("/v1/workloads", body).as_actor("user:ada").await.expect(201);
    let path = format!("/v1/workloads/{}", workload["workload_id"].as_str().unwrap());
    app.patch(path, json!({ "interface_config": interface })).as_actor("user:ada").await.expect(200);
}
