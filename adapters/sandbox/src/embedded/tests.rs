use super::*;
use fairway_domain::execution::script::{Language, Script};
use std::{
    io,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, Waker},
};
use tokio::time::Instant;
use tracing::subscriber::with_default;
use tracing_subscriber::fmt::MakeWriter;
use uuid::Uuid;

/// A program whose output is not JSON, so that a started child is distinguishable from no child.
const ECHO: &str = "/bin/echo";

fn gateway(slots: usize) -> EmbeddedGateway {
    EmbeddedGateway { slots: Arc::new(Semaphore::new(slots)), ..EmbeddedGateway::with_program(ECHO.into()) }
}

fn script() -> Script {
    Script { language: Language::Starlark, code: String::new() }
}

async fn run(gateway: EmbeddedGateway, script: &Script) -> Result<ScriptResult, GatewayFailure> {
    gateway.prepare(script.language, ScriptLimits::MAXIMUM).run(request(script)).await
}

fn request(script: &Script) -> ScriptRequest<'_> {
    ScriptRequest { execution_id: Uuid::nil().into(), script, limits: ScriptLimits::MAXIMUM }
}

#[test]
fn slots_are_two_per_processor_and_at_least_four() {
    assert_eq!(
        [1, 2, 3, 16].map(max_children),
        [MAX_CONCURRENT_PER_TENANT_AND_PROCESS, MAX_CONCURRENT_PER_TENANT_AND_PROCESS, 6, 32]
    );
    let slots = EmbeddedGateway::new().slots;
    assert!(slots.available_permits() >= MAX_CONCURRENT_PER_TENANT_AND_PROCESS);
    assert!(slots.available_permits() < Semaphore::MAX_PERMITS / 2);
}

#[tokio::test(start_paused = true)]
async fn refuses_a_script_without_a_free_slot() {
    let start = Instant::now();
    let script = script();
    assert_eq!(run(gateway(0), &script).await, Err(GatewayFailure::Unreachable), "the script did not run");
    assert_eq!(start.elapsed().as_secs(), MAX_DURATION.as_secs());
}

#[tokio::test]
async fn slot_is_released_when_its_child_ends() {
    let gateway = gateway(2);
    let clone = gateway.clone();
    let script = script();
    {
        let mut first = Box::pin(run(gateway.clone(), &script));
        let mut second = Box::pin(run(clone, &script));
        let mut third = Box::pin(run(gateway.clone(), &script));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(first.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(gateway.slots.available_permits(), 1);
        assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(third.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(gateway.slots.available_permits(), 0);
        assert_eq!(first.await, Err(GatewayFailure::Lost), "its output is not a response");
        assert_eq!(third.await, Err(GatewayFailure::Lost), "it has the slot of the first one");
        assert_eq!(gateway.slots.available_permits(), 1, "the second one is still running");
    }
    assert_eq!(gateway.slots.available_permits(), 2, "a dropped run releases its slot");
}

/// A child that waits for a script occupies a slot, and releases the slot when it is dropped.
#[tokio::test]
async fn prepared_child_releases_its_slot_when_dropped() {
    let gateway = gateway(1);
    let script = script();
    let prepared = gateway.prepare(script.language, ScriptLimits::MAXIMUM);
    assert_eq!(gateway.slots.available_permits(), 0);
    // If no slot is free, no child is started in advance, and the script later uses a slot that has become free.
    let waiting = gateway.prepare(script.language, ScriptLimits::MAXIMUM);
    drop(prepared);
    assert_eq!(gateway.slots.available_permits(), 1);
    assert_eq!(waiting.run(request(&script)).await, Err(GatewayFailure::Lost), "a child was started after all");
    assert_eq!(gateway.slots.available_permits(), 1);
}

/// Captured log output.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl io::Write for CapturedLog {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn result_of_exit(code: u8) -> (Result<ScriptResult, GatewayFailure>, String) {
    let log = CapturedLog::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let result = with_default(subscriber, || {
        evaluate_exit(&[], ExitStatus::from_raw(i32::from(code) << 8), ScriptLimits::MAXIMUM.output_bytes)
    });
    let log_bytes = log.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (result, String::from_utf8(log_bytes).unwrap())
}

#[test]
fn unconfined_child_reports_its_reason() {
    let mut causes = Vec::new();
    for failure in ConfinementFailure::ALL {
        let (result, log) = result_of_exit(failure.exit_code());
        assert_eq!(result, Err(GatewayFailure::Unreachable), "{failure:?}");
        assert!(log.contains(" ERROR ") && log.contains(failure.cause()), "{log}");
        causes.push((failure.exit_code(), failure.cause()));
    }
    assert_eq!(result_of_exit(NO_SCRIPT_EXIT_CODE).0, Err(GatewayFailure::Unreachable), "the child has read nothing");
    causes.dedup_by(|left, right| left.0 == right.0 || left.1 == right.1);
    assert_eq!(causes.len(), ConfinementFailure::ALL.len(), "each has a distinct code and text");
    for code in (1..=u8::MAX)
        .filter(|code| *code != NO_SCRIPT_EXIT_CODE && !causes.iter().any(|(cause_code, _)| cause_code == code))
    {
        assert_eq!(result_of_exit(code).0, Ok(failed(ScriptFailure::Stopped)), "{code}");
    }
}
