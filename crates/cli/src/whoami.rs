//! `fairway whoami`: prints the identity of the caller at the server, with its roles and permissions.

use crate::{
    command_context::CommandContext,
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
    output::{eprint, print},
    terminal_text::sanitize,
};
use clap::Args;
use serde_json::{Value, json};

/// The mode of a server that trusts the claimed name of its callers.
const LOCAL_MODE: &str = "local";

/// Arguments of `whoami`.
#[derive(Args)]
#[command(after_help = "Example:\n  fairway whoami")]
pub(crate) struct Arguments {}

pub(crate) fn run(context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    let mut caller = server.get(&["session"], &[])?;
    let mode = sign_in_mode(&server);
    let is_local = mode.as_deref() == Some(LOCAL_MODE);
    if is_local && server.has_token() {
        eprint("warning: the token has no effect, because a server in local mode does not check tokens");
    }
    if output.is_for_people() {
        print(&format!(
            "{} at {}",
            sanitize(crate::http_client::required_string(&caller, "actor")?),
            server.address()
        ))?;
        if is_local {
            print("local mode: names and tokens are not checked")?;
        }
        if let Some(members) = caller.as_object_mut() {
            members.remove("display_name");
            // Removes the members about a browser session, which are null for a caller with a token.
            members.retain(|_, value| !value.is_null());
        }
        output.record(&caller)?;
        if caller.get("roles").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            output.hint("ask an administrator for a role: `fairway role-bindings create PRINCIPAL ROLE`");
        }
        let is_bootstrap = |role: &Value| role.get("source").and_then(Value::as_str) == Some("bootstrap_admins");
        if caller.get("roles").and_then(Value::as_array).is_some_and(|roles| roles.iter().any(is_bootstrap)) {
            output.hint(
                "the server's setting FAIRWAY_BOOTSTRAP_ADMINS makes you an administrator: bind the role to a group, \
                 and remove the setting",
            );
        }
        return Ok(());
    }
    if let Some(members) = caller.as_object_mut() {
        members.insert("server".to_owned(), json!(server.address()));
        members.extend(mode.map(|mode| ("sign_in_mode".to_owned(), json!(mode))));
    }
    output.record(&caller)
}

/// `local` or `oidc`; `None` if the server does not report its mode.
fn sign_in_mode(server: &ServerClient) -> Option<String> {
    let settings = server.get(&["sign-in"], &[]).ok()?;
    let mode = string_or_empty(&settings, "mode");
    (!mode.is_empty()).then(|| mode.to_owned())
}
