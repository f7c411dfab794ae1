//! Checks that the tables of `docs/kind-enforcement.md` agree with the `x-enforcement` marks in the schemas of five
//! asset kinds.

use fairway_domain::asset::{
    content::{BindingPath, schema_value, unenforced_controls},
    kind::AssetKind,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path};

const KINDS: [AssetKind; 5] = [
    AssetKind::SandboxProfile,
    AssetKind::Agent,
    AssetKind::WorkloadHarness,
    AssetKind::ConnectorDefinition,
    AssetKind::EvaluationSuite,
];

/// The schema of the property at a dotted path, such as `limits.cpu_ms`; null if no such property exists.
fn property_at<'s>(schema: &'s Value, path: &str) -> &'s Value {
    path.split('.').fold(schema, |schema, name| schema.pointer(&format!("/properties/{name}")).unwrap_or(&Value::Null))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "only tests read files; the domain does not")]
fn documented_enforcement_matches_the_schemas() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kind-enforcement.md");
    let page = fs::read_to_string(page).unwrap();
    for kind in KINDS {
        let schema = schema_value(kind).unwrap();
        let (_, table) = page
            .split_once(&format!("<!-- kind:{kind} -->"))
            .unwrap_or_else(|| panic!("the page has no table for {kind}"));
        let (table, _) = table.split_once("<!-- /kind -->").unwrap();
        let mut fields = BTreeSet::new();
        for row in table.lines().filter_map(|row| row.strip_prefix("| `")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            let field = cells[0].trim_end_matches('`');
            let property = property_at(schema, field);
            assert_eq!(Some(cells[1]), property["x-enforcement"].as_str(), "{kind}: {field}");
            // The use of a field that is only recorded but marked as fail-closed is refused. The table must name the
            // code of this refusal.
            let is_blocking = cells[1] == "recorded" && property.get("x-fails-closed").is_some();
            assert!(!is_blocking || row.contains("control_not_enforced"), "{kind}: {field}");
            fields.insert(field.split('.').next().unwrap().to_owned());
        }
        let schema_fields: BTreeSet<String> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, schema_fields, "{kind}");
    }
}

/// Scripts use only the sandbox profile that the release binds, so a profile that is merely referenced enforces
/// nothing.
#[test]
fn sandbox_network_is_enforced_only_for_a_bound_profile() {
    for mode in [json!({ "mode": "none" }), json!({ "mode": "allowlist", "hosts": ["a.example.com"] })] {
        let profile = json!({ "runtime": "process", "limits": {}, "network": mode });
        assert_eq!(unenforced_controls(AssetKind::SandboxProfile, &profile, BindingPath::Bound), [""; 0]);
        assert_eq!(
            unenforced_controls(AssetKind::SandboxProfile, &profile, BindingPath::Referenced),
            ["/network/mode"]
        );
    }
}
