//! Tool definitions: the name and schemas that a model sees, and the backend that serves the calls.

use super::{ContentProblem, embedded_schema::EmbeddedSchema, mcp_server::ToolPin};
use crate::{
    execution::http_call::{HttpMethod, MAX_DURATION},
    secret::SecretRef,
};
use serde::Deserialize;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// The content of a tool asset, parsed and with compiled schemas.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The name by which a model calls the tool.
    pub name: String,
    /// The description that tells a model when to use the tool.
    pub description: String,
    /// The JSON Schema of the arguments, as a model sees it.
    pub input_schema: Arc<Value>,
    /// The backend that serves the calls.
    pub binding: ToolBinding,
    /// Whether a call may be repeated if its outcome is unknown.
    pub repeat_safety: RepeatSafety,
    /// The maximum time of a call.
    pub timeout: Duration,
    input: EmbeddedSchema,
    output: Option<EmbeddedSchema>,
    is_destructive: bool,
    approval: Approval,
}

/// The backend that serves the calls of a tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToolBinding {
    /// An HTTP endpoint serves the calls.
    Http(HttpBinding),
    /// An MCP server serves the calls. The release contains the frozen reference to that server.
    Mcp(McpBinding),
    /// Fairway itself serves the calls.
    Builtin(BuiltinBinding),
    /// Runs do not support the backend that the definition names.
    Unavailable,
}

/// The HTTP endpoint that serves the calls of a tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpBinding {
    /// The base URL of the endpoint.
    pub url: String,
    /// The path that is appended to the base URL.
    pub path: String,
    /// The HTTP method of the calls.
    pub method: HttpMethod,
    /// The reference to the secret that authorizes the calls, if they need one.
    pub secret: Option<SecretRef>,
    /// The hosts that the calls may reach; `None` permits every host.
    pub allowed_hosts: Option<Vec<String>>,
}

/// The MCP server that serves the calls of a tool. The server knows the tool by the name in the definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct McpBinding {
    /// The digest of the name, description and input schema in this definition.
    pub pin: ToolPin,
    /// The reference to the secret that authorizes the calls; `None` uses the secret in the server's definition.
    pub secret: Option<SecretRef>,
    /// The hosts that the calls may reach; `None` permits every host.
    pub allowed_hosts: Option<Vec<String>>,
}

/// A tool of Fairway itself that agents may call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuiltinBinding {
    /// The tool searches a knowledge base that the release binds.
    QueryKnowledgeBase,
}

/// Whether a second call with the same arguments does no harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepeatSafety {
    /// The author declares that the tool only reads or is idempotent, so a second call has no further effect.
    Safe,
    /// A second call can have a further effect, so a run never repeats a call whose outcome is unknown.
    Unsafe,
}

/// The calls that need the approval of a person.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Approval {
    #[default]
    Never,
    OnDestructive,
    Always,
}

#[derive(Deserialize)]
struct Definition {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: Value,
    output_schema: Option<Value>,
    #[serde(default)]
    annotations: Annotations,
    binding: Binding,
    #[serde(default)]
    approval: Approval,
    timeout_ms: Option<Value>,
    egress_hosts: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
struct Annotations {
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
}

#[derive(Deserialize)]
struct Binding {
    kind: String,
    #[serde(rename = "ref")]
    target: Value,
    method: Option<String>,
    path: Option<String>,
    secret_ref: Option<String>,
}

impl Tool {
    /// Parses content that passed the validation of its kind.
    ///
    /// # Errors
    /// Returns a problem when the content is not a tool.
    pub fn parse(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        let refusal = || vec![ContentProblem::new("", "invalid_content", "the content is not a tool")];
        let definition = Definition::deserialize(content).map_err(|_| refusal())?;
        let schema = |value: &Value| EmbeddedSchema::compile(value).map_err(|_| refusal());
        let reads_only = definition.annotations.read_only.unwrap_or(false);
        let is_repeatable = reads_only || definition.annotations.idempotent.unwrap_or(false);
        let timeout_seconds =
            definition.timeout_ms.as_ref().and_then(Value::as_f64).map(|milliseconds| milliseconds / 1_000.0);
        let hosts = definition.egress_hosts;
        let description = definition.description.as_deref().unwrap_or_default();
        let pin = || ToolPin::of(&definition.name, description, &definition.input_schema);
        let binding = definition.binding.parse(hosts, pin).ok_or_else(refusal)?;
        Ok(Self {
            description: definition.description.or(definition.title).unwrap_or_default(),
            input: schema(&definition.input_schema)?,
            output: definition.output_schema.as_ref().map(schema).transpose()?,
            input_schema: Arc::new(definition.input_schema),
            binding,
            repeat_safety: if is_repeatable { RepeatSafety::Safe } else { RepeatSafety::Unsafe },
            // A tool that writes counts as destructive unless its annotation says otherwise. MCP's `destructiveHint`
            // has the same default.
            is_destructive: definition.annotations.destructive.unwrap_or(!reads_only),
            approval: definition.approval,
            timeout: timeout_seconds
                .and_then(|time| Duration::try_from_secs_f64(time).ok())
                .map_or(MAX_DURATION, |time| time.min(MAX_DURATION)),
            name: definition.name,
        })
    }

    /// The compiled `input_schema`, which the arguments of each call must satisfy.
    #[must_use]
    pub const fn arguments_schema(&self) -> &EmbeddedSchema {
        &self.input
    }

    /// The compiled `output_schema`, which the result of each call must satisfy, if the definition has one.
    #[must_use]
    pub const fn result_schema(&self) -> Option<&EmbeddedSchema> {
        self.output.as_ref()
    }

    /// Whether a call needs the approval of a person. A run cannot ask for it, so the run refuses such a call.
    #[must_use]
    pub const fn needs_approval(&self) -> bool {
        match self.approval {
            Approval::Never => false,
            Approval::OnDestructive => self.is_destructive,
            Approval::Always => true,
        }
    }

    /// The estimated memory of the compiled schemas, in bytes.
    #[must_use]
    pub fn schema_bytes(&self) -> usize {
        self.input.compiled_bytes().saturating_add(self.output.as_ref().map_or(0, EmbeddedSchema::compiled_bytes))
    }
}

impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        // Compiled schemas have no equality. The comparison covers name, arguments and backend, and ignores the other
        // fields.
        (&self.name, &self.input_schema, &self.binding) == (&other.name, &other.input_schema, &other.binding)
    }
}

impl Binding {
    fn parse(self, hosts: Option<Vec<String>>, pin: impl FnOnce() -> Option<ToolPin>) -> Option<ToolBinding> {
        let secret = self.secret_ref.map(|text| SecretRef::parse(&text)).transpose().ok()?;
        Some(match (self.kind.as_str(), self.target.as_str()) {
            ("http", Some(address)) => ToolBinding::Http(HttpBinding {
                url: address.to_owned(),
                path: self.path.unwrap_or_default(),
                method: self.method.map_or(Some(HttpMethod::Post), |method| HttpMethod::parse(&method))?,
                secret,
                allowed_hosts: hosts,
            }),
            ("mcp", None) => ToolBinding::Mcp(McpBinding { pin: pin()?, secret, allowed_hosts: hosts }),
            ("builtin", Some("query_knowledge_base")) => ToolBinding::Builtin(BuiltinBinding::QueryKnowledgeBase),
            _ => ToolBinding::Unavailable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asset::content::embedded_schema::SchemaCheckFailure;
    use serde_json::json;

    fn tool(changes: &Value) -> Tool {
        let mut content = json!({
            "name": "weather", "title": "Weather", "input_schema": {"type": "object", "required": ["city"]},
            "binding": {"kind": "http", "ref": "https://api.example.com"}
        });
        for (name, value) in changes.as_object().unwrap() {
            content[name] = value.clone();
        }
        Tool::parse(&content).unwrap()
    }

    #[test]
    fn checks_arguments_and_results_against_their_schemas() {
        let tool = tool(&json!({"output_schema": {"type": "string"}}));
        assert_eq!(tool.arguments_schema().check_value(&json!({"city": "Bonn"})), Ok(()));
        for wrong in [json!({}), json!("Bonn")] {
            assert_eq!(tool.arguments_schema().check_value(&wrong), Err(SchemaCheckFailure::Mismatch), "{wrong}");
        }
        assert_eq!(tool.result_schema().unwrap().check_value(&json!("sunny")), Ok(()));
        assert_eq!(tool.result_schema().unwrap().check_value(&json!(1)), Err(SchemaCheckFailure::Mismatch));
        assert_eq!(tool.description, "Weather");
    }

    #[test]
    fn derives_approval_from_annotations() {
        for (annotations, approval, expected) in [
            (json!({}), "never", false),
            (json!({}), "on_destructive", true),
            (json!({"read_only": true}), "on_destructive", false),
            (json!({"destructive": false}), "on_destructive", false),
            (json!({"destructive": true}), "on_destructive", true),
            (json!({"read_only": true}), "always", true),
        ] {
            let tool = tool(&json!({"annotations": annotations, "approval": approval}));
            assert_eq!(tool.needs_approval(), expected, "{annotations} {approval}");
        }
        assert!(!tool(&json!({})).needs_approval());
    }

    #[test]
    fn repeats_only_read_only_or_idempotent_tools() {
        assert_eq!(tool(&json!({})).repeat_safety, RepeatSafety::Unsafe);
        assert_eq!(tool(&json!({"annotations": {"read_only": true}})).repeat_safety, RepeatSafety::Safe);
        assert_eq!(tool(&json!({"annotations": {"idempotent": true}})).repeat_safety, RepeatSafety::Safe);
    }

    #[test]
    fn caps_timeout_at_the_request_limit() {
        assert_eq!(tool(&json!({"timeout_ms": 250})).timeout, Duration::from_millis(250));
        assert_eq!(tool(&json!({"timeout_ms": 3_600_000})).timeout, MAX_DURATION);
        assert_eq!(tool(&json!({})).timeout, MAX_DURATION);
    }

    #[test]
    fn marks_unsupported_bindings_unavailable() {
        for (binding, is_available) in [
            (json!({"kind": "builtin", "ref": "query_knowledge_base"}), true),
            (json!({"kind": "builtin", "ref": "execute_flow"}), false),
            (json!({"kind": "http", "ref": {"slug": "a-connector"}}), false),
            (json!({"kind": "mcp", "ref": {"slug": "a-server"}}), true),
            (json!({"kind": "code", "ref": {"slug": "a-skill"}}), false),
        ] {
            let tool = tool(&json!({"binding": binding}));
            assert_eq!(tool.binding != ToolBinding::Unavailable, is_available, "{binding}");
        }
    }
}
