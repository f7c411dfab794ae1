//! The context of a command: server and output format.

use crate::{
    command_line::Global,
    failure::Failure,
    output::{Format, Output},
    profile::{Configuration, Profile},
    server::{Identity, Server},
};

/// The default address of a server.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// The options of one command line.
pub(crate) struct Session {
    global: Global,
}

impl Session {
    pub(crate) const fn of(global: Global) -> Self {
        Self { global }
    }

    /// The options as given.
    pub(crate) const fn global(&self) -> &Global {
        &self.global
    }

    /// The output format of offline commands, which read no configuration.
    pub(crate) fn offline(&self) -> Output {
        Output::new(self.global.output.unwrap_or(Format::Table))
    }

    /// The output format and the server.
    ///
    /// # Errors
    /// When the configuration cannot be read, or the address is invalid.
    pub(crate) fn open(&self) -> Result<(Output, Server), Failure> {
        let profile = Configuration::read()?.profile(self.global.profile.as_deref())?;
        let Profile { server, token, actor, tenant, workspace, output } = profile;
        let given = &self.global;
        // A token belongs to its profile's server. Another address does not receive it.
        let elsewhere = given.server.is_some() && given.server != server;
        let kept = token.filter(|_| !elsewhere);
        let identity = Identity {
            token: given.token.clone().or(kept),
            actor: given.actor.clone().or(actor),
            tenant: given.tenant.clone().or(tenant),
        };
        let address = given.server.clone().or(server);
        let workspace = given.workspace.clone().or(workspace);
        let server = Server::new(address.as_deref().unwrap_or(DEFAULT_SERVER), identity, workspace.as_deref())?;
        Ok((Output::new(given.output.or(output).unwrap_or(Format::Table)), server))
    }
}
