//! `cargo xtask demo`: the demo, applied to a running server.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::place::{Place, Profile};
use crate::signals::Signals;
use crate::{children, up};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's address, such as http://127.0.0.1:8080; default: where FAIRWAY_BIND points
    #[arg(long)]
    server: Option<String>,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let url = match &arguments.server {
        Some(url) => url.clone(),
        None => format!("http://{}", up::address()?),
    };
    let built = children::run(place.build_server(Profile::Dev), &signals)?;
    if !built.success() {
        return Ok(children::exit_code(built));
    }
    let seeded = children::run(seed(place, &place.server(Profile::Dev), &url), &signals)?;
    Ok(children::exit_code(seeded))
}

/// The command that applies the demo through the server's API; doing it twice changes nothing.
pub(crate) fn seed(place: &Place, program: &Path, url: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["seed", "--server", url, "demo"]).current_dir(&place.root);
    command
}
