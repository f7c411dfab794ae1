//! Running a workload: its inputs, the wait for its end, and its answer.

mod input;

use crate::{
    failure::Failure,
    output::{Output, is_watched, say, tell},
    server::{
        Server,
        events::{Answered, Event, Events},
        text,
    },
    session::Session,
    text::plain_lines,
};
use clap::Args;
use input::Given;
use serde_json::{Value, json};
use signal_hook::{consts::SIGINT, iterator::Signals};
use std::{
    io::{self, Write as _},
    path::PathBuf,
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Between a stream that was cut and the next.
const PAUSE: Duration = Duration::from_millis(500);
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
    #[arg(long, value_parser = ["restricted", "guided", "standard"])]
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
    let ask = || server.post_for_events(&path, &key, &body, wait.left());
    // Under the same key, the same run is found again.
    let answered = match ask() {
        Err(Failure::Unreachable { .. }) => ask()?,
        answered => answered?,
    };
    match answered {
        Answered::Events(events, token) => wait.follow(&server, output, None, (Some(events), token)),
        Answered::Value(answer) => {
            let run = text(&answer, "execution_id")?.to_owned();
            let token = answer.get("result_token").and_then(Value::as_str).map(str::to_owned);
            wait.follow(&server, output, Some(run), (None, token))
        }
        Answered::Nothing => Err(Failure::Unfit("the server began no run".to_owned())),
    }
}

/// Waits for a run that was begun before.
pub(crate) fn wait_for(server: &Server, output: Output, run: &str, patience: &Patience) -> Result<(), Failure> {
    // Whether it is there at all, in front of everything else.
    server.run(run, None)?;
    Wait::begin(patience)?.follow(server, output, Some(run.to_owned()), (None, None))
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

    /// Follows the run to its end. A stream that is cut is taken up again where it was.
    fn follow(
        &self,
        server: &Server,
        output: Output,
        mut run: Option<String>,
        (mut events, token): (Option<Events>, Option<String>),
    ) -> Result<(), Failure> {
        let mut seen = Seen::default();
        loop {
            for event in events.take().into_iter().flatten() {
                if run.is_none() {
                    run = event.data.get("execution_id").and_then(Value::as_str).map(str::to_owned);
                }
                self.know(run.as_deref());
                seen.note(&event, self.streams && output.is_for_people())?;
            }
            self.know(run.as_deref());
            let Some(id) = &run else {
                return Err(Failure::Unfit("the answer was cut off before the run had an id".to_owned()));
            };
            let is_over = Instant::now() >= self.until;
            match server.run(id, token.as_deref()) {
                Ok(found) if has_ended(&found) => return seen.show(output, &found),
                Ok(found) if status(&found) == "awaiting_review" => {
                    tell("the answer waits for a review");
                    return Err(Failure::StillRunning { execution_id: id.clone() });
                }
                Err(failure @ Failure::Unreachable { .. }) if is_over => return Err(failure),
                Ok(_) | Err(Failure::Unreachable { .. }) if is_over => {
                    return Err(Failure::StillRunning { execution_id: id.clone() });
                }
                Ok(_) | Err(Failure::Unreachable { .. }) => {}
                Err(failure) => return Err(failure),
            }
            thread::sleep(PAUSE.min(self.left()));
            events = match server.follow(id, seen.last.as_deref(), token.as_deref(), self.left()) {
                Ok(Answered::Events(events, _)) => Some(events),
                Ok(Answered::Value(_) | Answered::Nothing) | Err(Failure::Unreachable { .. }) => None,
                Err(failure) => return Err(failure),
            };
        }
    }

    fn know(&self, run: Option<&str>) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = run.map(str::to_owned);
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
    /// The number of the last event.
    last: Option<String>,
    /// Whether a part of the answer was written already.
    wrote: bool,
}

impl Seen {
    fn note(&mut self, event: &Event, streams: bool) -> Result<(), Failure> {
        if event.id.is_some() {
            self.last.clone_from(&event.id);
        }
        let word = |name: &str| event.data.get(name).and_then(Value::as_str).unwrap_or_default();
        match event.name.as_str() {
            "output.delta" if streams => {
                let mut out = io::stdout();
                let written = write!(out, "{}", plain_lines(word("delta"))).and_then(|()| out.flush());
                written.map_err(|_| Failure::Unheard)?;
                self.wrote = true;
            }
            "execution.started" => tell(&format!("run {} started", word("execution_id"))),
            "step.started" if is_watched() || streams => tell(&format!("step {} ...", word("step_id"))),
            "step.completed" => tell(&format!("step {} done", word("step_id"))),
            // Ends are told when the run itself is read, and kinds that came later mean nothing here.
            _ => {}
        }
        Ok(())
    }

    fn show(&self, output: Output, run: &Value) -> Result<(), Failure> {
        let answer = run.pointer("/queued_result/result").unwrap_or(&Value::Null);
        if !output.is_for_people() {
            output.one(run)?;
        } else if self.wrote {
            say("")?;
        } else if !answer.is_null() {
            output.value(answer)?;
        }
        if status(run) == "completed" {
            return Ok(());
        }
        let word = |pointer: &str| run.pointer(pointer).and_then(Value::as_str);
        let ended = word("/outcome").unwrap_or_else(|| status(run));
        let code = word("/error/code").or_else(|| word("/reason_code")).unwrap_or("no reason given");
        let message = word("/error/message").map(|message| format!(": {message}")).unwrap_or_default();
        let id = text(run, "execution_id")?;
        Err(Failure::Unfit(format!("run {id} ended with {ended}: {code}{message}")))
    }
}

fn status(run: &Value) -> &str {
    run.get("status").and_then(Value::as_str).unwrap_or_default()
}

fn has_ended(run: &Value) -> bool {
    matches!(status(run), "completed" | "failed" | "denied" | "cancelled" | "unknown")
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
