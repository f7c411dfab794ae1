//! Requests in the format of OpenAI's API.

use fairway_domain::execution::provider::{Message, MessageRole, ProviderCall, ToolDefinition};
use serde::Serialize;
use serde_json::Value;

/// The JSON member that contains the token limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenLimitName {
    MaxTokens,
    MaxCompletionTokens,
}

#[derive(Serialize)]
pub(super) struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<RequestMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct RequestMessage<'a> {
    role: &'a str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<RequestToolCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct RequestToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Arguments<'a>,
}

#[derive(Serialize)]
struct Arguments<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

impl<'a> ChatRequest<'a> {
    pub(super) fn of(call: &'a ProviderCall, limit: TokenLimitName, is_streamed: bool) -> Self {
        let conversation = &*call.conversation;
        let instructions = RequestMessage {
            // Some servers refuse a conversation without a user message. If there are no messages, the system
            // prompt is sent as a user message.
            role: if conversation.messages.is_empty() { "user" } else { "system" },
            content: Some(&conversation.system_prompt),
            tool_calls: Vec::new(),
            tool_call_id: None,
        };
        let instructions = (!conversation.system_prompt.is_empty()).then_some(instructions);
        let (max_tokens, max_completion_tokens) = match limit {
            TokenLimitName::MaxTokens => (conversation.max_tokens, None),
            TokenLimitName::MaxCompletionTokens => (None, conversation.max_tokens),
        };
        Self {
            model: &call.route.model,
            messages: instructions.into_iter().chain(conversation.messages.iter().map(RequestMessage::of)).collect(),
            temperature: conversation.temperature,
            max_tokens,
            max_completion_tokens,
            tools: conversation.tools.iter().map(Tool::of).collect(),
            stream: is_streamed.then_some(true),
            stream_options: is_streamed.then_some(StreamOptions { include_usage: true }),
        }
    }
}

impl<'a> RequestMessage<'a> {
    fn of(message: &'a Message) -> Self {
        let tool_calls = message.tool_calls.iter().map(|call| RequestToolCall {
            id: &call.id,
            r#type: "function",
            function: Arguments { name: &call.name, arguments: &call.arguments },
        });
        // A message that contains only tool calls omits its content. Any other empty message has an empty text as
        // its content.
        let has_only_tool_calls = message.content.is_empty() && !message.tool_calls.is_empty();
        Self {
            role: match message.role {
                MessageRole::User => "user",
                MessageRole::Assistant => "assistant",
                MessageRole::Tool => "tool",
            },
            content: (!has_only_tool_calls).then_some(&message.content),
            tool_calls: tool_calls.collect(),
            tool_call_id: message.tool_call_id.as_deref(),
        }
    }
}

impl<'a> Tool<'a> {
    fn of(definition: &'a ToolDefinition) -> Self {
        let ToolDefinition { name, description, input_schema } = definition;
        Self { r#type: "function", function: Function { name, description, parameters: input_schema } }
    }
}

#[derive(Serialize)]
pub(super) struct EmbeddingRequest<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
}

impl<'a> EmbeddingRequest<'a> {
    pub(super) fn of(model: &'a str, input: &'a [String]) -> Self {
        Self { model, input, encoding_format: "float" }
    }
}
