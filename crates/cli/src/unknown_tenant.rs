//! Explains that a selected tenant does not exist or is not visible. The server then refuses every request with
//! `not_found`, which users would otherwise attribute to the resource of the command.

use crate::{
    command_context::CommandContext,
    failure::Failure,
    terminal_text::{sanitize, shorten},
};

/// Adds the selected tenant if it is the reason of the refusal `not_found`. Returns other failures unchanged.
pub(crate) fn explain(failure: Failure, context: &CommandContext) -> Failure {
    if !failure.is_missing_resource() {
        return failure;
    }
    let Ok((_, server)) = context.open() else { return failure };
    let Some(tenant) = server.tenant() else { return failure };
    // Every caller may read its own session, so a refusal means that the tenant is unknown.
    match server.get(&["session"], &[]) {
        Err(refused) if refused.is_refusal("not_found") => Failure::Usage(format!(
            "no tenant `{}` is visible to you; `--tenant`, FAIRWAY_CLI_TENANT or the profile selects it",
            shorten(&sanitize(tenant))
        )),
        Ok(_) | Err(_) => failure,
    }
}
