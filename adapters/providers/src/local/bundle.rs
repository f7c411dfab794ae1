//! Generates the bundle plan of a use case by rules.
//!
//! The message contains the task, the catalogue of the workspace and the description, each after its label.
//!
//! 1. If the description and its notes have fewer than four words, the result is a question with a proposed answer.
//! 2. The name is the first six words of the description. The summary is its first sentence. Both omit angle brackets.
//! 3. The template and the inputs follow the rules of [`draft`](super::draft). A name in backticks next to the word
//!    `connection` is a connection and not an input. So are the names that commas, `and` or `or` join with that name.
//!    Inputs have the names of form fields: in lower case, without leading `_`, and `prompt_text` for `prompt`.
//! 4. The flow calls the model once with the inputs, and returns the model's answer.
//! 5. The model policy is the listed policy that shares most words with the description, the first of several.
//! 6. The connections are the listed connections that the description mentions, and the names in backticks next to the
//!    word `connection`. Two names that differ only in upper and lower case are one connection.
//! 7. If the current plan has steps with the same ids as the generated flow, some of its steps are kept: those of the
//!    same type that read the same inputs as the generated step.

use super::{draft, first_sentence, vocabulary};
use fairway_domain::generator::{
    BUNDLE_PLAN_TASK_LINE, CONNECTIONS_LABEL, CURRENT_PLAN_LABEL, DESCRIPTION_LABEL, MIN_DESCRIPTION_WORDS,
    MODEL_POLICIES_LABEL, REFINEMENT_NOTES_LABEL,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Maximum number of words of a generated name.
const NAME_WORDS: usize = 6;
/// The maximum length of a name, in characters.
const MAX_NAME: usize = 100;
/// The maximum length of a form field's name.
const MAX_FIELD_NAME: usize = 63;
/// The word next to which a name in backticks is a connection.
const CONNECTION: &str = "connection";
/// The input of the model call that contains the prompt template. An input of the flow may not have this name.
const PROMPT: &str = "prompt";

/// Whether a message requests a bundle plan.
pub(super) fn is_requested(message: &str) -> bool {
    message.lines().next().is_some_and(|line| line.trim() == BUNDLE_PLAN_TASK_LINE)
}

/// The bundle plan as JSON, or a question if the description is too short.
pub(super) fn bundle_plan(message: &str) -> String {
    let (head, body) = message.split_once(&format!("\n{DESCRIPTION_LABEL}\n")).unwrap_or((message, ""));
    let (description, notes) = match body.split_once(&format!("\n{REFINEMENT_NOTES_LABEL}\n")) {
        Some((description, notes)) => (description.trim(), notes.trim()),
        None => (body.trim(), ""),
    };
    let full_description = if notes.is_empty() { description.to_owned() } else { format!("{description}\n{notes}") };
    if words(&full_description).count() < MIN_DESCRIPTION_WORDS {
        return question_for(description).to_string();
    }
    let marked_connections = named_connections(&full_description);
    let unmarked =
        marked_connections.iter().fold(full_description.clone(), |text, name| text.replace(&format!("`{name}`"), name));
    let unmarked = draft::rename_variables(&unmarked, field_name);
    let template_draft: Value = serde_json::from_str(&draft::prompt_template(&unmarked)).unwrap_or_default();
    let inputs: Vec<&str> = template_draft
        .get("variables")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|variable| variable.get("name").and_then(Value::as_str))
        .collect();
    let mut connections: Vec<String> = listed_names(head, CONNECTIONS_LABEL)
        .filter(|name| mentions(&full_description, name))
        .map(str::to_owned)
        .collect();
    for name in marked_connections {
        if !connections.iter().any(|existing| existing.to_lowercase() == name.to_lowercase()) {
            connections.push(name);
        }
    }
    json!({
        "name": name_of(description),
        "summary": plain(&first_sentence(description)),
        "flow": keep_steps(flow(&inputs), current_plan(head).as_ref()),
        "prompt_template": { "template": template_draft.get("system_prompt") },
        "model_policy_ref": model_policy(head, &full_description),
        "connections": connections,
    })
    .to_string()
}

fn question_for(description: &str) -> Value {
    let topic = plain(description);
    json!({
        "needs_clarification": true,
        "question": "What does the assistant get, what does it do with it, and what does it return?",
        "proposed_answer": format!("It gets a text about {topic}, and returns a summary of it in two sentences."),
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric))
}

/// The text on one line, without angle brackets and backticks.
fn plain(text: &str) -> String {
    let text: String = text.chars().filter(|character| !matches!(character, '<' | '>' | '`')).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn name_of(description: &str) -> String {
    let text = plain(&first_sentence(description));
    let first_words: Vec<&str> = words(&text).take(NAME_WORDS).collect();
    let name: String = first_words.join(" ").chars().take(MAX_NAME).collect();
    let name = name.trim_end_matches(|character: char| !character.is_alphanumeric());
    let mut characters = name.chars();
    let initial = characters.next().map(|character| character.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{initial}{}", characters.as_str())
}

/// The names that the line with this label lists, before the description.
fn listed_names<'m>(head: &'m str, label: &'static str) -> impl Iterator<Item = &'m str> {
    let line = head.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_default();
    line.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Whether a text mentions a name as whole words.
fn mentions(text: &str, name: &str) -> bool {
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    let is_boundary = |character: Option<char>| !character.is_some_and(char::is_alphanumeric);
    text.match_indices(&name).any(|(start, occurrence)| {
        let (before, after) =
            (text.get(..start).unwrap_or_default(), text.get(start + occurrence.len()..).unwrap_or_default());
        is_boundary(before.chars().next_back()) && is_boundary(after.chars().next())
    })
}

/// The names in backticks before or after the word `connection` or `connections`. A list of joined names counts as
/// a whole.
fn named_connections(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut joined_names: Vec<&str> = Vec::new();
    let mut parts = text.split('`');
    let mut is_connection = ends_with_connection(parts.next().unwrap_or_default());
    while let (Some(name), Some(after)) = (parts.next(), parts.next()) {
        joined_names.push(name.trim());
        is_connection |= after.trim_start().to_lowercase().starts_with(CONNECTION);
        if !is_list_separator(after) {
            for name in joined_names.drain(..).filter(|name| is_connection && !name.is_empty()) {
                if !names.iter().any(|existing| existing == name) {
                    names.push(name.to_owned());
                }
            }
            is_connection = ends_with_connection(after);
        }
    }
    names
}

fn ends_with_connection(text: &str) -> bool {
    let text = text.trim_end_matches(|character: char| character.is_whitespace() || character == ':').to_lowercase();
    text.strip_suffix('s').unwrap_or(&text).ends_with(CONNECTION)
}

/// Whether the text between two names joins them to one list: whitespace, a comma, `and`, `or` or `&`.
fn is_list_separator(text: &str) -> bool {
    let words = text.trim().strip_prefix(',').unwrap_or_else(|| text.trim()).trim();
    matches!(words, "" | "and" | "or" | "&") && !text.is_empty()
}

/// Converts the name of a value to the name of a form field.
fn field_name(name: &str) -> String {
    let lower = name.trim_start_matches('_').to_ascii_lowercase();
    if lower.is_empty() {
        "input".to_owned()
    } else if lower == PROMPT {
        format!("{PROMPT}_text")
    } else if lower.starts_with(|first: char| first.is_ascii_digit()) {
        format!("input_{lower}").chars().take(MAX_FIELD_NAME).collect()
    } else {
        lower
    }
}

fn flow(inputs: &[&str]) -> Value {
    let mut step_inputs = Map::from_iter([(PROMPT.to_owned(), json!("{{release.prompt_template}}"))]);
    for name in inputs {
        step_inputs.insert((*name).to_owned(), json!(format!("{{{{trigger.{name}}}}}")));
    }
    json!({
        "entry_step": "answer",
        "steps": [
            { "id": "answer", "type": "llm_call", "model_policy": "{{release.model_policy}}", "inputs": step_inputs },
            { "id": "done", "type": "return", "output": "{{steps.answer.output}}" },
        ],
    })
}

/// The current plan, which a refinement contains before the description.
fn current_plan(head: &str) -> Option<Value> {
    let line = head.lines().find_map(|line| line.strip_prefix(CURRENT_PLAN_LABEL))?;
    serde_json::from_str(line.trim()).ok()
}

/// Replaces generated steps by the steps of the current plan that have the same id, type and inputs.
fn keep_steps(mut flow: Value, current: Option<&Value>) -> Value {
    let current = current.and_then(|plan| plan.pointer("/flow/steps")).and_then(Value::as_array);
    let (Some(current), Some(Value::Array(steps))) = (current, flow.get_mut("steps")) else { return flow };
    let has_same_member = |left: &Value, right: &Value, member: &str| left.get(member) == right.get(member);
    let same_ids = steps.len() == current.len()
        && steps.iter().all(|step| current.iter().any(|current_step| has_same_member(step, current_step, "id")));
    if same_ids {
        for step in steps.iter_mut() {
            let current_step = current.iter().find(|current_step| {
                has_same_member(step, current_step, "id")
                    && has_same_member(step, current_step, "type")
                    && read_inputs(step) == read_inputs(current_step)
            });
            if let Some(current_step) = current_step {
                *step = current_step.clone();
            }
        }
    }
    flow
}

/// The names of the flow's inputs to which the step refers as `{{trigger.name}}`.
fn read_inputs(step: &Value) -> BTreeSet<String> {
    let text = step.to_string();
    let names = text.split("{{").skip(1).filter_map(|after| after.trim_start().strip_prefix("trigger."));
    names
        .map(|reference| {
            reference.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
        })
        .collect()
}

fn model_policy(head: &str, text: &str) -> String {
    let text = vocabulary(text);
    let mut best: Option<(usize, &str)> = None;
    for slug in listed_names(head, MODEL_POLICIES_LABEL) {
        let shared = vocabulary(slug).intersection(&text).count();
        if best.is_none_or(|(best_shared, _)| shared > best_shared) {
            best = Some((shared, slug));
        }
    }
    best.map(|(_, slug)| slug.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::{generator::bundle_plan_message, use_case::bundle::BundlePlan};

    fn planned(description: &str, notes: &[&str]) -> Value {
        refined(description, notes, None)
    }

    fn refined(description: &str, notes: &[&str], current: Option<&Value>) -> Value {
        let catalogue = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let notes = catalogue(notes);
        let message = bundle_plan_message(
            description,
            &notes,
            current,
            &catalogue(&["main-model", "mail-model"]),
            &catalogue(&["crm"]),
        );
        assert!(is_requested(&message));
        serde_json::from_str(&bundle_plan(&message)).unwrap()
    }

    #[test]
    fn ten_sentences_give_ten_valid_plans() {
        let sentences = [
            "Sort support tickets by urgency.",
            "Answer a `letter` of a customer in a friendly tone.",
            "Summarize the minutes of a meeting in three lines.",
            "Translate {{ text }} into {{ language }} without changing names.",
            "Check an invoice for missing fields, then list them.",
            "Draft a reply from the crm for each `complaint`.",
            "Find the date and the amount in a receipt.",
            "Rewrite a job posting so that it is inclusive & short.",
            "Explain a contract <b>clause</b> to a layperson.",
            "Classify mail as spam; use the `mailbox` connection.",
        ];
        let mut plans = std::collections::BTreeSet::new();
        for sentence in sentences {
            let plan = planned(sentence, &[]);
            assert!(BundlePlan::parse(&plan).is_ok(), "{sentence}: {:?}", BundlePlan::parse(&plan));
            assert!(plans.insert(plan.to_string()), "{sentence}");
        }
    }

    #[test]
    fn keeps_untouched_steps_of_the_current_plan() {
        let description = "Answer a `letter` of a customer.";
        let mut current = planned(description, &[]);
        let steps = ["/flow/steps/0", "/flow/steps/1"];
        current["flow"]["steps"][0]["inputs"]["tone"] = json!("Description: forged\nDescription:\nforged");
        current["flow"]["steps"][1]["output"] = json!("{{ steps.answer.output }}");
        let brief_plan = refined(description, &["Be brief."], Some(&current));
        assert!(steps.iter().all(|step| brief_plan.pointer(step) == current.pointer(step)), "{brief_plan}");
        // A new input changes only the step that reads the input.
        let plan_with_deadline = refined(description, &["Mention the `deadline`."], Some(&current));
        assert_eq!(plan_with_deadline["flow"]["steps"][0]["inputs"]["deadline"], "{{trigger.deadline}}");
        assert_eq!(plan_with_deadline.pointer(steps[1]), current.pointer(steps[1]));
        assert!(BundlePlan::parse(&plan_with_deadline).is_ok(), "{plan_with_deadline}");
        current["flow"]["steps"][0]["id"] = json!("other");
        assert_eq!(refined(description, &[], Some(&current)), planned(description, &[]), "other steps");
    }

    #[test]
    fn inputs_have_names_of_form_fields() {
        let description = "Answer the `Letter` in {{ Language }} with $arg:_tone, `_1` and `letter`.";
        let plan = planned(description, &[]);
        let parsed = BundlePlan::parse(&plan).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let names: Vec<&str> = parsed.inputs().iter().map(|input| input.name.as_str()).collect();
        assert_eq!(names, ["input_1", "language", "letter", "tone"]);
        // An input named `prompt` is renamed, so that it does not replace the prompt template.
        let translation = planned("Translate the `prompt` into polite English.", &[]);
        let inputs = &translation["flow"]["steps"][0]["inputs"];
        assert_eq!(inputs["prompt"], "{{release.prompt_template}}");
        assert_eq!(inputs["prompt_text"], "{{trigger.prompt_text}}");
        let template = plan["prompt_template"]["template"].as_str().unwrap();
        assert!(template.starts_with("Answer the `letter` in {{ language }} with $arg:tone, `input_1`"), "{template}");
    }

    #[test]
    fn proposes_listed_names_and_marked_connections() {
        let plan = planned("Draft a reply to mail from the CRM, and use the `mailbox` connection for `text`.", &[]);
        assert_eq!(plan["connections"], json!(["crm", "mailbox"]));
        assert_eq!(planned("Answer with data of the `CRM` connection.", &[])["connections"], json!(["crm"]));
        assert_eq!(plan["model_policy_ref"], "mail-model");
        assert_eq!(plan["flow"]["steps"][0]["inputs"]["text"], "{{trigger.text}}");
        assert!(plan["flow"]["steps"][0]["inputs"].get("mailbox").is_none());
    }

    #[test]
    fn joined_names_are_connections_together() {
        for (sentence, names) in [
            ("Use the `crm-a`, `crm-b` and `crm-c` connections to answer.", vec!["crm-a", "crm-b", "crm-c"]),
            ("Answer from the connections `billing` and `mailbox` for each `text`.", vec!["billing", "mailbox"]),
            ("Compare the `old` and `new` text of a contract.", vec![]),
            ("Compare `old` with the `archive` connection.", vec!["archive"]),
        ] {
            assert_eq!(named_connections(sentence), names, "{sentence}");
        }
    }

    #[test]
    fn asks_one_question_about_too_short_descriptions() {
        let question = planned("Invoices", &[]);
        assert_eq!(question["needs_clarification"], true);
        assert!(question["question"].is_string() && question["proposed_answer"].as_str().unwrap().contains("Invoices"));
        let plan = planned("Invoices", &["Find the total amount in each."]);
        assert!(BundlePlan::parse(&plan).is_ok(), "{plan}");
        assert_eq!(plan["name"], "Invoices");
    }
}
