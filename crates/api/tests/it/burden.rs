//! What a request costs the process: time on the processor and memory at its peak, as the system counted them.
//!
//! Each test is a process of its own, with its server in it. Time is counted on the processor, so that a busy machine
//! does not make a request look slow; memory includes what the client holds, so it is more than the server's.

use std::{fs, time::Duration};

/// The bounds on bad input: a second, and 32 MiB. A build without optimisation is some ten times slower than what the
/// second is meant for, and a processor's speed changes from minute to minute.
const MOST_TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
const MOST_KIBIBYTES: u64 = 32 << 10;
/// `USER_HZ`, in which the system tells process times on every platform that Linux has.
const TICKS_PER_SECOND: u64 = 100;

/// Does some work, and fails if it took more than bad input may.
pub(crate) async fn bounded<T>(what: &str, work: impl IntoFuture<Output = T>) -> T {
    // Sets the peak back to what is used now (proc(5), clear_refs).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, began) = (status("VmRSS:"), processor_time());
    let done = work.into_future().await;
    let (grown, took) = (status("VmHWM:").saturating_sub(before), processor_time().saturating_sub(began));
    assert!(took < MOST_TIME, "{what} took {took:?}");
    assert!(grown < MOST_KIBIBYTES, "{what} took {grown} KiB");
    done
}

/// Does some work on this thread, and says what it took of the processor at most before it let the thread go on, and what
/// the whole process took.
pub(crate) async fn turns<T>(work: impl Future<Output = T>) -> (T, Duration, Duration) {
    let (began, mut work) = (processor_time(), std::pin::pin!(work));
    let (mut last, mut longest) = (thread_time(), Duration::ZERO);
    loop {
        let done = tokio::select! {
            biased;
            done = &mut work => Some(done),
            // Asked again at every turn, and for nothing.
            () = tokio::task::yield_now() => None,
        };
        let now = thread_time();
        longest = longest.max(now.saturating_sub(last));
        last = now;
        if let Some(done) = done {
            return (done, longest, processor_time().saturating_sub(began));
        }
    }
}

/// A line of the process's status, in KiB.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn processor_time() -> Duration {
    time_of("/proc/self/stat")
}

fn thread_time() -> Duration {
    time_of("/proc/thread-self/stat")
}

fn time_of(stat: &str) -> Duration {
    let text = fs::read_to_string(stat).unwrap();
    // The program's name may hold anything, so fields are counted behind its closing bracket (proc(5), stat).
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}
