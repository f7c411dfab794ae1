//! Tests the chat formats against the limits that their services document.

use super::*;
use fairway_domain::{notification_category::NotificationCategory, time::Timestamp};
use uuid::Uuid;

const HOSTILE: &str = "<!channel> @everyone <@U123> [link](https://evil.example) **bold** `code` <script>&\n# head";

fn message(title: &str, body: &str) -> NotificationMessage {
    NotificationMessage {
        delivery_id: Uuid::from_u128(1).into(),
        tenant: Uuid::from_u128(2).into(),
        category: NotificationCategory::Incidents,
        severity: Severity::Critical,
        title: title.to_owned(),
        body: body.to_owned(),
        link: None,
        event_kind: "workload.changed".to_owned(),
        event_id: Uuid::from_u128(3).into(),
        workspace_id: None,
        workload_id: None,
        environment: Some("production".to_owned()),
        created_at: Timestamp::parse("2026-11-27T07:00:00Z").unwrap(),
        lines: Vec::new(),
        omitted_lines: 0,
    }
}

fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(members) => members.values().for_each(|item| texts(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn no_format_mentions_anybody_or_renders_a_link() {
    let hostile = message(HOSTILE, HOSTILE);
    for format in ["slack", "teams", "discord", "google_chat", "mattermost"] {
        let body = body(Some(format), "https://chat.example/hook", &hostile);
        let interpreted_texts = match format {
            // Plain-text objects and text runs are displayed literally. Only the members listed here are
            // interpreted as markup.
            "slack" => vec![body["text"].as_str().unwrap().to_owned()],
            "teams" => Vec::new(),
            "google_chat" => vec![
                body["text"].as_str().unwrap().to_owned(),
                body["cardsV2"][0]["card"]["sections"][0]["widgets"][0]["textParagraph"]["text"]
                    .as_str()
                    .unwrap()
                    .replace("<br>", ""),
            ],
            _ => {
                let mut found = Vec::new();
                texts(&body, &mut found);
                found
            }
        };
        for text in interpreted_texts {
            assert!(
                !text.contains("<!channel>") && !text.contains("<script>") && !text.contains("<@U"),
                "{format}: {text}"
            );
            if ["discord", "mattermost"].contains(&format) {
                assert!(
                    !text.contains("@everyone") && !text.contains("](") && !text.contains("**"),
                    "{format}: {text}"
                );
            }
        }
        if format == "discord" {
            assert_eq!(body["allowed_mentions"], json!({ "parse": [] }));
        }
        if format == "teams" {
            let body = body["attachments"][0]["content"]["body"].as_array().unwrap();
            assert!(body.iter().all(|block| block["type"] == "RichTextBlock"), "no block reads Markdown");
        }
    }
}

#[test]
fn long_texts_stay_within_the_limits_of_the_services() {
    let long = message(&"t".repeat(5_000), &"*".repeat(50_000));
    let count = |value: &Value| value.as_str().unwrap().chars().count();
    let slack = body(Some("slack"), "", &long);
    assert!(count(&slack["blocks"][0]["text"]["text"]) <= 150, "header block");
    assert!(count(&slack["blocks"][1]["text"]["text"]) <= 3_000, "section block");
    for title in ["t", "_", "@", "é"] {
        let discord = body(Some("discord"), "", &message(&title.repeat(5_000), &"*".repeat(50_000)));
        let embed = &discord["embeds"][0];
        assert!((150..=256).contains(&count(&embed["title"])), "{title}: the limit counts escapes");
        assert!(count(&embed["description"]) <= 4_096);
    }
    let teams = body(Some("teams"), "", &long).to_string();
    assert!(teams.len() <= 28 * 1_024, "a Teams message");
    let google = body(Some("google_chat"), "", &long).to_string();
    assert!(google.len() <= 32_000, "a Google Chat message");
    assert!(count(&body(Some("mattermost"), "", &long)["text"]) <= 16_383, "a Mattermost post");
}

#[test]
fn format_follows_the_configuration_and_else_the_host() {
    for (name, address, format) in [
        (Some("teams"), "https://discord.com/api", Format::Teams),
        (None, "https://discord.com/api/webhooks/1", Format::Discord),
        (None, "https://acme.webhook.office.com/x", Format::Teams),
        (None, "https://chat.googleapis.com/v1/spaces", Format::GoogleChat),
        (None, "https://notdiscord.com/x", Format::Slack),
        (Some("unknown"), "https://hooks.slack.com/x", Format::Slack),
        (None, "not an address", Format::Slack),
    ] {
        assert_eq!(Format::of(name, address), format, "{address}");
    }
}

#[test]
fn digests_list_their_lines() {
    let mut digest = message("3 notifications", "");
    digest.lines = (0..2)
        .map(|number| fairway_domain::notification::message::DigestLine {
            severity: Severity::Info,
            title: format!("Line {number}"),
            body: "run 7".to_owned(),
            created_at: digest.created_at,
        })
        .collect();
    assert_eq!(text_of(&digest), "- Line 0 (run 7)\n- Line 1 (run 7)");
    digest.omitted_lines = 5;
    assert!(text_of(&digest).ends_with("\n- and 5 more in the inbox"));
}

#[test]
fn formats_link_to_the_subject_if_the_server_has_an_address() {
    const LINK: &str = "https://fairway.example/console/runs/7?workspace=1";
    let without_link = message("title", "text");
    let with_link = NotificationMessage { link: Some(LINK.to_owned()), ..without_link.clone() };
    for (format, pointer, expected) in [
        ("slack", "/blocks/2/text/text", json!(format!("<{LINK}|{OPEN}>"))),
        ("teams", "/attachments/0/content/actions/0/url", json!(LINK)),
        ("discord", "/embeds/0/url", json!(LINK)),
        ("google_chat", "/cardsV2/0/card/sections/0/widgets/1/buttonList/buttons/0/onClick/openLink/url", json!(LINK)),
    ] {
        let linked = body(Some(format), "https://chat.example/hook", &with_link);
        assert_eq!(linked.pointer(pointer), Some(&expected), "{format}");
        assert!(!body(Some(format), "https://chat.example/hook", &without_link).to_string().contains(OPEN), "{format}");
    }
    let linked = body(Some("mattermost"), "https://chat.example/hook", &with_link);
    assert!(linked["text"].as_str().unwrap().contains(&format!("[{OPEN}]({LINK})")), "{linked}");
}
