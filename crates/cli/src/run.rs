//! Running a workload: its inputs, the wait for its end, and its answer.

mod ask;
mod input;
mod wait;

use crate::{
    failure::Failure,
    output::{Output, say, tell},
    server::{Server, text},
    session::Session,
    text::plain,
};
use ask::Asking;
use clap::{Args, builder::PossibleValuesParser};
use fairway_domain::release::lane::Lane;
use input::Given;
use serde_json::json;
use std::{path::PathBuf, time::Duration};
use wait::{Begun, Wait};

/// What to run.
#[derive(Args)]
#[command(
    after_help = "A value is read as the workload's form says: a number, true or false, a text. `name:=JSON` gives any \
    value, and `name=@FILE` the text of a file, `name=@-` of standard input. Ctrl-C leaves the run alone and says its id.\n\nExamples:\n  \
    fairway run ticket-classifier --env dev --input ticket='I was charged twice'\n  \
    fairway run ticket-classifier --env dev --input ticket=@letter.txt --wait 10m --stream\n  \
    fairway run ticket-classifier --env dev --inputs inputs.yaml --output json\n  \
    print-inputs | fairway run ticket-classifier --env dev --inputs -"
)]
pub(crate) struct Arguments {
    /// The workload's slug
    slug: String,
    /// The environment to run in
    #[arg(long, short, value_name = "ENVIRONMENT")]
    env: String,
    /// One input: NAME=TEXT, NAME=@FILE or NAME:=JSON
    #[arg(long, short, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// A JSON or YAML file with all inputs, `-` for standard input; those given one by one count more
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// The lane to run on; else the one that serves the caller
    #[arg(long, value_parser = PossibleValuesParser::new(Lane::ALL.map(Lane::as_str)))]
    lane: Option<String>,
    /// Leave at once, and print the id of the run
    #[arg(long, conflicts_with_all = ["wait", "stream"])]
    no_wait: bool,
    /// Ask under this key, which an earlier attempt named: the run that it began is found, and none is begun twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    patience: Patience,
}

/// How long to wait, and what to show meanwhile.
#[derive(Args)]
pub(crate) struct Patience {
    /// How long to wait for the end, such as 90s, 10m or 1h, and for a server that is away; 600s of a server that answers where it
    /// is not said. The run goes on in any case
    #[arg(long, value_name = "TIME", value_parser = duration)]
    wait: Option<Duration>,
    /// Write the answer as it is made
    #[arg(long)]
    stream: bool,
}

pub(crate) fn run(arguments: &Arguments, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    let given = Given::read(&arguments.input, arguments.inputs.as_deref())?;
    let inputs = given.typed(|| server.form(&arguments.slug))?;
    let mut body = json!({ "environment": arguments.env, "inputs": inputs });
    if let (Some(lane), Some(members)) = (&arguments.lane, body.as_object_mut()) {
        members.insert("lane".to_owned(), json!(lane));
    }
    let path = ["workloads", "by-slug", &arguments.slug, "execute"];
    let key = arguments.idempotency_key.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    if arguments.no_wait {
        let queued = Asking::under(&key, || server.post_in_line(&path, &key, &body)).once()?;
        return if output.is_for_people() { say(text(&queued, "execution_id")?) } else { output.one(&queued) };
    }
    let wait = Wait::of(&arguments.patience).with_interrupts()?;
    let asking = Asking::under(&key, || Begun::of(server.post_for_events(&path, &key, &body)?));
    let begun = match arguments.patience.wait {
        Some(_) => asking.until(&wait, server.address()),
        None => asking.twice(),
    }?;
    wait.note(&begun.run);
    tell(&format!("run {} is accepted", plain(&begun.run)));
    wait.follow(&server, output, begun)
}

/// Waits for a run that was begun before.
pub(crate) fn wait_for(server: &Server, output: Output, run: &str, patience: &Patience) -> Result<(), Failure> {
    let wait = Wait::of(patience);
    wait.note(run);
    wait.with_interrupts()?.follow(server, output, Begun::before(run))
}

/// A number with `s`, `m` or `h`; seconds without.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.get(number.len()..).unwrap_or_default()),
        None => (text, "s"),
    };
    let seconds = match unit {
        "h" => 3600,
        "m" => 60,
        _ => 1,
    };
    let number: u64 = number.parse().map_err(|_| "a time is a number with s, m or h, such as 90s".to_owned())?;
    let most = 7 * 24 * 3600;
    let whole = number.checked_mul(seconds).filter(|whole| *whole <= most);
    whole.map(Duration::from_secs).ok_or_else(|| "at most a week".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_units() {
        for (text, expected) in [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        for wrong in ["", "s", "-1s", "1d", "999999h", "1.5h", "18446744073709551615h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
