//! Commands for use cases, which generate a governed workload from a description.

mod changes;

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::Failure,
    http_client::{ServerClient, required_string, string_or_empty},
    output::{Column, Output, eprint, is_stderr_terminal, print},
    terminal_text::sanitize,
    untrusted_file::Source,
};
use clap::{Subcommand, builder::PossibleValuesParser};
use fairway_domain::use_case::UseCaseStatus;
use serde_json::{Value, json};
use std::{
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
};
use uuid::Uuid;

const COLUMNS: [Column; 5] = [
    ("USE CASE", "/use_case_id"),
    ("NAME", "/name"),
    ("STATUS", "/status"),
    ("SUCCESSOR", "/superseded_by"),
    ("CREATED", "/created_at"),
];

/// Maximum number of the generator's questions that the command asks a person for one plan.
const MAX_QUESTIONS: usize = 5;

/// The subcommands of `fairway use-cases`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Generate a bundle plan from a description; nothing is created
    #[command(after_help = "The plan shows what exists (=), what publication makes (+) and what is missing (?).\n\n\
        Example:\n  fairway use-cases generate 'Sort support tickets by urgency.' -o json > plan.json")]
    Generate {
        /// What the use case is for
        description: String,
    },
    /// Create a draft from a generated plan, or from a bundle in a JSON file
    #[command(
        after_help = "Example:\n  fairway use-cases create 'Sort support tickets by urgency.' --bundle plan.json"
    )]
    Create {
        /// The description that the bundle was generated from
        description: String,
        /// A JSON file with the bundle, or with the output of `generate`; else the bundle is generated
        #[arg(long, value_name = "FILE")]
        bundle: Option<PathBuf>,
    },
    /// List the use cases of the workspace, newest first
    #[command(after_help = "Example:\n  fairway use-cases list --status pending_access")]
    List {
        /// Only use cases in this status
        #[arg(long, value_parser = PossibleValuesParser::new(UseCaseStatus::ALL.iter().map(|status| status.as_str())))]
        status: Option<String>,
        /// Only use cases that wait for access and whose connections are all resolved
        #[arg(long)]
        activation_ready: bool,
    },
    /// Show a use case with the pieces of its bundle
    #[command(after_help = "Example:\n  fairway use-cases show 019a...")]
    Show {
        /// The use case's id
        #[arg(add = dynamic_completion::use_cases())]
        id: String,
    },
    /// Replace a draft by a successor that follows notes
    #[command(after_help = "Example:\n  fairway use-cases refine 019a... --note 'Answer in German.'")]
    Refine {
        /// The use case's id
        #[arg(add = dynamic_completion::use_cases())]
        id: String,
        /// What to change; repeat for several
        #[arg(long = "note", value_name = "TEXT", required = true)]
        notes: Vec<String>,
    },
    /// Show what a use case changes in the one that it refines
    #[command(after_help = "Example:\n  fairway use-cases changes 019a...")]
    Changes {
        /// The use case's id
        #[arg(add = dynamic_completion::use_cases())]
        id: String,
    },
    /// Publish a draft: make its assets, a workload and a release draft
    #[command(after_help = "Example:\n  fairway use-cases publish 019a...")]
    Publish {
        /// The use case's id
        #[arg(add = dynamic_completion::use_cases())]
        id: String,
    },
    /// Activate a use case whose connections are all resolved
    #[command(after_help = "Example:\n  fairway use-cases activate 019a...")]
    Activate {
        /// The use case's id
        #[arg(add = dynamic_completion::use_cases())]
        id: String,
    },
    /// Archive a use case
    #[command(after_help = "Example:\n  fairway use-cases archive 019a...")]
    Archive {
        /// The use case's id
        #[arg(add = dynamic_completion::use_cases())]
        id: String,
    },
    /// Return a use case that waits for access to draft
    #[command(after_help = "Example:\n  fairway use-cases reopen 019a...")]
    Reopen {
        /// The use case's id
        #[arg(add = dynamic_completion::use_cases())]
        id: String,
    },
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (output, server) = context.open()?;
    match command {
        // For programs, the output is the server's response, which may contain a question of the generator.
        Command::Generate { description } if !output.is_for_people() => {
            output.value(&post(&server, &["use-cases", "generate"], &json!({ "description": description }))?)
        }
        Command::Generate { description } => show_plan(&generate(output, &server, description)?.1),
        Command::Create { description, bundle } => {
            let (description, bundle) = match bundle {
                Some(file) => {
                    let bundle = Source::open(file)?.json()?;
                    if bundle.get("needs_clarification") == Some(&Value::Bool(true)) {
                        return Err(clarification(&bundle));
                    }
                    (description.clone(), bundle)
                }
                None => generate(output, &server, description)?,
            };
            let bundle = bundle.get("bundle").cloned().unwrap_or(bundle);
            let body = json!({ "source_description": description, "bundle": bundle });
            let created = post(&server, &["use-cases"], &body)?;
            output.change_result(
                &created,
                &format!("fairway use-cases publish {}", required_string(&created, "use_case_id")?),
            )
        }
        Command::List { status, activation_ready } => {
            let mut query = vec![("workspace_id", server.workspace_id()?)];
            query.extend(status.as_deref().map(|status| ("status", status)));
            query.extend(activation_ready.then_some(("activation_ready", "true")));
            output.list(&server.list(&["use-cases"], &query)?, &COLUMNS)
        }
        Command::Show { id } => {
            let query = [("workspace_id", server.workspace_id()?)];
            let mut use_case = server.get(&["use-cases", id], &query)?;
            let bundle = server.get(&["use-cases", id, "bundle"], &query)?;
            if let (Some(members), Value::Object(bundle)) = (use_case.as_object_mut(), bundle) {
                members.extend(bundle);
            }
            output.record(&use_case)
        }
        Command::Refine { id, notes } => refine(output, &server, id, notes),
        Command::Changes { id } => {
            let missing = || Failure::Failed("the use case does not exist, or you may not see its bundle".to_owned());
            let comparison = changes::compare(&server, id)?.ok_or_else(missing)?;
            if output.is_for_people() { changes::show(&comparison) } else { output.value(&comparison) }
        }
        Command::Publish { id } => {
            let published = post_action(&server, id, "publish")?;
            let next = match string_or_empty(&published, "status") {
                "pending_access" => "fairway access-requests list --status pending".to_owned(),
                _ => format!("fairway releases show {}", string_or_empty(&published, "release_id")),
            };
            output.change_result(&published, &next)
        }
        Command::Activate { id } => output.record(&post_action(&server, id, "activate")?),
        Command::Archive { id } => output.record(&post_action(&server, id, "archive")?),
        Command::Reopen { id } => {
            output.change_result(&post_action(&server, id, "reopen")?, &format!("fairway use-cases publish {id}"))
        }
    }
}

fn post_action(server: &ServerClient, id: &str, verb: &str) -> Result<Value, Failure> {
    post(server, &["use-cases", id, verb], &json!({}))
}

fn post(server: &ServerClient, path: &[&str], body: &Value) -> Result<Value, Failure> {
    server.post_with_query(path, &[("workspace_id", server.workspace_id()?)], body)
}

/// Generates a plan, and returns the final description and the plan. On a terminal, a person answers the generator's
/// questions, which become part of the description.
fn generate(output: Output, server: &ServerClient, description: &str) -> Result<(String, Value), Failure> {
    let path = ["use-cases", "generate"];
    converse(
        description,
        |description| post(server, &path, &json!({ "description": description })),
        |question| ask(output, question),
    )
}

/// Requests a plan until the generator asks no further question. Each answer becomes part of the description.
fn converse(
    description: &str,
    generate: impl Fn(&str) -> Result<Value, Failure>,
    ask_person: impl Fn(&Value) -> Result<Option<String>, Failure>,
) -> Result<(String, Value), Failure> {
    let mut description = description.to_owned();
    for _ in 0..MAX_QUESTIONS {
        let generated = generate(&description)?;
        if generated.get("needs_clarification") != Some(&Value::Bool(true)) {
            return Ok((description, generated));
        }
        let Some(answer) = ask_person(&generated)? else { return Err(clarification(&generated)) };
        description = format!("{description}\n{answer}");
    }
    Err(Failure::Failed("the generator still has questions; describe the use case in more detail".to_owned()))
}

fn refine(output: Output, server: &ServerClient, id: &str, notes: &[String]) -> Result<(), Failure> {
    let query = [("workspace_id", server.workspace_id()?)];
    let use_case = server.get(&["use-cases", id], &query)?;
    let mut notes: Vec<Value> = notes.iter().map(|note| json!({ "note": note })).collect();
    let key = Uuid::new_v4().to_string();
    for _ in 0..MAX_QUESTIONS {
        let body = json!({
            "description": required_string(&use_case, "source_description")?,
            "refinement_context": notes,
            "idempotency_key": key,
        });
        let refined = post(server, &["use-cases", id, "refine"], &body)?;
        if let Some(successor) = refined.get("use_case").filter(|successor| successor.is_object()) {
            let successor_id = required_string(successor, "use_case_id")?;
            output.change_result(successor, &format!("fairway use-cases publish {successor_id}"))?;
            let comparison = if output.is_for_people() { changes::compare(server, successor_id)? } else { None };
            return comparison.as_ref().map_or(Ok(()), changes::show);
        }
        let Some(answer) = ask(output, &refined)? else { return Err(clarification(&refined)) };
        notes.push(json!({ "note": answer }));
    }
    Err(Failure::Failed("the generator still has questions; describe the change in more detail".to_owned()))
}

/// Asks a person the generator's question. An empty answer accepts the proposed answer. Returns
/// `None` without a terminal.
fn ask(output: Output, response: &Value) -> Result<Option<String>, Failure> {
    if !output.is_for_people() || !io::stdin().is_terminal() || !is_stderr_terminal() {
        return Ok(None);
    }
    let proposed = string_or_empty(response, "proposed_answer");
    eprint(&sanitize(string_or_empty(response, "question")));
    if !proposed.is_empty() {
        eprint(&format!("press Enter for: {}", sanitize(proposed)));
    }
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| Failure::Failed(error.to_string()))?;
    let line = line.trim();
    Ok(Some(if line.is_empty() { proposed.to_owned() } else { line.to_owned() }))
}

fn clarification(response: &Value) -> Failure {
    let question = sanitize(string_or_empty(response, "question"));
    let proposed = sanitize(string_or_empty(response, "proposed_answer"));
    Failure::Failed(format!("the generator asks: {question} (for example: {proposed})"))
}

/// Prints a plan as a difference from the existing resources.
fn show_plan(generated: &Value) -> Result<(), Failure> {
    let bundle = generated.get("bundle").cloned().unwrap_or_default();
    let text = |name: &str| sanitize(string_or_empty(&bundle, name));
    print(&format!("{}\n  {}\n", text("name"), text("summary")))?;
    print("  + flow")?;
    for step in bundle.pointer("/flow/steps").and_then(Value::as_array).into_iter().flatten() {
        let (id, kind) = (sanitize(string_or_empty(step, "id")), sanitize(string_or_empty(step, "type")));
        print(&format!("      {id} ({kind})"))?;
    }
    print("  + prompt")?;
    let template = bundle.pointer("/prompt_template/template").and_then(Value::as_str).unwrap_or_default();
    for line in template.lines() {
        print(&format!("      {}", sanitize(line)))?;
    }
    let print_gap = |label: &str, gap: &Value| {
        let marker = match string_or_empty(gap, "kind") {
            "reused" => '=',
            "mint_fresh" => '+',
            _ => '?',
        };
        let reference =
            gap.get("ref").and_then(Value::as_str).map_or_else(String::new, |name| format!(" {}", sanitize(name)));
        print(&format!("  {marker} {label}{reference} ({})", string_or_empty(gap, "kind")))
    };
    let gaps = generated.get("gaps").cloned().unwrap_or_default();
    print_gap("model policy", gaps.get("model_policy").unwrap_or(&Value::Null))?;
    print_gap("policy bundle", gaps.get("policy_bundle").unwrap_or(&Value::Null))?;
    for connection in gaps.get("connections").and_then(Value::as_array).into_iter().flatten() {
        // Publication creates no connections. It refuses a caller that may create the missing connection, so that the
        // caller creates the connection first.
        match (string_or_empty(connection, "kind"), connection.get("ref").and_then(Value::as_str)) {
            ("mint_fresh", Some(name)) => {
                let name = sanitize(name);
                print(&format!(
                    "  ? connection {name} (missing, expired or disabled: create or change it with `fairway connections` first)"
                ))?;
            }
            _ => print_gap("connection", connection)?,
        }
    }
    for warning in generated.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        eprint(&format!("warning: {}", sanitize(string_or_empty(warning, "message"))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_part_of_the_description_of_the_plan() {
        let question = json!({ "needs_clarification": true, "question": "Which?" });
        let generate = |description: &str| {
            Ok(match description.lines().count() {
                1 | 2 => question.clone(),
                _ => json!({ "bundle": { "summary": description } }),
            })
        };
        let (description, generated) =
            converse("Invoices", generate, |_| Ok(Some("All of them.".to_owned()))).unwrap_or_default();
        assert_eq!(description, "Invoices\nAll of them.\nAll of them.");
        assert_eq!(generated["bundle"]["summary"], description);
        assert!(converse("Invoices", generate, |_| Ok(None)).is_err());
    }
}
