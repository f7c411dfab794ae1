//! Explains refusals for a missing permission: the actor, the roles with the permission, and who can grant a role.

use crate::{
    command_context::CommandContext,
    failure::{Failure, Refusal},
    http_client::string_or_empty,
    terminal_text::sanitize,
};
use fairway_domain::access::{Permission, Role};
use serde_json::Value;

/// Adds the actor and the roles with the permission to the refusal `forbidden`. Returns other failures unchanged.
pub(crate) fn explain(failure: Failure, context: &CommandContext) -> Failure {
    if !failure.is_refusal("forbidden") {
        return failure;
    }
    let Failure::Refused(refusal) = failure else { return failure };
    // Requires no permission, because every caller may read its own session.
    let caller = context.open().and_then(|(_, server)| server.get(&["session"], &[])).unwrap_or_default();
    with_roles(*refusal, string_or_empty(&caller, "actor"))
}

fn with_roles(mut refusal: Refusal, actor: &str) -> Failure {
    let actor = sanitize(actor);
    if !actor.is_empty() {
        refusal.message = format!("{}; the actor is {actor}", refusal.message);
    }
    let permission = refusal.detail.get("permission").and_then(Value::as_str).unwrap_or_default();
    let has_permission =
        |role: &Role| role.permissions().iter().any(|granted: Permission| granted.as_str() == permission);
    let roles: Vec<&str> = Role::ALL.into_iter().filter(has_permission).map(Role::as_str).collect();
    let roles = if roles.is_empty() { String::new() } else { format!(" ({})", roles.join(", ")) };
    let principal = if actor.is_empty() { "PRINCIPAL" } else { &actor };
    let next = format!(
        "`fairway roles list` shows the roles with the permission{roles}; an administrator runs `fairway role-bindings \
         create {principal} ROLE`"
    );
    Failure::Refused(Box::new(refusal)).with_next(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_the_actor_and_the_roles_with_the_permission() {
        let body = json!({
            "detail": { "error": "forbidden", "message": "no", "permission": Permission::ReleaseApprove.as_str() },
        });
        let text = with_roles(Refusal::from_body(403, &body), "user:bea").to_string();
        assert!(text.starts_with("forbidden: no; the actor is user:bea\n  permission: release.approve\n"), "{text}");
        assert!(text.contains("(approver, ") && !text.contains("viewer"), "{text}");
        assert!(text.ends_with("`fairway role-bindings create user:bea ROLE`"), "{text}");
        let unknown = with_roles(Refusal::from_body(403, &json!({ "detail": { "error": "forbidden" } })), "");
        assert!(unknown.to_string().contains("with the permission; an administrator"), "{unknown}");
    }
}
