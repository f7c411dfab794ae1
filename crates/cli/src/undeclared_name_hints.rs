//! Hints about undeclared names in flows and prompts. The server's messages never repeat content, but
//! the command line may, because the file belongs to the caller.

use crate::{
    failure::{Candidate, candidate_hint},
    resolve_names::similar_names,
    terminal_text::{sanitize, shorten},
};
use serde_json::Value;

/// Maximum number of known names that a message lists.
const MAX_LISTED: usize = 10;

/// For an error in a flow: the unknown step or input, and the similar known names, or all known names.
pub(crate) fn flow_hint(flow: &Value, pointer: &str, code: &str) -> Option<String> {
    let text = flow.pointer(pointer)?.as_str()?;
    let (noun, prefix, known): (_, _, Vec<&str>) = match code {
        "unknown_step" => {
            let steps = flow.get("steps").and_then(Value::as_array).into_iter().flatten();
            ("step", "steps.", steps.filter_map(|step| step.get("id")?.as_str()).collect())
        }
        "unknown_input" => {
            let inputs = flow.pointer("/trigger/inputs_schema").and_then(Value::as_object).into_iter().flatten();
            ("input", "trigger.", inputs.map(|(name, _)| name.as_str()).collect())
        }
        _ => return None,
    };
    let referenced = text.split(prefix).skip(1).map(leading_name).find(|name| !known.contains(name));
    let name = if text.contains("{{") { referenced? } else { text };
    Some(describe(noun, name, &known))
}

/// For a refused token of a prompt: the undeclared variable, and the similar declared variables, or all of them.
pub(crate) fn prompt_hint(content: &Value, offset: usize) -> Option<String> {
    let token = content.get("system_prompt")?.as_str()?.get(offset..)?;
    let name = leading_name(token.strip_prefix("$arg:")?);
    let variables = content.get("variables").and_then(Value::as_array).into_iter().flatten();
    let declared: Vec<&str> = variables.filter_map(|variable| variable.get("name")?.as_str()).collect();
    (!name.is_empty() && !declared.contains(&name)).then(|| describe("variable", name, &declared))
}

/// The name at the beginning of a text.
fn leading_name(text: &str) -> &str {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    text.split(|letter| !is_part(letter)).next().unwrap_or_default()
}

fn describe(noun: &str, name: &str, known: &[&str]) -> String {
    let shown = shorten(&sanitize(name)).into_owned();
    let similar = similar_names(name, known.iter().copied());
    if !similar.is_empty() {
        let hint = candidate_hint(&similar.into_iter().map(Candidate::named).collect::<Vec<_>>());
        return format!("; there is no {noun} `{shown}`{hint}");
    }
    let names: Vec<String> = known.iter().take(MAX_LISTED).map(|name| sanitize(name)).collect();
    let end = if known.len() > MAX_LISTED { ", …" } else { "" };
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("; there is no {noun} `{shown}`; declared: {names}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_unknown_steps_and_inputs_of_a_flow() {
        let flow = json!({
            "trigger": { "inputs_schema": { "ticket": {} } },
            "entry_step": "checks",
            "steps": [
                { "id": "check", "next": "zzz" },
                { "id": "end", "output": "{{trigger.ticket}} {{trigger.tiket}} {{steps.ask.output}}" },
            ],
        });
        let hint = |pointer: &str, code: &str| flow_hint(&flow, pointer, code);
        assert_eq!(
            hint("/entry_step", "unknown_step").as_deref(),
            Some("; there is no step `checks`; did you mean `check`?")
        );
        assert_eq!(
            hint("/steps/0/next", "unknown_step").as_deref(),
            Some("; there is no step `zzz`; declared: check, end")
        );
        assert_eq!(
            hint("/steps/1/output", "unknown_input").as_deref(),
            Some("; there is no input `tiket`; did you mean `ticket`?")
        );
        assert!(hint("/steps/1/output", "unknown_step").unwrap().starts_with("; there is no step `ask`; declared: "));
        assert_eq!(hint("/entry_step", "unreachable_step"), None);
        assert_eq!(hint("/missing", "unknown_step"), None);
    }

    #[test]
    fn names_undeclared_variables_of_a_prompt() {
        let content = json!({ "system_prompt": "Of $arg:questions: $arg:", "variables": [{ "name": "question" }] });
        assert_eq!(
            prompt_hint(&content, 3).as_deref(),
            Some("; there is no variable `questions`; did you mean `question`?")
        );
        assert_eq!(prompt_hint(&content, 19), None, "a malformed token has no name");
        assert_eq!(prompt_hint(&content, 999), None);
    }
}
