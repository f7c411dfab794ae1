//! Removal of secrets from a destination's configuration before it is stored: the values of sensitive keys, and
//! credentials in addresses.
//!
//! The server stores only configurations without secrets, so no later read, log or fact can disclose one.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use url::Url;

/// The text that replaces a removed value.
pub const REDACTED: &str = "[redacted]";

/// Parts of key names that mark a value as secret, in lower case and without separators.
const SENSITIVE_PARTS: [&str; 29] = [
    "accountkey",
    "authkey",
    "connectionstring",
    "encryptionkey",
    "hmac",
    "masterkey",
    "passcode",
    "sessionid",
    "sshkey",
    "webhookkey",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "signingkey",
    "sharedkey",
    "routingkey",
    "integrationkey",
    "servicekey",
    "credential",
    "authorization",
    "bearer",
    "cookie",
    "signature",
    "jwt",
];
/// Complete key names that mark a value as secret, in lower case and without separators.
const SENSITIVE_NAMES: [&str; 9] = ["auth", "xauth", "key", "pwd", "pass", "pin", "sig", "sas", "headers"];

/// Hosts of chat services, and domains that contain such hosts. The whole address of a webhook at such a host is
/// secret.
const CHAT_HOSTS: [&str; 7] = [
    "hooks.slack.com",
    "discord.com",
    "discordapp.com",
    "chat.googleapis.com",
    "webhook.office.com",
    "logic.azure.com",
    "powerplatform.com",
];
/// The path prefix of incoming webhooks on a Mattermost server. The rest of such a path is secret.
const MATTERMOST_HOOKS: &str = "/hooks/";

/// Whether a key marks its value as secret. The case and the separators of the key do not matter.
#[must_use]
pub fn is_sensitive_key(key: &str) -> bool {
    let normalized: String =
        key.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    SENSITIVE_NAMES.contains(&normalized.as_str()) || SENSITIVE_PARTS.iter().any(|part| normalized.contains(part))
}

/// Removes the secrets from a configuration. The value of a sensitive key becomes [`REDACTED`] at any depth and of any
/// type. In every text, credentials in addresses become [`REDACTED`].
#[must_use]
pub fn redact_configuration(configuration: Map<String, Value>) -> Map<String, Value> {
    let redacted = configuration.into_iter().map(|(key, value)| {
        let value = if is_sensitive_key(&key) { Value::String(REDACTED.to_owned()) } else { redact_value(value) };
        (key, value)
    });
    redacted.collect()
}

fn redact_value(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(redact_configuration(members)),
        Value::Array(items) => Value::Array(items.into_iter().map(redact_value).collect()),
        Value::String(text) => Value::String(redact_address(&text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// Removes the secrets from an address. Secrets are user information, the values of sensitive parameters, and the
/// webhook paths of chat services. If the address contains a secret, the result has the spelling of a URL parser,
/// because another spelling could hide the secret.
fn redact_address(text: &str) -> String {
    if let Ok(url) = Url::parse(text)
        && url.has_host()
    {
        let redacted = redact_parts(url.as_str());
        if redacted != url.as_str() {
            return redacted;
        }
    }
    redact_parts(text)
}

fn redact_parts(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("//") else { return text.to_owned() };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{REDACTED}@{host}"),
        None => authority.to_owned(),
    };
    if is_chat(&authority, path) {
        return format!("{scheme}//{authority}/{REDACTED}");
    }
    let (path, parameters) = match path.find(['?', '#']) {
        Some(start) => path.split_at(start),
        None => (path, ""),
    };
    format!("{scheme}//{authority}{}{}", redact_path(path), redact_parameters(parameters))
}

/// Removes the values of sensitive parameters from the segments of a path. Such parameters follow a semicolon.
fn redact_path(path: &str) -> String {
    let segments = path.split('/').map(|segment| match segment.find(';') {
        Some(start) => {
            let (name, parameters) = segment.split_at(start);
            format!("{name}{}", redact_parameters(parameters))
        }
        None => segment.to_owned(),
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Whether an address is a webhook of a chat service, whose whole address is secret.
fn is_chat(authority: &str, path: &str) -> bool {
    let host = authority.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
    let host = host.trim_end_matches('.').to_lowercase();
    let is_chat_host = CHAT_HOSTS.iter().any(|domain| host == *domain || host.ends_with(&format!(".{domain}")));
    path.len() > 1 && (is_chat_host || path.starts_with(MATTERMOST_HOOKS))
}

/// Removes the values of sensitive parameters. The text is empty or starts with a separator: `?`, `#` or `;`.
fn redact_parameters(parameters: &str) -> String {
    let mut redacted = String::with_capacity(parameters.len());
    let mut remaining = parameters;
    while let Some(separator) = remaining.chars().next() {
        let tail = remaining.get(separator.len_utf8()..).unwrap_or_default();
        let end = tail.find(['&', ';', '?', '#']).unwrap_or(tail.len());
        let (parameter, next) = tail.split_at(end);
        redacted.push(separator);
        match parameter.split_once('=') {
            Some((name, _)) if is_sensitive_key(&percent_decode_str(name).decode_utf8_lossy()) => {
                redacted.push_str(name);
                redacted.push('=');
                redacted.push_str(REDACTED);
            }
            Some(_) | None => redacted.push_str(parameter),
        }
        remaining = next;
    }
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECRET: &str = "hunter2";

    #[test]
    fn redacts_sensitive_keys_in_any_spelling_and_depth() {
        for key in [
            "password",
            "PASSWORD",
            "Api-Key",
            "api_key",
            "apiKey",
            "x.api.key",
            "clientSecret",
            "client-secret",
            "ACCESS_TOKEN",
            "accessToken",
            "authorization",
            "Proxy-Authorization",
            "auth",
            "key",
            "routing_key",
            "routingKey",
            "AccountKey",
            "hmac_key",
            "webhook_key",
            "ssh-key",
            "X-Auth",
            "connection_string",
            "session_id",
            "integration-key",
            "private_key",
            "privateKey",
            "Set-Cookie",
            "hmacSignature",
            "passphrase",
        ] {
            for value in [json!(SECRET), json!([SECRET]), json!({ "a": SECRET }), json!(7), json!(null)] {
                let nested = json!({ "a": [{ "b": { key: value } }], "kept": "x" });
                let Value::Object(configuration) = nested else { unreachable!() };
                let redacted = Value::Object(redact_configuration(configuration));
                assert_eq!(redacted["a"][0]["b"][key], REDACTED, "{key}");
                assert_eq!(redacted["kept"], "x");
                assert!(!redacted.to_string().contains(SECRET));
            }
        }
    }

    #[test]
    fn redacts_whole_addresses_of_chat_services() {
        for (address, redacted) in [
            ("https://hooks.slack.com/services/T0/B0/hunter2", "https://hooks.slack.com/[redacted]"),
            ("https://Discord.com/api/webhooks/1/hunter2?wait=true", "https://discord.com/[redacted]"),
            ("https://acme.webhook.office.com:443/webhookb2/hunter2", "https://acme.webhook.office.com/[redacted]"),
            ("https:\\\\hooks.slack.com\\services\\T\\hunter2", "https://hooks.slack.com/[redacted]"),
            ("https:hooks.slack.com/services/T/hunter2", "https://hooks.slack.com/[redacted]"),
            ("https:///hooks.slack.com/services/T/hunter2", "https://hooks.slack.com/[redacted]"),
            ("https://hooks%2Eslack.com/services/T/hunter2", "https://hooks.slack.com/[redacted]"),
            (" https://hooks.slack\t.com/services/T/hunter2", "https://hooks.slack.com/[redacted]"),
            ("https://chat.example.org/hooks/hunter2", "https://chat.example.org/[redacted]"),
        ] {
            assert_eq!(redact_address(address), redacted);
        }
        for address in ["https://discord.com", "https://notdiscord.com/in", "https://hooks.example.org/in"] {
            assert_eq!(redact_address(address), address);
        }
    }

    #[test]
    fn keeps_other_keys() {
        for key in
            ["url", "format", "channel", "address", "region", "author", "severity", "keyboard", "monkey", "pinned"]
        {
            assert!(!is_sensitive_key(key), "{key}");
        }
    }

    #[test]
    fn redacts_credentials_in_addresses() {
        for (address, expected) in [
            ("https://user:hunter2@hooks.example/a?b=c", "https://[redacted]@hooks.example/a?b=c"),
            ("https://hunter2@hooks.example", "https://[redacted]@hooks.example/"),
            ("https:hooks.example/in?token=hunter2", "https://hooks.example/in?token=[redacted]"),
            ("http:/u:hunter2@h.example/a", "http://[redacted]@h.example/a"),
            ("http:\\\\u:hunter2@h.example/a", "http://[redacted]@h.example/a"),
            ("https://h.example/a;token=hunter2/b?x=1", "https://h.example/a;token=[redacted]/b?x=1"),
            ("https://h.example/a?%74oken=hunter2", "https://h.example/a?%74oken=[redacted]"),
            ("https://a@b:hunter2@hooks.example/", "https://[redacted]@hooks.example/"),
            ("//u:hunter2@host/x", "//[redacted]@host/x"),
            ("https://h.example/a?token=hunter2&x=1", "https://h.example/a?token=[redacted]&x=1"),
            ("https://h.example/a?x=1;api_key=hunter2", "https://h.example/a?x=1;api_key=[redacted]"),
            ("https://h.example/a#access_token=hunter2", "https://h.example/a#access_token=[redacted]"),
            ("https://h.example?sig=hunter2#x", "https://h.example/?sig=[redacted]#x"),
            ("https://h.example/@path?user=ada@example.org", "https://h.example/@path?user=ada@example.org"),
            ("ada@example.org", "ada@example.org"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            let Value::Object(configuration) = json!({ "url": address }) else { unreachable!() };
            assert_eq!(redact_configuration(configuration)["url"], expected, "{address}");
        }
    }
}
