//! The body of a webhook's request: a CloudEvents 1.0 event in the JSON format.
//!
//! The body depends only on the notification, so all attempts send the same bytes.

use crate::notification::message::NotificationMessage;
use serde_json::{Value, json};

/// The media type of the request body.
pub const MEDIA_TYPE: &str = "application/cloudevents+json";
/// The prefix of the event type. CloudEvents recommends a reversed domain name, but Fairway has no domain.
const TYPE_PREFIX: &str = "fairway.";

/// The canonical JSON of the event for a message. `source` names the tenant and `id` the fact; together they identify
/// the event, as CloudEvents requires. The event names no recipient.
#[must_use]
pub fn cloud_event(message: &NotificationMessage) -> Vec<u8> {
    let event = json!({
        "specversion": "1.0",
        "id": message.event_id,
        "source": format!("/v1/tenants/{}", message.tenant),
        "type": format!("{TYPE_PREFIX}{}", message.event_kind),
        "time": message.created_at,
        "datacontenttype": "application/json",
        "data": data(message),
    });
    // A JSON map has string keys and finite numbers, so its serialization cannot fail.
    serde_json_canonicalizer::to_vec(&event).unwrap_or_default()
}

fn data(message: &NotificationMessage) -> Value {
    json!({
        "category": message.category,
        "severity": message.severity.as_str(),
        "title": message.title,
        "body": message.body,
        "link": message.link,
        "workspace_id": message.workspace_id,
        "workload_id": message.workload_id,
        "environment": message.environment,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{notification::Severity, notification_category::NotificationCategory, time::Timestamp};
    use uuid::Uuid;

    fn message() -> NotificationMessage {
        NotificationMessage {
            delivery_id: Uuid::from_u128(1).into(),
            tenant: Uuid::from_u128(9).into(),
            category: NotificationCategory::Incidents,
            severity: Severity::Critical,
            title: "The workload `refunds` was suspended".to_owned(),
            body: "workload 7".to_owned(),
            link: Some("https://fairway.example/console/workloads/7".to_owned()),
            event_kind: "workload.changed".to_owned(),
            event_id: Uuid::from_u128(2).into(),
            workspace_id: Some(Uuid::from_u128(4).into()),
            workload_id: None,
            environment: None,
            created_at: Timestamp::parse("2026-11-27T07:00:00Z").unwrap(),
            lines: Vec::new(),
            omitted_lines: 0,
        }
    }

    #[test]
    fn events_have_the_required_attributes() {
        let bytes = cloud_event(&message());
        let event: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(event["specversion"], "1.0");
        assert_eq!(event["type"], "fairway.workload.changed");
        assert_eq!(event["id"], Uuid::from_u128(2).to_string());
        assert_eq!(event["source"], format!("/v1/tenants/{}", Uuid::from_u128(9)));
        assert_eq!(event["time"], "2026-11-27T07:00:00Z");
        assert_eq!(event["data"]["link"], "https://fairway.example/console/workloads/7");
        assert_eq!((&event["data"]["severity"], &event["data"]["workload_id"]), (&json!("critical"), &Value::Null));
        // Attribute names consist of lower-case letters and digits (CloudEvents 1.0, 3.1).
        let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        assert!(event.as_object().unwrap().keys().all(is_name));
        assert_eq!(bytes, cloud_event(&message()), "all attempts send equal bytes");
    }
}
