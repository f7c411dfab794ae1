//! The rules of a policy of which none matched. A failed condition would have another reason code, so each condition
//! was false.

use crate::{
    asset::find_asset,
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
};
use fairway_domain::{asset::kind::AssetKind, policy::NO_MATCHING_RULE};
use serde_json::Value;

/// Maximum number of rules that the page shows.
const MAX_RULES: usize = 20;

/// The policy bundle of a run that no rule matched.
#[derive(Debug)]
pub(super) struct UnmatchedRules {
    bundle: String,
    /// The label of the version and its rules, or why they could not be read.
    version: Result<(String, Vec<String>), String>,
}

impl UnmatchedRules {
    /// Reads the rules; `None` if a rule matched, or the evidence names no policy bundle.
    pub(super) fn read(evidence: &Value, server: &ServerClient) -> Option<Self> {
        let reason = evidence.pointer("/policy_decision/reason_code").and_then(Value::as_str)?;
        if reason != NO_MATCHING_RULE {
            return None;
        }
        let mut bindings = evidence.get("bindings").and_then(Value::as_array)?.iter();
        let policy_binding =
            bindings.find(|binding| string_or_empty(binding, "role") == AssetKind::PolicyBundle.as_str())?;
        let bundle = string_or_empty(policy_binding, "asset_slug").to_owned();
        let version = read_version(&bundle, string_or_empty(policy_binding, "asset_version_id"), server);
        Some(Self {
            bundle,
            version: version.map(|version| label_and_rules(&version)).map_err(|failure| failure.to_string()),
        })
    }

    /// The lines of the explanation about the rules.
    pub(super) fn lines(&self) -> Vec<String> {
        let rules = match &self.version {
            Ok((_, rules)) => rules,
            Err(cause) => {
                let bundle = &self.bundle;
                return vec![format!(
                    "no condition of the policy {bundle} was true; its rules could not be read: {cause}"
                )];
            }
        };
        let mut lines: Vec<String> =
            rules.iter().take(MAX_RULES).map(|rule| format!("rule {rule}: its condition was false")).collect();
        let omitted = rules.len().saturating_sub(MAX_RULES);
        if omitted > 0 {
            lines.push(format!("{omitted} further rules: their conditions were false"));
        }
        lines
    }

    /// The commands that show which part of a condition was false.
    pub(super) fn next_step(&self, execution: &Value) -> String {
        let (bundle, environment) = (&self.bundle, string_or_empty(execution, "environment"));
        let Ok((label, _)) = &self.version else {
            return format!("Ask the owner of the policy {bundle} which inputs and callers its rules allow.");
        };
        format!(
            "`fairway assets content {bundle}@{label} > policy.json` and `fairway policy try policy.json --env \
             {environment} --set NAME=VALUE` with the inputs of the run show which part of each condition was false; \
             `--input FILE` also gives the `actor` and the `lane`."
        )
    }
}

fn read_version(bundle: &str, version: &str, server: &ServerClient) -> Result<Value, Failure> {
    let asset = find_asset(server, bundle)?;
    let path = ["assets", string_or_empty(&asset, "asset_id"), "versions", version];
    server.get(&path, &[("workspace_id", server.workspace_id()?)])
}

fn label_and_rules(version: &Value) -> (String, Vec<String>) {
    let rules = version.pointer("/content/rules").and_then(Value::as_array).into_iter().flatten();
    let ids = rules.map(|rule| string_or_empty(rule, "id").to_owned()).collect();
    (string_or_empty(version, "version_label").to_owned(), ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_each_rule_or_why_the_rules_are_missing() {
        let rules: Vec<Value> = (0..22).map(|number| json!({ "id": format!("r{number}") })).collect();
        let version = json!({ "version_label": "v2", "content": { "rules": rules } });
        let unmatched = UnmatchedRules { bundle: "gate".to_owned(), version: Ok(label_and_rules(&version)) };
        let lines = unmatched.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (21, "rule r0: its condition was false"));
        assert_eq!(lines[20], "2 further rules: their conditions were false");
        let next = unmatched.next_step(&json!({ "environment": "dev" }));
        assert!(next.contains("assets content gate@v2") && next.contains("--env dev --set NAME=VALUE"), "{next}");
        let hidden = UnmatchedRules { version: Err("you may not read it".to_owned()), ..unmatched };
        assert!(hidden.lines().concat().contains("could not be read: you may not read it"));
        assert!(hidden.next_step(&json!({})).contains("owner of the policy gate"));
    }
}
