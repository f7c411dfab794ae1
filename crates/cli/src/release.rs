//! Commands for releases: the versions that a workload runs with in an environment.

mod apply_and_submit;
mod diff;
mod eligible_approvers;
mod lane_table;
mod next_step;
mod rollback_advice;
mod serving_release;
mod watch;
mod write_commands;

use crate::{
    command_context::CommandContext,
    dynamic_completion, environment,
    failure::Failure,
    http_client::{ServerClient, required_string, string_or_empty},
    output::{Column, Output, eprint, print},
    release_and_run_references::find_release,
    workload,
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use eligible_approvers::EligibleApprovers;
use fairway_domain::release::{
    StateName,
    lane::{Lane, TargetLane},
    review,
};
use serde_json::{Value, json};
use std::collections::HashMap;
pub(crate) use write_commands::{bind_version, transition};

const COLUMNS: [Column; 5] = [
    ("RELEASE", "/release_id"),
    ("ENV", "/environment"),
    ("STATE", "/state"),
    ("BY", "/created_by"),
    ("UPDATED", "/updated_at"),
];

/// The columns of a list with releases of several workloads. The workload's slug replaces the author, so that a line
/// fits into 80 characters.
const COLUMNS_WITH_WORKLOAD: [Column; 5] = [
    ("RELEASE", "/release_id"),
    ("WORKLOAD", "/workload_slug"),
    ("ENV", "/environment"),
    ("STATE", "/state"),
    ("UPDATED", "/updated_at"),
];

const GATE_COLUMNS: [Column; 6] = [
    ("TO", "/to_state"),
    ("LANE", "/lane"),
    ("VERDICT", "/verdict"),
    ("GATE", "/gate"),
    ("CODE", "/code"),
    ("MESSAGE", "/message"),
];

/// A release command, or the directory to release.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
#[command(
    after_help = "A RELEASE is WORKLOAD@ENVIRONMENT (the newest release that is neither superseded nor retired; for \
    `rollback` and `advance` the one that serves), an id, the unique beginning of an id, or `latest` (the newest of \
    the workspace).\n\n`fairway release DIRECTORY` shows \
    what `sync apply` changes, applies it, submits the drafts of the environment for review, and says who can \
    approve them.\n\nExample:\n  fairway release demo --env dev"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    publish: apply_and_submit::Arguments,
}

/// The subcommands of `fairway releases`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List releases, newest first
    #[command(after_help = "Example:\n  fairway releases list --workload ticket-classifier --env dev")]
    List {
        /// Only releases of this workload
        #[arg(long, value_name = "SLUG", add = dynamic_completion::workloads())]
        workload: Option<String>,
        /// Only releases of this environment
        #[arg(long, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
        env: Option<String>,
        /// Only releases in this state
        #[arg(long, value_parser = PossibleValuesParser::new(StateName::ALL.map(StateName::as_str)))]
        state: Option<String>,
        /// The maximum number of releases
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one release with its bindings, and whether a rollback is advised
    #[command(after_help = "Examples:\n  fairway releases show ticket-classifier@dev\n  fairway releases show 019a...")]
    Show(ReleaseArgument),
    /// Compare the bindings of a release with those of the active release
    #[command(after_help = "Without --with, the comparison is with the release that serves the lane in the same \
        environment.\n\nExamples:\n  fairway releases diff ticket-classifier@dev\n  \
        fairway releases diff 019a... --with 019b...")]
    Diff(diff::Arguments),
    /// Draft a release
    #[command(
        after_help = "Example:\n  fairway releases create ticket-classifier --env dev --policy ticket-policy --bind \
        ticket-prompt --bind ticket-model@v2 --bind ticket-policy"
    )]
    Create {
        /// The workload's slug
        #[arg(add = dynamic_completion::workloads())]
        workload: String,
        /// The environment; else the profile's
        #[arg(long, short, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
        env: Option<String>,
        /// The target lane
        #[arg(long, default_value = TargetLane::All.as_str(), value_parser = PossibleValuesParser::new(TargetLane::ALL.map(TargetLane::as_str)))]
        target_lane: String,
        /// The slug of the policy bundle that decides; else the bound policy bundle
        #[arg(long, value_name = "SLUG")]
        policy: Option<String>,
        /// A version to bind as SLUG[@LABEL]; without a label the newest version
        #[arg(long, value_name = "VERSION")]
        bind: Vec<String>,
    },
    /// Bind versions to a draft
    #[command(after_help = "Examples:\n  fairway releases bind 019a... ticket-prompt@v2 ticket-model\n  \
        fairway releases bind 019a... ticket-prompt@v3 --replace")]
    Bind {
        #[command(flatten)]
        release: ReleaseArgument,
        /// The versions as SLUG[@LABEL]; without a label the newest version
        #[arg(required = true)]
        versions: Vec<String>,
        /// Replace the version that the draft binds in the same role
        #[arg(long)]
        replace: bool,
    },
    /// Remove versions from a draft
    #[command(after_help = "Example:\n  fairway releases unbind 019a... ticket-prompt")]
    Unbind {
        #[command(flatten)]
        release: ReleaseArgument,
        /// The slugs of the bound assets
        #[arg(required = true, value_name = "ASSET", add = dynamic_completion::assets())]
        slugs: Vec<String>,
    },
    /// Submit a draft for review; its bindings are then frozen
    #[command(after_help = "Example:\n  fairway releases submit ticket-classifier@dev")]
    Submit(ReleaseArgument),
    /// Return a release to draft
    #[command(after_help = "Example:\n  fairway releases withdraw 019a...")]
    Withdraw(ReleaseArgument),
    /// Approve the bindings of a release
    #[command(after_help = "Example:\n  fairway releases approve 019a... --note 'Read all of it'")]
    Approve(ReviewArguments),
    /// Reject the bindings of a release
    #[command(after_help = "Example:\n  fairway releases reject 019a... --note 'It shows names'")]
    Reject(ReviewArguments),
    /// Request changes and return the release to draft
    #[command(after_help = "Example:\n  fairway releases request-changes 019a... --note 'Ask for the order number'")]
    RequestChanges(ReviewArguments),
    /// Activate an approved release
    #[command(
        after_help = "Examples:\n  fairway releases activate ticket-classifier@dev\n  fairway releases activate 019a... --rollout \
        restricted,guided,standard --soak 60 --auto-advance"
    )]
    Activate {
        #[command(flatten)]
        release: ReleaseArgument,
        /// Only on this lane
        #[arg(long, value_parser = PossibleValuesParser::new(Lane::ALL.map(Lane::as_str)))]
        lane: Option<String>,
        /// Lane by lane, in this order
        #[arg(long, value_name = "LANES", value_delimiter = ',', conflicts_with = "lane", value_parser = PossibleValuesParser::new(Lane::ALL.map(Lane::as_str)))]
        rollout: Vec<String>,
        /// The soak time of each lane in minutes
        #[arg(long, value_name = "MINUTES", default_value_t = 60, requires = "rollout")]
        soak: u64,
        /// Let the rollout controller advance after each successful soak
        #[arg(long, requires = "rollout")]
        auto_advance: bool,
    },
    /// Advance a rollout to the next lane
    #[command(after_help = "WORKLOAD@ENVIRONMENT is the release whose rollout is in progress.\n\nExample:\n  fairway \
        releases advance ticket-classifier@production")]
    Advance(ReleaseArgument),
    /// Return lanes to their previous releases
    #[command(
        after_help = "WORKLOAD@ENVIRONMENT is the release that serves, also if a newer one awaits review; during \
        a rollout, the release of the rollout.\n\nExample:\n  fairway releases rollback \
        ticket-classifier@production --reason 'Too curt'"
    )]
    Rollback {
        #[command(flatten)]
        release: ReleaseArgument,
        /// The reason
        #[arg(long)]
        reason: String,
        /// Only this lane
        #[arg(long, value_parser = PossibleValuesParser::new(Lane::ALL.map(Lane::as_str)))]
        lane: Option<String>,
    },
    /// Take a release out of service
    #[command(after_help = "Example:\n  fairway releases retire 019a...")]
    Retire(ReleaseArgument),
    /// Show the gates in front of each next state
    #[command(after_help = "Example:\n  fairway releases gates 019a...")]
    Gates(ReleaseArgument),
    /// Write the signed verification summary of a release, which `fairway verify` checks
    #[command(
        after_help = "A pipeline deploys only what passes:\n  fairway releases summary latest > release.json\n  \
        fairway verify release.json --key-file keys.txt"
    )]
    Summary(ReleaseArgument),
    /// Report the changes of a release until its rollout ends
    Watch(watch::Arguments),
    /// Show which release serves each lane of a workload
    #[command(after_help = "Example:\n  fairway releases lanes ticket-classifier --env dev")]
    Lanes {
        /// The workload's slug
        #[arg(add = dynamic_completion::workloads())]
        workload: String,
        /// The environment; else the profile's
        #[arg(long, short, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
        env: Option<String>,
    },
}

/// Argument that names a release.
#[derive(Args)]
pub(crate) struct ReleaseArgument {
    /// WORKLOAD@ENVIRONMENT, an id or its unique beginning, or `latest`
    #[arg(value_name = "RELEASE", add = dynamic_completion::releases())]
    reference: String,
}

impl ReleaseArgument {
    /// Resolves the reference to the release's id.
    fn find(&self, server: &ServerClient) -> Result<String, Failure> {
        find_release(server, &self.reference)
    }

    /// Resolves the reference to a release's id. `WORKLOAD@ENVIRONMENT` names the holder of `lane`, or without a lane
    /// the serving release. Other references are resolved as in [`Self::find`].
    fn find_serving(&self, server: &ServerClient, lane: Option<&str>) -> Result<String, Failure> {
        serving_release::find(server, &self.reference, lane)
    }
}

/// Options of a review.
#[derive(Args)]
pub(crate) struct ReviewArguments {
    #[command(flatten)]
    release: ReleaseArgument,
    /// The reason
    #[arg(long)]
    note: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    match &arguments.command {
        Some(command) => run_command(command, context),
        None => apply_and_submit::run(&arguments.publish, context),
    }
}

fn run_command(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    let (output, server) = (output, &server);
    match command {
        Command::List { workload, env, state, limit } => {
            let workload = workload.as_deref().map(|slug| workload::find_workload(server, slug)).transpose()?;
            let mut query = Vec::new();
            match &workload {
                Some(workload) => query.push(("workload_id", required_string(workload, "workload_id")?)),
                None => query.push(("workspace_id", server.workspace_id()?)),
            }
            query.extend(env.as_deref().map(|env| ("environment", env)));
            query.extend(state.as_deref().map(|state| ("state", state)));
            let releases = server.list_first(&["releases"], &query, *limit)?;
            if workload.is_some() || !output.is_for_people() {
                return output.list(&releases, &COLUMNS);
            }
            output.list(&with_slugs(server, releases), &COLUMNS_WITH_WORKLOAD)
        }
        Command::Show(release) => rollback_advice::show_release(server, output, &release.find(server)?),
        Command::Diff(arguments) => diff::show(server, output, arguments),
        Command::Create { workload, env, target_lane, policy, bind } => {
            let environment = context.environment(env.as_deref())?;
            environment::report_if_new(server, output, &environment);
            let release = write_commands::create(server, workload, &environment, target_lane, policy.as_deref(), bind)?;
            let id = required_string(&release, "release_id")?;
            let next = if bind.is_empty() { format!("bind {id} VERSION") } else { format!("submit {id}") };
            output.change_result(&release, &format!("fairway releases {next}"))
        }
        Command::Bind { release, versions, replace } => {
            let id = release.find(server)?;
            let draft = write_commands::bind(server, &id, versions, *replace);
            let draft = draft.map_err(|failure| next_step::explain(server, &id, failure))?;
            output.change_result(&draft, &format!("fairway releases submit {id}"))
        }
        Command::Unbind { release, slugs } => {
            let id = release.find(server)?;
            let draft = write_commands::unbind(server, &id, slugs);
            let draft = draft.map_err(|failure| next_step::explain(server, &id, failure))?;
            output.change_result(&draft, &format!("fairway releases bind {id} VERSION"))
        }
        Command::Gates(release) => show_gates(server, output, &release.find(server)?),
        Command::Summary(release) => {
            let id = release.find(server)?;
            print(&server.get_when_covered_by_checkpoint(&["releases", &id, "evidence-bundle"])?.to_string())
        }
        Command::Watch(arguments) => watch::watch(server, output, arguments),
        Command::Lanes { workload, env } => {
            lane_table::show(server, output, workload, &context.environment(env.as_deref())?)
        }
        Command::Submit(_)
        | Command::Withdraw(_)
        | Command::Retire(_)
        | Command::Approve(_)
        | Command::Reject(_)
        | Command::RequestChanges(_)
        | Command::Activate { .. }
        | Command::Advance(_)
        | Command::Rollback { .. } => change_state(server, output, command),
    }
}

/// Runs a command that changes the state of a release, and prints the usual next step, if there is one.
fn change_state(server: &ServerClient, output: Output, command: &Command) -> Result<(), Failure> {
    let print_change = |changed: Value, next: String| output.change_result(&changed, &next);
    let move_to =
        |id: &str, state| transition(server, id, state).map_err(|failure| next_step::explain(server, id, failure));
    match command {
        Command::Submit(release) => submit(server, output, &release.find(server)?),
        Command::Withdraw(release) => {
            let id = release.find(server)?;
            print_change(move_to(&id, StateName::Draft)?, format!("fairway releases bind {id} VERSION --replace"))
        }
        Command::Retire(release) => output.record(&move_to(&release.find(server)?, StateName::Retired)?),
        Command::Approve(verdict) => verdict.submit(server, output, review::ReleaseVerdict::Approved),
        Command::Reject(verdict) => verdict.submit(server, output, review::ReleaseVerdict::Rejected),
        Command::RequestChanges(verdict) => verdict.submit(server, output, review::ReleaseVerdict::ChangesRequested),
        Command::Activate { release, lane, rollout, soak, auto_advance } => {
            let id = release.find(server)?;
            let plan = (!rollout.is_empty()).then(
                || json!({ "lane_sequence": rollout, "soak_duration_minutes": soak, "auto_advance": auto_advance }),
            );
            let has_rollout = plan.is_some();
            let active = write_commands::activate(server, &id, lane.as_deref(), plan);
            let active = active.map_err(|failure| next_step::explain(server, &id, failure))?;
            let next = next_step::after_activation(server, output, &active, has_rollout);
            print_change(active, next)
        }
        Command::Advance(release) => {
            let id = release.find_serving(server, None)?;
            let advanced = server.post(&["releases", &id, "rollout", "advance"], &json!({}));
            let advanced = advanced.map_err(|failure| next_step::explain(server, &id, failure))?;
            print_change(advanced, format!("fairway releases watch {id}"))
        }
        Command::Rollback { release, reason, lane } => {
            let id = release.find_serving(server, lane.as_deref())?;
            let body = json!({ "reason": reason, "lane": lane });
            let rolled_back = server.post(&["releases", &id, "rollback"], &body);
            let rolled_back = rolled_back.map_err(|failure| serving_release::explain_rollback(server, &id, failure));
            let rolled_back = rolled_back.map_err(|failure| next_step::explain(server, &id, failure))?;
            print_change(rolled_back, format!("fairway releases retire {id}"))
        }
        Command::List { .. }
        | Command::Show(_)
        | Command::Diff(_)
        | Command::Create { .. }
        | Command::Bind { .. }
        | Command::Unbind { .. }
        | Command::Gates(_)
        | Command::Summary(_)
        | Command::Watch(_)
        | Command::Lanes { .. } => Ok(()),
    }
}

/// Adds the slug of its workload to each release, if the caller may list the workload.
fn with_slugs(server: &ServerClient, mut releases: Vec<Value>) -> Vec<Value> {
    let workloads = server.workspace_id().and_then(|id| server.list(&["workloads"], &[("workspace_id", id)]));
    let workloads = workloads.unwrap_or_default();
    let slugs: HashMap<&str, &str> = workloads
        .iter()
        .map(|workload| (string_or_empty(workload, "workload_id"), string_or_empty(workload, "slug")))
        .collect();
    for release in &mut releases {
        let slug = slugs.get(string_or_empty(release, "workload_id")).copied();
        if let (Some(slug), Some(members)) = (slug, release.as_object_mut()) {
            members.insert("workload_slug".to_owned(), json!(slug));
        }
    }
    releases
}

fn show_gates(server: &ServerClient, output: Output, release: &str) -> Result<(), Failure> {
    match server.get(&["releases", release, "gates"], &[])? {
        Value::Array(gates) => output.list(&gates, &GATE_COLUMNS),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            output.record(&other)
        }
    }
}

/// Submits a draft, and prints how many approvals it needs and who can approve it. A failure to read these rules is
/// not reported, because the submission has succeeded.
fn submit(server: &ServerClient, output: Output, id: &str) -> Result<(), Failure> {
    let submitted = write_commands::submit(server, id).map_err(|failure| next_step::explain(server, id, failure))?;
    output.record(&submitted)?;
    if !output.is_for_people() {
        return Ok(());
    }
    next_step::report_gate_warnings(server, id);
    if let Ok(approval) = EligibleApprovers::read(server, string_or_empty(&submitted, "environment")) {
        eprint(&approval.describe());
        output.hint(&approval.next_step(id));
    }
    Ok(())
}

impl ReviewArguments {
    fn submit(&self, server: &ServerClient, output: Output, outcome: review::ReleaseVerdict) -> Result<(), Failure> {
        let id = self.release.find(server)?;
        let submitted = write_commands::submit_review(server, &id, outcome, self.note.as_deref());
        output.record(&submitted.map_err(|failure| next_step::explain(server, &id, failure))?)?;
        next_step::report_after_verdict(server, output, &id, outcome);
        Ok(())
    }
}
