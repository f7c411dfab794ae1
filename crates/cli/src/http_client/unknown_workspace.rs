//! Builds the failure for a selected workspace that is not visible to the caller.

use super::string_or_empty;
use crate::{
    failure::{Candidate, Failure, candidate_hint},
    similar_names::similar_names,
    terminal_text::{sanitize, shorten},
};
use serde_json::Value;

/// Maximum number of workspaces that a message lists.
const MAX_SHOWN: usize = 5;

/// Lists similar workspaces, or else the visible workspaces up to [`MAX_SHOWN`].
pub(super) fn failure(selected: Option<&str>, visible: &[Value]) -> Failure {
    let slugs = || visible.iter().map(|workspace| string_or_empty(workspace, "slug"));
    let message = match selected {
        Some(slug) => format!("no workspace `{}` is visible to you", shorten(&sanitize(slug))),
        None => "no workspace is selected".to_owned(),
    };
    let similar = selected.map(|slug| similar_names(slug, slugs())).unwrap_or_default();
    if !similar.is_empty() {
        let hint = candidate_hint(&similar.into_iter().map(Candidate::named).collect::<Vec<_>>());
        return Failure::Usage(format!("{message}{hint}"));
    }
    let visible: Vec<String> = slugs().take(MAX_SHOWN).map(sanitize).collect();
    let visible = if visible.is_empty() { "none".to_owned() } else { visible.join(", ") };
    Failure::Usage(format!("{message}: select one with --workspace SLUG; visible to you: {visible}"))
}
