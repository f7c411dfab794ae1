//! `cargo xtask demo`: seeds the demo into the database of a running server.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::children;
use crate::paths::{Paths, Profile};
use crate::signals::Signals;
use crate::up;

pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let built = children::run(paths.programs_build_command(Profile::Dev), &signals)?;
    if !built.success() {
        return Ok(children::exit_code(built));
    }
    let settings = up::ServerSettings::load(up::check_command(paths, Profile::Dev))?;
    let seeded = children::run(settings.add_managed_database(seed_command(paths, Profile::Dev))?, &signals)?;
    Ok(children::exit_code(seeded))
}

/// The command `fairway-server seed`. It must run with the environment variables of the server.
pub(crate) fn seed_command(paths: &Paths, profile: Profile) -> Command {
    let mut command = Command::new(paths.server_executable(profile));
    command.arg("seed").current_dir(&paths.root);
    command
}
