//! The context of a command: its global options, server, environment and output format.

use crate::{
    command_line::GlobalOptions,
    failure::Failure,
    http_client::{Identity, ServerClient, address_source::AddressSource},
    output::{Format, Output},
    profile::{Configuration, Profile},
    sign_in,
};
use std::env;

/// The default address of a server.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
/// The environment variable with the Fairway environment of commands without `--env`.
const ENVIRONMENT_VARIABLE: &str = "FAIRWAY_CLI_ENVIRONMENT";

/// The global options of one command line, from which the server and the output format follow.
pub(crate) struct CommandContext {
    global: GlobalOptions,
}

impl CommandContext {
    pub(crate) const fn of(global: GlobalOptions) -> Self {
        Self { global }
    }

    /// The global options as the caller gave them.
    pub(crate) const fn global(&self) -> &GlobalOptions {
        &self.global
    }

    /// The output format of offline commands, which read no configuration.
    pub(crate) fn offline_output(&self) -> Output {
        Output::new(self.global.output.unwrap_or(Format::Table))
    }

    /// The output format, and a client for the server. Completes the options from the profile.
    ///
    /// # Errors
    /// When the configuration cannot be read, or the address is invalid.
    pub(crate) fn open(&self) -> Result<(Output, ServerClient), Failure> {
        let profile = Configuration::read()?.profile(self.global.profile.as_deref())?;
        let options = &self.global;
        // The token of a profile is sent only to the profile's server.
        let is_other_server = options.server.is_some() && options.server != profile.server;
        // Client credentials in environment variables take precedence over the profile's token. They are set for this
        // pipeline, while the stored token may be left from another use of the machine.
        let is_pipeline = options.token.is_none() && sign_in::has_pipeline_variables();
        let uses_profile_token = options.token.is_none() && !is_other_server && !is_pipeline;
        let profile =
            if uses_profile_token { sign_in::renew_profile(profile, options.profile.as_deref())? } else { profile };
        let Profile { server, token, actor, tenant, workspace, environment: _, output, sign_in: _ } = profile;
        let profile_token = token.filter(|_| !is_other_server && !is_pipeline);
        let identity = Identity {
            token: options.token.clone().or(profile_token),
            actor: options.actor.clone().or(actor),
            tenant: options.tenant.clone().or(tenant),
        };
        let source = AddressSource::of(options.server.as_ref(), server.as_ref());
        let address = options.server.clone().or(server);
        let workspace = options.workspace.clone().or(workspace);
        let address = address.as_deref().unwrap_or(DEFAULT_SERVER);
        let identity = match identity.token {
            Some(_) => identity,
            None => Identity {
                token: sign_in::pipeline_token(
                    &ServerClient::new(address, Identity::default(), None)?.with_address_source(source),
                )?,
                ..identity
            },
        };
        let server = ServerClient::new(address, identity, workspace.as_deref())?.with_address_source(source);
        if options.workspace.is_some() {
            refuse_unknown_workspace(&server)?;
        }
        Ok((Output::new(options.output.or(output).unwrap_or(Format::Table)), server))
    }

    /// The environment of a command: the given one, else FAIRWAY_CLI_ENVIRONMENT, else the profile's.
    ///
    /// # Errors
    /// When none is set, or the configuration cannot be read.
    pub(crate) fn environment(&self, given: Option<&str>) -> Result<String, Failure> {
        if let Some(given) = given {
            return Ok(given.to_owned());
        }
        if let Some(variable) = env::var(ENVIRONMENT_VARIABLE).ok().filter(|value| !value.is_empty()) {
            return Ok(variable);
        }
        let profile = Configuration::read()?.profile(self.global.profile.as_deref())?;
        profile.environment.ok_or_else(|| {
            let message = "no environment is selected: pass --env ENVIRONMENT, or store one with `fairway login --env \
                           ENVIRONMENT`";
            Failure::Usage(message.to_owned())
        })
    }
}

/// Refuses a selected workspace that is not visible to the caller, also for commands that use no workspace. Ignores
/// the refusal of a caller that may not list workspaces.
pub(crate) fn refuse_unknown_workspace(server: &ServerClient) -> Result<(), Failure> {
    match server.workspace_id() {
        Err(failure @ (Failure::Usage(_) | Failure::Unreachable { .. } | Failure::NotFairway { .. })) => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}
