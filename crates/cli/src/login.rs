//! `fairway login` signs in at a server, and stores its address and the token in a profile.

use crate::{
    command_context::{CommandContext, DEFAULT_SERVER, refuse_unknown_workspace},
    dynamic_completion,
    failure::Failure,
    http_client::{Identity, ServerClient, address_source::AddressSource},
    output::print,
    profile::{Configuration, Profile},
    sign_in,
    terminal_text::sanitize,
};
use clap::Args;
use std::io::{self, Read as _};

/// Maximum size of a token in bytes.
const MAX_TOKEN_BYTES: u64 = 16 << 10;

/// Arguments of `login`. The global options contain the further values to store.
#[derive(Args)]
#[command(
    after_help = "The profile stores the values of --server, --actor, --tenant, --workspace, --env and --output. It \
    becomes the default profile of later commands. Without --profile, the profile is `default` when --server is given; \
    otherwise the command updates the current default profile. Only the file's owner can read it.\n\nWithout a token, a \
    server with an identity provider asks you to confirm a code in a browser. Pipelines need no login: set \
    FAIRWAY_CLIENT_ID and FAIRWAY_CLIENT_SECRET.\n\nExamples:\n  fairway login --server https://fairway.example.org\n  \
    fairway login --server https://fairway.example.org --issuer https://idp.example.org\n  \
    print-my-token | fairway login --server https://fairway.example.org --token-stdin\n  \
    fairway login --profile local --server http://127.0.0.1:8080 --actor user:ada"
)]
pub(crate) struct Arguments {
    /// Read the token from standard input
    #[arg(long, conflicts_with = "token")]
    token_stdin: bool,
    /// Sign in at this issuer, by address or name, if the server accepts several
    #[arg(long, value_name = "ISSUER", conflicts_with_all = ["token", "token_stdin", "unchecked"])]
    issuer: Option<String>,
    /// The environment of later commands without --env
    #[arg(long, short, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
    env: Option<String>,
    /// Store the profile without a request to the server
    #[arg(long)]
    unchecked: bool,
}

pub(crate) fn run(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    let global = context.global();
    let mut configuration = Configuration::read()?;
    let name = configuration.login_profile_name(global.profile.as_deref(), global.server.as_deref())?;
    let mut profile = configuration.stored_profile(&name);
    let source = AddressSource::of(global.server.as_ref(), profile.server.as_ref());
    let address = global.server.clone().or_else(|| profile.server.clone()).unwrap_or_else(|| DEFAULT_SERVER.to_owned());
    if profile.server.as_ref() != Some(&address) {
        // A new server address discards the stored identity: the other server must not receive the token, and may not
        // know the actor.
        profile = Profile { output: profile.output, ..Profile::default() };
    }
    let token = if arguments.token_stdin { Some(read_token()?) } else { global.token.clone() };
    match token {
        Some(token) => (profile.token, profile.sign_in) = (Some(token), None),
        // Without a new token, a token that the user stored stays in the profile. A token from an earlier sign-in is
        // replaced by a new sign-in.
        None if arguments.unchecked => {}
        None if arguments.issuer.is_none() && profile.token.is_some() && profile.sign_in.is_none() => {}
        None => {
            let anonymous = ServerClient::new(&address, Identity::default(), None)?.with_address_source(source);
            if let Some((token, stored_sign_in)) = sign_in::sign_in_person(&anonymous, arguments.issuer.as_deref())? {
                (profile.token, profile.sign_in) = (Some(token), Some(stored_sign_in));
            }
        }
    }
    profile.actor = global.actor.clone().or(profile.actor);
    profile.tenant = global.tenant.clone().or(profile.tenant);
    profile.workspace = global.workspace.clone().or(profile.workspace);
    profile.environment = arguments.env.clone().or(profile.environment);
    profile.output = global.output.or(profile.output);
    profile.server = Some(address.clone());
    let identity =
        Identity { token: profile.token.clone(), actor: profile.actor.clone(), tenant: profile.tenant.clone() };
    let server = ServerClient::new(&address, identity, profile.workspace.as_deref())?.with_address_source(source);
    if !arguments.unchecked {
        // Verifies the token with a request that needs no permission, because a new user has no role yet.
        server.get(&["session"], &[])?;
        if global.workspace.is_some() {
            refuse_unknown_workspace(&server)?;
        }
    }
    configuration.store_as_default(&name, profile);
    let path = configuration.write()?;
    let (name, address) = (sanitize(&name), server.address());
    print(&format!("profile `{name}` uses {address} and is now the default; saved in {}", path.display()))
}

fn read_token() -> Result<String, Failure> {
    let mut text = String::new();
    let read = io::stdin().take(MAX_TOKEN_BYTES + 1).read_to_string(&mut text);
    read.map_err(|_| Failure::Usage("standard input is not UTF-8 text".to_owned()))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_TOKEN_BYTES {
        return Err(Failure::Usage("standard input exceeds 16 KiB, the maximum size of a token".to_owned()));
    }
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::Usage("standard input contains no token".to_owned()));
    }
    Ok(token.to_owned())
}
