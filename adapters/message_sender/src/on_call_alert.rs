//! On-call alerts, in the format of the Events API v2.

use fairway_domain::notification::{Severity, message::NotificationMessage};
use serde_json::{Value, json};

/// Maximum length of a summary, in characters (Events API v2).
const MAX_SUMMARY: usize = 1_024;

/// Builds the alert of a message, with a link to its subject. `dedup_key` identifies the fact, so that repeated
/// attempts raise one alert.
pub(crate) fn body(routing_key: &str, message: &NotificationMessage) -> Value {
    json!({
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": message.event_id,
        "client": "Fairway",
        "links": links(message),
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

fn links(message: &NotificationMessage) -> Vec<Value> {
    message.link.iter().map(|link| json!({ "href": link, "text": "Open in Fairway" })).collect()
}

const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::{notification_category::NotificationCategory, time::Timestamp};
    use uuid::Uuid;

    #[test]
    fn alert_has_the_shape_of_events_api_v2() {
        let message = NotificationMessage {
            delivery_id: Uuid::from_u128(1).into(),
            tenant: Uuid::from_u128(9).into(),
            category: NotificationCategory::Incidents,
            severity: Severity::Critical,
            title: "t".repeat(2_000),
            body: "workload 7".to_owned(),
            link: Some("https://fairway.example/console/workloads/7".to_owned()),
            event_kind: "workload.changed".to_owned(),
            event_id: Uuid::from_u128(2).into(),
            workspace_id: None,
            workload_id: None,
            environment: Some("production".to_owned()),
            created_at: Timestamp::parse("2026-11-27T07:00:00Z").unwrap(),
            lines: Vec::new(),
            omitted_lines: 0,
        };
        let alert = body("key", &message);
        assert_eq!((&alert["routing_key"], &alert["event_action"]), (&json!("key"), &json!("trigger")));
        assert_eq!(alert["dedup_key"], json!(Uuid::from_u128(2)), "repeated attempts are one alert");
        let link = json!([{ "href": "https://fairway.example/console/workloads/7", "text": "Open in Fairway" }]);
        assert_eq!(alert["links"], link);
        let payload = &alert["payload"];
        assert_eq!(payload["summary"].as_str().unwrap().len(), MAX_SUMMARY);
        assert_eq!(payload["source"], format!("tenant {}", Uuid::from_u128(9)));
        assert_eq!((&payload["severity"], &payload["component"]), (&json!("critical"), &json!("production")));
        for value in [Severity::Info, Severity::Warning, Severity::Critical] {
            assert!(["info", "warning", "error", "critical"].contains(&severity(value)));
        }
    }
}
