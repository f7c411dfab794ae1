//! Pages: alerts in the shape of the Events API v2 that on-call services accept.

use fairway_domain::notification::{Severity, message::Message};
use serde_json::{Value, json};

/// Maximum length of a summary, in characters (Events API v2).
const MAX_SUMMARY: usize = 1_024;

/// The alert of a message. `dedup_key` is the fact, so that repeated attempts raise one alert.
pub(crate) fn body(routing_key: &str, message: &Message) -> Value {
    json!({
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": message.event_id,
        "client": "Fairway",
        "payload": {
            "summary": message.title.chars().take(MAX_SUMMARY).collect::<String>(),
            "source": message.workload_id.map_or_else(|| format!("tenant {}", message.tenant), |id| format!("workload {id}")),
            "severity": severity(message.severity),
            "timestamp": message.created_at,
            "component": message.environment,
            "class": message.event_kind,
            "group": message.category.as_str(),
            "custom_details": { "body": message.body, "delivery_id": message.delivery_id },
        },
    })
}

const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}
