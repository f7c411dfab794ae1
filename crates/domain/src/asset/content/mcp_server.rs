//! MCP servers (Model Context Protocol): their addresses, credentials and permitted tools, and the pins of their tools.

use super::ContentProblem;
use crate::{asset::canonical::Canonical, execution::http_call::MAX_DURATION, secret::SecretRef};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

/// The protocol revisions that Fairway supports: the last one with a handshake, and the current one.
pub const PROTOCOL_REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// The content of an MCP server asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct McpServer {
    /// The settings of the connection; `None` if Fairway does not support the transport, the authentication or the
    /// protocol revisions of the server.
    pub connection: Option<McpConnectionSettings>,
    /// The reaction of a run to a tool that differs from its pin.
    pub on_drift: OnDrift,
    allowed_tools: Option<BTreeSet<String>>,
    denied_tools: BTreeSet<String>,
    tool_pins: BTreeMap<String, ToolPin>,
}

/// The estimated memory of a text in a collection beside its bytes: the slot and the overhead of the allocation.
const TEXT_OVERHEAD_BYTES: usize = 48;
/// The estimated memory of a secret reference, in bytes.
const SECRET_BYTES: usize = 128;

/// The settings of the connection to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct McpConnectionSettings {
    /// The URL of the server.
    pub url: String,
    /// The names of additional headers, with references to their secret values.
    pub headers: Vec<(String, SecretRef)>,
    /// The reference to the bearer token, if the server requires one.
    pub bearer: Option<SecretRef>,
    /// The hosts that calls may reach; `None` permits every host.
    pub allowed_hosts: Option<Vec<String>>,
    /// The maximum time of a call, including the setup of the connection.
    pub timeout: Duration,
    /// Whether a session starts with a handshake or with a discovery request.
    pub session_start: McpSessionStartMethod,
    /// The protocol revisions that the author accepts; `None` accepts every supported one.
    pub revisions: Option<Vec<String>>,
}

/// The way in which a session with a server starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum McpSessionStartMethod {
    /// By a handshake, which all revisions before 2026-07-28 require.
    Handshake,
    /// By a discovery request. Every request names the revision.
    Discovery,
}

/// The reaction of a run to a tool whose description differs from its pin.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDrift {
    /// The run refuses the call.
    #[default]
    Deny,
    /// The run refuses all calls of that server's tools until its end.
    Quarantine,
}

/// The digest of a tool's description: SHA-256 over the canonical JSON (RFC 8785) of `name`, `description` and
/// `input_schema`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolPin(String);

impl ToolPin {
    /// Computes the pin of a tool; `None` if the name, description or schema has no canonical form.
    #[must_use]
    pub fn of(name: &str, description: &str, input_schema: &Value) -> Option<Self> {
        let self_description = json!({ "name": name, "description": description, "input_schema": input_schema });
        let canonical = Canonical::of(&self_description).ok()?;
        let mut hex = String::with_capacity(64);
        for byte in Sha256::digest(canonical.bytes()) {
            write!(hex, "{byte:02x}").ok()?;
        }
        Some(Self(hex))
    }

    /// Reads a pin from content, with or without the prefix `sha256:`.
    #[must_use]
    pub fn from_text_unchecked(text: &str) -> Self {
        Self(text.strip_prefix("sha256:").unwrap_or(text).to_owned())
    }

    /// The pin as 64 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Deserialize)]
struct Definition {
    transport: Transport,
    #[serde(default)]
    auth: Auth,
    protocol_versions: Option<Vec<String>>,
    allowed_tools: Option<BTreeSet<String>>,
    #[serde(default)]
    denied_tools: BTreeSet<String>,
    #[serde(default)]
    tool_pins: BTreeMap<String, String>,
    #[serde(default)]
    on_drift: OnDrift,
    egress_hosts: Option<Vec<String>>,
    timeout_ms: Option<Value>,
}

#[derive(Deserialize)]
struct Transport {
    r#type: String,
    url: Option<String>,
    #[serde(default)]
    headers: Vec<Header>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    secret_ref: String,
}

#[derive(Default, Deserialize)]
struct Auth {
    r#type: Option<String>,
    secret_ref: Option<String>,
}

impl McpServer {
    /// Parses content that passed the validation of its kind.
    ///
    /// # Errors
    /// Returns a problem when the content is not an MCP server.
    pub fn parse(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        let refusal = || vec![ContentProblem::new("", "invalid_content", "the content is not an MCP server")];
        let mut definition = Definition::deserialize(content).map_err(|_| refusal())?;
        let pins = std::mem::take(&mut definition.tool_pins);
        Ok(Self {
            on_drift: definition.on_drift,
            allowed_tools: definition.allowed_tools.take(),
            denied_tools: std::mem::take(&mut definition.denied_tools),
            tool_pins: pins.into_iter().map(|(tool, pin)| (tool, ToolPin::from_text_unchecked(&pin))).collect(),
            connection: definition.connection().ok_or_else(refusal)?,
        })
    }

    /// The estimated heap memory of the definition, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let tools = self.allowed_tools.iter().flatten().chain(&self.denied_tools).map(String::as_str);
        let pins = self.tool_pins.iter().flat_map(|(tool, pin)| [tool.as_str(), pin.as_str()]);
        let texts = self.connection.iter().flat_map(|connection| {
            let lists = connection.allowed_hosts.iter().flatten().chain(connection.revisions.iter().flatten());
            let headers = connection.headers.iter().map(|(name, _)| name);
            [&connection.url].into_iter().chain(lists).chain(headers).map(String::as_str)
        });
        let secrets = self.connection.as_ref().map_or(0, |connection| connection.headers.len().saturating_add(1));
        let texts = tools.chain(pins).chain(texts).map(|text| text.len().saturating_add(TEXT_OVERHEAD_BYTES));
        texts.fold(secrets.saturating_mul(SECRET_BYTES), usize::saturating_add)
    }

    /// Whether the definition permits calls of this tool.
    #[must_use]
    pub fn allows(&self, tool: &str) -> bool {
        !self.denied_tools.contains(tool) && self.allowed_tools.as_ref().is_none_or(|allowed| allowed.contains(tool))
    }

    /// The pin that a tool must match: the reviewed pin of the server, or else the digest of the release's tool
    /// definition.
    #[must_use]
    pub fn expected_pin<'p>(&'p self, tool: &str, definition_pin: &'p ToolPin) -> &'p ToolPin {
        self.tool_pins.get(tool).unwrap_or(definition_pin)
    }
}

impl Definition {
    /// Converts the definition to settings of a connection. `Some(None)` means that Fairway does not support the
    /// server; `None` means that the content is invalid.
    #[expect(clippy::option_option, reason = "unreadable content differs from an unreachable server")]
    fn connection(self) -> Option<Option<McpConnectionSettings>> {
        let secret = |text: &String| SecretRef::parse(text).ok();
        let bearer = match self.auth.r#type.as_deref() {
            None | Some("none") => None,
            Some("bearer") => Some(self.auth.secret_ref.as_ref().and_then(secret)?),
            Some(_) => return Some(None),
        };
        let is_supported = |revision: &String| PROTOCOL_REVISIONS.contains(&revision.as_str());
        let has_supported_revision =
            self.protocol_versions.as_ref().is_none_or(|revisions| revisions.iter().any(is_supported));
        let (Some(address), "streamable-http", true) =
            (self.transport.url, self.transport.r#type.as_str(), has_supported_revision)
        else {
            return Some(None);
        };
        let headers = self.transport.headers.into_iter();
        let headers = headers.map(|header| Some((header.name, secret(&header.secret_ref)?)));
        let [handshake, _] = PROTOCOL_REVISIONS;
        let uses_handshake = self
            .protocol_versions
            .as_ref()
            .is_none_or(|revisions| revisions.iter().any(|revision| revision == handshake));
        let timeout_seconds =
            self.timeout_ms.as_ref().and_then(Value::as_f64).map(|milliseconds| milliseconds / 1_000.0);
        Some(Some(McpConnectionSettings {
            url: address,
            headers: headers.collect::<Option<_>>()?,
            bearer,
            allowed_hosts: self.egress_hosts,
            timeout: timeout_seconds
                .and_then(|time| Duration::try_from_secs_f64(time).ok())
                .map_or(MAX_DURATION, |time| time.min(MAX_DURATION)),
            session_start: if uses_handshake {
                McpSessionStartMethod::Handshake
            } else {
                McpSessionStartMethod::Discovery
            },
            revisions: self.protocol_versions,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asset::{
        content::{ContentRefusal, check},
        kind::AssetKind,
    };

    fn server(changes: Value) -> McpServer {
        let mut content = json!({
            "name": "com.example/tickets", "transport": {"type": "streamable-http", "url": "https://mcp.example.com"}
        });
        let changes = changes.as_object().unwrap().clone();
        content.as_object_mut().unwrap().extend(changes);
        McpServer::parse(&content).unwrap()
    }

    #[test]
    fn permits_tools_that_are_allowed_and_not_denied() {
        let without_lists = server(json!({}));
        assert!(without_lists.allows("read"));
        let with_allow_list = server(json!({"allowed_tools": ["read"]}));
        assert!(with_allow_list.allows("read") && !with_allow_list.allows("drop"));
        assert!(!server(json!({"allowed_tools": []})).allows("read"), "an empty allow list permits no tool");
        let with_deny_list = server(json!({"denied_tools": ["drop"]}));
        assert!(with_deny_list.allows("read") && !with_deny_list.allows("drop"));
    }

    #[test]
    fn reaches_http_servers_with_supported_revisions() {
        let stdio = json!({"type": "stdio"});
        for (changes, session_start) in [
            (json!({}), Some(McpSessionStartMethod::Handshake)),
            (json!({"auth": {"type": "none"}}), Some(McpSessionStartMethod::Handshake)),
            (json!({"auth": {"type": "bearer", "secret_ref": "env:KEY"}}), Some(McpSessionStartMethod::Handshake)),
            (json!({"auth": {"type": "oauth2", "issuer": "https://a.example"}}), None),
            (json!({"transport": stdio}), None),
            (json!({"protocol_versions": ["2026-07-28"]}), Some(McpSessionStartMethod::Discovery)),
            (json!({"protocol_versions": ["2025-11-25", "2026-07-28"]}), Some(McpSessionStartMethod::Handshake)),
            (json!({"protocol_versions": ["2024-11-05"]}), None),
        ] {
            assert_eq!(
                server(changes.clone()).connection.map(|connection| connection.session_start),
                session_start,
                "{changes}"
            );
        }
        let connection = server(json!({"timeout_ms": 3_600_000})).connection.unwrap();
        assert_eq!((connection.timeout, connection.bearer), (MAX_DURATION, None));
        assert_eq!(server(json!({"timeout_ms": 250})).connection.unwrap().timeout, Duration::from_millis(250));
    }

    #[test]
    fn rejects_connection_and_protocol_headers() {
        let problems = |name: &str| {
            let header = |name: &str| json!({"name": name, "secret_ref": "env:KEY"});
            let transport = json!({
                "type": "streamable-http", "url": "https://mcp.example.com", "headers": [header("X-Key"), header(name)],
            });
            let content = json!({"name": "com.example/tickets", "transport": transport});
            match check(AssetKind::McpServer, &content) {
                Ok(_) => Vec::new(),
                Err(ContentRefusal::Invalid(problems)) => {
                    problems.into_iter().map(|problem| (problem.pointer, problem.code)).collect()
                }
                Err(ContentRefusal::Prompt(problems)) => panic!("{problems:?}"),
            }
        };
        for name in [
            "Host",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Upgrade",
            "TE",
            "Trailer",
            "Mcp-Session-Id",
            "Mcp-Protocol-Version",
            "Mcp-Method",
            "Mcp-Name",
            "Content-Type",
            "Accept",
            "Idempotency-Key",
        ] {
            for spelling in [name.to_owned(), name.to_lowercase(), name.to_uppercase()] {
                assert_eq!(problems(&spelling), [("/transport/headers/1/name".to_owned(), "wrong_form")], "{spelling}");
            }
        }
        for name in ["Authorization", "X-Api-Key", "Accept-Language", "X-Host"] {
            assert_eq!(problems(name), [], "{name}");
        }
    }

    /// The pin depends on name, description and schema, and not on the order of members. The expected pin comes from
    /// another program: `printf '{"description":"Finds","input_schema":{"type":"object"},"name":"find"}' | sha256sum`.
    #[test]
    fn pins_name_description_and_schema() {
        let pin = ToolPin::of("find", "Finds", &json!({"type": "object"})).unwrap();
        assert_eq!(pin.as_str(), "56bbbc9ad5f05f4f8c6b7c7f86d91ab9928483b68f85f91c87acd93510462d00");
        for (name, description, schema) in [
            ("fins", "Finds", json!({"type": "object"})),
            ("find", "Finds ", json!({"type": "object"})),
            ("find", "Finds", json!({"type": "object", "required": []})),
        ] {
            assert_ne!(ToolPin::of(name, description, &schema).unwrap(), pin);
        }
        let (a, b) = (json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}));
        assert_eq!(ToolPin::of("find", "", &a), ToolPin::of("find", "", &b));
        assert_eq!(ToolPin::of("find", "\0", &a), None);
        let other = ToolPin::from_text_unchecked("00");
        assert_eq!(server(json!({})).expected_pin("find", &pin), &pin);
        assert_eq!(server(json!({"tool_pins": {"find": "sha256:00"}})).expected_pin("find", &pin), &other);
        assert_eq!(server(json!({"tool_pins": {"lose": "00"}})).expected_pin("find", &pin), &pin);
    }
}
