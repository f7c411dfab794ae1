//! `fairway releases watch`: prints each change of a release until no further automatic change follows.

use super::ReleaseArgument;
use crate::{
    failure::Failure,
    http_client::ServerClient,
    output::{Output, eprint, is_stdout_open, print},
    terminal_text::sanitize,
};
use clap::Args;
use fairway_domain::{release::StateName, rollout::RolloutStatus};
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Time between two polls of the release.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time without a successful poll, after which the watch fails.
const MAX_OUTAGE: Duration = Duration::from_secs(120);

/// Arguments of `releases watch`.
#[derive(Args)]
#[command(
    after_help = "Exits with 0 when the release serves and no rollout is in progress; with 1 when its rollout was rolled \
    back or the release no longer serves; with 5 when the wait times out first.\n\nExample:\n  fairway releases watch 019a... --wait 1h"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    release: ReleaseArgument,
    /// The maximum time to watch, such as 10m or 1h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = crate::run::parse_duration)]
    wait: Duration,
}

pub(super) fn watch(server: &ServerClient, output: Output, arguments: &Arguments) -> Result<(), Failure> {
    let deadline = Instant::now() + arguments.wait;
    let id = arguments.release.find(server)?;
    let mut last_status = String::new();
    // The time of the last successful poll. A failed first poll ends the watch.
    let mut last_success: Option<Instant> = None;
    loop {
        match (server.get(&["releases", &id], &[]), last_success) {
            (Ok(release), _) => {
                last_success = Some(Instant::now());
                let status = status_line(&release);
                if status != last_status {
                    if output.is_for_people() { print(&status)? } else { output.record(&release)? }
                }
                last_status = status;
                match watch_state(&release) {
                    WatchState::Pending => {}
                    WatchState::Serving => return Ok(()),
                    WatchState::Ended(reason) => return Err(Failure::Failed(reason.to_owned())),
                }
            }
            (Err(failure @ Failure::Unreachable { .. }), Some(last)) if last.elapsed() < MAX_OUTAGE => {
                eprint(&format!("{failure}; retrying"));
            }
            (Err(failure), _) => return Err(failure),
        }
        if !is_stdout_open() {
            return Err(Failure::OutputClosed);
        }
        if Instant::now() >= deadline {
            return Err(Failure::WatchTimedOut);
        }
        thread::sleep(POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
    }
}

fn status_line(release: &Value) -> String {
    let text = |pointer: &str| release.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
    let mut line = format!("{} {}", sanitize(text("/updated_at")), sanitize(text("/state")));
    if let Some(rollout) = release.get("rollout_state").filter(|rollout| !rollout.is_null()) {
        let lanes = rollout.get("lane_sequence").and_then(Value::as_array).into_iter().flatten();
        let lanes: Vec<&str> = lanes.filter_map(Value::as_str).collect();
        let index =
            rollout.get("current_lane_index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        let lane = index.and_then(|index| lanes.get(index)).copied().unwrap_or("-");
        line.push_str(&format!(
            ", rollout {} at {} of {}",
            sanitize(text("/rollout_state/status")),
            sanitize(lane),
            sanitize(&lanes.join(", "))
        ));
    }
    line
}

/// The progress of a watched release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WatchState {
    /// The release does not serve yet, and further changes may follow.
    Pending,
    /// The release serves, and no automatic change follows.
    Serving,
    /// The release can no longer reach the awaited state.
    Ended(&'static str),
}

fn watch_state(release: &Value) -> WatchState {
    let text = |pointer: &str| release.pointer(pointer).and_then(Value::as_str);
    let rollout = text("/rollout_state/status").and_then(RolloutStatus::parse);
    match (text("/state").and_then(StateName::parse), rollout) {
        (Some(StateName::Superseded), _) => WatchState::Ended("the release was superseded"),
        (Some(StateName::Retired), _) => WatchState::Ended("the release is retired"),
        (Some(StateName::Active | StateName::Approved), Some(RolloutStatus::RolledBack)) => {
            WatchState::Ended("the rollout of the release was rolled back")
        }
        (Some(StateName::Active), Some(RolloutStatus::Completed) | None) => WatchState::Serving,
        (Some(StateName::Active), Some(RolloutStatus::InProgress))
        | (Some(StateName::Draft | StateName::ReviewReady | StateName::Approved) | None, _) => WatchState::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn watch_state_is_pending_until_the_release_settles() {
        let rollout = |state: &str, status: &str| json!({ "state": state, "rollout_state": { "status": status, "lane_sequence": ["guided"], "current_lane_index": 0 } });
        for (release, expected) in [
            (json!({ "state": "draft" }), "open"),
            (json!({ "state": "approved" }), "open"),
            (json!({ "state": "a state of later" }), "open"),
            (json!({ "state": "active", "rollout_state": null }), "serves"),
            (rollout("active", "in_progress"), "open"),
            (rollout("active", "completed"), "serves"),
            (rollout("active", "rolled_back"), "over"),
            (rollout("approved", "rolled_back"), "over"),
            (json!({ "state": "superseded" }), "over"),
            (json!({ "state": "retired" }), "over"),
        ] {
            let found = match watch_state(&release) {
                WatchState::Pending => "open",
                WatchState::Serving => "serves",
                WatchState::Ended(_) => "over",
            };
            assert_eq!(found, expected, "{release}");
        }
        assert_eq!(status_line(&rollout("active", "in_progress")), "- active, rollout in_progress at guided of guided");
    }
}
