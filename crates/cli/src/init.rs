//! `fairway init`: writes the manifests of a new workload for `fairway sync`.

mod templates;

use crate::{
    asset::content_problems,
    command_context::CommandContext,
    dynamic_completion,
    failure::{Failure, Finding},
    output::{eprint, print},
    terminal_text::sanitize,
    untrusted_file::Source,
};
use clap::Args;
use fairway_domain::{access::OwnerRef, asset::kind::AssetKind, slug::Slug};
use serde_json::json;
use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};
use templates::Project;

/// The model of the built-in provider, which needs no account.
const LOCAL_MODEL: &str = "local";
/// Maximum length of a workload's name. The limit leaves room for the suffixes of the assets' slugs.
const MAX_NAME_CHARS: usize = 50;
/// Maximum number of bytes of an answer that is read from the terminal.
const MAX_ANSWER_BYTES: usize = 1 << 10;

/// Arguments of `init`.
#[derive(Args)]
#[command(after_help = "Without options, the command asks on a terminal, and uses the defaults elsewhere. A model is \
    PROVIDER/MODEL, such as openai/gpt-4o-mini, or `local`: the built-in provider, which needs no account.\n\nExamples:\n  \
    fairway init helpdesk\n  fairway init helpdesk --name helpdesk --model openai/gpt-4o-mini --owner team:support")]
pub(crate) struct Arguments {
    /// The directory; created when missing
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// The workload's slug; else the directory's name
    #[arg(long)]
    name: Option<String>,
    /// The model as PROVIDER/MODEL; else `local`
    #[arg(long)]
    model: Option<String>,
    /// The server's account for the model; else the provider's name
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// The owner of all files
    #[arg(long, default_value = "team:owners")]
    owner: String,
    /// The environment of the first release; the default is the profile's environment, or dev if it has none
    #[arg(long, short, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
    env: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    let output = context.offline_output();
    let project = arguments.project(context)?;
    let files = project.files();
    let root = &arguments.directory;
    refuse_existing(root, &files)?;
    for (name, text) in &files {
        let path = root.join(name);
        let failed = |cause| Failure::Io { path: path.clone(), cause };
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        fs::write(&path, text).map_err(failed)?;
    }
    check(root, &files)?;
    let directory = sanitize(&root.display().to_string());
    if !output.is_for_people() {
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let account = &project.account;
        return output
            .record(&json!({ "directory": directory, "workload": project.name, "account": account, "files": names }));
    }
    for (name, _) in &files {
        print(&format!("wrote {directory}/{name}"))?;
    }
    if project.provider != LOCAL_MODEL {
        print(&format!(
            "the model policy names the account `{}` of the server; `fairway-server providers test` lists the server's \
             accounts, and `--account ACCOUNT` names another one",
            sanitize(&project.account)
        ))?;
    }
    output
        .hint(&format!("fairway policy test {directory} && fairway release {directory} --env {}", project.environment));
    Ok(())
}

impl Arguments {
    /// Collects the answers to all questions, and checks them before any file is written.
    fn project(&self, context: &CommandContext) -> Result<Project, Failure> {
        let default_name = default_name(&self.directory);
        let name = answer(self.name.as_deref(), "name of the workload", &default_name)?;
        let is_short = name.chars().count() <= MAX_NAME_CHARS;
        if Slug::parse(&name).is_err() || !is_short {
            let message = format!(
                "a name has at most {MAX_NAME_CHARS} characters a-z, 0-9 and hyphens, with a letter or digit at both ends; \
                 pass one with --name"
            );
            return Err(Failure::Usage(message));
        }
        let model = answer(self.model.as_deref(), "model (PROVIDER/MODEL, or local)", LOCAL_MODEL)?;
        let (provider, model) = match model.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                (provider.to_owned(), model.to_owned())
            }
            None if model == LOCAL_MODEL => (LOCAL_MODEL.to_owned(), "rules".to_owned()),
            Some(_) | None => {
                let message = "a model is PROVIDER/MODEL, such as openai/gpt-4o-mini, or `local`";
                return Err(Failure::Usage(message.to_owned()));
            }
        };
        if OwnerRef::parse(&self.owner).is_err() {
            return Err(Failure::Usage("an owner is team:NAME or user:NAME".to_owned()));
        }
        let environment = match &self.env {
            Some(environment) => environment.clone(),
            None => context.environment(None).unwrap_or_else(|_| "dev".to_owned()),
        };
        if Slug::parse(&environment).is_err() {
            return Err(Failure::Usage("an environment has characters a-z, 0-9 and hyphens".to_owned()));
        }
        let account = self.account.clone().unwrap_or_else(|| provider.clone());
        Ok(Project { name, provider, model, account, owner: self.owner.clone(), environment })
    }
}

/// The directory's name as a slug, or `assistant` if the result is empty, reserved or otherwise no valid slug.
fn default_name(directory: &Path) -> String {
    let full_path = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let name = full_path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let slug: String =
        name.chars().map(|character| if character.is_ascii_alphanumeric() { character } else { '-' }).collect();
    let slug: String = slug.trim_matches('-').chars().take(MAX_NAME_CHARS).collect();
    if Slug::parse(&slug).is_ok() { slug } else { "assistant".to_owned() }
}

/// The value of the option if given, else the answer typed on the terminal, else the default.
fn answer(given: Option<&str>, question: &str, default: &str) -> Result<String, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    if !io::stdin().is_terminal() {
        return Ok(default.to_owned());
    }
    let failed = |cause| Failure::Io { path: "terminal".into(), cause };
    write!(io::stderr(), "{question} [{default}]: ").map_err(failed)?;
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed).map_err(failed)?;
    let typed = typed.trim();
    if typed.len() > MAX_ANSWER_BYTES {
        return Err(Failure::Usage("the answer is too long".to_owned()));
    }
    Ok(if typed.is_empty() { default.to_owned() } else { typed.to_owned() })
}

/// Fails if one of the files exists, so that the command overwrites none.
fn refuse_existing(root: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    let existing = files.iter().map(|(name, _)| root.join(name)).filter(|path| path.symlink_metadata().is_ok());
    let found: Vec<Finding> = existing
        .map(|path| Finding::whole(path.display().to_string(), "file_exists", "the file exists; nothing was written"))
        .collect();
    if found.is_empty() { Ok(()) } else { Err(Failure::Files(found)) }
}

/// Checks the written assets by the server's rules, because answers of the user are part of their content.
fn check(root: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    let mut findings = Vec::new();
    for (name, _) in files.iter().filter(|(name, _)| name.starts_with("assets/")) {
        let located = Source::open(&root.join(name))?.value()?;
        let kind = located.value.get("kind").and_then(serde_json::Value::as_str).and_then(AssetKind::parse);
        findings.extend(kind.map(|kind| content_problems(kind, &located, "/content")).into_iter().flatten());
    }
    if findings.is_empty() {
        return Ok(());
    }
    eprint("the files are written; correct the following before you apply them");
    Err(Failure::Files(findings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_the_name_from_the_directory() {
        for (directory, expected) in [
            ("/no/such/Help Desk_2", "help-desk-2"),
            ("/no/such/-x-", "x"),
            ("/no/such/äöü", "assistant"),
            ("/", "assistant"),
        ] {
            assert_eq!(default_name(Path::new(directory)), expected, "{directory}");
        }
    }
}
