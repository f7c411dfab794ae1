//! Checks content offline by the server's rules, and reports findings with positions in the file.

use crate::{
    command_context::CommandContext,
    failure::{Candidate, Failure, Finding, candidate_hint},
    output::{eprint, print},
    similar_names::similar_names,
    unknown_names_in_files,
    untrusted_file::{LocatedValue, MAX_FILE_BYTES, Source},
};
use clap::{Args, builder::PossibleValuesParser};
use fairway_domain::{
    asset::{
        canonical::Canonical,
        content::{self, ContentProblem, ContentRefusal},
        kind::AssetKind,
    },
    field_path,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `assets check`.
#[derive(Args)]
#[command(after_help = "A file holds either plain content, whose kind comes from --kind or the file name, or a \
    manifest with `kind` and `content`, whose `texts` are read from files in the same folder.\n\nExamples:\n  fairway assets check --kind policy_bundle rules.yaml\n  \
    fairway assets check demo/assets/ticket-policy.yaml")]
pub(crate) struct Arguments {
    /// The kind of content; a manifest of another kind is an error
    #[arg(long, value_parser = PossibleValuesParser::new(AssetKind::ALL.map(AssetKind::as_str)))]
    kind: Option<String>,
    /// The files; `-` means standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub(crate) fn check(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    let Arguments { kind, files } = arguments;
    let kind = kind.as_deref().and_then(AssetKind::parse);
    let mut findings = Vec::new();
    for path in files {
        findings.extend(check_file(path, kind));
    }
    let output = context.offline_output();
    if !output.is_for_people() {
        output.value(&json!({ "valid": findings.is_empty(), "errors": findings }))?;
    }
    if findings.is_empty() {
        return if output.is_for_people() { print("valid") } else { Ok(()) };
    }
    Err(Failure::Files(findings))
}

fn known_kinds() -> String {
    let names: Vec<&str> = AssetKind::ALL.iter().map(|kind| kind.as_str()).collect();
    names.join(", ")
}

/// The error message for an unknown kind, which lists the similar kinds, or all kinds if none is similar.
fn unknown_kind(text: &str) -> String {
    let similar = similar_names(text, AssetKind::ALL.iter().map(|kind| kind.as_str()));
    if similar.is_empty() {
        return format!("unknown asset kind; the kinds are {}", known_kinds());
    }
    let similar: Vec<Candidate> = similar.into_iter().map(Candidate::named).collect();
    format!("unknown asset kind{}", candidate_hint(&similar))
}

fn check_file(path: &Path, kind: Option<AssetKind>) -> Vec<Finding> {
    let read = Source::try_open(path, MAX_FILE_BYTES).and_then(|source| source.try_value());
    let read = read.and_then(|located| if is_manifest(&located) { located.with_texts(path) } else { Ok(located) });
    let located = match read {
        Ok(located) => located,
        Err(finding) => return vec![finding],
    };
    let (kind, pointer) = match (kind, kind_field(&located), is_manifest(&located)) {
        (requested, Some(name), true) => {
            let kind_finding =
                |message: &str| vec![located.finding(&format!("/{name}"), "invalid_asset_kind", message)];
            let text = located.value.get(name).and_then(Value::as_str).unwrap_or_default();
            let Some(declared_kind) = AssetKind::parse(text) else { return kind_finding(&unknown_kind(text)) };
            if requested.is_some_and(|requested| requested != declared_kind) {
                return kind_finding("the kind in the file differs from --kind");
            }
            (declared_kind, "/content")
        }
        (Some(kind), _, _) => (kind, ""),
        (None, _, _) => {
            let Some(kind) = kind_from_file_name(path) else {
                let known = known_kinds();
                let message =
                    format!("the kind is missing from the file and its name: pass --kind with one of {known}");
                return vec![located.finding("", "invalid_asset_kind", message)];
            };
            (kind, "")
        }
    };
    let problems = content_problems(kind, &located, pointer);
    if problems.is_empty() {
        let content = located.value.pointer(pointer).unwrap_or(&Value::Null);
        for warning in content::warnings(kind, content) {
            let finding = located.finding(&format!("{pointer}{}", warning.pointer), warning.code, warning.message);
            eprint(&format!("warning: {finding}"));
        }
    }
    problems
}

/// The field that names the kind: `kind` in a manifest, `asset_kind` in an API request body.
fn kind_field(located: &LocatedValue) -> Option<&'static str> {
    ["kind", "asset_kind"].into_iter().find(|name| located.value.get(*name).is_some_and(Value::is_string))
}

/// Whether the file is a manifest. Plain content never has both a kind field and `content`.
fn is_manifest(located: &LocatedValue) -> bool {
    kind_field(located).is_some() && located.value.get("content").is_some()
}

/// Derives the kind from a file name such as `policy_bundle.json` or `policy_bundle-unknown-field.json`.
fn kind_from_file_name(path: &Path) -> Option<AssetKind> {
    let stem = path.file_stem()?.to_str()?;
    AssetKind::parse(stem.split('-').next()?)
}

/// Checks the content at a JSON pointer of a file. The findings have the server's codes and paths, and the positions
/// in the file.
pub(crate) fn content_problems(kind: AssetKind, located: &LocatedValue, pointer: &str) -> Vec<Finding> {
    let content = located.value.pointer(pointer).unwrap_or(&Value::Null);
    let content_finding = |inner: &str, code: &str, message: String| {
        located
            .finding(&format!("{pointer}{inner}"), code, message)
            .with_path(field_path::from_pointer("content", inner))
    };
    if !content.is_object() {
        return vec![content_finding("", "validation_error", "content must be a mapping".to_owned())];
    }
    if let Err(refusal) = Canonical::of(content) {
        return vec![content_finding(refusal.pointer(), refusal.code(), refusal.to_string())];
    }
    match content::check(kind, content) {
        Ok(_) => Vec::new(),
        Err(ContentRefusal::Invalid(problems)) => {
            let to_finding = |problem: ContentProblem| {
                let valid = problem.valid_names.iter().map(String::as_str);
                let flow_hint = (kind == AssetKind::OrchestrationFlow)
                    .then(|| unknown_names_in_files::flow_hint(content, &problem.pointer, problem.code));
                let hint = flow_hint.flatten();
                let hint = hint.unwrap_or_else(|| unknown_names_in_files::member_hint(&problem.pointer, valid));
                content_finding(&problem.pointer, problem.code, format!("{}{hint}", problem.message))
            };
            problems.into_iter().map(to_finding).collect()
        }
        Err(ContentRefusal::Prompt(refusal)) => {
            let hint = refusal
                .offset()
                .and_then(|offset| unknown_names_in_files::prompt_hint(content, offset))
                .unwrap_or_default();
            let finding = content_finding("/system_prompt", refusal.code(), format!("{refusal}{hint}"));
            vec![finding.with_offset(refusal.offset())]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_nearest_kind_of_an_unknown_one_or_all_kinds() {
        assert_eq!(unknown_kind("policy_bundel"), "unknown asset kind; did you mean `policy_bundle`?");
        let all = unknown_kind("xyz");
        assert!(all.contains("the kinds are ") && all.contains("prompt_template, "), "{all}");
    }
}
