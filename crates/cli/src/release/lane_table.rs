//! Builds the lane table, which shows the current and the previous release of each lane.

use crate::{
    failure::Failure,
    http_client::{ServerClient, required_string},
    output::{Column, Output},
    workload,
};
use serde_json::{Value, json};

const COLUMNS: [Column; 5] =
    [("LANE", "/lane"), ("RELEASE", "/holder"), ("SINCE", "/since"), ("BY", "/reason"), ("BEFORE", "/before")];

pub(super) fn show(server: &ServerClient, output: Output, slug: &str, environment: &str) -> Result<(), Failure> {
    let workload = workload::find_workload(server, slug)?;
    let path = ["workloads", required_string(&workload, "workload_id")?, "lanes"];
    let Value::Array(lanes) = server.get(&path, &[("environment", environment)])? else {
        return Err(Failure::Failed("the server's response lists no lanes".to_owned()));
    };
    if !output.is_for_people() {
        return output.list(&lanes, &COLUMNS);
    }
    let rows: Vec<Value> = lanes.iter().map(lane_row).collect();
    output.list(&rows, &COLUMNS)
}

fn lane_row(lane: &Value) -> Value {
    let history: Vec<&Value> = lane.get("history").and_then(Value::as_array).into_iter().flatten().collect();
    let is_held = |holding: &&&Value| holding.get("to").is_none_or(Value::is_null);
    let current = history.iter().find(is_held);
    let mut past: Vec<&&Value> = history.iter().filter(|holding| !is_held(holding)).collect();
    // The server's timestamps have one zone and format, so they can be compared as text.
    past.sort_by_key(|holding| holding.get("to").and_then(Value::as_str));
    json!({
        "lane": lane.get("lane"),
        "holder": lane.get("holder"),
        "since": current.and_then(|holding| holding.get("from")),
        "reason": current.and_then(|holding| holding.get("reason")),
        "before": past.last().and_then(|holding| holding.get("release_id")),
    })
}
