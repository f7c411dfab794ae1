//! Keeping a server's address and a token.

use crate::{
    failure::Failure,
    output::say,
    profile::{Configuration, Profile},
    server::{Identity, Server},
    session::{DEFAULT_SERVER, Session},
    text::plain,
};
use clap::Args;
use std::io::{self, Read as _};

/// Longest token, in bytes.
const LONGEST: u64 = 16 << 10;

/// What is kept stands in the options that every command takes.
#[derive(Args)]
#[command(
    after_help = "What is given by --server, --actor, --tenant, --workspace and --output is kept in the profile, \
    which from then on is that of every command that names none. Without --profile it is `default` where --server is given, and \
    else the profile of every command that names none, renewed. The file can be read by its owner alone.\n\nExamples:\n  \
    print-my-token | fairway login --server https://fairway.example.org --token-stdin\n  \
    fairway login --profile local --server http://127.0.0.1:8080 --actor user:ada"
)]
pub(crate) struct Arguments {
    /// Read the token from standard input
    #[arg(long, conflicts_with = "token")]
    token_stdin: bool,
    /// Keep the profile without asking the server
    #[arg(long)]
    unchecked: bool,
}

pub(crate) fn run(arguments: &Arguments, session: &Session) -> Result<(), Failure> {
    let given = session.global();
    let mut configuration = Configuration::read()?;
    let name = configuration.renewed(given.profile.as_deref(), given.server.as_deref())?;
    let mut profile = configuration.known(&name);
    let address = given.server.clone().or_else(|| profile.server.clone()).unwrap_or_else(|| DEFAULT_SERVER.to_owned());
    if profile.server.as_ref() != Some(&address) {
        // Who somebody is at one server is no business of another, and names nobody there.
        profile = Profile { output: profile.output, ..Profile::default() };
    }
    let token = if arguments.token_stdin { Some(from_standard_input()?) } else { given.token.clone() };
    profile.token = token.or(profile.token);
    profile.actor = given.actor.clone().or(profile.actor);
    profile.tenant = given.tenant.clone().or(profile.tenant);
    profile.workspace = given.workspace.clone().or(profile.workspace);
    profile.output = given.output.or(profile.output);
    profile.server = Some(address.clone());
    let identity =
        Identity { token: profile.token.clone(), actor: profile.actor.clone(), tenant: profile.tenant.clone() };
    let server = Server::new(&address, identity, profile.workspace.as_deref())?;
    if !arguments.unchecked {
        // The least that whoever is known there may read.
        server.list_some(&["workspaces"], &[], 1)?;
    }
    configuration.keep(&name, profile);
    let path = configuration.write()?;
    let (name, address) = (plain(&name), server.address());
    say(&format!("profile `{name}` speaks to {address}, for every command that names none; kept in {}", path.display()))
}

fn from_standard_input() -> Result<String, Failure> {
    let mut text = String::new();
    let read = io::stdin().take(LONGEST + 1).read_to_string(&mut text);
    read.map_err(|_| Failure::Usage("standard input is no text".to_owned()))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > LONGEST {
        return Err(Failure::Usage("standard input holds more than 16 KiB, and no token is as long".to_owned()));
    }
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::Usage("standard input holds no token".to_owned()));
    }
    Ok(token.to_owned())
}
