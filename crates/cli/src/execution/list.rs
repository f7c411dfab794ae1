//! Lists executions.

use crate::{
    dynamic_completion,
    failure::Failure,
    format_units::{cost, milliseconds, tokens},
    http_client::{Page, ServerClient, required_string},
    output::{Column, Output, eprint},
    time_argument::TimeArgument,
    workload,
};
use clap::{Args, builder::PossibleValuesParser};
use fairway_domain::execution::Status;
use serde_json::{Value, json};

const COLUMNS: [Column; 8] = [
    ("ID", "/execution_id"),
    ("WORKLOAD", "/workload"),
    ("STATUS", "/status"),
    ("ERROR", "/error"),
    ("DURATION", "/duration"),
    ("TOKENS", "/tokens"),
    ("COST", "/cost"),
    ("STARTED", "/started_at"),
];

/// Filters of the list, and the requested page.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only executions of this workload
    #[arg(long, value_name = "SLUG", add = dynamic_completion::workloads())]
    workload: Option<String>,
    /// Only executions of this release
    #[arg(long, value_name = "ID")]
    release: Option<String>,
    /// Only executions in this status
    #[arg(long, value_parser = PossibleValuesParser::new(Status::ALL.map(Status::as_str)))]
    status: Option<String>,
    /// Only executions in this environment
    #[arg(long, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
    env: Option<String>,
    /// Only executions on this lane
    #[arg(long)]
    lane: Option<String>,
    /// Only executions that started at or after this time, or this long ago, such as 2h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<TimeArgument>,
    /// Only executions that started before this time, or this long ago
    #[arg(long, value_name = "TIME")]
    until: Option<TimeArgument>,
    /// Only executions of this submitter, such as user:ada
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
    /// Only executions that ended with this error code, such as deadline_exceeded
    #[arg(long, value_name = "CODE")]
    error: Option<String>,
    /// The maximum number of executions
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// The next page, as the command reported it after a page, with the same filters
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

pub(super) fn run(arguments: &Arguments, server: &ServerClient, output: Output) -> Result<(), Failure> {
    let workload = arguments.workload.as_deref().map(|slug| workload::find_workload(server, slug)).transpose()?;
    let mut query = Vec::new();
    if let Some(workload) = &workload {
        query.push(("workload_id", required_string(workload, "workload_id")?));
    }
    let filters = [
        ("release_id", &arguments.release),
        ("status", &arguments.status),
        ("environment", &arguments.env),
        ("lane", &arguments.lane),
        ("submitted_by", &arguments.by),
        ("error_code", &arguments.error),
        ("cursor", &arguments.cursor),
    ];
    query.extend(filters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))));
    let times = [("since", &arguments.since), ("until", &arguments.until)];
    query.extend(times.into_iter().filter_map(|(name, time)| Some((name, time.as_ref()?.as_str()))));
    let Page { items, cursor } = server.list_page(&["executions"], &query, arguments.limit)?;
    match output.is_for_people() {
        true => output.list(&items.iter().map(to_row).collect::<Vec<_>>(), &COLUMNS)?,
        false => output.value(&Value::Array(items))?,
    }
    if let Some(cursor) = cursor {
        eprint(&format!("fairway: more executions follow: {}", next_command(arguments, &cursor)));
    }
    Ok(())
}

fn to_row(execution: &Value) -> Value {
    let number = |name: &str| execution.get(name).and_then(Value::as_u64);
    let text = |pointer: &str| execution.pointer(pointer).and_then(Value::as_str);
    json!({
        "execution_id": text("/execution_id"),
        "workload": text("/workload_slug").or_else(|| text("/workload_id")),
        "status": text("/status"),
        "error": text("/error/code"),
        "duration": number("duration_ms").map(milliseconds),
        "tokens": tokens(number("tokens_in"), number("tokens_out")),
        "cost": number("cost_micros").map(cost),
        "started_at": text("/started_at"),
    })
}

/// The command line for the next page. Its times are absolute, because a cursor is valid only for the same filters.
fn next_command(arguments: &Arguments, cursor: &str) -> String {
    let options = [
        ("workload", arguments.workload.as_deref()),
        ("release", arguments.release.as_deref()),
        ("status", arguments.status.as_deref()),
        ("env", arguments.env.as_deref()),
        ("lane", arguments.lane.as_deref()),
        ("since", arguments.since.as_ref().map(TimeArgument::as_str)),
        ("until", arguments.until.as_ref().map(TimeArgument::as_str)),
        ("by", arguments.by.as_deref()),
        ("error", arguments.error.as_deref()),
        ("cursor", Some(cursor)),
    ];
    let option_texts = options.into_iter().filter_map(|(name, value)| Some(format!(" --{name} {}", value?)));
    format!("fairway executions list --limit {}{}", arguments.limit, option_texts.collect::<String>())
}
