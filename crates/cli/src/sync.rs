//! Keeping a server in step with a directory of files.
//!
//! A plan is made of both, and is all that is done: what is not in a plan does not happen. Everything that can be checked is
//! checked before the first request that changes anything.

mod apply;
mod directory;
mod estate;
mod manifest;
mod plan;
mod pull;
mod reference;
mod show;

use crate::{
    failure::Failure,
    file::Source,
    output::{Output, say},
    server::Server,
    session::Session,
};
use clap::Subcommand;
use directory::Directory;
use estate::Estate;
use plan::Plan;
use std::{fs, path::PathBuf};

/// Longest plan that is read: it tells every difference of every content.
const LONGEST_PLAN: u64 = 256 << 20;

/// What to do with a directory.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show what `apply` would do
    #[command(
        after_help = "Examples:\n  fairway sync plan demo\n  fairway sync plan demo --out plan.json && fairway sync apply \
        demo --plan plan.json"
    )]
    Plan {
        /// The directory
        directory: PathBuf,
        /// Plan to put away what the directory does not name
        #[arg(long)]
        prune: bool,
        /// Keep the plan in a file, for `apply --plan`
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Make the server as the directory says; releases are drafted, and never more
    #[command(
        after_help = "Everything is checked first. What was done when something fails stays, and applying again goes on \
        from there. Nothing is deleted.\n\nExample:\n  fairway sync apply demo"
    )]
    Apply {
        /// The directory
        directory: PathBuf,
        /// Archive the assets that the directory does not name; refused where one is in use
        #[arg(long)]
        prune: bool,
        /// Do exactly what this plan says, and nothing where things have changed since
        #[arg(long, value_name = "FILE")]
        plan: Option<PathBuf>,
    },
    /// Write what the server has into a directory; files that say the same already are left alone
    #[command(after_help = "Example:\n  fairway sync pull estate")]
    Pull {
        /// The directory; made where it is missing
        directory: PathBuf,
    },
    /// Say whether the server is as the directory says: 0 when it is, 2 when it is not
    #[command(after_help = "Example:\n  fairway sync status demo")]
    Status {
        /// The directory
        directory: PathBuf,
    },
}

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    match command {
        Command::Plan { directory, prune, out } => {
            let Planned { wanted, estate, plan } = planned(&server, directory, Rest::of(*prune))?;
            let plan = plan.with_differences(&wanted, &estate);
            if let Some(path) = out {
                let text = serde_json::to_string_pretty(&plan).map_err(|error| Failure::Unfit(error.to_string()))?;
                fs::write(path, text).map_err(|cause| Failure::Io { path: path.clone(), cause })?;
            }
            show::plan(output, &plan)?;
            plan.refuse_if_blocked()
        }
        Command::Apply { directory, prune, plan } => {
            let agreed = plan.as_ref().map(|path| Source::open_within(path, LONGEST_PLAN)?.json()).transpose()?;
            let Planned { wanted, estate, mut plan } = planned(&server, directory, Rest::of(*prune))?;
            if let Some(agreed) = agreed {
                plan = plan.with_differences(&wanted, &estate);
                plan.refuse_if_other(&agreed)?;
            }
            plan.refuse_if_blocked()?;
            apply::apply(&server, output, (&wanted, &estate), &plan)
        }
        Command::Pull { directory } => pull::pull(&server, output, directory),
        Command::Status { directory } => {
            let Planned { plan, .. } = planned(&server, directory, Rest::Left)?;
            status(output, &plan)
        }
    }
}

fn status(output: Output, plan: &Plan) -> Result<(), Failure> {
    if plan.is_done() {
        return if output.is_for_people() { say("in step") } else { show::plan(output, plan) };
    }
    show::plan(output, plan)?;
    Err(Failure::Differs)
}

/// What becomes of assets that the directory does not name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// They are told.
    Left,
    /// They are put away.
    Pruned,
}

impl Rest {
    const fn of(prune: bool) -> Self {
        if prune { Self::Pruned } else { Self::Left }
    }
}

/// A plan, and what it was made of.
struct Planned {
    wanted: Directory,
    estate: Estate,
    plan: Plan,
}

fn planned(server: &Server, directory: &std::path::Path, rest: Rest) -> Result<Planned, Failure> {
    // The files first: where one is wrong, no server is asked.
    let wanted = Directory::read(directory)?;
    let estate = Estate::read(server, &wanted)?;
    let plan = plan::plan(server, &wanted, &estate, rest)?;
    Ok(Planned { wanted, estate, plan })
}
