//! `fairway run`: submits a run of a workload, waits for its end, and prints the answer.

mod input;
mod refusal;
mod submit;
mod wait;

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::Failure,
    http_client::{ServerClient, required_string},
    output::{Output, eprint, print},
    terminal_text::sanitize,
};
use clap::{Args, builder::PossibleValuesParser};
use fairway_domain::release::lane::Lane;
use input::RawInputs;
use serde_json::json;
use std::{path::PathBuf, time::Duration};
use submit::Submission;
use wait::{RunWait, SubmittedRun};

/// Arguments of `run`.
#[derive(Args)]
#[command(after_help = "The workload's form determines the type of a value. `name:=JSON` passes any JSON \
    value, `name=@FILE` the text of a file, `name=@-` standard input. Ctrl-C ends the wait, prints the run's id and does not stop the run.\n\nExamples:\n  \
    fairway run ticket-classifier --env dev --input ticket='I was charged twice'\n  \
    fairway run ticket-classifier --env dev --input ticket=@letter.txt --wait 10m --stream\n  \
    fairway run ticket-classifier --env dev --inputs inputs.yaml --output json\n  \
    print-inputs | fairway run ticket-classifier --env dev --inputs -")]
pub(crate) struct Arguments {
    /// The workload's slug
    #[arg(add = dynamic_completion::workloads())]
    slug: String,
    /// The environment to run in; else the profile's
    #[arg(long, short, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
    env: Option<String>,
    /// One input: NAME=TEXT, NAME=@FILE or NAME:=JSON
    #[arg(long, short, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// A JSON or YAML file with all inputs, `-` for standard input; --input overrides it
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// The lane to run on; else the lane that serves the caller
    #[arg(long, value_parser = PossibleValuesParser::new(Lane::ALL.map(Lane::as_str)))]
    lane: Option<String>,
    /// Exit after submission, and print the run's id
    #[arg(long, conflicts_with_all = ["wait", "stream"])]
    no_wait: bool,
    /// The idempotency key of an earlier attempt: finds the run that it started, so that no second run starts
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    wait_options: WaitOptions,
}

/// Options for the wait and for the output during the wait.
#[derive(Args)]
pub(crate) struct WaitOptions {
    /// How long to wait for the run to end, such as 90s, 10m or 1h, and to retry an unreachable server; without it
    /// 600s, and no retries. The run continues in any case
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Print the answer while it is generated
    #[arg(long)]
    stream: bool,
}

pub(crate) fn run(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    let environment = context.environment(arguments.env.as_deref())?;
    let wait = RunWait::new(&arguments.wait_options);
    // With `--wait`, the requests before the submission are retried like the submission.
    let retries = arguments.wait_options.wait.map(|_| &wait);
    let (output, server) = submit::retry_preparation(retries, || context.open())?;
    let raw_inputs = RawInputs::parse(&arguments.input, arguments.inputs.as_deref())?;
    let explain = |failure| refusal::explain(&server, &arguments.slug, &environment, failure);
    let form = || submit::retry_preparation(retries, || server.workload_form(&arguments.slug));
    let inputs = raw_inputs.resolve_types(form).map_err(explain)?;
    let mut body = json!({ "environment": environment, "inputs": inputs });
    if let (Some(lane), Some(members)) = (&arguments.lane, body.as_object_mut()) {
        members.insert("lane".to_owned(), json!(lane));
    }
    let path = ["workloads", "by-slug", &arguments.slug, "execute"];
    let key = arguments.idempotency_key.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    if arguments.no_wait {
        let queued =
            Submission::with_key(&key, || server.post_queued_run(&path, &key, &body)).submit_once().map_err(explain)?;
        return if output.is_for_people() {
            print(required_string(&queued, "execution_id")?)
        } else {
            output.record(&queued)
        };
    }
    let wait = wait.with_interrupts()?;
    let submission =
        Submission::with_key(&key, || SubmittedRun::from_response(server.post_for_events(&path, &key, &body)?));
    let submitted = match arguments.wait_options.wait {
        Some(_) => submission.retry_until(&wait, server.address()),
        None => submission.submit_with_one_retry(),
    }
    .map_err(explain)?;
    wait.set_run(&submitted.run);
    eprint(&format!("run {} is accepted", sanitize(&submitted.run)));
    wait.follow(&server, output, submitted)
}

/// Waits for an existing run.
pub(crate) fn wait_for_run(
    server: &ServerClient,
    output: Output,
    run: &str,
    options: &WaitOptions,
) -> Result<(), Failure> {
    let wait = RunWait::new(options);
    wait.set_run(run);
    wait.with_interrupts()?.follow(server, output, SubmittedRun::existing(run))
}

/// Parses a number with the unit `s`, `m` or `h`; without a unit, seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.get(number.len()..).unwrap_or_default()),
        None => (text, "s"),
    };
    let seconds = match unit {
        "h" => 3600,
        "m" => 60,
        _ => 1,
    };
    let number: u64 = number.parse().map_err(|_| "a duration is a number with s, m or h, such as 90s".to_owned())?;
    let limit = 7 * 24 * 3600;
    let total = number.checked_mul(seconds).filter(|total| *total <= limit);
    total.map(Duration::from_secs).ok_or_else(|| "the maximum is one week".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_parses_numbers_with_units() {
        for (text, expected) in [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600), ("0s", 0)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        for invalid in ["", "s", "-1s", "1d", "999999h", "1.5h", "18446744073709551615h"] {
            assert!(parse_duration(invalid).is_err(), "{invalid}");
        }
    }
}
