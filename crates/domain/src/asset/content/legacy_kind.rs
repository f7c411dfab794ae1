//! The conversion of legacy kinds to the kinds that replace them.

use super::{ContentProblem, ModelPolicy};
use crate::asset::kind::AssetKind;
use serde_json::{Map, Value, json};

/// Converts a model configuration to the content of an equivalent model policy; `None` for any other kind. The
/// converted route is `pending`, because a conversion does not approve it.
pub(super) fn convert(kind: AssetKind, content: &Value) -> Option<Value> {
    if !kind.is_legacy() {
        return None;
    }
    let provider = content.get("provider")?.as_str()?;
    let model = content.get("model")?.as_str()?;
    let mut policy = Map::new();
    policy.insert(
        "provider_route".to_owned(),
        json!({
            "route_id": to_identifier(model), "provider": provider, "model": model, "account_slot": to_identifier(provider),
            "state": "pending",
        }),
    );
    for field in ["temperature", "max_tokens", "description", "labels"] {
        if let Some(value) = content.get(field) {
            policy.insert(field.to_owned(), value.clone());
        }
    }
    Some(Value::Object(policy))
}

/// Parses a model configuration as a model policy with one route, for a release that binds the configuration. The
/// approval of the release also approves the route, because configurations record no approval of routes.
pub(super) fn parse_model_config(content: &Value) -> Result<ModelPolicy, Vec<ContentProblem>> {
    let mut converted = convert(AssetKind::ModelConfig, content).unwrap_or_default();
    if let Some(state) = converted.pointer_mut("/provider_route/state") {
        *state = json!("approved");
    }
    ModelPolicy::parse(&converted)
}

/// Replaces every character that identifiers cannot have with a hyphen.
fn to_identifier(text: &str) -> String {
    let to_allowed_character =
        |character: char| if character.is_ascii_alphanumeric() || "._:-".contains(character) { character } else { '-' };
    text.chars().map(to_allowed_character).collect()
}
