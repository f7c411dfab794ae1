//! Generates a prompt template from a question by rules.
//!
//! 1. The system prompt of the template is the question.
//! 2. The variables are the names in backticks, in `{{…}}` or after `$arg:`: the first twenty distinct names. Without
//!    such a name, the only variable is `input`. All variables are strings.
//! 3. A name in backticks inserts no value, so its variable is appended on its own line.
//! 4. The description of the template is the first sentence of the question.

use super::first_sentence;
use serde_json::{Value, json};

/// The line of the system prompt that requests a draft.
const REQUEST_LINE: &str = "Draft: prompt_template";
/// Maximum number of variables of a generated template.
const MAX_VARIABLES: usize = 20;
/// Maximum length of a variable name.
const MAX_NAME: usize = 63;

/// Whether the system prompt requests a draft.
pub(super) fn is_requested(instructions: &str) -> bool {
    instructions.lines().any(|line| line.trim() == REQUEST_LINE)
}

/// The generated content of a prompt template, as JSON.
pub(super) fn prompt_template(description: &str) -> String {
    let description = description.trim();
    let mut variables: Vec<(&str, bool)> = Vec::new();
    for (_, name, is_inserted) in named_values(description) {
        if let Some((_, is_known_inserted)) = variables.iter_mut().find(|(known, _)| *known == name) {
            *is_known_inserted |= is_inserted;
        } else if variables.len() < MAX_VARIABLES {
            variables.push((name, is_inserted));
        }
    }
    if variables.is_empty() {
        variables.push(("input", false));
    }
    let mut instructions = description.to_owned();
    for (name, _) in variables.iter().filter(|(_, is_inserted)| !is_inserted) {
        instructions.push_str(&format!("\n{name}: $arg:{name}"));
    }
    let declared: Vec<Value> = variables.iter().map(|(name, _)| json!({ "name": name, "type": "string" })).collect();
    json!({ "system_prompt": instructions, "variables": declared, "description": first_sentence(description) })
        .to_string()
}

/// The variable names in a question, in order: the offset, the name, and whether the question already inserts the
/// value.
fn named_values(description: &str) -> Vec<(usize, &str, bool)> {
    let mut names: Vec<(usize, &str, bool)> = Vec::new();
    names.extend(texts_between(description, "`", "`").map(|(offset, name)| (offset, name, false)));
    names.extend(texts_between(description, "{{", "}}").map(|(offset, name)| (offset, name, true)));
    names.extend(description.match_indices("$arg:").map(|(offset, sign)| {
        let offset = offset + sign.len();
        (offset, leading_name(description, offset), true)
    }));
    names.retain(|(_, name, _)| is_name(name));
    names.sort_unstable();
    names
}

/// The question with its variables renamed.
pub(super) fn rename_variables(description: &str, rename: impl Fn(&str) -> String) -> String {
    let mut renamed = String::with_capacity(description.len());
    let mut end = 0;
    for (offset, name, _) in named_values(description) {
        renamed.push_str(description.get(end..offset).unwrap_or_default());
        renamed.push_str(&rename(name));
        end = offset + name.len();
    }
    renamed.push_str(description.get(end..).unwrap_or_default());
    renamed
}

/// The texts between pairs of delimiters, trimmed, with their offsets.
fn texts_between<'t>(text: &'t str, open: &'static str, close: &'static str) -> impl Iterator<Item = (usize, &'t str)> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let start = position + text.get(position..)?.find(open)? + open.len();
        let length = text.get(start..)?.find(close)?;
        position = start + length + close.len();
        let content = text.get(start..start + length)?;
        let indent = content.len() - content.trim_start().len();
        Some((start + indent, content.trim()))
    })
}

fn leading_name(text: &str, offset: usize) -> &str {
    let tail = text.get(offset..).unwrap_or_default();
    let end = tail.find(|character: char| !character.is_ascii_alphanumeric() && character != '_').unwrap_or(tail.len());
    tail.get(..end).unwrap_or_default()
}

fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME
        && text.starts_with(|character: char| character.is_ascii_alphabetic() || character == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafted(description: &str) -> Value {
        serde_json::from_str(&prompt_template(description)).unwrap()
    }

    fn names(draft: &Value) -> Vec<&str> {
        draft["variables"].as_array().unwrap().iter().map(|variable| variable["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn names_become_unique_variables_in_order() {
        let draft =
            drafted("Reply to `letter` in {{ language }}. Keep $arg:tone, and `letter` short. Not `two words`.");
        assert_eq!(names(&draft), ["letter", "language", "tone"]);
        let instructions = draft["system_prompt"].as_str().unwrap();
        assert!(instructions.ends_with("short. Not `two words`.\nletter: $arg:letter"), "{instructions}");
        assert_eq!(draft["description"], "Reply to `letter` in {{ language }}.");
    }

    #[test]
    fn without_names_the_variable_is_input() {
        let draft = drafted("  Sort letters by urgency.  ");
        assert_eq!(draft["system_prompt"], "Sort letters by urgency.\ninput: $arg:input");
        assert_eq!(names(&draft), ["input"]);
        assert_eq!(names(&drafted("odd ` backtick {{ and $arg: nothing")), ["input"]);
    }

    #[test]
    fn limits_the_number_of_variables() {
        let description: String = (0..30).map(|number| format!("`v{number}` ")).collect();
        assert_eq!(names(&drafted(&description)).len(), MAX_VARIABLES);
    }
}
