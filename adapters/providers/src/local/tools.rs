//! Tool calls that the user message requests explicitly.

use fairway_domain::execution::provider::{CompletionInput, Message, MessageRole, ToolCall};

/// The prefix of a line that requests a call.
const CALL_PREFIX: &str = "Call:";

/// The tool calls that the user message requests; empty after the calls were made.
pub(super) fn requested_calls(conversation: &CompletionInput, message: &str) -> Vec<ToolCall> {
    if last_result(conversation).is_some() {
        return Vec::new();
    }
    let requests = message.lines().filter_map(|line| line.trim().strip_prefix(CALL_PREFIX));
    let parts = requests.map(|request| request.trim().split_once(char::is_whitespace).unwrap_or((request.trim(), "")));
    let offered = parts.filter(|(name, _)| conversation.tools.iter().any(|tool| tool.name == *name));
    let calls = offered.enumerate().map(|(index, (name, arguments))| ToolCall {
        id: format!("call-{}", index.saturating_add(1)),
        name: name.to_owned(),
        arguments: arguments.trim().to_owned(),
    });
    calls.collect()
}

/// The last tool result, if no message follows it.
pub(super) fn last_result(conversation: &CompletionInput) -> Option<&str> {
    let by_tool = |message: &&Message| message.role == MessageRole::Tool;
    conversation.messages.last().filter(by_tool).map(|message| message.content.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::execution::provider::ToolDefinition;
    use serde_json::json;

    #[test]
    fn requested_calls_are_made_until_a_result_arrives() {
        let definition =
            ToolDefinition { name: "weather".to_owned(), description: String::new(), input_schema: json!({}).into() };
        let text = "What is it like?\nCall: weather {\"city\": \"Bonn\"}\nCall: stocks {}\nCall: weather";
        let message = Message::text(MessageRole::User, text.to_owned());
        let mut call =
            CompletionInput { messages: vec![message], tools: vec![definition], ..CompletionInput::default() };
        let calls = requested_calls(&call, text);
        let parts: Vec<(&str, &str, &str)> =
            calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!(parts, [("call-1", "weather", "{\"city\": \"Bonn\"}"), ("call-2", "weather", "")]);
        call.messages.push(Message::text(MessageRole::Tool, "Rain.".to_owned()));
        assert_eq!((requested_calls(&call, text).len(), super::last_result(&call)), (0, Some("Rain.")));
        call.tools.clear();
        call.messages.pop();
        assert!(requested_calls(&call, text).is_empty(), "the tool is not offered");
    }
}
