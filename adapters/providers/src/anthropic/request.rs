//! Requests in the format of Anthropic's API.

use fairway_domain::{
    execution::provider::{Message, MessageRole, ProviderCall, ToolCall, ToolDefinition},
    json as bounded,
};
use serde::Serialize;
use serde_json::{Value, json};

/// Maximum response tokens if the model policy has no limit, because the API requires a value.
const MAX_TOKENS: u32 = 4096;
/// The API's maximum temperature. Model policies permit up to 2, the maximum of other providers.
const MAX_TEMPERATURE: f64 = 1.0;

#[derive(Serialize)]
pub(super) struct Request<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    messages: Vec<Turn<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text { text: &'a str },
    ToolUse { id: &'a str, name: &'a str, input: Value },
    ToolResult { tool_use_id: &'a str, content: &'a str },
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

impl<'a> Request<'a> {
    pub(super) fn of(call: &'a ProviderCall, is_streamed: bool) -> Self {
        let conversation = &*call.conversation;
        let mut messages = turns(&conversation.messages);
        let mut system = Some(conversation.system_prompt.as_str()).filter(|text| !text.is_empty());
        // The API requires a message. If there are no messages, the system prompt is sent as a user message.
        if messages.is_empty() {
            messages.extend(system.take().map(|text| Turn { role: "user", content: vec![Block::Text { text }] }));
        }
        Self {
            model: &call.route.model,
            max_tokens: conversation.max_tokens.unwrap_or(MAX_TOKENS),
            system,
            messages,
            temperature: conversation.temperature.map(|temperature| temperature.min(MAX_TEMPERATURE)),
            tools: conversation.tools.iter().map(Tool::of).collect(),
            stream: is_streamed.then_some(true),
        }
    }
}

/// Converts the messages to alternating turns. Consecutive messages of one role are merged, so that the results of
/// parallel tool calls form one turn.
fn turns(messages: &[Message]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for message in messages {
        let role = match message.role {
            MessageRole::User | MessageRole::Tool => "user",
            MessageRole::Assistant => "assistant",
        };
        // `blocks` omits empty texts, because the API refuses them.
        let blocks = blocks(message);
        match turns.last_mut().filter(|turn| turn.role == role) {
            Some(turn) => turn.content.extend(blocks),
            None if blocks.is_empty() => {}
            None => turns.push(Turn { role, content: blocks }),
        }
    }
    turns
}

fn blocks(message: &Message) -> Vec<Block<'_>> {
    if let Some(tool_use_id) = &message.tool_call_id {
        return vec![Block::ToolResult { tool_use_id, content: &message.content }];
    }
    let text = (!message.content.is_empty()).then_some(Block::Text { text: &message.content });
    text.into_iter().chain(message.tool_calls.iter().map(tool_use)).collect()
}

fn tool_use(call: &ToolCall) -> Block<'_> {
    // The API requires an object as arguments. Arguments that are no JSON object are sent as a text in an object.
    let input = bounded::read(call.arguments.as_bytes()).ok().filter(Value::is_object);
    let input = input.unwrap_or_else(|| json!({ "unreadable_arguments": call.arguments }));
    Block::ToolUse { id: &call.id, name: &call.name, input }
}

impl<'a> Tool<'a> {
    fn of(definition: &'a ToolDefinition) -> Self {
        let ToolDefinition { name, description, input_schema } = definition;
        Self { name, description, input_schema }
    }
}
