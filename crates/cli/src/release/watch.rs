//! Watching a release: each change as it is seen, until nothing more is to come by itself.

use super::Release;
use crate::{
    failure::Failure,
    output::{Output, say},
    server::Server,
    text::plain,
};
use clap::Args;
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);

/// What to watch, and for how long.
#[derive(Args)]
#[command(
    after_help = "Ends when the release serves without a rollout in progress, or will never serve again; with 5 when \
    the time is over first.\n\nExample:\n  fairway releases watch 019a... --wait 1h"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    release: Release,
    /// How long, such as 10m or 1h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = crate::run::duration)]
    wait: Duration,
}

pub(super) fn watch(server: &Server, output: Output, arguments: &Arguments) -> Result<(), Failure> {
    let until = Instant::now() + arguments.wait;
    let mut before = String::new();
    loop {
        let release = server.get(&["releases", &arguments.release.id], &[])?;
        let now = told(&release);
        if now != before {
            if output.is_for_people() {
                say(&now)?;
            } else {
                output.one(&release)?;
            }
        }
        if is_settled(&release) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Failure::Unsettled);
        }
        before = now;
        thread::sleep(EVERY.min(until.saturating_duration_since(Instant::now())));
    }
}

fn told(release: &Value) -> String {
    let word = |pointer: &str| release.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
    let mut line = format!("{} {}", plain(word("/updated_at")), plain(word("/state")));
    if let Some(rollout) = release.get("rollout_state").filter(|rollout| !rollout.is_null()) {
        let lanes = rollout.get("lane_sequence").and_then(Value::as_array).into_iter().flatten();
        let lanes: Vec<&str> = lanes.filter_map(Value::as_str).collect();
        let index =
            rollout.get("current_lane_index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        let lane = index.and_then(|index| lanes.get(index)).copied().unwrap_or("-");
        line.push_str(&format!(
            ", rollout {} at {} of {}",
            plain(word("/rollout_state/status")),
            plain(lane),
            plain(&lanes.join(", "))
        ));
    }
    line
}

/// Whether nothing more happens to it unless somebody does it.
fn is_settled(release: &Value) -> bool {
    let word = |pointer: &str| release.pointer(pointer).and_then(Value::as_str);
    match word("/state") {
        Some("active") => word("/rollout_state/status") != Some("in_progress"),
        Some("superseded" | "retired") => true,
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_goes_on_by_itself_is_not_settled() {
        let rollout = |status: &str| json!({ "state": "active", "rollout_state": { "status": status, "lane_sequence": ["guided"], "current_lane_index": 0 } });
        for (release, settled) in [
            (json!({ "state": "draft" }), false),
            (json!({ "state": "approved" }), false),
            (json!({ "state": "active", "rollout_state": null }), true),
            (rollout("in_progress"), false),
            (rollout("completed"), true),
            (rollout("rolled_back"), true),
            (json!({ "state": "superseded" }), true),
        ] {
            assert_eq!(is_settled(&release), settled, "{release}");
        }
        assert_eq!(told(&rollout("in_progress")), "- active, rollout in_progress at guided of guided");
    }
}
