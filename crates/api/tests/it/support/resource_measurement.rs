//! Resource usage of a request: CPU time and peak memory of the process, from the kernel's counters.
//!
//! Each test is a separate process that also contains its server. CPU time does not depend on the load of the
//! machine. The measured memory includes that of the client, so it exceeds the server's share.

use std::{fs, time::Duration};

/// The limit of CPU time for bad input: 1 s. Debug builds have 5 s, because unoptimized code is about ten times
/// slower and processor speeds vary.
const MAX_CPU_TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
/// The memory limit for bad input: 32 MiB.
const MAX_KIBIBYTES: u64 = 32 << 10;
/// `USER_HZ`, the unit of process times on every platform of Linux.
const TICKS_PER_SECOND: u64 = 100;

/// Awaits `work`, and panics if it exceeds the limits for bad input. `description` names the work in the panic message.
pub(crate) async fn assert_bounded<T>(description: &str, work: impl IntoFuture<Output = T>) -> T {
    // Resets the peak to the current usage (proc(5), clear_refs).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (memory_before, cpu_before) = (status_kib("VmRSS:"), process_cpu_time());
    let output = work.into_future().await;
    let (growth_kib, took) =
        (status_kib("VmHWM:").saturating_sub(memory_before), process_cpu_time().saturating_sub(cpu_before));
    assert!(took < MAX_CPU_TIME, "{description} took {took:?}");
    assert!(growth_kib < MAX_KIBIBYTES, "{description} took {growth_kib} KiB");
    output
}

/// Polls `work` on this thread. Returns its output, the longest CPU time of one poll, and the CPU time of the process.
pub(crate) async fn measure_polls<T>(work: impl Future<Output = T>) -> (T, Duration, Duration) {
    let (cpu_before, mut work) = (process_cpu_time(), std::pin::pin!(work));
    let (mut last_cpu_time, mut longest_poll) = (thread_cpu_time(), Duration::ZERO);
    loop {
        let output = tokio::select! {
            biased;
            done = &mut work => Some(done),
            // Yields once, so that `work` is polled again.
            () = tokio::task::yield_now() => None,
        };
        let cpu_time = thread_cpu_time();
        longest_poll = longest_poll.max(cpu_time.saturating_sub(last_cpu_time));
        last_cpu_time = cpu_time;
        if let Some(output) = output {
            return (output, longest_poll, process_cpu_time().saturating_sub(cpu_before));
        }
    }
}

/// A field of `/proc/self/status`, in KiB.
fn status_kib(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn process_cpu_time() -> Duration {
    cpu_time("/proc/self/stat")
}

fn thread_cpu_time() -> Duration {
    cpu_time("/proc/thread-self/stat")
}

fn cpu_time(stat: &str) -> Duration {
    let text = fs::read_to_string(stat).unwrap();
    // The program's name may contain any character, so fields are counted after the closing parenthesis (proc(5),
    // stat).
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}
