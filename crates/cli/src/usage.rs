//! `fairway usage`: reports totals of ended runs.

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::Failure,
    format_units::{cost, milliseconds},
    http_client::required_string,
    output::Column,
    time_argument::TimeArgument,
    workload,
};
use clap::Args;
use fairway_domain::execution::usage::UsageGrouping;
use serde_json::{Value, json};

const COLUMNS: [Column; 10] = [
    ("DAY", "/day"),
    ("WORKLOAD", "/workload"),
    ("MODEL", "/model"),
    ("RUNS", "/runs"),
    ("FAILED", "/failures"),
    ("TOKENS IN", "/tokens_in"),
    ("TOKENS OUT", "/tokens_out"),
    ("COST", "/cost"),
    ("P50", "/p50"),
    ("P95", "/p95"),
];

/// Filters and grouping of the report.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fairway usage --since 7d\n  fairway usage --workload ticket-classifier --by day,model --output json"
)]
pub(crate) struct Arguments {
    /// Only runs of this workload
    #[arg(long, value_name = "SLUG", add = dynamic_completion::workloads())]
    workload: Option<String>,
    /// Only runs in this environment
    #[arg(long, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
    env: Option<String>,
    /// Only runs that started at or after this time, or this long ago, such as 7d; default: 30 days ago
    #[arg(long, value_name = "TIME")]
    since: Option<TimeArgument>,
    /// Only runs that started before this time, or this long ago
    #[arg(long, value_name = "TIME")]
    until: Option<TimeArgument>,
    /// The properties by which runs are grouped: workload, model, day, or several
    #[arg(long, value_name = "PROPERTIES", default_value = "workload", value_parser = parse_grouping)]
    by: String,
}

fn parse_grouping(text: &str) -> Result<String, String> {
    match UsageGrouping::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("names of {}, separated by commas", UsageGrouping::NAMES.join(", "))),
    }
}

/// Prints the totals of the runs that the caller may view.
pub(crate) fn run(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    let workload = arguments.workload.as_deref().map(|slug| workload::find_workload(&server, slug)).transpose()?;
    let mut query = vec![("group_by", arguments.by.as_str())];
    if let Some(workload) = &workload {
        query.push(("workload_id", required_string(workload, "workload_id")?));
    }
    query.extend(arguments.env.as_deref().map(|environment| ("environment", environment)));
    query.extend(arguments.since.as_ref().map(|time| ("since", time.as_str())));
    query.extend(arguments.until.as_ref().map(|time| ("until", time.as_str())));
    let report = server.get(&["usage"], &query)?;
    match (output.is_for_people(), report.as_array()) {
        (true, Some(rows)) => output.list(&rows.iter().map(to_row).collect::<Vec<_>>(), &COLUMNS),
        (false, _) | (true, None) => output.value(&report),
    }
}

fn to_row(row: &Value) -> Value {
    let member = |name: &str| row.get(name).cloned().unwrap_or_default();
    let number = |name: &str| row.get(name).and_then(Value::as_u64);
    json!({
        "day": member("day"),
        "workload": member("workload_slug"),
        "model": member("model"),
        "runs": member("runs"),
        "failures": member("failures"),
        "tokens_in": member("tokens_in"),
        "tokens_out": member("tokens_out"),
        "cost": number("cost_micros").map(cost),
        "p50": number("p50_ms").map(milliseconds),
        "p95": number("p95_ms").map(milliseconds),
    })
}
