//! `cargo xtask demo`: the demo, applied to a running server by the command line, as two people would do it.

use std::io::{Read as _, Seek as _};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::place::{Place, Profile};
use crate::signals::Signals;
use crate::{children, up};

/// Who makes things and submits them.
const AUTHOR: &str = "user:demo-author";
/// Who approves and activates what the other made.
const APPROVER: &str = "user:demo-approver";

#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's address, such as http://127.0.0.1:8080; default: where FAIRWAY_BIND points
    #[arg(long)]
    server: Option<String>,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let url = match &arguments.server {
        Some(url) => url.clone(),
        None => format!("http://{}", up::address()?),
    };
    let built = children::run(place.build_programs(Profile::Dev), &signals)?;
    if !built.success() {
        return Ok(children::exit_code(built));
    }
    apply(place, Profile::Dev, &url, |command| children::run(command, &signals))?;
    Ok(ExitCode::SUCCESS)
}

/// Applies the demo through the server's API; doing it twice changes nothing. The author keeps the server in step with the
/// directory, which makes drafts and nothing more; the approver looks at those and lets them serve.
pub(crate) fn apply(
    place: &Place,
    profile: Profile,
    url: &str,
    mut run: impl FnMut(Command) -> Result<ExitStatus>,
) -> Result<()> {
    let program = place.command_line(profile);
    let mut asked = |actor: &str, words: &[&str]| -> Result<Value> {
        let mut answer = tempfile::tempfile()?;
        let mut command = Command::new(&program);
        command.args(words).args(["--server", url, "--actor", actor, "--output", "json"]);
        // What somebody keeps for servers of their own is no business of this one.
        command
            .current_dir(&place.root)
            .env("FAIRWAY_CLI_CONFIG", place.root.join("demo/.profile"))
            .stdout(answer.try_clone()?);
        for variable in ["TOKEN", "PROFILE", "TENANT", "WORKSPACE"] {
            command.env_remove(format!("FAIRWAY_CLI_{variable}"));
        }
        let ended = run(command)?;
        if !ended.success() {
            bail!("`fairway {}` failed ({ended})", words.join(" "));
        }
        let mut text = String::new();
        answer.rewind()?;
        answer.read_to_string(&mut text)?;
        serde_json::from_str(&text).context("`fairway` answered something that is not JSON")
    };
    let applied = asked(AUTHOR, &["sync", "apply", "demo"])?;
    let releases = applied.get("releases").and_then(Value::as_array).context("`sync apply` lists no releases")?;
    for release in releases {
        let word = |name: &str| {
            release.get(name).and_then(Value::as_str).with_context(|| format!("a release has no `{name}`"))
        };
        let (id, state) = (word("release_id")?, word("state")?);
        if state == "draft" {
            asked(AUTHOR, &["releases", "submit", id])?;
            println!("{AUTHOR} submitted release {id}");
        }
        if matches!(state, "draft" | "review_ready") {
            asked(APPROVER, &["releases", "approve", id, "--note", "Read and approved as part of the demo."])?;
            println!("{APPROVER} approved release {id}");
        }
        if matches!(state, "draft" | "review_ready" | "approved") {
            asked(APPROVER, &["releases", "activate", id])?;
            println!("{APPROVER} activated release {id}");
        }
        tell_how_to_run(url, (word("workload")?, word("environment")?), release.get("example_inputs"));
    }
    Ok(())
}

fn tell_how_to_run(url: &str, (workload, environment): (&str, &str), inputs: Option<&Value>) {
    let body = json!({ "environment": environment, "inputs": inputs });
    println!("\nRun `{workload}` in `{environment}`:\n");
    let address = quoted(&format!("{url}/v1/workloads/by-slug/{workload}/execute"));
    println!("curl -sS {address} -H 'Content-Type: application/json' -d {}", quoted(&body.to_string()));
    println!("\nor, with the command line that lies beside the server's program:\n");
    let given = inputs.and_then(Value::as_object).into_iter().flatten();
    let given = given.map(|(name, value)| format!(" --input {}", quoted(&format!("{name}:={value}"))));
    println!("fairway run {workload} --env {environment}{} --server {}", given.collect::<String>(), quoted(url));
    println!("\nRead what stands behind the answer, with EXECUTION_ID set to its `execution_id`:\n");
    println!("curl -sS {}/v1/executions/\"$EXECUTION_ID\"/evidence-graph", quoted(url));
}

/// A text as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_one_word_of_the_shell() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        let text = "a'b \"$c\" `d` \\";
        let output = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(text))]).output().unwrap();
        assert_eq!(output.stdout, text.as_bytes());
    }
}
