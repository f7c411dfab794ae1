//! Asset kinds: every kind has a schema, a valid example and invalid examples with their error codes. These tests fail
//! for a new kind that lacks one of them (docs/adding-an-asset-kind.md).

use fairway_domain::asset::kind::AssetKind;
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::IntoFuture as _,
    path::PathBuf,
};

use crate::support::workspace_fixture::WORKSPACE;

fn examples_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/assets")
}

/// The parsed JSON files of a folder, by file stem.
fn read_json_files(folder: PathBuf) -> BTreeMap<String, Value> {
    let files = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    let read_file = |path: PathBuf| {
        assert!(path.extension().is_some_and(|ending| ending == "json"), "{} is no JSON file", path.display());
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap())
    };
    files.map(read_file).collect()
}

fn known_kinds() -> BTreeSet<String> {
    AssetKind::ALL.into_iter().map(|kind| kind.as_str().to_owned()).collect()
}

#[tokio::test]
async fn lists_every_kind_with_its_schema() {
    let app = TestApp::start().await;
    let kinds = app.get("/v1/asset-kinds").await.expect(200);
    let kinds = kinds.as_array().unwrap();
    let names: BTreeSet<String> = kinds.iter().map(|kind| kind["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!((kinds.len(), names), (19, known_kinds()));
    for kind in kinds {
        assert!(kind["title"].as_str().is_some_and(|title| !title.is_empty()), "{kind}");
        assert!(kind["description"].as_str().is_some_and(|text| text.len() > 20), "{kind}");
        assert_eq!(kind["legacy"], kind["kind"] == "model_config");
        let schema = app.get(kind["schema_url"].as_str().unwrap()).await;
        assert_eq!(schema.header("content-type"), Some("application/json"));
        let schema = schema.expect(200);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!((&schema["title"], &schema["additionalProperties"]), (&kind["title"], &json!(false)));
    }
    for unknown in ["nothing", "Skill", "skill%00", "skill.json", "%2e%2e"] {
        app.get(format!("/v1/asset-kinds/{unknown}/schema")).await.expect_refusal(404, "not_found");
    }
}

#[tokio::test]
async fn every_kind_has_a_valid_example() {
    let app = TestApp::start().await;
    let examples = read_json_files(examples_folder());
    assert_eq!(examples.keys().cloned().collect::<BTreeSet<_>>(), known_kinds(), "one example for each kind");
    for (kind, content) in examples {
        let asset = app.fixtures().asset_without_versions(&kind, &format!("example-{}", kind.replace('_', "-"))).await;
        let path = format!("/v1/assets/{asset}/versions");
        let created = app.post(&path, json!({ "content": content })).await.expect(201);
        assert_eq!(created["content"], content, "{kind}");
        let codes: BTreeSet<&str> = created["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|warning| warning["code"].as_str().unwrap())
            .collect();
        // Each example has at least a description, which runs do not enforce.
        let expected = if kind == "model_config" { &["legacy_kind", "recorded_only"][..] } else { &["recorded_only"] };
        assert_eq!(codes, expected.iter().copied().collect(), "{kind}");
        let version = created["asset_version_id"].as_str().unwrap();
        let version_view = app.get(format!("{path}/{version}?workspace_id={WORKSPACE}")).await.expect(200);
        assert_eq!(version_view["warnings"], created["warnings"], "{kind}");
    }
}

#[tokio::test]
async fn every_kind_has_invalid_examples_with_their_codes() {
    let app = TestApp::start().await;
    let mut assets = BTreeMap::new();
    let mut examples_by_kind: BTreeMap<String, usize> = BTreeMap::new();
    let mut differences = Vec::new();
    for (name, example) in read_json_files(examples_folder().join("refused")) {
        let kind = example["asset_kind"].as_str().unwrap().to_owned();
        assert!(
            name.strip_prefix(&kind).is_some_and(|suffix| suffix.starts_with('-')),
            "{name} is not called `{kind}-…`"
        );
        *examples_by_kind.entry(kind.clone()).or_default() += 1;
        if !assets.contains_key(&kind) {
            let slug = format!("refused-{}", kind.replace('_', "-"));
            assets.insert(kind.clone(), app.fixtures().asset_without_versions(&kind, &slug).await);
        }
        let path = format!("/v1/assets/{}/versions", assets[&kind]);
        let response = app.post(&path, json!({ "content": example["content"] })).await;
        if response.status != example["status"] {
            differences.push(format!("{name}: {response}"));
            continue;
        }
        let detail = response.expect_refusal(response.status, example["error"].as_str().unwrap());
        let mut found: Vec<(String, String)> = field_errors(&detail["fields"]);
        found.sort();
        if found != field_errors(&example["fields"]) {
            differences.push(format!("{name}: {found:?}"));
        }
        let listed = app.get(format!("{path}?workspace_id={WORKSPACE}")).await.expect(200);
        assert_eq!(listed, json!([]), "{name} left a version behind");
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(examples_by_kind.keys().cloned().collect::<BTreeSet<_>>(), known_kinds());
    assert!(
        examples_by_kind.values().all(|count| *count >= 2),
        "at least two refused examples for each kind: {examples_by_kind:?}"
    );
}

fn field_errors(fields: &Value) -> Vec<(String, String)> {
    let text = |field: &Value, name: &str| field[name].as_str().unwrap().to_owned();
    fields.as_array().into_iter().flatten().map(|field| (text(field, "path"), text(field, "code"))).collect()
}

#[tokio::test]
async fn legacy_model_config_returns_a_valid_model_policy() {
    let app = TestApp::start().await;
    let content = read_json_files(examples_folder()).remove("model_config").unwrap();
    let asset = app.fixtures().asset_without_versions("model_config", "old").await;
    let created = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": content })).await.expect(201);
    let warning = &created["warnings"][0];
    assert_eq!((&warning["code"], &warning["pointer"]), (&json!("legacy_kind"), &json!("")));
    let conversion = warning["conversion"].clone();
    assert_eq!(conversion["provider_route"]["state"], "pending", "a conversion approves nothing");
    assert_eq!(conversion["temperature"], content["temperature"]);
    app.fixtures().asset_with_version("model_policy", "new", conversion).await;
}

#[tokio::test]
async fn unenforced_controls_block_activation_only_in_production() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    let mut examples = read_json_files(examples_folder());
    let mut bindings = vec![policy];
    for kind in ["mcp_server", "sovereignty_profile"] {
        let slug = kind.replace('_', "-");
        bindings.push(fixtures.asset_with_version(kind, &slug, examples.remove(kind).unwrap()).await);
    }
    // Activation also checks the controls of referenced versions, because runs do not enforce those controls.
    fixtures
        .asset_with_version("guardrail_config", "guardrail-config", examples.remove("guardrail_config").unwrap())
        .await;
    fixtures
        .asset_with_version("hook_definition", "hook", {
            let handler = json!({ "type": "http", "ref": "https://hooks.example.com/ask" });
            json!({ "event": "pre_llm", "handler": handler })
        })
        .await;
    let flow = fixtures.flow("flow", crate::support::workspace_fixture::ECHO_FLOW).await;
    let harness = json!({ "entry": { "flow_ref": { "slug": flow.slug } }, "hooks": [{ "slug": "hook" }],
        "guardrails": [{ "slug": "guardrail-config" }] });
    bindings.push(fixtures.asset_with_version("workload_harness", "harness", harness).await);
    let workload = fixtures.workload("guarded").await;
    let dev = fixtures.approved_release(&workload, &bindings).await;
    fixtures.transition(&dev, "active").await;
    let production = fixtures.approved_release_in(&workload, "production", &bindings).await;
    let path = format!("/v1/releases/{production}/transition");
    let detail = app.post(&path, json!({ "to_state": "active" })).await.expect_refusal(422, "activation_blocked");
    let missing = detail["missing"].as_array().unwrap();
    let codes: Vec<&str> = missing.iter().map(|requirement| requirement["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["control_not_enforced"; 8]);
    let messages: Vec<&str> = missing.iter().map(|requirement| requirement["message"].as_str().unwrap()).collect();
    for (path, kind, asset) in [
        ("guardrails[0].on_error", "guardrail_config", "guardrail-config"),
        ("guardrails[2].on_error", "guardrail_config", "guardrail-config"),
        ("on_drift", "mcp_server", "mcp-server"),
        ("allowed_tools", "mcp_server", "mcp-server"),
        ("denied_tools", "mcp_server", "mcp-server"),
        ("tool_pins", "mcp_server", "mcp-server"),
        ("egress_hosts", "mcp_server", "mcp-server"),
        ("on_error", "hook_definition", "hook"),
    ] {
        let field_name = format!("`content.{path}` of the `{kind}` `{asset}`");
        assert!(messages.iter().any(|message| message.starts_with(&field_name)), "{field_name}: {messages:?}");
    }
}

/// The content of a knowledge base with this contract, revoked or not.
fn knowledge_base(contract: &str, revoked: bool) -> Value {
    let mut content = read_json_files(examples_folder()).remove("knowledge_base").unwrap();
    content["access_contract"]["contract_id"] = json!(contract);
    content["access_contract"]["revoked"] = json!(revoked);
    content["access_contract"]["revoked_at"] = if revoked { json!("2026-03-01T00:00:00Z") } else { Value::Null };
    json!({ "content": content })
}

#[tokio::test]
async fn access_contract_has_one_knowledge_base_and_stays_revoked() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let first_path = format!("/v1/assets/{}/versions", fixtures.asset_without_versions("knowledge_base", "one").await);
    let second_path =
        format!("/v1/assets/{}/versions", fixtures.asset_without_versions("knowledge_base", "other").await);
    let assert_refused = |response: &fairway_testkit::app::Response, path: &str, code: &str| {
        let detail = response.expect_refusal(400, "invalid_content");
        assert_eq!(field_errors(&detail["fields"]), [(path.to_owned(), code.to_owned())]);
    };
    app.post(&first_path, knowledge_base("handbook", false)).await.expect(201);
    app.post(&first_path, knowledge_base("handbook", false)).await.expect(201);
    let response = app.post(&second_path, knowledge_base("handbook", false)).await;
    assert_refused(&response, "content.access_contract.contract_id", "contract_of_another_asset");
    app.post(&second_path, knowledge_base("another", false)).await.expect(201);
    app.post(&first_path, knowledge_base("handbook", true)).await.expect(201);
    app.post(&first_path, knowledge_base("handbook", true)).await.expect(201);
    let restored = app.post(&first_path, knowledge_base("handbook", false)).await;
    assert_refused(&restored, "content.access_contract.revoked", "contract_revoked");
    app.post(&first_path, knowledge_base("handbook-2", false)).await.expect(201);
    // Contract names are unique within a tenant, so another tenant can use the same name.
    let other_tenant = fixtures.tenant("abroad").await;
    let workspace = fixtures.in_tenant(&other_tenant, "").workspace("there", "there").await;
    let foreign = fixtures.in_tenant(&other_tenant, &workspace).asset_without_versions("knowledge_base", "one").await;
    let path = format!("/v1/assets/{foreign}/versions");
    app.post(path, knowledge_base("handbook", false)).in_tenant(&other_tenant).await.expect(201);
}

#[tokio::test]
async fn only_one_concurrent_claim_of_a_contract_succeeds() {
    let app = TestApp::start().await;
    let mut claims = Vec::new();
    for slug in ["a", "b", "c", "d"] {
        let path =
            format!("/v1/assets/{}/versions", app.fixtures().asset_without_versions("knowledge_base", slug).await);
        claims.push(tokio::spawn(app.post(path, knowledge_base("contested", false)).into_future()));
    }
    let mut statuses = Vec::new();
    for claim in claims {
        statuses.push(claim.await.unwrap().status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 400, 400, 400]);
}

#[test]
fn paths_in_the_guide_for_new_kinds_exist() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/adding-an-asset-kind.md")).unwrap();
    let named_paths =
        text.split('`').skip(1).step_by(2).filter(|word| word.contains('/') && !word.contains([' ', '<']));
    // The guide uses `voice_profile` as the example of a new kind, so its files do not exist.
    let paths: Vec<&str> =
        named_paths.filter(|path| !path.starts_with(['/', '$']) && !path.contains("voice_profile")).collect();
    assert!(paths.len() >= 8, "{paths:?}");
    for path in paths {
        assert!(root.join(path).exists(), "{path} does not exist");
    }
}
