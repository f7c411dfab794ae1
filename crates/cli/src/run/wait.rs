//! The wait for the end of a run: it knows from the beginning which run it waits for, and outlives connections and servers.

use super::Patience;
use crate::{
    failure::Failure,
    output::{self, Output, is_watched, say, tell},
    server::{
        Server,
        events::{Answered, Event, Events, Heard, Stream},
        text, word,
    },
    text::{plain, plain_lines},
};
use fairway_domain::execution::Status;
use serde_json::Value;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    path::PathBuf,
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How long is waited where nobody says it.
const UNSAID: Duration = Duration::from_secs(600);
/// Between a stream that was cut and the next.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a stream may tell nothing before the run itself is looked at.
const SILENCE: Duration = Duration::from_secs(3);
/// How often a stream is taken up again after its run has ended; once where a stream was there and had nothing to tell.
const TRIES: u32 = 5;
/// How long a read may go on over the end of the wait: less would find nobody where somebody is slow.
const REST: Duration = Duration::from_secs(2);
/// What a run that goes on ends the command with (contract: command line).
const STILL_RUNNING: i32 = 5;

/// A run that is followed, and what came of it with the answer that began it.
pub(super) struct Begun {
    pub(super) run: String,
    /// What an anonymous run is read by.
    token: Option<String>,
    events: Option<Events>,
    /// Whether it is certain that it is there.
    is_known: bool,
}

impl Begun {
    /// A run that was begun by somebody else, or long ago.
    pub(super) fn before(run: &str) -> Self {
        Self { run: run.to_owned(), token: None, events: None, is_known: false }
    }

    /// What the answer to an execute says. It names the run in any case, also one that waits in line.
    pub(super) fn of(answered: Answered) -> Result<Self, Failure> {
        match answered {
            Answered::Events(Stream { events, run: Some(run), token }) => {
                Ok(Self { run, token, events: Some(events), is_known: true })
            }
            Answered::Value(answer) => {
                let run = text(&answer, "execution_id")?.to_owned();
                let token = answer.get("result_token").and_then(Value::as_str).map(str::to_owned);
                Ok(Self { run, token, events: None, is_known: true })
            }
            Answered::Events(Stream { run: None, .. }) | Answered::Nothing => {
                Err(Failure::Unfit("the server does not say which run it began".to_owned()))
            }
        }
    }
}

/// A wait under way.
pub(super) struct Wait {
    until: Instant,
    streams: bool,
    /// The run, once it is known: what Ctrl-C says.
    run: Arc<Mutex<Option<String>>>,
}

/// What a look at a run came to.
enum Look {
    /// It is over.
    Ended(Box<Value>),
    /// It goes on when a person has looked at it.
    Reviewed,
    /// It goes on.
    GoesOn,
    /// Whether it goes on cannot be seen just now.
    Unseen(Failure),
}

impl Wait {
    pub(super) fn of(patience: &Patience) -> Self {
        Self { until: Instant::now() + patience.wait.unwrap_or(UNSAID), streams: patience.stream, run: Arc::default() }
    }

    /// The same, which Ctrl-C ends; the run is left alone.
    pub(super) fn with_interrupts(self) -> Result<Self, Failure> {
        leave_on_interrupt(Arc::clone(&self.run))?;
        Ok(self)
    }

    /// Keeps which run is waited for, before anything is told of it.
    pub(super) fn note(&self, run: &str) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.to_owned());
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// How long is left; never nothing, as that would be no limit.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).max(Duration::from_millis(100))
    }

    /// How long one read may take.
    fn patience(&self) -> Duration {
        self.left() + REST
    }

    /// Follows the run to its end. Whoever leaves before that is told how to come back.
    pub(super) fn follow(&self, server: &Server, output: Output, begun: Begun) -> Result<(), Failure> {
        let Begun { run, token, events, is_known } = begun;
        let streams = self.streams && output.is_for_people();
        let mut seen = Seen { streams, known: is_known, ..Seen::default() };
        let run = Followed { server, run: &run, token: token.as_deref() };
        let ended = self.to_the_end(&run, output, events, &mut seen);
        let is_refused = matches!(&ended, Err(Failure::Refused(_)));
        if matches!(&ended, Err(Failure::Unreachable { .. })) || (is_refused && seen.known) {
            let run = plain(run.run);
            tell(&format!("run {run} may well go on; `fairway executions wait {run}` takes up the wait"));
        }
        ended
    }

    /// A stream that is cut is taken up again where it was, also after the end of the run: what was written of an answer is
    /// all of it, or the whole answer is written anew. What is told does not depend on whether a look at the run or the last
    /// event came first.
    fn to_the_end(
        &self,
        run: &Followed<'_>,
        output: Output,
        mut events: Option<Events>,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let mut tries = TRIES;
        loop {
            if let Some(events) = events.take() {
                match self.listen(run, events, seen)? {
                    Listened::ToItsEnd => {}
                    Listened::InVain => tries = tries.min(1),
                }
            }
            match run.look(seen, self.patience())? {
                Look::Ended(found) => {
                    if !seen.misses() || tries == 0 {
                        return seen.show(output, &found);
                    }
                    tries -= 1;
                }
                Look::Reviewed => {
                    tell("the answer waits for a review");
                    return Err(run.goes_on());
                }
                Look::GoesOn if self.is_over() => return Err(run.goes_on()),
                Look::Unseen(failure) if self.is_over() => return Err(failure),
                Look::GoesOn | Look::Unseen(_) => {}
            }
            thread::sleep(PAUSE.min(self.left()));
            events = match run.server.follow(run.run, seen.last.as_deref(), run.token, self.patience()) {
                Ok(Answered::Events(stream)) => Some(stream.events),
                Ok(Answered::Nothing) => {
                    seen.ended = true;
                    None
                }
                Ok(Answered::Value(_)) => None,
                Err(failure) => {
                    failure.passing(run.server.address())?;
                    None
                }
            };
        }
    }

    /// Notes events until no more come, or none will: where an answer awaits a review, an older server keeps its stream open
    /// and tells nothing.
    ///
    /// Where the run is over and the last event was not heard, the rest is on its way: it is heard for another silence, also
    /// when the time is over.
    fn listen(&self, run: &Followed<'_>, events: Events, seen: &mut Seen) -> Result<Listened, Failure> {
        let events = events.listened().map_err(|cause| Failure::Io { path: PathBuf::from("threads"), cause })?;
        seen.listens = true;
        loop {
            let silence = if seen.over { SILENCE } else { SILENCE.min(self.left()) };
            match events.within(silence)? {
                Heard::Event(event) => {
                    seen.note(&event)?;
                    if self.is_over() && !seen.over && !seen.ended {
                        return Ok(Listened::ToItsEnd);
                    }
                }
                Heard::End => return Ok(Listened::ToItsEnd),
                Heard::Silence if seen.over => return Ok(Listened::InVain),
                Heard::Silence if self.is_over() => return Ok(Listened::ToItsEnd),
                Heard::Silence => match run.look(seen, self.patience())? {
                    Look::Reviewed => return Ok(Listened::ToItsEnd),
                    Look::GoesOn if self.is_over() => return Err(run.goes_on()),
                    Look::Unseen(failure) if self.is_over() => return Err(failure),
                    Look::Ended(_) | Look::GoesOn | Look::Unseen(_) => {}
                },
            }
        }
    }
}

/// How the listening to a stream ended.
enum Listened {
    /// The stream ended or was cut, or nobody need listen any more.
    ToItsEnd,
    /// The run is over, and the stream, still open, does not say so.
    InVain,
}

/// A run, and where and how it is read.
struct Followed<'f> {
    server: &'f Server,
    run: &'f str,
    token: Option<&'f str>,
}

impl Followed<'_> {
    fn look(&self, seen: &mut Seen, patience: Duration) -> Result<Look, Failure> {
        let found = match self.server.run(self.run, self.token, patience) {
            Ok(found) => found,
            Err(failure) => {
                let unseen = failure.passing(self.server.address())?;
                seen.lose(self.run);
                return Ok(Look::Unseen(unseen));
            }
        };
        seen.find(&found);
        Ok(match status(&found) {
            // What nobody knows may still be settled, by a person alone.
            Some(status) if status.is_final() || status == Status::Unknown => {
                seen.over = true;
                Look::Ended(Box::new(found))
            }
            Some(Status::AwaitingReview) => Look::Reviewed,
            Some(_) | None => Look::GoesOn,
        })
    }

    fn goes_on(&self) -> Failure {
        Failure::StillRunning { execution_id: self.run.to_owned() }
    }
}

/// Ctrl-C ends the wait and leaves the run alone; so does the end of a pipeline's job.
fn leave_on_interrupt(run: Arc<Mutex<Option<String>>>) -> Result<(), Failure> {
    let failed = |cause| Failure::Io { path: PathBuf::from("signals"), cause };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
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
    /// Whether the run is there: it was begun for whoever waits, or was seen.
    known: bool,
    /// Whether its events were listened to.
    listens: bool,
    /// Whether a look at the run found that it is over.
    over: bool,
    /// The number of the last event.
    last: Option<String>,
    /// Whether a part of the answer was written already.
    wrote: bool,
    /// Whether the last event of all was seen.
    ended: bool,
    /// Whether it was told that the run waits in line.
    waits: bool,
    /// Whether it was told that the server does not answer.
    lost: bool,
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
            "step.completed" => {
                let step = plain(word("step_id"));
                match word("error_code") {
                    "" => tell(&format!("step {step} done")),
                    code => tell(&format!("step {step} failed: {}", plain(code))),
                }
            }
            // What the end says is told when the run itself is read.
            "execution.completed" | "execution.failed" => self.ended = true,
            // Kinds that came later mean nothing here.
            _ => {}
        }
        Ok(())
    }

    /// What a look at the run tells whoever waits: once, as waiting in line can take long.
    fn find(&mut self, run: &Value) {
        self.known = true;
        if std::mem::take(&mut self.lost) {
            tell("the server answers again");
        }
        if status(run) == Some(Status::Queued) && !std::mem::replace(&mut self.waits, true) {
            tell("the run waits in line");
        }
    }

    /// Tells once that the server went away.
    fn lose(&mut self, run: &str) {
        if !std::mem::replace(&mut self.lost, true) {
            tell(&format!("the server does not answer; run {} may well go on: looking again", plain(run)));
        }
    }

    /// Whether there are events that were not heard and would be told.
    const fn misses(&self) -> bool {
        (self.streams || self.listens) && !self.ended
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
