//! Bodies of chat messages, in the formats of common team chats.

use fairway_domain::notification::{Severity, message::NotificationMessage};
use serde_json::{Value, json};

/// Maximum length of a title, in characters (the header block of Slack).
const MAX_TITLE: usize = 150;
/// Maximum length of a text, in characters. Discord has the smallest limit of the supported services.
const MAX_TEXT: usize = 1_900;

/// Maximum lengths of the title and the description of a Discord embed, in characters.
const MAX_DISCORD_TITLE: usize = 256;
const MAX_DISCORD_DESCRIPTION: usize = 4_096;

/// The message format of a chat service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Slack,
    Teams,
    Discord,
    GoogleChat,
    Mattermost,
}

impl Format {
    /// The format with this name. Without a known name, the host of the address determines the format.
    fn of(name: Option<&str>, address: &str) -> Self {
        match name {
            Some("slack") => Self::Slack,
            Some("teams") => Self::Teams,
            Some("discord") => Self::Discord,
            Some("google_chat") => Self::GoogleChat,
            Some("mattermost") => Self::Mattermost,
            Some(_) | None => Self::of_address(address),
        }
    }

    fn of_address(address: &str) -> Self {
        let host = fairway_egress::Url::parse(address).ok().and_then(|url| url.host_str().map(str::to_owned));
        let host = host.unwrap_or_default();
        let is_in_domain = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        if is_in_domain("discord.com") {
            Self::Discord
        } else if is_in_domain("chat.googleapis.com") {
            Self::GoogleChat
        } else if is_in_domain("webhook.office.com")
            || is_in_domain("logic.azure.com")
            || is_in_domain("powerplatform.com")
        {
            Self::Teams
        } else {
            Self::Slack
        }
    }
}

/// Builds the body of a message. Texts are escaped for the format, so that they contain no markup and mention no
/// users.
pub(crate) fn body(format: Option<&str>, address: &str, message: &NotificationMessage) -> Value {
    let title = shortened(&message.title, MAX_TITLE);
    let text = shortened(&text_of(message), MAX_TEXT);
    match Format::of(format, address) {
        Format::Slack => slack(message, &title, &text),
        Format::Teams => json!({
            "type": "message",
            "attachments": [{
                "contentType": "application/vnd.microsoft.card.adaptive",
                "contentUrl": null,
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "body": [
                        run(&title, &json!({ "weight": "Bolder", "size": "Medium", "color": color(message.severity) })),
                        run(&text, &json!({})),
                        run(&footer(message), &json!({ "isSubtle": true, "size": "Small" })),
                    ],
                    "actions": message.link.iter().map(|link| {
                        json!({ "type": "Action.OpenUrl", "title": OPEN, "url": link })
                    }).collect::<Vec<_>>(),
                },
            }],
        }),
        Format::Discord => discord(message, &title, &text),
        Format::GoogleChat => google_chat(message, &title, &text),
        Format::Mattermost => json!({
            "text": format!(
                "#### {}\n{}\n\n{}{}",
                escaped_markdown(&title, usize::MAX),
                escaped_markdown(&text, usize::MAX),
                message.link.as_deref().map_or_else(String::new, |link| format!("[{OPEN}]({link})\n\n")),
                escaped_markdown(&footer(message), usize::MAX)
            ),
        }),
    }
}

/// The label of links. A link's address needs no escaping: it consists of the configured public address, fixed paths
/// and identifiers.
const OPEN: &str = "Open in Fairway";

fn slack(message: &NotificationMessage, title: &str, text: &str) -> Value {
    let mut blocks = vec![
        json!({ "type": "header", "text": { "type": "plain_text", "text": title, "emoji": false } }),
        json!({ "type": "section", "text": { "type": "plain_text", "text": text, "emoji": false } }),
    ];
    blocks.extend(message.link.as_deref().map(|link| {
        let link = format!("<{}|{OPEN}>", escaped_for_slack(link));
        json!({ "type": "section", "text": { "type": "mrkdwn", "text": link } })
    }));
    let footer = json!({ "type": "plain_text", "text": footer(message), "emoji": false });
    blocks.push(json!({ "type": "context", "elements": [footer] }));
    json!({ "text": escaped_for_slack(title), "blocks": blocks, "unfurl_links": false, "unfurl_media": false })
}

fn discord(message: &NotificationMessage, title: &str, text: &str) -> Value {
    let mut embed = json!({
        "title": escaped_markdown(title, MAX_DISCORD_TITLE),
        "description": escaped_markdown(text, MAX_DISCORD_DESCRIPTION),
        "footer": { "text": footer(message) },
        "timestamp": message.created_at,
    });
    if let (Value::Object(embed), Some(link)) = (&mut embed, &message.link) {
        embed.insert("url".to_owned(), json!(link));
    }
    json!({ "content": "", "embeds": [embed], "allowed_mentions": { "parse": [] } })
}

fn google_chat(message: &NotificationMessage, title: &str, text: &str) -> Value {
    let mut widgets = vec![json!({ "textParagraph": { "text": escaped_html(text) } })];
    widgets.extend(message.link.as_deref().map(|link| {
        let button = json!({ "text": OPEN, "onClick": { "openLink": { "url": link } } });
        json!({ "buttonList": { "buttons": [button] } })
    }));
    json!({
        "text": title.replace(['*', '_', '~', '`', '<', '>'], " "),
        "cardsV2": [{
            "cardId": message.delivery_id,
            "card": {
                "header": { "title": title, "subtitle": footer(message) },
                "sections": [{ "widgets": widgets }],
            },
        }],
    })
}

/// The text below the title: the body of one notification, or one line for each notification of a digest.
pub(crate) fn text_of(message: &NotificationMessage) -> String {
    if message.lines.is_empty() {
        return message.body.clone();
    }
    let mut lines: Vec<_> = message.lines.iter().map(|line| format!("- {} ({})", line.title, line.body)).collect();
    if message.omitted_lines > 0 {
        lines.push(format!("- and {} more in the inbox", message.omitted_lines));
    }
    lines.join("\n")
}

fn footer(message: &NotificationMessage) -> String {
    let severity = message.severity.as_str();
    match &message.environment {
        Some(environment) => format!("{} | {severity} | {environment}", message.category.as_str()),
        None => format!("{} | {severity}", message.category.as_str()),
    }
}

fn shortened(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A paragraph of an Adaptive Card. It uses a `TextRun`, which displays text literally; a `TextBlock` would
/// interpret Markdown.
fn run(text: &str, style: &Value) -> Value {
    let mut inline = json!({ "type": "TextRun", "text": text });
    if let (Value::Object(inline), Value::Object(style)) = (&mut inline, style) {
        inline.extend(style.clone());
    }
    json!({ "type": "RichTextBlock", "inlines": [inline] })
}

const fn color(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "Default",
        Severity::Warning => "Warning",
        Severity::Critical => "Attention",
    }
}

/// Escapes the three characters that Slack requires to be escaped. Slack's markup for mentions and links always
/// contains one of them.
fn escaped_for_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn escaped_html(text: &str) -> String {
    escaped_for_slack(text).replace('\n', "<br>")
}

/// Escapes the special characters of Markdown except `-`, `.` and `=`, and breaks `@`, which mentions users. The result
/// has at most `max_chars` characters, and no escape sequence is cut.
fn escaped_markdown(text: &str, max_chars: usize) -> String {
    let (mut escaped, mut length) = (String::with_capacity(text.len()), 0_usize);
    for character in text.chars() {
        let (before, after) = match character {
            '@' => ("", "\u{200b}"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '<' | '>' | '(' | ')' | '#' | '+' | '!' | '|' | '~'
            | ':' => ("\\", ""),
            _ => ("", ""),
        };
        // `before` has no or one ASCII character, so its length in bytes equals its length in characters.
        length = length.saturating_add(1).saturating_add(before.len()).saturating_add(after.chars().count());
        if length > max_chars {
            break;
        }
        escaped.extend([before, character.encode_utf8(&mut [0; 4]), after]);
    }
    escaped
}

#[cfg(test)]
mod tests;
