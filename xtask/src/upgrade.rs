//! `cargo xtask upgrade`: tests the upgrade from the server of an earlier commit to the server of
//! the checkout, under load.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;
use fairway_managed_postgres::binaries::BIN_VARIABLE;

use crate::children;
use crate::install_postgres;
use crate::paths::{Paths, Profile};
use crate::signals::Signals;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The commit whose server is upgraded; the default is the parent of the last commit that added a migration
    #[arg(long)]
    from: Option<String>,
    /// Seconds of load in each phase: on the earlier server, on both servers, and on the new server alone
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let binaries = install_postgres::ensure()?;
    let commit = match &arguments.from {
        Some(name) => git(&paths.root, &["rev-parse", "--verify", &format!("{name}^{{commit}}")])?,
        None => {
            let added = ["log", "--max-count=1", "--format=%H", "--diff-filter=A", "HEAD", "--", "migrations/*/up.sql"];
            git(&paths.root, &added).and_then(|last| git(&paths.root, &["rev-parse", &format!("{last}^")]))?
        }
    };
    let checkout = paths.target.join("upgrade").join(&commit);
    if !checkout.join("Cargo.toml").is_file() {
        let path = checkout.to_str().context("the target directory is not UTF-8")?;
        git(&paths.root, &["worktree", "prune"])?;
        git(&paths.root, &["worktree", "add", "--detach", "--force", path, &commit])?;
    }
    let earlier_server = paths.target.join("upgrade").join(format!("fairway-server-{commit}"));
    if !earlier_server.is_file() {
        // The build has a target directory of its own, because the crates of both checkouts have the same names. In a
        // shared directory, cargo would mistake the crates of one checkout for those of the other.
        let target = paths.target.join("upgrade").join("target");
        let mut build = paths.programs_build_command(Profile::Dev);
        build.current_dir(&checkout).env("CARGO_TARGET_DIR", &target);
        let built = children::run(build, &signals)?;
        if !built.success() {
            return Ok(children::exit_code(built));
        }
        fs::copy(target.join(Profile::Dev.folder()).join("fairway-server"), &earlier_server)
            .context("copying the earlier server")?;
    }
    let built = children::run(paths.programs_build_command(Profile::Dev), &signals)?;
    if !built.success() {
        return Ok(children::exit_code(built));
    }
    println!("xtask: upgrading from {commit}");
    let mut command = paths.cargo();
    command.args(["run", "--quiet", "--package", "fairway-bench", "--", "upgrade", "--from"]).arg(&earlier_server);
    command.arg("--to").arg(paths.server_executable(Profile::Dev)).args(["--seconds", &arguments.seconds.to_string()]);
    command.env(BIN_VARIABLE, binaries.directory());
    Ok(children::exit_code(children::run(command, &signals)?))
}

/// Runs git in the checkout, and returns its output without white space at its start and end.
fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().context("starting git")?;
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout).context("git's output is not UTF-8")?.trim().to_owned())
}
