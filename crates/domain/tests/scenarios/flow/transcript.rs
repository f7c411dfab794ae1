//! What the transcript of a scenario says, line by line.

use super::TOLD;
use crate::policy;
use fairway_domain::{
    execution::{
        outward::OutwardCall,
        provider::ToolCall,
        routing::{Question, Wanted},
        run::Ended,
        tool::{McpCall, Outgoing, ToolRequest},
    },
    flow::FlowProblem,
};
use serde_json::Value;
use std::fmt::Write as _;

pub(super) fn tell_problem(problem: &FlowProblem, told: &mut String) {
    let (line, column) = (problem.line.unwrap_or_default(), problem.column.unwrap_or_default());
    writeln!(told, "refused: {} in the flow at {line}:{column}: {}", problem.code, problem.message).unwrap();
}

pub(super) fn tell_tool(request: &ToolRequest, told: &mut String) {
    let (called, said, call_id) = match &request.call {
        Outgoing::Address(OutwardCall { address, path, method, said, call_id, .. }) => {
            (format!("{} {address}{path}", method.as_str()), said, call_id)
        }
        Outgoing::Server(McpCall { server: (_, server), way, tool, said, call_id, pin, .. }) => {
            (format!("{tool} of {server} at {}, pinned {},", way.address, pin.as_str()), said, call_id)
        }
    };
    let number = call_id.rsplit('.').next().unwrap_or_default();
    let said = Value::Object(said.clone());
    writeln!(told, "call {number}: {called} with {said}, a second one {:?}", request.repeat).unwrap();
}

pub(super) fn tell_hook(call: &OutwardCall, told: &mut String) {
    let said = |name: &str| call.said.get(name).map(Value::to_string).unwrap_or_default();
    let millis = call.time.as_millis();
    writeln!(told, "hook asked: {} for {millis} ms about {} of {}", call.address, said("event"), said("subject"))
        .unwrap();
    tell_text("  value", &said("value"), told);
}

pub(super) fn tell_call(question: &Question, route: usize, is_first: bool, told: &mut String) {
    let (point, call) = (&question.routes[route], &question.conversation);
    if let Wanted::Vector(text) = &question.wanted {
        writeln!(told, "vector wanted: {} of {} by account {}", point.model, point.provider, point.account_slot)
            .unwrap();
        return tell_text("  of", text, told);
    }
    write!(told, "asked: {} of {} by account {}", point.model, point.provider, point.account_slot).unwrap();
    if let Some(temperature) = call.temperature {
        write!(told, ", temperature {temperature}").unwrap();
    }
    if let Some(most) = call.max_tokens {
        write!(told, ", at most {most} tokens").unwrap();
    }
    told.push('\n');
    if !is_first {
        return;
    }
    tell_text("  system", &call.system_prompt, told);
    for message in &call.messages {
        tell_text(&format!("  {}", message.role.as_str()), &message.content, told);
        for ToolCall { name, arguments, .. } in &message.tool_calls {
            tell_text(&format!("    wants {name}"), arguments, told);
        }
    }
    if !call.tools.is_empty() {
        let names: Vec<&str> = call.tools.iter().map(|tool| tool.name.as_str()).collect();
        writeln!(told, "  may call: {}", names.join(", ")).unwrap();
    }
}

/// A text on one line, or its length where it is long.
pub(super) fn tell_text(name: &str, text: &str, told: &mut String) {
    if text.len() > TOLD {
        writeln!(told, "{name}: {} bytes", text.len()).unwrap();
    } else {
        writeln!(told, "{name}: {}", text.replace('\n', "\\n")).unwrap();
    }
}

pub(super) fn tell_end(ended: &Ended, told: &mut String) {
    tell_steps(ended, told);
    for decision in &ended.decisions {
        writeln!(told, "decided again: {}, {}", decision.outcome.as_str(), decision.reason_code).unwrap();
    }
    for item in &ended.lineage {
        let trust = item.untrusted.map_or("trusted", |reason| reason.as_str());
        let (origin, role) = (item.origin.as_str(), item.influence_role.as_str());
        writeln!(told, "read: {} ({origin}) as {role} to {}, {trust}", item.reference, item.action_class.as_str())
            .unwrap();
    }
    for artifact in &ended.artifacts {
        let of = |name: &str| match (artifact.kind, name) {
            ("route_refused", "refused") => artifact.body.get("route_id"),
            _ => artifact.body.get(name),
        };
        // Nothing takes time here.
        let shown = |value: &Value| value.to_string().replace("\"latency_us\":0,", "");
        let field = |name: &str| of(name).map(|value| format!(" {name} {}", shown(value))).unwrap_or_default();
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
        writeln!(told, "kept: {}{fields}", artifact.kind).unwrap();
        if let Some(payload) = &artifact.payload {
            tell_text("  with", &payload.body, told);
        }
    }
    for (obligation, _) in &ended.fulfilled {
        writeln!(told, "fulfilled: {}", obligation.as_str()).unwrap();
    }
    if !ended.decisions.is_empty() {
        policy::tell("strictest", &ended.decision, told);
    }
    writeln!(told, "ended: {}, {}", ended.status.as_str(), ended.outcome.as_str()).unwrap();
    if let Some(error) = &ended.error {
        let offset = error.offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default();
        writeln!(told, "  error: {}{offset}", error.code).unwrap();
    }
    if let Some((output, metadata)) = &ended.output {
        tell_text("  output", &output.to_string(), told);
        if metadata.values().any(|said| said.as_object().is_none_or(|said| !said.is_empty())) {
            tell_text("  metadata", &Value::Object(metadata.clone()).to_string(), told);
        }
    }
}

/// Each step once; a long row of them by its length.
fn tell_steps(ended: &Ended, told: &mut String) {
    const MOST: usize = 20;
    for step in ended.steps.iter().take(MOST) {
        let how = step.failure.as_ref().map_or_else(|| "done".to_owned(), |code| format!("failed, {code}"));
        writeln!(told, "step {} ({}): {how}", step.step_id, step.step_type).unwrap();
    }
    if ended.steps.len() > MOST {
        writeln!(told, "and more: {} steps in all", ended.steps.len()).unwrap();
    }
}
