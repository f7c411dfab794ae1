//! Synchronizes a server with a directory of manifests.
//!
//! `apply` performs exactly the steps of the plan. All checks precede the first write.

mod apply;
mod directory;
mod manifest_files;
mod plan;
mod pull;
mod reachable_assets;
mod remote_state;
mod render_plan;

use crate::{
    command_context::CommandContext,
    failure::{Candidate, Failure},
    http_client::ServerClient,
    output::{Output, print},
    terminal_text::{sanitize, shorten},
    untrusted_file::Source,
};
use clap::Subcommand;
use directory::Directory;
use plan::Plan;
use remote_state::RemoteState;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Maximum size of a plan file in bytes. It is large, because a plan contains the diff of every changed content.
const MAX_PLAN_BYTES: u64 = 256 << 20;

/// The subcommands of `fairway sync`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show what `apply` would change
    #[command(
        after_help = "Examples:\n  fairway sync plan demo\n  fairway sync plan demo --out plan.json && fairway sync apply \
        demo --plan plan.json"
    )]
    Plan {
        /// The directory
        directory: PathBuf,
        /// Plan to archive assets that the directory does not contain
        #[arg(long)]
        prune: bool,
        /// Save the plan to a file, for `apply --plan`
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Apply the directory to the server; releases are only drafted
    #[command(
        after_help = "All checks precede the first change. Completed steps stay when a later step fails; `apply` \
        can then be repeated. Nothing is deleted.\n\nExample:\n  fairway sync apply demo"
    )]
    Apply {
        /// The directory
        directory: PathBuf,
        /// Archive assets that the directory does not contain; refused when one is in use
        #[arg(long)]
        prune: bool,
        /// Apply exactly this plan, and refuse it when anything has changed since
        #[arg(long, value_name = "FILE")]
        plan: Option<PathBuf>,
    },
    /// Write the server's state into a directory; equivalent files stay unchanged
    #[command(after_help = "Example:\n  fairway sync pull workloads")]
    Pull {
        /// The directory; created when missing
        directory: PathBuf,
    },
    /// Report whether the server matches the directory: 0 if it does, 2 if not
    #[command(after_help = "Example:\n  fairway sync status demo")]
    Status {
        /// The directory
        directory: PathBuf,
    },
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        Command::Plan { directory, prune, out } => {
            let PlannedSync { directory: desired, remote: remote_state, plan } =
                make_plan(&server, directory, UnmanagedPolicy::of(*prune))?;
            let plan = plan.with_diffs(&desired, &remote_state);
            if let Some(path) = out {
                let text = serde_json::to_string_pretty(&plan).map_err(|error| Failure::Failed(error.to_string()))?;
                fs::write(path, text).map_err(|cause| Failure::Io { path: path.clone(), cause })?;
            }
            render_plan::print_plan(output, &plan)?;
            plan.refuse_if_blocked()
        }
        Command::Apply { directory, prune, plan } => {
            let saved_plan =
                plan.as_ref().map(|path| Source::open_limited(path, MAX_PLAN_BYTES)?.json()).transpose()?;
            let PlannedSync { directory: desired, remote: remote_state, mut plan } =
                make_plan(&server, directory, UnmanagedPolicy::of(*prune))?;
            if let Some(saved_plan) = saved_plan {
                plan = plan.with_diffs(&desired, &remote_state);
                plan.refuse_if_different(&saved_plan)?;
            }
            plan.refuse_if_blocked()?;
            let applied = apply::apply(&server, &desired, &remote_state, &plan)?;
            applied.print(output)?;
            if let Some(draft) = applied.drafts().next() {
                output.hint(&format!("fairway releases submit {draft}"));
            }
            Ok(())
        }
        Command::Pull { directory } => pull::pull(&server, output, directory),
        Command::Status { directory } => {
            let PlannedSync { plan, .. } = make_plan(&server, directory, UnmanagedPolicy::Keep)?;
            print_status(output, &plan)
        }
    }
}

/// Plans and applies a directory, but only the releases of one environment. Returns these releases.
///
/// # Errors
/// When the directory has no release for the environment, or when planning or applying fails.
pub(crate) fn apply_environment(
    server: &ServerClient,
    output: Output,
    directory: &Path,
    environment: &str,
) -> Result<Vec<Value>, Failure> {
    let mut desired = Directory::read(directory)?;
    let environments: BTreeSet<String> =
        desired.releases.iter().map(|(manifest, _)| manifest.environment.clone()).collect();
    if !environments.contains(environment) {
        let message = format!("the directory has no release for environment `{}`", shorten(&sanitize(environment)));
        let candidates = environments.into_iter().map(Candidate::named).collect();
        return Err(Failure::Unknown { message, candidates });
    }
    desired.releases.retain(|(manifest, _)| manifest.environment == environment);
    let remote_state = RemoteState::read(server, &desired)?;
    let plan =
        plan::build_plan(server, &desired, &remote_state, UnmanagedPolicy::Keep)?.with_diffs(&desired, &remote_state);
    if output.is_for_people() {
        render_plan::print_plan(output, &plan)?;
    }
    plan.refuse_if_blocked()?;
    Ok(apply::apply(server, &desired, &remote_state, &plan)?.releases)
}

fn print_status(output: Output, plan: &Plan) -> Result<(), Failure> {
    if plan.is_empty() {
        return if output.is_for_people() { print("in sync") } else { render_plan::print_plan(output, plan) };
    }
    render_plan::print_plan(output, plan)?;
    Err(Failure::OutOfSync)
}

/// The treatment of assets that the directory does not contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnmanagedPolicy {
    /// The plan reports these assets, and does not change them.
    Keep,
    /// The plan archives these assets.
    Archive,
}

impl UnmanagedPolicy {
    const fn of(prune: bool) -> Self {
        if prune { Self::Archive } else { Self::Keep }
    }
}

/// A plan and its inputs.
struct PlannedSync {
    directory: Directory,
    remote: RemoteState,
    plan: Plan,
}

fn make_plan(
    server: &ServerClient,
    directory: &std::path::Path,
    unmanaged_policy: UnmanagedPolicy,
) -> Result<PlannedSync, Failure> {
    // Reads and validates all files before the first request.
    let desired = Directory::read(directory)?;
    let remote_state = RemoteState::read(server, &desired)?;
    let plan = plan::build_plan(server, &desired, &remote_state, unmanaged_policy)?;
    Ok(PlannedSync { directory: desired, remote: remote_state, plan })
}
