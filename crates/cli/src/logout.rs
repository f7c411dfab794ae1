//! `fairway logout` deletes the tokens of a profile, and revokes them at the identity provider.

use crate::{
    command_context::CommandContext, failure::Failure, output::print, profile::Configuration, terminal_text::sanitize,
};
use clap::Args;

/// Arguments of `logout`.
#[derive(Args)]
#[command(
    after_help = "The command revokes the refresh token at the identity provider, and deletes the tokens of the profile.\n\n\
    Example:\n  fairway logout"
)]
pub(crate) struct Arguments {}

/// Deletes the tokens of the selected profile, and revokes them at the identity provider.
pub(crate) fn run(context: &CommandContext) -> Result<(), Failure> {
    Configuration::read()?.profile(context.global().profile.as_deref())?;
    let configuration = Configuration::read()?;
    let name = configuration.selected_profile_name(context.global().profile.as_deref());
    // Without a token, returns before the lock is acquired, because the folder of the lock file may not exist.
    if configuration.stored_profile(&name).token.is_none() {
        return print(&format!("profile `{}` has no token", sanitize(&name)));
    }
    let _lock = Configuration::lock()?;
    let mut configuration = Configuration::read()?;
    let name = configuration.selected_profile_name(context.global().profile.as_deref());
    let mut profile = configuration.stored_profile(&name);
    let (token, stored_sign_in) = (profile.token.take(), profile.sign_in.take());
    if token.is_none() {
        return print(&format!("profile `{}` has no token", sanitize(&name)));
    }
    configuration.replace(&name, profile);
    // Deletes the tokens locally first, so that an unavailable provider cannot prevent it.
    configuration.write()?;
    if let Some(stored_sign_in) = stored_sign_in {
        stored_sign_in.revoke(token.as_deref())?;
    }
    print(&format!("deleted the tokens of profile `{}`", sanitize(&name)))
}
