//! Waits for the end of a run. The wait has the run's id from the start, so it continues after lost connections and
//! server restarts.

use super::WaitOptions;
use crate::{
    failure::Failure,
    http_client::{
        ServerClient,
        events::{Event, EventResponse, EventStream, Events, StreamItem},
        required_string, string_or_empty,
    },
    output::{self, Output, eprint, is_stderr_terminal, is_stdout_terminal, print},
    terminal_text::{sanitize, sanitize_lines},
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

/// Default wait when the command line sets none.
const DEFAULT_WAIT: Duration = Duration::from_secs(600);
/// Pause before a dropped stream is resumed.
const RESUME_PAUSE: Duration = Duration::from_millis(500);
/// Time without events on a stream after which the client polls the run.
const MAX_SILENCE: Duration = Duration::from_secs(3);
/// Maximum number of times that a stream is resumed after the end of its run. A stream that is open but silent is
/// resumed only once.
const MAX_RESUMES: u32 = 5;
/// Extra time for a read at the end of the wait, so that a slow server is not reported as unreachable.
const READ_GRACE: Duration = Duration::from_secs(2);
/// Exit code when the run continues after the end of the command. Scripts rely on the code.
const STILL_RUNNING_EXIT_CODE: i32 = 5;

/// The response to a submission: the run, and its events if any.
pub(super) struct SubmittedRun {
    pub(super) run: String,
    /// The result token of an anonymous run.
    token: Option<String>,
    events: Option<Events>,
    /// Whether the run is known to exist.
    is_known: bool,
}

impl SubmittedRun {
    /// A run that an earlier command submitted.
    pub(super) fn existing(run: &str) -> Self {
        Self { run: run.to_owned(), token: None, events: None, is_known: false }
    }

    /// Reads the response to `execute`, which contains the run's id even when the run is queued.
    pub(super) fn from_response(response: EventResponse) -> Result<Self, Failure> {
        match response {
            EventResponse::Events(EventStream { events, run: Some(run), token }) => {
                Ok(Self { run, token, events: Some(events), is_known: true })
            }
            EventResponse::Value(body) => {
                let run = required_string(&body, "execution_id")?.to_owned();
                let token = body.get("result_token").and_then(Value::as_str).map(str::to_owned);
                Ok(Self { run, token, events: None, is_known: true })
            }
            EventResponse::Events(EventStream { run: None, .. }) | EventResponse::Nothing => {
                Err(Failure::Failed("the server's response does not name the run".to_owned()))
            }
        }
    }
}

/// The state of the wait for a run.
pub(super) struct RunWait {
    deadline: Instant,
    streams: bool,
    /// The run's id once known, which the signal handler prints.
    run: Arc<Mutex<Option<String>>>,
}

/// The result of polling a run.
enum RunPoll {
    /// The run has ended.
    Ended(Box<Value>),
    /// The run awaits review.
    AwaitingReview,
    /// The run continues.
    Running,
    /// The server did not respond, so the run's state is unknown.
    Unavailable(Failure),
}

impl RunWait {
    pub(super) fn new(options: &WaitOptions) -> Self {
        Self {
            deadline: Instant::now() + options.wait.unwrap_or(DEFAULT_WAIT),
            streams: options.stream,
            run: Arc::default(),
        }
    }

    /// Installs a handler that ends the wait on Ctrl-C. The run continues.
    pub(super) fn with_interrupts(self) -> Result<Self, Failure> {
        exit_on_interrupt(Arc::clone(&self.run))?;
        Ok(self)
    }

    /// Stores the run's id before any output about the run.
    pub(super) fn set_run(&self, run: &str) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.to_owned());
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The remaining time; at least 100 ms, because zero would mean no limit.
    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100))
    }

    /// Timeout of one read: the remaining wait, and a grace time for a slow server.
    fn read_timeout(&self) -> Duration {
        self.remaining() + READ_GRACE
    }

    /// Follows the run to its end. On an early exit, prints how to resume the wait.
    pub(super) fn follow(&self, server: &ServerClient, output: Output, submitted: SubmittedRun) -> Result<(), Failure> {
        let SubmittedRun { run, token, events, is_known } = submitted;
        let streams = self.streams && output.is_for_people();
        let mut progress = RunProgress { streams, is_known, ..RunProgress::default() };
        let run = RunReader { server, run: &run, token: token.as_deref() };
        let result = self.follow_to_end(&run, output, events, &mut progress);
        let is_refused = matches!(&result, Err(Failure::Refused(_)));
        if matches!(&result, Err(Failure::Unreachable { .. })) || (is_refused && progress.is_known) {
            let run = sanitize(run.run);
            eprint(&format!("run {run} may still be running; `fairway executions wait {run}` resumes waiting"));
        }
        result
    }

    /// Follows the run, and resumes a lost stream after the last event. Resumes the stream even after the end of the
    /// run, so that streamed output is complete. If that fails, prints the whole answer. The output does not depend
    /// on whether a poll or the final event arrives first.
    fn follow_to_end(
        &self,
        run: &RunReader<'_>,
        output: Output,
        mut events: Option<Events>,
        progress: &mut RunProgress,
    ) -> Result<(), Failure> {
        let (mut remaining_resumes, mut ended_run) = (MAX_RESUMES, None);
        loop {
            if let Some(events) = events.take() {
                match self.read_events(run, events, progress)? {
                    StreamEnd::Closed => {}
                    StreamEnd::Stalled => remaining_resumes = remaining_resumes.min(1),
                }
            }
            let poll = run.poll(progress, self.read_timeout())?;
            // After a failed poll, the next request polls the run again and does not resume the stream. A rate limit
            // may permit only one request a minute.
            let polls_again = matches!(poll, RunPoll::Unavailable(_));
            match poll {
                RunPoll::Ended(found) => {
                    if !progress.has_missing_events() || remaining_resumes == 0 {
                        return progress.print_result(output, &found);
                    }
                    remaining_resumes -= 1;
                    ended_run = Some(found);
                }
                RunPoll::Unavailable(_) if ended_run.is_some() => {
                    return ended_run.map_or(Ok(()), |found| progress.print_result(output, &found));
                }
                RunPoll::AwaitingReview => {
                    eprint("the answer awaits review");
                    return Err(run.still_running());
                }
                RunPoll::Running if self.is_over() => return Err(run.still_running()),
                RunPoll::Unavailable(failure) if self.is_over() => return Err(failure),
                RunPoll::Running | RunPoll::Unavailable(_) => {}
            }
            thread::sleep(RESUME_PAUSE.min(self.remaining()));
            if polls_again {
                continue;
            }
            events = match run.server.follow_run_events(
                run.run,
                progress.last_event_id.as_deref(),
                run.token,
                self.read_timeout(),
            ) {
                Ok(EventResponse::Events(stream)) => Some(stream.events),
                Ok(EventResponse::Nothing) => {
                    progress.has_final_event = true;
                    None
                }
                Ok(EventResponse::Value(_)) => None,
                Err(failure) => {
                    failure.into_unreachable(run.server.address())?;
                    None
                }
            };
        }
    }

    /// Records events until the stream ends, or until a poll shows that no more events follow. The poll is needed
    /// because older servers leave the stream of a run in review open without events.
    ///
    /// If the run has ended and its final event is missing, waits for the event once more, for [`MAX_SILENCE`]. It does
    /// so even after the end of the wait.
    fn read_events(
        &self,
        run: &RunReader<'_>,
        events: Events,
        progress: &mut RunProgress,
    ) -> Result<StreamEnd, Failure> {
        let events =
            events.read_in_background().map_err(|cause| Failure::Io { path: PathBuf::from("threads"), cause })?;
        progress.has_read_events = true;
        loop {
            let timeout = if progress.is_over { MAX_SILENCE } else { MAX_SILENCE.min(self.remaining()) };
            match events.recv_timeout(timeout)? {
                StreamItem::Event(event) => {
                    progress.record_event(&event)?;
                    if self.is_over() && !progress.is_over && !progress.has_final_event {
                        return Ok(StreamEnd::Closed);
                    }
                }
                StreamItem::End => return Ok(StreamEnd::Closed),
                StreamItem::Silence if progress.is_over => return Ok(StreamEnd::Stalled),
                StreamItem::Silence if self.is_over() => return Ok(StreamEnd::Closed),
                StreamItem::Silence => match run.poll(progress, self.read_timeout())? {
                    RunPoll::AwaitingReview => return Ok(StreamEnd::Closed),
                    RunPoll::Running if self.is_over() => return Err(run.still_running()),
                    RunPoll::Unavailable(failure) if self.is_over() => return Err(failure),
                    RunPoll::Ended(_) | RunPoll::Running | RunPoll::Unavailable(_) => {}
                },
            }
        }
    }
}

/// The reason why reading a stream ended.
enum StreamEnd {
    /// The stream ended, the connection was lost, or further events are not needed.
    Closed,
    /// The run has ended, but the open stream sent no final event.
    Stalled,
}

/// Reads a run from a server, with the result token of an anonymous run.
struct RunReader<'f> {
    server: &'f ServerClient,
    run: &'f str,
    token: Option<&'f str>,
}

impl RunReader<'_> {
    fn poll(&self, progress: &mut RunProgress, timeout: Duration) -> Result<RunPoll, Failure> {
        let found = match self.server.get_run(self.run, self.token, timeout) {
            Ok(found) => found,
            Err(failure) => {
                let unreachable = failure.into_unreachable(self.server.address())?;
                progress.report_outage(self.run);
                return Ok(RunPoll::Unavailable(unreachable));
            }
        };
        progress.record_poll(&found);
        Ok(match status(&found) {
            // Ends the wait for a run with the status `unknown`, because only an operator resolves such a run.
            Some(status) if status.is_final() || status == Status::Unknown => {
                progress.is_over = true;
                RunPoll::Ended(Box::new(found))
            }
            Some(Status::AwaitingReview) => RunPoll::AwaitingReview,
            Some(_) | None => RunPoll::Running,
        })
    }

    fn still_running(&self) -> Failure {
        Failure::StillRunning { execution_id: self.run.to_owned() }
    }
}

/// Exits on SIGINT, and on SIGTERM, which CI systems send to cancel a job. The run continues.
fn exit_on_interrupt(run: Arc<Mutex<Option<String>>>) -> Result<(), Failure> {
    let failed = |cause| Failure::Io { path: PathBuf::from("signals"), cause };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let wait = move || {
        if signals.forever().next().is_some() {
            let run = run.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match run {
                Some(execution_id) => eprint(&format!("fairway: {}", Failure::StillRunning { execution_id })),
                None => eprint("fairway: stopped before the server named the run; `fairway executions list` shows it"),
            }
            process::exit(STILL_RUNNING_EXIT_CODE);
        }
    };
    thread::Builder::new().spawn(wait).map_err(failed)?;
    Ok(())
}

/// The client's knowledge about a run, from events and polls.
#[derive(Default)]
struct RunProgress {
    /// Whether the answer is printed while it is generated.
    streams: bool,
    /// Whether the run exists: this command submitted it, or a poll found it.
    is_known: bool,
    /// Whether at least one event of the run was read.
    has_read_events: bool,
    /// Whether a poll found that the run is over.
    is_over: bool,
    /// The id of the last event.
    last_event_id: Option<String>,
    /// Whether at least one part of the answer was printed.
    has_output: bool,
    /// The concatenated printed parts of the answer.
    streamed: String,
    /// Whether the final event was received.
    has_final_event: bool,
    /// Whether the queued state was reported.
    reported_queued: bool,
    /// Whether an outage was reported.
    reported_outage: bool,
}

impl RunProgress {
    fn record_event(&mut self, event: &Event) -> Result<(), Failure> {
        if event.id.is_some() {
            self.last_event_id.clone_from(&event.id);
        }
        let member = |name: &str| string_or_empty(&event.data, name);
        match event.name.as_str() {
            "output.delta" if self.streams => {
                self.has_output = true;
                self.streamed.push_str(member("delta"));
                let text = sanitize_lines(member("delta"));
                // If standard output is a file or a pipe, the parts are printed on standard error. Standard output
                // then receives the same single answer as without streaming.
                if is_stdout_terminal() { output::write(&text)? } else { output::ewrite(&text) }
            }
            "execution.started" => eprint(&format!("run {} started", sanitize(member("execution_id")))),
            "step.started" if is_stderr_terminal() || self.streams => {
                eprint(&format!("step {} ...", sanitize(member("step_id"))))
            }
            "step.completed" => {
                let step = sanitize(member("step_id"));
                match member("error_code") {
                    "" => eprint(&format!("step {step} done")),
                    code => eprint(&format!("step {step} failed: {}", sanitize(code))),
                }
            }
            // The data of these events is not used, because the client reads the result from the run.
            "execution.completed" | "execution.failed" => self.has_final_event = true,
            // Unknown event names from newer servers are ignored.
            _ => {}
        }
        Ok(())
    }

    /// Records the result of a poll. Prints once that the run is queued, because a run can stay queued for a long time.
    fn record_poll(&mut self, run: &Value) {
        self.is_known = true;
        if std::mem::take(&mut self.reported_outage) {
            eprint("the server responds again");
        }
        if status(run) == Some(Status::Queued) && !std::mem::replace(&mut self.reported_queued, true) {
            eprint("the run is queued");
        }
    }

    /// Prints a message at the first outage only.
    fn report_outage(&mut self, run: &str) {
        if !std::mem::replace(&mut self.reported_outage, true) {
            eprint(&format!("the server does not respond; run {} may still be running; retrying", sanitize(run)));
        }
    }

    /// Whether the client still needs events of the run: it prints them, and the final event is missing.
    const fn has_missing_events(&self) -> bool {
        (self.streams || self.has_read_events) && !self.has_final_event
    }

    /// Whether the printed part of the answer may be incomplete.
    const fn is_output_incomplete(&self) -> bool {
        self.has_output && !self.has_final_event
    }

    /// Ends the line of the streamed parts, before the complete answer is printed.
    fn end_streamed_output(&self) -> Result<(), Failure> {
        if self.has_output {
            if is_stdout_terminal() { print("")? } else { output::end_stderr_line() }
        }
        if self.is_output_incomplete() {
            eprint("the stream was interrupted and could not be resumed; the complete answer follows");
        }
        Ok(())
    }

    fn print_result(&self, output: Output, run: &Value) -> Result<(), Failure> {
        let answer = run.pointer("/queued_result/result").unwrap_or(&Value::Null);
        if !output.is_for_people() {
            output.record(run)?;
        } else {
            self.end_streamed_output()?;
            let is_shown = is_stdout_terminal() && answer.as_str() == Some(self.streamed.as_str());
            if !answer.is_null() && (!is_shown || self.is_output_incomplete()) {
                output.value(answer)?;
            }
        }
        if status(run) == Some(Status::Completed) {
            return Ok(());
        }
        let text = |pointer: &str| run.pointer(pointer).and_then(Value::as_str).map(sanitize);
        let outcome = text("/outcome").or_else(|| text("/status")).unwrap_or_default();
        let code = text("/error/code").or_else(|| text("/reason_code"));
        let code = code.unwrap_or_else(|| "no reason given".to_owned());
        let message = text("/error/message").map(|message| format!(": {message}")).unwrap_or_default();
        let id = sanitize(required_string(run, "execution_id")?);
        let failed = Failure::Failed(format!("run {id} ended with {outcome}: {code}{message}"));
        Err(failed.with_next(format!("fairway executions explain {id}")))
    }
}

fn status(run: &Value) -> Option<Status> {
    Status::parse(string_or_empty(run, "status"))
}
