//! Hints about unknown names in files. The server's messages never repeat content, but
//! the command line may, because the file belongs to the caller.

use crate::{
    failure::{Candidate, candidate_hint},
    similar_names::similar_names,
    terminal_text::{sanitize, shorten},
};
use fairway_domain::asset::kind::AssetKind;
use serde_json::Value;

/// Maximum number of known names that a message lists.
const MAX_LISTED: usize = 10;
/// The words before the list of names that a file declares.
const DECLARED: &str = "declared:";
/// Maximum length of an unknown name for which similar names are searched, in bytes. The time of the search grows with
/// the length, which the file determines.
const MAX_COMPARED_BYTES: usize = 100;

/// For an error in a flow: the unknown step, input or role, and the similar known names, or all known names.
pub(crate) fn flow_hint(flow: &Value, pointer: &str, code: &str) -> Option<String> {
    let text = flow.pointer(pointer)?.as_str()?;
    let (noun, prefix, list_label, known): (_, _, _, Vec<&str>) = match code {
        "unknown_step" => {
            let steps = flow.get("steps").and_then(Value::as_array).into_iter().flatten();
            ("step", "steps.", DECLARED, steps.filter_map(|step| step.get("id")?.as_str()).collect())
        }
        "unknown_input" => {
            let inputs = flow.pointer("/trigger/inputs_schema").and_then(Value::as_object).into_iter().flatten();
            ("input", "trigger.", DECLARED, inputs.map(|(name, _)| name.as_str()).collect())
        }
        "unknown_role" => {
            ("role", "release.", "the roles are", AssetKind::ALL.into_iter().map(AssetKind::as_str).collect())
        }
        _ => return None,
    };
    let referenced = text.split(prefix).skip(1).map(leading_name).find(|name| !known.contains(name));
    let name = if text.contains("{{") { referenced? } else { text };
    Some(describe(noun, name, list_label, &known))
}

/// For an unknown key in a flow: the key, and the similar valid keys.
pub(crate) fn key_hint(pointer: &str, valid: &[&str]) -> Option<String> {
    let name = member_name(pointer)?;
    let display_name = shorten(&sanitize(&name)).into_owned();
    let similar = similar_hint(&name, valid.iter().copied());
    (!valid.is_empty()).then(|| format!("; there is no key `{display_name}`{similar}"))
}

/// For an unknown member of a content, whose path the finding shows: the similar valid names; empty if there are none.
pub(crate) fn member_hint<'n>(pointer: &str, valid: impl Iterator<Item = &'n str>) -> String {
    member_name(pointer).map(|name| similar_hint(&name, valid)).unwrap_or_default()
}

/// The last member of a JSON pointer.
fn member_name(pointer: &str) -> Option<String> {
    let (_, name) = pointer.rsplit_once('/')?;
    Some(name.replace("~1", "/").replace("~0", "~"))
}

/// The names that are similar to an unknown name, as the end of a message; empty if there are none.
pub(crate) fn similar_hint<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    if name.len() > MAX_COMPARED_BYTES {
        return String::new();
    }
    candidate_hint(&similar_names(name, known).into_iter().map(Candidate::named).collect::<Vec<_>>())
}

/// For a refused token of a prompt: the undeclared variable, and the similar declared variables, or all of them.
pub(crate) fn prompt_hint(content: &Value, offset: usize) -> Option<String> {
    let token = content.get("system_prompt")?.as_str()?.get(offset..)?;
    let name = leading_name(token.strip_prefix("$arg:")?);
    let variables = content.get("variables").and_then(Value::as_array).into_iter().flatten();
    let declared: Vec<&str> = variables.filter_map(|variable| variable.get("name")?.as_str()).collect();
    (!name.is_empty() && !declared.contains(&name)).then(|| describe("variable", name, DECLARED, &declared))
}

/// The name at the beginning of a text.
fn leading_name(text: &str) -> &str {
    let is_name_character = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    text.split(|character| !is_name_character(character)).next().unwrap_or_default()
}

fn describe(noun: &str, name: &str, list_label: &str, known: &[&str]) -> String {
    let display_name = shorten(&sanitize(name)).into_owned();
    let similar = similar_hint(name, known.iter().copied());
    if !similar.is_empty() {
        return format!("; there is no {noun} `{display_name}`{similar}");
    }
    let names: Vec<String> = known.iter().take(MAX_LISTED).map(|name| sanitize(name)).collect();
    let end = if known.len() > MAX_LISTED { ", …" } else { "" };
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("; there is no {noun} `{display_name}`; {list_label} {names}{end}")
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
        let flow = json!({ "a": "{{release.model_policy}} {{release.prompt}}", "b": "{{release.zzz}}" });
        assert_eq!(
            flow_hint(&flow, "/a", "unknown_role").as_deref(),
            Some("; there is no role `prompt`; did you mean `prompt_template`?")
        );
        let all = flow_hint(&flow, "/b", "unknown_role").unwrap();
        assert!(all.starts_with("; there is no role `zzz`; the roles are prompt_template, knowledge_base, "), "{all}");
        assert_eq!(hint("/entry_step", "unreachable_step"), None);
        assert_eq!(hint("/missing", "unknown_step"), None);
    }

    #[test]
    fn names_unknown_keys_with_similar_ones() {
        let keys = ["id", "type", "inputs"];
        assert_eq!(
            key_hint("/steps/0/inpust", &keys).as_deref(),
            Some("; there is no key `inpust`; did you mean `inputs`?")
        );
        assert_eq!(key_hint("/steps/0/a~1b", &keys).as_deref(), Some("; there is no key `a/b`"));
        assert_eq!(key_hint("/steps/0/id", &[]), None);
        assert_eq!(member_hint("/max_token", ["max_tokens"].into_iter()), "; did you mean `max_tokens`?");
        assert_eq!(member_hint(&format!("/{}", "max_tokens".repeat(100)), ["max_tokens"].into_iter()), "");
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
