//! Writes the lines of a scenario's transcript.

use super::MAX_TEXT_BYTES;
use crate::policy;
use fairway_domain::{
    execution::{
        http_call::HttpCall,
        provider::ToolCall,
        routing::{ModelRequest, RequestKind},
        run::RunEnd,
        tool::{McpCall, ToolRequest, ToolTarget},
    },
    flow::FlowProblem,
};
use serde_json::Value;
use std::fmt::Write as _;

pub(super) fn write_problem(problem: &FlowProblem, out: &mut String) {
    let (line, column) = (problem.line.unwrap_or_default(), problem.column.unwrap_or_default());
    writeln!(out, "refused: {} in the flow at {line}:{column}: {}", problem.code, problem.message).unwrap();
}

pub(super) fn write_tool_call(request: &ToolRequest, out: &mut String) {
    let (target, arguments, call_id) = match &request.target {
        ToolTarget::Http(HttpCall { address, path, method, arguments, call_id, .. }) => {
            (format!("{} {address}{path}", method.as_str()), arguments, call_id)
        }
        ToolTarget::Mcp(McpCall { server: (_, server), connection, tool, arguments, call_id, pin, .. }) => {
            (format!("{tool} of {server} at {}, pinned {},", connection.url, pin.as_str()), arguments, call_id)
        }
    };
    let number = call_id.rsplit('.').next().unwrap_or_default();
    let arguments = Value::Object(arguments.clone());
    writeln!(out, "call {number}: {target} with {arguments}, a second one {:?}", request.repeat_safety).unwrap();
}

pub(super) fn write_hook_call(call: &HttpCall, out: &mut String) {
    let argument = |name: &str| call.arguments.get(name).map(Value::to_string).unwrap_or_default();
    let millis = call.timeout.as_millis();
    writeln!(
        out,
        "hook asked: {} for {millis} ms about {} of {}",
        call.address,
        argument("event"),
        argument("subject")
    )
    .unwrap();
    write_text("  value", &argument("value"), out);
}

pub(super) fn write_model_call(request: &ModelRequest, route: usize, is_first: bool, out: &mut String) {
    let (route_config, conversation) = (&request.routes[route], &request.conversation);
    if let RequestKind::Embedding(text) = &request.kind {
        writeln!(
            out,
            "vector wanted: {} of {} by account {}",
            route_config.model, route_config.provider, route_config.account_slot
        )
        .unwrap();
        return write_text("  of", text, out);
    }
    write!(out, "asked: {} of {} by account {}", route_config.model, route_config.provider, route_config.account_slot)
        .unwrap();
    if let Some(temperature) = conversation.temperature {
        write!(out, ", temperature {temperature}").unwrap();
    }
    if let Some(max_tokens) = conversation.max_tokens {
        write!(out, ", at most {max_tokens} tokens").unwrap();
    }
    out.push('\n');
    if !is_first {
        return;
    }
    write_text("  system", &conversation.system_prompt, out);
    for message in &conversation.messages {
        write_text(&format!("  {}", message.role.as_str()), &message.content, out);
        for ToolCall { name, arguments, .. } in &message.tool_calls {
            write_text(&format!("    wants {name}"), arguments, out);
        }
    }
    if !conversation.tools.is_empty() {
        let names: Vec<&str> = conversation.tools.iter().map(|tool| tool.name.as_str()).collect();
        writeln!(out, "  may call: {}", names.join(", ")).unwrap();
    }
}

/// Writes a text on one line. Of a text with more than [`MAX_TEXT_BYTES`] bytes, only the length is written.
pub(super) fn write_text(name: &str, text: &str, out: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        writeln!(out, "{name}: {} bytes", text.len()).unwrap();
    } else {
        writeln!(out, "{name}: {}", text.replace('\n', "\\n")).unwrap();
    }
}

pub(super) fn write_outcome(outcome: &RunEnd, out: &mut String) {
    write_steps(outcome, out);
    for decision in &outcome.decisions {
        writeln!(out, "decided again: {}, {}", decision.outcome.as_str(), decision.reason_code).unwrap();
    }
    for item in &outcome.lineage {
        let trust = item.untrusted.map_or("trusted", |reason| reason.as_str());
        let (origin, role) = (item.origin.as_str(), item.influence_role.as_str());
        writeln!(out, "read: {} ({origin}) as {role} to {}, {trust}", item.reference, item.action_class.as_str())
            .unwrap();
    }
    for artifact in &outcome.artifacts {
        let member = |name: &str| match (artifact.kind, name) {
            ("route_refused", "refused") => artifact.body.get("route_id"),
            _ => artifact.body.get(name),
        };
        // The latency is omitted, because the fixed clock makes it 0.
        let to_text = |value: &Value| value.to_string().replace("\"latency_us\":0,", "");
        let field = |name: &str| member(name).map(|value| format!(" {name} {}", to_text(value))).unwrap_or_default();
        let fields: String = [
            "step_id",
            "tokens_in",
            "tokens_out",
            "attempts",
            "refused",
            "reasons",
            "calls",
            "masked",
            "operation",
            "decision",
            "turns",
            "call",
            "tool",
            "result",
            "pinned",
            "found",
        ]
        .map(field)
        .concat();
        let fields = match artifact.kind {
            "guardrail" | "hook" => format!(" {}", Value::Object(artifact.body.clone())),
            _ => fields,
        };
        writeln!(out, "kept: {}{fields}", artifact.kind).unwrap();
        if let Some(payload) = &artifact.payload {
            write_text("  with", &payload.body, out);
        }
    }
    for (obligation, _) in &outcome.fulfilled {
        writeln!(out, "fulfilled: {}", obligation.as_str()).unwrap();
    }
    if !outcome.decisions.is_empty() {
        policy::write_decision("strictest", &outcome.decision, out);
    }
    writeln!(out, "ended: {}, {}", outcome.status.as_str(), outcome.outcome.as_str()).unwrap();
    if let Some(error) = &outcome.error {
        let offset = error.offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default();
        writeln!(out, "  error: {}{offset}", error.code).unwrap();
    }
    if let Some((output, metadata)) = &outcome.output {
        write_text("  output", &output.to_string(), out);
        if metadata.values().any(|value| value.as_object().is_none_or(|value| !value.is_empty())) {
            write_text("  metadata", &Value::Object(metadata.clone()).to_string(), out);
        }
    }
}

/// Writes the first steps of a run and, if there are more, their total number.
fn write_steps(outcome: &RunEnd, out: &mut String) {
    const MAX_STEPS: usize = 20;
    for step in outcome.steps.iter().take(MAX_STEPS) {
        let result = step.failure.as_ref().map_or_else(|| "done".to_owned(), |code| format!("failed, {code}"));
        writeln!(out, "step {} ({}): {result}", step.step_id, step.step_type).unwrap();
    }
    if outcome.steps.len() > MAX_STEPS {
        writeln!(out, "and more: {} steps in all", outcome.steps.len()).unwrap();
    }
}
