//! Running a workload: its inputs, the wait for its end, and its answer.

mod input;

use crate::{
    failure::Failure,
    output::{self, Output, is_watched, say, tell},
    server::{
        Server,
        events::{Answered, Event, Events, Heard},
        text, word,
    },
    session::Session,
    text::{plain, plain_lines},
};
use clap::{Args, builder::PossibleValuesParser};
use fairway_domain::{execution::Status, release::lane::Lane};
use input::Given;
use serde_json::{Value, json};
use signal_hook::{consts::SIGINT, iterator::Signals};
use std::{
    path::PathBuf,
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Between a stream that was cut and the next.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a stream may tell nothing before the run itself is looked at.
const SILENCE: Duration = Duration::from_secs(3);
/// How often a stream is taken up again after its run has ended.
const TRIES: u32 = 5;
/// What a run that goes on ends the command with (contract: command line).
const STILL_RUNNING: i32 = 5;

/// What to run.
#[derive(Args)]
#[command(
    after_help = "A value is read as the workload's form says: a number, true or false, a text. `name:=JSON` gives any \
    value, and `name=@FILE` the text of a file. Ctrl-C leaves the run alone and says its id.\n\nExamples:\n  \
    fairway run ticket-classifier --env dev --input ticket='I was charged twice'\n  \
    fairway run ticket-classifier --env dev --input ticket=@letter.txt --wait 10m --stream\n  \
    fairway run ticket-classifier --env dev --inputs inputs.yaml --output json"
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
    /// A JSON or YAML file with all inputs; those given one by one count more
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// The lane to run on; else the one that serves the caller
    #[arg(long, value_parser = PossibleValuesParser::new(Lane::ALL.map(Lane::as_str)))]
    lane: Option<String>,
    /// Leave at once, and print the id of the run
    #[arg(long, conflicts_with_all = ["wait", "stream"])]
    no_wait: bool,
    #[command(flatten)]
    patience: Patience,
}

/// How long to wait, and what to show meanwhile.
#[derive(Args)]
pub(crate) struct Patience {
    /// How long to wait for the end, such as 90s, 10m or 1h; the run goes on in any case
    #[arg(long, value_name = "TIME", default_value = "600s", value_parser = duration)]
    wait: Duration,
    /// Write the answer as it is made
    #[arg(long)]
    stream: bool,
}

pub(crate) fn run(arguments: &Arguments, session: &Session) -> Result<(), Failure> {
    let (output, server) = session.open()?;
    let given = Given::read(&arguments.input, arguments.inputs.as_deref())?;
    let inputs = given.typed(|| server.find(&["workloads", "by-slug", &arguments.slug], &[]))?;
    let mut body = json!({ "environment": arguments.env, "inputs": inputs });
    if let (Some(lane), Some(members)) = (&arguments.lane, body.as_object_mut()) {
        members.insert("lane".to_owned(), json!(lane));
    }
    let path = ["workloads", "by-slug", &arguments.slug, "execute"];
    if arguments.no_wait {
        let queued = server.post_in_line(&path, &body)?;
        return if output.is_for_people() { say(text(&queued, "execution_id")?) } else { output.one(&queued) };
    }
    let wait = Wait::begin(&arguments.patience)?;
    let key = uuid::Uuid::new_v4().to_string();
    let ask = || Begun::of(server.post_for_events(&path, &key, &body, wait.left())?);
    // Under the same key, the same run is found again: an answer that was lost, or cut before it named the run.
    let begun = match ask() {
        Ok(None) | Err(Failure::Unreachable { .. }) => ask()?,
        begun => begun?,
    };
    let begun = begun.ok_or_else(|| Failure::Unfit("the answer was cut off before the run had an id".to_owned()))?;
    wait.follow(&server, output, begun)
}

/// Waits for a run that was begun before.
pub(crate) fn wait_for(server: &Server, output: Output, run: &str, patience: &Patience) -> Result<(), Failure> {
    // Whether it is there at all, in front of everything else.
    server.run(run, None)?;
    let begun = Begun { run: run.to_owned(), token: None, first: None, events: None };
    Wait::begin(patience)?.follow(server, output, begun)
}

/// A run that is followed, and what came of it with the answer that began it.
struct Begun {
    run: String,
    /// What an anonymous run is read by.
    token: Option<String>,
    /// The event that named the run, and those that follow it.
    first: Option<Event>,
    events: Option<Events>,
}

impl Begun {
    /// None where the answer was cut before it named the run.
    fn of(answered: Answered) -> Result<Option<Self>, Failure> {
        match answered {
            Answered::Events(mut events, token) => {
                let Some(first) = events.next().transpose()? else { return Ok(None) };
                let run = text(&first.data, "execution_id")?.to_owned();
                Ok(Some(Self { run, token, first: Some(first), events: Some(events) }))
            }
            Answered::Value(answer) => {
                let run = text(&answer, "execution_id")?.to_owned();
                let token = answer.get("result_token").and_then(Value::as_str).map(str::to_owned);
                Ok(Some(Self { run, token, first: None, events: None }))
            }
            Answered::Nothing => Err(Failure::Unfit("the server began no run".to_owned())),
        }
    }
}

/// A wait under way.
struct Wait {
    until: Instant,
    streams: bool,
    /// The run, once it is known: what Ctrl-C says.
    run: Arc<Mutex<Option<String>>>,
}

impl Wait {
    fn begin(patience: &Patience) -> Result<Self, Failure> {
        let run = Arc::new(Mutex::new(None));
        leave_on_interrupt(Arc::clone(&run))?;
        Ok(Self { until: Instant::now() + patience.wait, streams: patience.stream, run })
    }

    /// How long is left; never nothing, as that would be no limit.
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).max(Duration::from_millis(100))
    }

    /// Follows the run to its end. A stream that is cut is taken up again where it was, also after the end of the run: what
    /// was written of an answer is all of it, or the whole answer is written anew.
    fn follow(&self, server: &Server, output: Output, begun: Begun) -> Result<(), Failure> {
        let Begun { run, token, first, mut events } = begun;
        let token = token.as_deref();
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.clone());
        let mut seen = Seen { streams: self.streams && output.is_for_people(), ..Seen::default() };
        first.iter().try_for_each(|event| seen.note(event))?;
        let mut tries = TRIES;
        loop {
            if let Some(events) = events.take() {
                self.listen(server, (&run, token), events, &mut seen)?;
            }
            let is_over = Instant::now() >= self.until;
            match server.run(&run, token) {
                Ok(found) if has_ended(&found) => {
                    if !seen.is_cut() || tries == 0 {
                        return seen.show(output, &found);
                    }
                    tries -= 1;
                }
                Ok(found) if status(&found) == Some(Status::AwaitingReview) => {
                    tell("the answer waits for a review");
                    return Err(Failure::StillRunning { execution_id: run });
                }
                Ok(_) if is_over => return Err(Failure::StillRunning { execution_id: run }),
                Err(failure @ Failure::Unreachable { .. }) if is_over => return Err(failure),
                Ok(_) | Err(Failure::Unreachable { .. }) => {}
                Err(failure) => return Err(failure),
            }
            thread::sleep(PAUSE.min(self.left()));
            events = match server.follow(&run, seen.last.as_deref(), token, self.left()) {
                Ok(Answered::Events(events, _)) => Some(events),
                Ok(Answered::Nothing) => {
                    seen.ended = true;
                    None
                }
                Ok(Answered::Value(_)) | Err(Failure::Unreachable { .. }) => None,
                Err(failure) => return Err(failure),
            };
        }
    }

    /// Notes events until no more come, or none will: while an answer waits for a review its stream stays open and tells
    /// nothing, for days perhaps.
    fn listen(
        &self,
        server: &Server,
        (run, token): (&str, Option<&str>),
        events: Events,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let events = events.listened().map_err(|cause| Failure::Io { path: PathBuf::from("threads"), cause })?;
        loop {
            match events.within(SILENCE.min(self.left()))? {
                Heard::Event(event) => seen.note(&event)?,
                Heard::End => return Ok(()),
                Heard::Silence if Instant::now() >= self.until => return Ok(()),
                Heard::Silence => match server.run(run, token) {
                    Ok(found) if has_ended(&found) || status(&found) == Some(Status::AwaitingReview) => return Ok(()),
                    // It goes on, or cannot be looked at just now.
                    Ok(_) | Err(Failure::Unreachable { .. }) => {}
                    Err(failure) => return Err(failure),
                },
            }
        }
    }
}

/// Ctrl-C ends the wait and leaves the run alone.
fn leave_on_interrupt(run: Arc<Mutex<Option<String>>>) -> Result<(), Failure> {
    let failed = |cause| Failure::Io { path: PathBuf::from("signals"), cause };
    let mut signals = Signals::new([SIGINT]).map_err(failed)?;
    let wait = move || {
        if signals.forever().next().is_some() {
            let run = run.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match run {
                Some(execution_id) => tell(&format!("fairway: {}", Failure::StillRunning { execution_id })),
                None => {
                    tell("fairway: left before the server said which run it is; `fairway executions list` shows it")
                }
            }
            process::exit(STILL_RUNNING);
        }
    };
    thread::Builder::new().spawn(wait).map_err(failed)?;
    Ok(())
}

/// What was seen of a run.
#[derive(Default)]
struct Seen {
    /// Whether the answer is written as it is made.
    streams: bool,
    /// The number of the last event.
    last: Option<String>,
    /// Whether a part of the answer was written already.
    wrote: bool,
    /// Whether the last event of all was seen.
    ended: bool,
}

impl Seen {
    fn note(&mut self, event: &Event) -> Result<(), Failure> {
        if event.id.is_some() {
            self.last.clone_from(&event.id);
        }
        let word = |name: &str| word(&event.data, name);
        match event.name.as_str() {
            "output.delta" if self.streams => {
                output::write(&plain_lines(word("delta")))?;
                self.wrote = true;
            }
            "execution.started" => tell(&format!("run {} started", plain(word("execution_id")))),
            "step.started" if is_watched() || self.streams => tell(&format!("step {} ...", plain(word("step_id")))),
            "step.completed" => tell(&format!("step {} done", plain(word("step_id")))),
            // What the end says is told when the run itself is read.
            "execution.completed" | "execution.failed" => self.ended = true,
            // Kinds that came later mean nothing here.
            _ => {}
        }
        Ok(())
    }

    /// Whether a part of an answer was written that need not be all of it.
    const fn is_cut(&self) -> bool {
        self.wrote && !self.ended
    }

    fn show(&self, output: Output, run: &Value) -> Result<(), Failure> {
        let answer = run.pointer("/queued_result/result").unwrap_or(&Value::Null);
        if !output.is_for_people() {
            output.one(run)?;
        } else if self.is_cut() {
            say("")?;
            tell("the stream was cut and could not be taken up again; the whole answer is this one");
            output.value(answer)?;
        } else if self.wrote {
            say("")?;
        } else if !answer.is_null() {
            output.value(answer)?;
        }
        if status(run) == Some(Status::Completed) {
            return Ok(());
        }
        let word = |pointer: &str| run.pointer(pointer).and_then(Value::as_str).map(plain);
        let ended = word("/outcome").or_else(|| word("/status")).unwrap_or_default();
        let code = word("/error/code").or_else(|| word("/reason_code"));
        let code = code.unwrap_or_else(|| "no reason given".to_owned());
        let message = word("/error/message").map(|message| format!(": {message}")).unwrap_or_default();
        let id = plain(text(run, "execution_id")?);
        Err(Failure::Unfit(format!("run {id} ended with {ended}: {code}{message}")))
    }
}

fn status(run: &Value) -> Option<Status> {
    Status::parse(word(run, "status"))
}

/// Whether nothing more comes of it. A run whose outcome nobody knows may still be settled, by a person alone.
fn has_ended(run: &Value) -> bool {
    status(run).is_some_and(|status| status.is_final() || status == Status::Unknown)
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
