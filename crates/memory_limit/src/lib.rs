//! A limit on the resident memory of the process.
//!
//! Budgets bound what one kind of work holds. Their sum, the allocator's fragmentation and the buffers of drivers are
//! bounded by nothing else, so the process also looks at its own resident memory. Below [`SOFT`] of the limit it admits all
//! work. Above, large work waits and is refused after its wait, which leaves memory to the work under way. Above [`HARD`]
//! the process refuses all requests ([0076](../../../docs/decisions/0076-memory-limit.md)).
//!
//! The resident memory belongs to the process, so the limit is a static. A process that sets none has none, and so have
//! systems without `/proc`.

use std::{
    collections::VecDeque,
    fs,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// The part of the limit up to which large work is admitted.
const SOFT: (usize, usize) = (7, 10);
/// The part of the limit from which no request is admitted.
const HARD: (usize, usize) = (9, 10);
/// The age at which a measurement is repeated, and the interval at which waiting work asks again.
const INTERVAL: Duration = Duration::from_millis(10);
/// How long admitted work counts by its own estimate. Afterwards the measurement contains it.
const SETTLING: Duration = Duration::from_millis(300);
/// How often the log tells of a reached limit.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// The size of a page in `/proc`, which every system that Fairway is built for has.
const PAGE: usize = 4 << 10;

static PROCESS: OnceLock<MemoryLimit> = OnceLock::new();

/// The process has no memory for this work at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the process is at its memory limit")]
pub struct LimitReached;

/// Limits the resident memory of this process to so many bytes. The first call decides.
pub fn limit_process(bytes: usize) {
    PROCESS.get_or_init(|| MemoryLimit::new(bytes, resident));
}

/// Admits work that is about to take so many bytes, or waits until the process has memory for it.
///
/// # Errors
/// When the process still has none after `wait`.
pub async fn admit(bytes: usize, wait: Duration) -> Result<(), LimitReached> {
    match PROCESS.get() {
        Some(limit) => limit.admit(bytes, wait).await,
        None => Ok(()),
    }
}

/// The same without a wait.
///
/// # Errors
/// When the process has no memory for it.
pub fn try_admit(bytes: usize) -> Result<(), LimitReached> {
    PROCESS.get().map_or(Ok(()), |limit| limit.try_admit(bytes))
}

/// Whether the process is so near its limit that it refuses all requests.
#[must_use]
pub fn is_exhausted() -> bool {
    PROCESS.get().is_some_and(MemoryLimit::is_exhausted)
}

/// The resident memory of this process in bytes: the second field of `/proc/self/statm` (proc(5)).
fn resident() -> Option<usize> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    pages.split(' ').nth(1)?.parse::<usize>().ok()?.checked_mul(PAGE)
}

/// A limit over a measurement.
struct MemoryLimit {
    soft: usize,
    hard: usize,
    measure: fn() -> Option<usize>,
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    resident: usize,
    measured_at: Option<Instant>,
    /// Admitted work that the measurement may not contain yet, the oldest first.
    settling: VecDeque<(Instant, usize)>,
    warned_at: Option<Instant>,
}

impl MemoryLimit {
    fn new(bytes: usize, measure: fn() -> Option<usize>) -> Self {
        let part = |(part, of): (usize, usize)| bytes.saturating_mul(part) / of;
        Self { soft: part(SOFT), hard: part(HARD), measure, usage: Mutex::default() }
    }

    async fn admit(&self, bytes: usize, wait: Duration) -> Result<(), LimitReached> {
        let since = Instant::now();
        loop {
            if self.try_admit(bytes).is_ok() {
                return Ok(());
            }
            if since.elapsed() >= wait {
                return Err(LimitReached);
            }
            sleep_until(Instant::now() + INTERVAL).await;
        }
    }

    fn try_admit(&self, bytes: usize) -> Result<(), LimitReached> {
        let now = Instant::now();
        let mut usage = self.measured(now);
        while usage.settling.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= SETTLING) {
            usage.settling.pop_front();
        }
        let settling: usize = usage.settling.iter().map(|(_, bytes)| bytes).sum();
        if usage.resident.saturating_add(settling).saturating_add(bytes) > self.soft {
            self.warn(&mut usage, now);
            return Err(LimitReached);
        }
        usage.settling.push_back((now, bytes));
        Ok(())
    }

    fn is_exhausted(&self) -> bool {
        self.measured(Instant::now()).resident >= self.hard
    }

    fn measured(&self, now: Instant) -> MutexGuard<'_, Usage> {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        if usage.measured_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL) {
            usage.resident = (self.measure)().unwrap_or_default();
            usage.measured_at = Some(now);
        }
        usage
    }

    fn warn(&self, usage: &mut Usage, now: Instant) {
        if usage.warned_at.is_none_or(|at| now.saturating_duration_since(at) >= WARNING_INTERVAL) {
            usage.warned_at = Some(now);
            let (resident_bytes, soft_bytes) = (usage.resident, self.soft);
            tracing::warn!(resident_bytes, soft_bytes, "memory limit reached; large work waits or is refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LIMIT: usize = 400;

    #[tokio::test(start_paused = true)]
    async fn admits_work_below_the_soft_part_of_the_limit() {
        let limit = MemoryLimit::new(LIMIT, || Some(200));
        assert_eq!(limit.try_admit(81), Err(LimitReached));
        assert_eq!(limit.try_admit(80), Ok(()));
        assert!(!limit.is_exhausted());
        assert!(!MemoryLimit::new(LIMIT, || Some(359)).is_exhausted());
        assert!(MemoryLimit::new(LIMIT, || Some(360)).is_exhausted());
    }

    #[tokio::test(start_paused = true)]
    async fn counts_admitted_work_until_the_measurement_contains_it() {
        let limit = MemoryLimit::new(LIMIT, || Some(200));
        assert_eq!(limit.try_admit(60), Ok(()));
        assert_eq!(limit.try_admit(60), Err(LimitReached));
        tokio::time::advance(SETTLING).await;
        assert_eq!(limit.try_admit(60), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn work_waits_for_memory_and_no_longer_than_it_may() {
        static RESIDENT: AtomicUsize = AtomicUsize::new(300);
        let limit = MemoryLimit::new(LIMIT, || Some(RESIDENT.load(Ordering::Relaxed)));
        let wait = Duration::from_secs(2);
        let since = Instant::now();
        assert_eq!(limit.admit(1, wait).await, Err(LimitReached));
        assert_eq!(since.elapsed(), wait);
        let freed = async {
            sleep_until(Instant::now() + INTERVAL * 3).await;
            RESIDENT.store(100, Ordering::Relaxed);
        };
        assert_eq!(tokio::join!(limit.admit(1, wait), freed).0, Ok(()));
    }

    #[tokio::test]
    async fn a_process_without_a_limit_or_a_measurement_admits_everything() {
        assert_eq!(try_admit(usize::MAX), Ok(()));
        assert_eq!(MemoryLimit::new(LIMIT, || None).try_admit(LIMIT / 2), Ok(()));
    }

    #[test]
    fn measures_the_resident_memory_of_this_process() {
        if cfg!(target_os = "linux") {
            let before = resident().unwrap();
            let held = vec![1_u8; 64 << 20];
            assert!(resident().unwrap() >= before + (60 << 20), "{}", held.len());
        }
    }
}
