//! Tools: what a model may call, what it may say to them, and what stands behind them.

use super::{ContentProblem, embedded::EmbeddedSchema, mcp_server::ToolPin};
use crate::{
    execution::outward::{LONGEST, Method},
    secret::SecretRef,
};
use serde::Deserialize;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// A tool, as its definition says.
#[derive(Clone, Debug)]
pub struct Tool {
    /// What the model calls it.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments, as the model is given it.
    pub input_schema: Arc<Value>,
    /// What it calls.
    pub binding: ToolBinding,
    /// What another call with the same arguments does.
    pub repeat: Repeat,
    /// Longest time of a call.
    pub time: Duration,
    input: EmbeddedSchema,
    output: Option<EmbeddedSchema>,
    is_destructive: bool,
    approval: Approval,
}

/// What stands behind a tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToolBinding {
    /// An address.
    Http(HttpBinding),
    /// A tool of a server that speaks the Model Context Protocol. Which server, the release has frozen.
    Mcp(McpBinding),
    /// A tool of this service.
    Builtin(Builtin),
    /// Something that this server does not call in runs.
    Unavailable,
}

/// An address that is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpBinding {
    /// The address.
    pub address: String,
    /// What follows it.
    pub path: String,
    /// How it is called.
    pub method: Method,
    /// What opens it.
    pub secret: Option<SecretRef>,
    /// Hosts that it may lead to; `None` where every one is as good as another.
    pub hosts: Option<Vec<String>>,
}

/// A tool of a server, which has the same name there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct McpBinding {
    /// What this definition says of it.
    pub pin: ToolPin,
    /// What opens the server for this tool; what the server's definition says where there is nothing.
    pub secret: Option<SecretRef>,
    /// Hosts that the server may be at; `None` where every one is as good as another.
    pub hosts: Option<Vec<String>>,
}

/// A tool of this service that runs may call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Builtin {
    /// Searches a knowledge base that the release binds.
    QueryKnowledgeBase,
}

/// What a second call with the same arguments does beyond the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// Nothing, as the author of the tool says: it only reads, or is idempotent.
    Harmless,
    /// Perhaps something. It is never made where it is not known whether the first one was.
    Unsafe,
}

/// When a person must agree before a call.
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
    /// Reads content that has passed the checks of its kind.
    ///
    /// # Errors
    /// When it is no tool.
    pub fn parse(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        let refused = || vec![ContentProblem::new("", "invalid_content", "the content is no tool")];
        let definition = Definition::deserialize(content).map_err(|_| refused())?;
        let schema = |value: &Value| EmbeddedSchema::compile(value).map_err(|_| refused());
        let reads_only = definition.annotations.read_only.unwrap_or(false);
        let repeats = reads_only || definition.annotations.idempotent.unwrap_or(false);
        let time = definition.timeout_ms.as_ref().and_then(Value::as_f64).map(|time| time / 1_000.0);
        let hosts = definition.egress_hosts;
        let described = definition.description.as_deref().unwrap_or_default();
        let pin = || ToolPin::of(&definition.name, described, &definition.input_schema);
        let binding = definition.binding.read(hosts, pin).ok_or_else(refused)?;
        Ok(Self {
            description: definition.description.or(definition.title).unwrap_or_default(),
            input: schema(&definition.input_schema)?,
            output: definition.output_schema.as_ref().map(schema).transpose()?,
            input_schema: Arc::new(definition.input_schema),
            binding,
            repeat: if repeats { Repeat::Harmless } else { Repeat::Unsafe },
            // Who says nothing of a tool that changes things may well mean one that destroys (MCP: `destructiveHint`).
            is_destructive: definition.annotations.destructive.unwrap_or(!reads_only),
            approval: definition.approval,
            time: time
                .and_then(|time| Duration::try_from_secs_f64(time).ok())
                .map_or(LONGEST, |time| time.min(LONGEST)),
            name: definition.name,
        })
    }

    /// Its compiled `input_schema`, which its arguments satisfy.
    #[must_use]
    pub const fn input(&self) -> &EmbeddedSchema {
        &self.input
    }

    /// Its compiled `output_schema`, which its results satisfy, where it has one.
    #[must_use]
    pub const fn output(&self) -> Option<&EmbeddedSchema> {
        self.output.as_ref()
    }

    /// Whether a person must agree before it is called. Nobody can be asked while a run waits, so it is then not called.
    #[must_use]
    pub const fn needs_approval(&self) -> bool {
        match self.approval {
            Approval::Never => false,
            Approval::OnDestructive => self.is_destructive,
            Approval::Always => true,
        }
    }

    /// How much memory its schemas take once they are compiled, in bytes.
    #[must_use]
    pub fn schema_bytes(&self) -> usize {
        self.input.bytes().saturating_add(self.output.as_ref().map_or(0, EmbeddedSchema::bytes))
    }
}

impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        // What is compiled says no more than what it was compiled from.
        (&self.name, &self.input_schema, &self.binding) == (&other.name, &other.input_schema, &other.binding)
    }
}

impl Binding {
    fn read(self, hosts: Option<Vec<String>>, pin: impl FnOnce() -> Option<ToolPin>) -> Option<ToolBinding> {
        let secret = self.secret_ref.map(|text| SecretRef::parse(&text)).transpose().ok()?;
        Some(match (self.kind.as_str(), self.target.as_str()) {
            ("http", Some(address)) => ToolBinding::Http(HttpBinding {
                address: address.to_owned(),
                path: self.path.unwrap_or_default(),
                method: self.method.map_or(Some(Method::Post), |method| Method::parse(&method))?,
                secret,
                hosts,
            }),
            ("mcp", None) => ToolBinding::Mcp(McpBinding { pin: pin()?, secret, hosts }),
            ("builtin", Some("query_knowledge_base")) => ToolBinding::Builtin(Builtin::QueryKnowledgeBase),
            _ => ToolBinding::Unavailable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asset::content::embedded::SchemaRejection;
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
    fn arguments_and_results_are_held_against_their_schemas() {
        let tool = tool(&json!({"output_schema": {"type": "string"}}));
        assert_eq!(tool.input().check(&json!({"city": "Bonn"})), Ok(()));
        for wrong in [json!({}), json!("Bonn")] {
            assert_eq!(tool.input().check(&wrong), Err(SchemaRejection::Mismatch), "{wrong}");
        }
        assert_eq!(tool.output().unwrap().check(&json!("sunny")), Ok(()));
        assert_eq!(tool.output().unwrap().check(&json!(1)), Err(SchemaRejection::Mismatch));
        assert_eq!(tool.description, "Weather");
    }

    #[test]
    fn whoever_must_agree_is_known_from_what_the_tool_does() {
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
    fn only_what_reads_or_is_idempotent_is_called_again() {
        assert_eq!(tool(&json!({})).repeat, Repeat::Unsafe);
        assert_eq!(tool(&json!({"annotations": {"read_only": true}})).repeat, Repeat::Harmless);
        assert_eq!(tool(&json!({"annotations": {"idempotent": true}})).repeat, Repeat::Harmless);
    }

    #[test]
    fn a_call_takes_no_longer_than_any_request_may() {
        assert_eq!(tool(&json!({"timeout_ms": 250})).time, Duration::from_millis(250));
        assert_eq!(tool(&json!({"timeout_ms": 3_600_000})).time, LONGEST);
        assert_eq!(tool(&json!({})).time, LONGEST);
    }

    #[test]
    fn what_cannot_be_called_is_known() {
        for (binding, available) in [
            (json!({"kind": "builtin", "ref": "query_knowledge_base"}), true),
            (json!({"kind": "builtin", "ref": "execute_flow"}), false),
            (json!({"kind": "http", "ref": {"slug": "a-connector"}}), false),
            (json!({"kind": "mcp", "ref": {"slug": "a-server"}}), true),
            (json!({"kind": "code", "ref": {"slug": "a-skill"}}), false),
        ] {
            let tool = tool(&json!({"binding": binding}));
            assert_eq!(tool.binding != ToolBinding::Unavailable, available, "{binding}");
        }
    }
}
