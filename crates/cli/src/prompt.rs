//! Renders prompts offline.

use crate::{
    failure::{Candidate, Failure, Finding, candidate_hint},
    output::print,
    similar_names::similar_names,
    terminal_text::{sanitize, sanitize_lines},
    untrusted_file::{LocatedValue, Source},
};
use clap::Subcommand;
use fairway_domain::{
    asset::kind::AssetKind,
    prompt::{
        IncludedAsset, PromptRefusal, PromptTemplate, VariableType,
        composition::{IncludeRefusal, IncludedBody},
    },
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Maximum size in bytes of a file whose text is the value of an argument.
const MAX_ARGUMENT_BYTES: u64 = 1 << 20;

/// The subcommands of `fairway prompt`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Render the prompt that the model would receive
    #[command(after_help = "`@asset-ref:SLUG` includes SLUG.yaml or SLUG.json from the same folder, \
        whatever version it names. `name=@FILE` is the text of a file, `name=@-` of standard input.\n\nExample:\n  \
        fairway prompt render demo/assets/ticket-prompt.yaml --arg ticket='I was charged twice'")]
    Render {
        /// A manifest, or plain content of a prompt template
        file: PathBuf,
        /// One argument: NAME=TEXT, NAME=@FILE or NAME:=JSON; TEXT becomes a number, boolean or list where the
        /// template declares one
        #[arg(long, short, value_name = "NAME=VALUE")]
        arg: Vec<String>,
        /// A JSON or YAML file with all arguments; --arg overrides it
        #[arg(long, value_name = "FILE")]
        args: Option<PathBuf>,
    },
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Render { file, arg, args } = command;
    let located = Source::open(file)?.value()?.with_texts(file).map_err(Failure::from_finding)?;
    let pointer = if located.value.get("content").is_some() { "/content" } else { "" };
    let problems = crate::asset::content_problems(AssetKind::PromptTemplate, &located, pointer);
    if !problems.is_empty() {
        return Err(Failure::Files(problems));
    }
    let content = located.value.pointer(pointer).unwrap_or(&Value::Null);
    let to_failure = |refusal: PromptRefusal| Failure::from_finding(prompt_finding(&located, pointer, refusal));
    let template = PromptTemplate::parse(content).map_err(to_failure)?;
    let arguments = arguments(&template, arg, args.as_deref())?;
    let mut bodies = BTreeMap::new();
    for (reference, offset) in template.distinct_references() {
        let Some(body) = included_body(file, reference)? else {
            let message = format!("the included asset `{}` is not in the same folder", reference.slug.as_str());
            let missing = prompt_finding(&located, pointer, PromptRefusal::UnknownAsset { offset });
            return Err(Failure::from_finding(Finding { message, ..missing }));
        };
        let body = body.map_err(|refusal| to_failure(refusal.to_prompt_refusal(offset)))?;
        bodies.insert(reference.clone(), body);
    }
    let declared: BTreeSet<String> = template.variables().iter().map(|variable| variable.name.clone()).collect();
    let composed = template.compose(|reference| bodies.get(reference).cloned()).map_err(to_failure)?;
    let rendered = composed.render(&arguments).map_err(|refusal| {
        let hint = misspelt_name(&refusal, &declared, &arguments);
        let finding = prompt_finding(&located, pointer, refusal);
        Failure::from_finding(Finding { message: format!("{}{hint}", finding.message), ..finding })
    })?;
    print(sanitize_lines(&rendered).trim_end_matches('\n'))
}

/// For a missing argument, a hint with similar names. The hint considers declared variables and given arguments,
/// because the misspelt name may be in the template or on the command line.
fn misspelt_name(refusal: &PromptRefusal, declared: &BTreeSet<String>, arguments: &Map<String, Value>) -> String {
    let PromptRefusal::ArgumentMissing { name, .. } = refusal else { return String::new() };
    if let Some(given) = similar_names(name, arguments.keys().map(String::as_str)).first() {
        return format!("; `{}` was given instead", sanitize(given));
    }
    let similar = similar_names(name, declared.iter().map(String::as_str).filter(|known| known != name));
    candidate_hint(&similar.into_iter().map(Candidate::named).collect::<Vec<_>>())
}

fn prompt_finding(located: &LocatedValue, pointer: &str, refusal: PromptRefusal) -> Finding {
    let finding = located.finding(&format!("{pointer}/system_prompt"), refusal.code(), refusal.to_string());
    finding.with_offset(refusal.offset()).with_path("content.system_prompt")
}

/// The body of an included asset from the template's folder; `None` when the file is missing.
fn included_body(
    template: &Path,
    reference: &IncludedAsset,
) -> Result<Option<Result<IncludedBody, IncludeRefusal>>, Failure> {
    let folder = template.parent().unwrap_or_else(|| Path::new("."));
    let candidates = ["yaml", "json"].map(|extension| folder.join(format!("{}.{extension}", reference.slug.as_str())));
    let Some(found) = candidates.iter().find(|path| path.is_file()) else { return Ok(None) };
    let located = Source::open(found)?.value()?.with_texts(found).map_err(Failure::from_finding)?;
    let kind = located.value.get("kind").and_then(Value::as_str).and_then(AssetKind::parse);
    let content = located.value.get("content").unwrap_or(&located.value);
    Ok(Some(IncludedBody::of(kind.unwrap_or(AssetKind::PromptTemplate), content)))
}

fn arguments(template: &PromptTemplate, pairs: &[String], file: Option<&Path>) -> Result<Map<String, Value>, Failure> {
    let mut arguments = match file.map(|path| Source::open(path)?.value()).transpose()?.map(|located| located.value) {
        None => Map::new(),
        Some(Value::Object(members)) => members,
        Some(_) => return Err(Failure::Usage("an arguments file must be a mapping of names to values".to_owned())),
    };
    for argument in pairs {
        let (name, text) = argument.split_once('=').ok_or_else(malformed_argument)?;
        if let Some(name) = name.strip_suffix(':') {
            arguments.insert(name.to_owned(), serde_json::from_str(text).map_err(|_| malformed_argument())?);
            continue;
        }
        if let Some(path) = text.strip_prefix('@') {
            let text = Source::open_limited(Path::new(path), MAX_ARGUMENT_BYTES)?.text;
            arguments.insert(name.to_owned(), Value::String(text));
            continue;
        }
        let kind = template.variables().iter().find(|variable| variable.name == name).map(|variable| variable.kind);
        let as_text = || Value::String(text.to_owned());
        let value = match kind {
            Some(VariableType::Number | VariableType::Boolean | VariableType::Array) => {
                serde_json::from_str(text).unwrap_or_else(|_| as_text())
            }
            Some(VariableType::String) | None => as_text(),
        };
        arguments.insert(name.to_owned(), value);
    }
    Ok(arguments)
}

fn malformed_argument() -> Failure {
    Failure::Usage("an argument must be NAME=TEXT, NAME=@FILE or NAME:=JSON".to_owned())
}
