//! Commands for releases: the versions that a workload runs with in an environment.

mod lane_table;
mod watch;

use crate::{
    asset,
    failure::Failure,
    output::{Column, Output, eprint},
    server::{Server, required_string, string_or_empty},
    session::Session,
    workload,
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use fairway_domain::{
    asset::kind::AssetKind,
    release::{
        StateName,
        lane::{Lane, TargetLane},
        review,
    },
};
use serde_json::{Value, json};

const COLUMNS: [Column; 5] = [
    ("RELEASE", "/release_id"),
    ("ENVIRONMENT", "/environment"),
    ("STATE", "/state"),
    ("BY", "/created_by"),
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

/// Release commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List releases, newest first
    #[command(after_help = "Example:\n  fairway releases list --workload ticket-classifier --env dev")]
    List {
        /// Only releases of this workload
        #[arg(long, value_name = "SLUG")]
        workload: Option<String>,
        /// Only releases of this environment
        #[arg(long, value_name = "ENVIRONMENT")]
        env: Option<String>,
        /// Only releases in this state
        #[arg(long)]
        state: Option<String>,
        /// The maximum number of releases
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one release with its bindings
    #[command(after_help = "Example:\n  fairway releases show 019a...")]
    Show(ReleaseArgument),
    /// Draft a release
    #[command(
        after_help = "Example:\n  fairway releases create ticket-classifier --env dev --policy ticket-policy --bind \
        ticket-prompt --bind ticket-model@v2 --bind ticket-policy"
    )]
    Create {
        /// The workload's slug
        workload: String,
        /// The environment
        #[arg(long, short, value_name = "ENVIRONMENT")]
        env: String,
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
    #[command(after_help = "Example:\n  fairway releases bind 019a... ticket-prompt@v2 ticket-model")]
    Bind {
        #[command(flatten)]
        release: ReleaseArgument,
        /// The versions as SLUG[@LABEL]; without a label the newest version
        #[arg(required = true)]
        versions: Vec<String>,
    },
    /// Submit a draft for review; its bindings are then frozen
    #[command(after_help = "Example:\n  fairway releases submit 019a...")]
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
        after_help = "Examples:\n  fairway releases activate 019a...\n  fairway releases activate 019a... --rollout \
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
    #[command(after_help = "Example:\n  fairway releases advance 019a...")]
    Advance(ReleaseArgument),
    /// Return lanes to their previous releases
    #[command(after_help = "Example:\n  fairway releases rollback 019a... --reason 'Too curt'")]
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
    /// Report the changes of a release until its rollout ends
    Watch(watch::Arguments),
    /// Show which release serves each lane of a workload
    #[command(after_help = "Example:\n  fairway releases lanes ticket-classifier --env dev")]
    Lanes {
        /// The workload's slug
        workload: String,
        /// The environment
        #[arg(long, short, value_name = "ENVIRONMENT")]
        env: String,
    },
}

/// A release argument.
#[derive(Args)]
pub(crate) struct ReleaseArgument {
    /// The release's id
    #[arg(value_name = "RELEASE")]
    id: String,
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

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    let (output, server) = (output, &server);
    match command {
        Command::List { workload, env, state, limit } => {
            let of_workload = workload.as_deref().map(|slug| workload::find_workload(server, slug)).transpose()?;
            let mut query = Vec::new();
            match &of_workload {
                Some(workload) => query.push(("workload_id", required_string(workload, "workload_id")?)),
                None => query.push(("workspace_id", server.workspace_id()?)),
            }
            query.extend(env.as_deref().map(|env| ("environment", env)));
            query.extend(state.as_deref().map(|state| ("state", state)));
            output.list(&server.list_first(&["releases"], &query, *limit)?, &COLUMNS)
        }
        Command::Show(release) => output.one(&server.get(&["releases", &release.id], &[])?),
        Command::Create { workload, env, target_lane, policy, bind } => {
            let release = create(server, workload, env, target_lane, policy.as_deref(), bind)?;
            output.one(&release)
        }
        Command::Bind { release, versions } => {
            for version in versions {
                let (asset, version) = asset::resolve_version(server, version)?;
                bind_version(
                    server,
                    &release.id,
                    required_string(&asset, "asset_kind")?,
                    required_string(&version, "asset_version_id")?,
                )?;
            }
            output.one(&server.get(&["releases", &release.id], &[])?)
        }
        Command::Submit(release) => {
            output.one(&transition(server, &release.id, StateName::ReviewReady)?)?;
            if output.is_for_people() {
                print_missing_approvals(server, &release.id);
            }
            Ok(())
        }
        Command::Withdraw(release) => output.one(&transition(server, &release.id, StateName::Draft)?),
        Command::Retire(release) => output.one(&transition(server, &release.id, StateName::Retired)?),
        Command::Approve(verdict) => verdict.submit(server, output, review::Verdict::Approved),
        Command::Reject(verdict) => verdict.submit(server, output, review::Verdict::Rejected),
        Command::RequestChanges(verdict) => verdict.submit(server, output, review::Verdict::ChangesRequested),
        Command::Activate { release, lane, rollout, soak, auto_advance } => {
            let plan = (!rollout.is_empty()).then(
                || json!({ "lane_sequence": rollout, "soak_duration_minutes": soak, "auto_advance": auto_advance }),
            );
            output.one(&activate(server, &release.id, lane.as_deref(), plan)?)
        }
        Command::Advance(release) => {
            output.one(&server.post(&["releases", &release.id, "rollout", "advance"], &json!({}))?)
        }
        Command::Rollback { release, reason, lane } => {
            let body = json!({ "reason": reason, "lane": lane });
            output.one(&server.post(&["releases", &release.id, "rollback"], &body)?)
        }
        Command::Gates(release) => match server.get(&["releases", &release.id, "gates"], &[])? {
            Value::Array(gates) => output.list(&gates, &GATE_COLUMNS),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                output.one(&other)
            }
        },
        Command::Watch(arguments) => watch::watch(server, output, arguments),
        Command::Lanes { workload, env } => lane_table::show(server, output, workload, env),
    }
}

fn create(
    server: &Server,
    workload: &str,
    environment: &str,
    target_lane: &str,
    policy: Option<&str>,
    bind: &[String],
) -> Result<Value, Failure> {
    // All lookups precede the first write.
    let workload = workload::find_workload(server, workload)?;
    let bound = bind.iter().map(|version| asset::resolve_version(server, version)).collect::<Result<Vec<_>, _>>()?;
    let is_bundle = |asset: &&Value| string_or_empty(asset, "asset_kind") == AssetKind::PolicyBundle.as_str();
    let policy = match policy {
        Some(slug) => Some(asset::find_asset(server, slug)?),
        None => bound.iter().map(|(asset, _)| asset).find(is_bundle).cloned(),
    };
    let policy = policy.as_ref().map(|policy| required_string(policy, "asset_id")).transpose()?;
    let body = json!({
        "workload_id": required_string(&workload, "workload_id")?,
        "environment": environment,
        "target_lane": target_lane,
        "policy_bundle_id": policy,
    });
    let release = server.post(&["releases"], &body)?;
    let id = required_string(&release, "release_id")?;
    for (asset, version) in &bound {
        bind_version(server, id, required_string(asset, "asset_kind")?, required_string(version, "asset_version_id")?)?;
    }
    server.get(&["releases", id], &[])
}

/// Binds a version to a draft, in the role of its kind.
pub(crate) fn bind_version(server: &Server, release: &str, role: &str, version: &str) -> Result<(), Failure> {
    let body = json!({ "asset_version_id": version, "role": role });
    server.post(&["releases", release, "bindings"], &body).map(drop)
}

/// Requests a state transition.
pub(crate) fn transition(server: &Server, release: &str, to: StateName) -> Result<Value, Failure> {
    server.post(&["releases", release, "transition"], &json!({ "to_state": to.as_str() }))
}

/// Tells who must approve a submitted release, in the server's words. The release is submitted in any case, so a
/// failure to read its gates is not reported.
fn print_missing_approvals(server: &Server, release: &str) {
    let Ok(Value::Array(gates)) = server.get(&["releases", release, "gates"], &[]) else { return };
    let is_missing = |gate: &&Value| {
        string_or_empty(gate, "gate") == "approvals"
            && string_or_empty(gate, "to_state") == StateName::Approved.as_str()
    };
    for gate in gates.iter().filter(is_missing) {
        eprint(&format!("approvals: {}", string_or_empty(gate, "message")));
    }
}

/// Activates a release. Moves a release in review to `approved` first.
pub(crate) fn activate(
    server: &Server,
    release: &str,
    lane: Option<&str>,
    plan: Option<Value>,
) -> Result<Value, Failure> {
    let found = server.get(&["releases", release], &[])?;
    if required_string(&found, "state")? == StateName::ReviewReady.as_str() {
        transition(server, release, StateName::Approved)?;
    }
    let body = json!({ "to_state": StateName::Active.as_str(), "lane": lane, "rollout_plan": plan });
    server.post(&["releases", release, "transition"], &body)
}

/// Submits a review outcome for a release.
fn submit_review(
    server: &Server,
    release: &str,
    outcome: review::Verdict,
    note: Option<&str>,
) -> Result<Value, Failure> {
    let body = json!({ "outcome": outcome.as_str(), "subject_kind": "release", "subject_ref": release, "note": note });
    server.post(&["releases", release, "approvals"], &body)
}

impl ReviewArguments {
    fn submit(&self, server: &Server, output: Output, outcome: review::Verdict) -> Result<(), Failure> {
        output.one(&submit_review(server, &self.release.id, outcome, self.note.as_deref())?)
    }
}
