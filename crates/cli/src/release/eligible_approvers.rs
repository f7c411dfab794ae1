//! Finds the principals and roles that can approve the releases of an environment.

use crate::{
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
    terminal_text::sanitize,
};
use fairway_domain::access::Permission;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The approval rules of an environment, and the principals and roles that can approve.
pub(super) struct EligibleApprovers {
    min_approvals: u64,
    allows_self_approval: bool,
    /// The roles with the permission to approve.
    roles: Vec<String>,
    /// The principals with one of these roles; `None` if the caller may not list role bindings.
    principals: Option<BTreeSet<String>>,
}

impl EligibleApprovers {
    pub(super) fn read(server: &ServerClient, environment: &str) -> Result<Self, Failure> {
        let workspace = server.workspace_id()?;
        let settings = readable(server.get(&["workspaces", workspace, "environments", environment, "settings"], &[]))?;
        let settings = settings.unwrap_or_default();
        let Value::Array(listed_roles) = server.get(&["roles"], &[])? else {
            return Err(Failure::Failed("the server's response lists no roles".to_owned()));
        };
        let may_approve = |role: &&Value| {
            let permissions = role.get("permissions").and_then(Value::as_array).into_iter().flatten();
            permissions.filter_map(Value::as_str).any(|name| name == Permission::ReleaseApprove.as_str())
        };
        let roles: Vec<String> =
            listed_roles.iter().filter(may_approve).map(|role| string_or_empty(role, "role").to_owned()).collect();
        let bindings = readable(server.list(&["role-bindings"], &[("workspace_id", workspace)]))?;
        let principals = bindings.map(|bindings| {
            let can_approve = |binding: &&Value| roles.iter().any(|role| role == string_or_empty(binding, "role"));
            bindings
                .iter()
                .filter(can_approve)
                .map(|binding| string_or_empty(binding, "principal").to_owned())
                .collect()
        });
        Ok(Self {
            min_approvals: settings.get("min_approvals").and_then(Value::as_u64).unwrap_or(1),
            allows_self_approval: settings.get("allow_self_approval").and_then(Value::as_bool).unwrap_or_default(),
            roles,
            principals,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "min_approvals": self.min_approvals,
            "allow_self_approval": self.allows_self_approval,
            "roles": self.roles,
            "principals": self.principals,
        })
    }

    /// A sentence with the command that approves the release, and the principals that can run it.
    pub(super) fn next_step(&self, release: &str) -> String {
        let command = format!("fairway releases approve {release}");
        if self.allows_self_approval { command } else { format!("another person runs `{command}`") }
    }

    pub(super) fn describe(&self) -> String {
        let approval_count = match self.min_approvals {
            1 => "1 approval is needed".to_owned(),
            several => format!("{several} approvals are needed"),
        };
        let self_approval_rule = if self.allows_self_approval {
            "the author may approve it too"
        } else {
            "not from its author (`allow_self_approval` is false)"
        };
        let roles = self.roles.join(", ");
        let approvers = match &self.principals {
            Some(principals) if !principals.is_empty() => {
                let names: Vec<String> = principals.iter().map(|name| sanitize(name)).collect();
                format!("can approve: {}", names.join(", "))
            }
            Some(_) | None => format!("can approve: holders of a role among {}", sanitize(&roles)),
        };
        format!("{approval_count}, {self_approval_rule}\n{approvers}")
    }
}

/// Converts a refusal for a missing permission or an invisible resource to `None`.
fn readable<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Err(Failure::Refused(refusal)) if matches!(refusal.status, 403 | 404) => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_another_person_where_authors_may_not_approve() {
        let approval = |allows_self_approval| EligibleApprovers {
            min_approvals: 1,
            allows_self_approval,
            roles: vec!["approver".to_owned()],
            principals: None,
        };
        assert_eq!(approval(true).next_step("019a"), "fairway releases approve 019a");
        assert_eq!(approval(false).next_step("019a"), "another person runs `fairway releases approve 019a`");
    }
}
