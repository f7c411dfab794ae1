//! Commands for roles and for role bindings, which grant roles to principals.

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::Failure,
    http_client::{ServerClient, required_string, string_or_empty},
    output::Column,
    workload::find_workload,
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use fairway_domain::access::{GrantScope, Role};
use serde_json::{Value, json};

const ROLE_COLUMNS: [Column; 2] = [("ROLE", "/role"), ("PERMISSIONS", "/permissions")];

const BINDING_COLUMNS: [Column; 5] = [
    ("BINDING", "/role_binding_id"),
    ("PRINCIPAL", "/principal"),
    ("ROLE", "/role"),
    ("SCOPE", "/scope_kind"),
    ("CREATED", "/created_at"),
];

/// The subcommands of `fairway roles`.
#[derive(Subcommand)]
pub(crate) enum RoleCommand {
    /// List the built-in roles with their permissions
    #[command(after_help = "Example:\n  fairway roles list --output json")]
    List,
}

/// The subcommands of `fairway role-bindings`.
#[derive(Subcommand)]
pub(crate) enum BindingCommand {
    /// List the role bindings of the workspace
    #[command(after_help = "Example:\n  fairway role-bindings list --principal user:ada")]
    List {
        /// Only bindings of this principal, such as user:ada
        #[arg(long, value_name = "PRINCIPAL")]
        principal: Option<String>,
    },
    /// Grant a role to a user, a group or a service
    #[command(after_help = "Without --scope, the scope is the workspace.\n\nExamples:\n  \
        fairway role-bindings create user:grace approver\n  \
        fairway role-bindings create group:desk runtime_user --workload ticket-classifier")]
    Create(NewBinding),
    /// Delete a role binding, which revokes its role
    #[command(after_help = "Example:\n  fairway role-bindings delete 019a...")]
    Delete {
        /// The binding's id
        id: String,
    },
}

/// A new role binding.
#[derive(Args)]
pub(crate) struct NewBinding {
    /// user:NAME, group:NAME or service:NAME
    principal: String,
    /// The role
    #[arg(value_parser = PossibleValuesParser::new(Role::ALL.map(Role::as_str)))]
    role: String,
    /// The kind of the scope
    #[arg(long, value_parser = PossibleValuesParser::new(GrantScope::KINDS), conflicts_with = "workload")]
    scope: Option<String>,
    /// The id of the scope; of a workspace the default is the selected one
    #[arg(long, value_name = "ID", requires = "scope")]
    scope_ref: Option<String>,
    /// Only for this workload
    #[arg(long, value_name = "SLUG", add = dynamic_completion::workloads())]
    workload: Option<String>,
}

pub(crate) fn run_roles(command: &RoleCommand, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    let RoleCommand::List = command;
    // Uses `get`, because the list of roles is not paginated.
    match server.get(&["roles"], &[])? {
        Value::Array(roles) => output.list(&roles, &ROLE_COLUMNS),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            output.value(&other)
        }
    }
}

pub(crate) fn run_bindings(command: &BindingCommand, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        BindingCommand::List { principal } => {
            let mut bindings = server.list(&["role-bindings"], &[("workspace_id", server.workspace_id()?)])?;
            if let Some(principal) = principal {
                bindings.retain(|binding| string_or_empty(binding, "principal") == principal);
            }
            output.list(&bindings, &BINDING_COLUMNS)
        }
        BindingCommand::Create(binding) => {
            let created = server.post(&["role-bindings"], &binding.body(&server)?)?;
            let id = required_string(&created, "role_binding_id")?;
            output.change_result(&created, &format!("fairway role-bindings delete {id} takes the role back"))
        }
        BindingCommand::Delete { id } => {
            server.delete(&["role-bindings", id])?;
            output.change_result(&json!({ "role_binding_id": id, "deleted": true }), "fairway role-bindings list")
        }
    }
}

impl NewBinding {
    fn body(&self, server: &ServerClient) -> Result<Value, Failure> {
        let (kind, reference) = match (&self.workload, self.scope.as_deref()) {
            (Some(slug), _) => {
                let workload = find_workload(server, slug)?;
                ("workload", Some(required_string(&workload, "workload_id")?.to_owned()))
            }
            (None, None | Some("workspace")) => {
                let workspace_id =
                    self.scope_ref.clone().map_or_else(|| server.workspace_id().map(str::to_owned), Ok)?;
                ("workspace", Some(workspace_id))
            }
            (None, Some(kind)) => (kind, self.scope_ref.clone()),
        };
        Ok(json!({ "principal": self.principal, "role": self.role, "scope_kind": kind, "scope_ref": reference }))
    }
}
