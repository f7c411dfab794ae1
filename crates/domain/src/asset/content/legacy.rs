//! Content of legacy kinds, said in the words of their successors.

use super::{ContentProblem, ModelPolicy};
use crate::asset::kind::AssetKind;
use serde_json::{Map, Value, json};

/// The content of a model policy that says what a model configuration says, as far as a policy can; `None` for every
/// other kind. The route is pending: a conversion approves nothing.
pub(super) fn successor(kind: AssetKind, content: &Value) -> Option<Value> {
    if !kind.is_legacy() {
        return None;
    }
    let provider = content.get("provider")?.as_str()?;
    let model = content.get("model")?.as_str()?;
    let mut policy = Map::new();
    policy.insert(
        "provider_route".to_owned(),
        json!({
            "route_id": name(model), "provider": provider, "model": model, "account_slot": name(provider),
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

/// What a model configuration says, as a policy of one route, for a release that binds one in a policy's place. A
/// configuration has no word for who approved its route, so approving the release approves it.
pub(super) fn policy(content: &Value) -> Result<ModelPolicy, Vec<ContentProblem>> {
    let mut said = successor(AssetKind::ModelConfig, content).unwrap_or_default();
    if let Some(state) = said.pointer_mut("/provider_route/state") {
        *state = json!("approved");
    }
    ModelPolicy::parse(&said)
}

/// A text in the alphabet of identifiers; what does not belong there becomes a hyphen.
fn name(text: &str) -> String {
    let kept = |letter: char| if letter.is_ascii_alphanumeric() || "._:-".contains(letter) { letter } else { '-' };
    text.chars().map(kept).collect()
}
