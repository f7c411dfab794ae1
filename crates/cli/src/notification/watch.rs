//! `fairway notifications watch`: prints new notifications as they arrive.

use crate::{
    failure::Failure,
    http_client::{
        ServerClient,
        events::{EventResponse, EventStream},
    },
    output::Output,
};
use std::{thread, time::Duration};

/// Delay before a new connection: the retry time that the server sends in its streams.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Prints notifications until `count` notifications arrived, or without an end. After a lost connection, the command
/// reconnects and continues after the last event, so that each notification is printed exactly once.
pub(super) fn run(server: &ServerClient, output: Output, count: Option<usize>) -> Result<(), Failure> {
    let mut last_event_id: Option<String> = None;
    let mut printed = 0_usize;
    loop {
        let response = match server.follow_inbox(last_event_id.as_deref()) {
            // An outage after the first event is not an error: the command tries to reconnect until
            // the server responds.
            Err(Failure::Unreachable { .. }) if last_event_id.is_some() => None,
            response => Some(response?),
        };
        if let Some(EventResponse::Events(EventStream { events, .. })) = response {
            for event in events {
                let event = event?;
                last_event_id = event.id.or(last_event_id);
                if event.name != "notification" {
                    continue;
                }
                output.value(&event.data)?;
                printed = printed.saturating_add(1);
                if count.is_some_and(|count| printed >= count) {
                    return Ok(());
                }
            }
        }
        thread::sleep(RECONNECT_DELAY);
    }
}
