//! A limit on the resident memory of the process.
//!
//! Budgets bound the memory of one kind of work. No budget bounds their sum, the fragmentation of the allocator and the
//! buffers of drivers, so the process also measures its resident memory. Below the fraction [`SOFT`] of the limit, the
//! process admits all work. Above [`SOFT`], it admits large work one item at a time, up to [`SERIAL`]. Other large work
//! waits and is then refused, which leaves memory to active work. Above [`HARD`], the process serves only a few
//! requests at a time ([0076](../../../docs/decisions/0076-memory-limit.md)).
//!
//! Resident memory is a property of the process, so the limit is a static variable. Without a call of
//! [`limit_process`], and on systems without `/proc`, there is no limit.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Fraction of the limit up to which all large work is admitted.
const SOFT: (usize, usize) = (12, 20);
/// Fraction of the limit up to which large work is admitted one item at a time. The allocator retains freed memory
/// for a while, so refusing all large work above [`SOFT`] would refuse too much.
const SERIAL: (usize, usize) = (16, 20);
/// Fraction of the limit from which the process serves only a few requests at a time.
const HARD: (usize, usize) = (14, 20);
/// Maximum age of a measurement, and the interval at which waiting work retries.
const MEASURE_INTERVAL: Duration = Duration::from_millis(10);
/// Time during which admitted work counts by its estimate. Afterwards the measurement includes the memory of the
/// work.
const SETTLING: Duration = Duration::from_millis(300);
/// Minimum interval between two warnings in the log.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Page size of `/proc/self/statm` on all supported systems.
const PAGE_BYTES: usize = 4 << 10;

static PROCESS: OnceLock<MemoryLimit> = OnceLock::new();

/// The process currently has no memory for the requested work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the process is at its memory limit")]
pub struct LimitReached;

/// Limits the resident memory of this process to `bytes`. Only the first call has an effect.
pub fn limit_process(bytes: usize) {
    PROCESS.get_or_init(|| MemoryLimit::new(bytes, resident_memory));
}

/// Admits work that will allocate `bytes` bytes, and waits for memory if necessary.
///
/// # Errors
/// When the process has no memory for the work after `wait`.
pub async fn admit(bytes: usize, wait: Duration) -> Result<Admission, LimitReached> {
    match PROCESS.get() {
        Some(limit) => limit.admit(bytes, wait).await,
        None => Ok(Admission::unlimited()),
    }
}

/// Admits work that will allocate `bytes` bytes, without waiting.
///
/// # Errors
/// When the process has no memory for the work.
pub fn try_admit(bytes: usize) -> Result<Admission, LimitReached> {
    PROCESS.get().map_or_else(|| Ok(Admission::unlimited()), |limit| limit.try_admit(bytes))
}

/// Whether resident memory exceeds the fraction [`SOFT`] of the limit.
#[must_use]
pub fn is_soft_limit_reached() -> bool {
    PROCESS.get().is_some_and(MemoryLimit::is_soft_limit_reached)
}

/// Whether resident memory exceeds the fraction [`HARD`] of the limit.
#[must_use]
pub fn is_hard_limit_reached() -> bool {
    PROCESS.get().is_some_and(MemoryLimit::is_hard_limit_reached)
}

/// Returns the resident memory of this process in bytes: the second field of `/proc/self/statm` (proc(5)).
fn resident_memory() -> Option<usize> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    pages.split(' ').nth(1)?.parse::<usize>().ok()?.checked_mul(PAGE_BYTES)
}

/// Admission of work. The work counts by its estimate until the measurement includes it ([`SETTLING`]), or until the
/// admission is dropped.
#[derive(Debug)]
#[must_use = "the work counts as done once this is dropped"]
pub struct Admission {
    /// The usage that counts the work, and the number of the work within it; `None` if the work is not counted.
    counted: Option<(Arc<Mutex<Usage>>, u64)>,
}

impl Admission {
    const fn unlimited() -> Self {
        Self { counted: None }
    }

    /// Drops the admission without ending the estimate: the work counts until the measurement includes it.
    pub fn detach(mut self) {
        self.counted = None;
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some((usage, number)) = self.counted.take() {
            lock(&usage).remove(number);
        }
    }
}

/// The thresholds of a limit, and the function that measures the limited memory.
struct MemoryLimit {
    soft: usize,
    serial: usize,
    hard: usize,
    measure: fn() -> Option<usize>,
    usage: Arc<Mutex<Usage>>,
}

#[derive(Default, Debug)]
struct Usage {
    resident: usize,
    measured_at: Option<Instant>,
    /// Admission time and estimated bytes of work that the measurement may not include yet, by number. The oldest
    /// work has the lowest number.
    settling: BTreeMap<u64, (Instant, usize)>,
    /// Sum of the estimated bytes in `settling`.
    settling_bytes: usize,
    next_number: u64,
    warned_at: Option<Instant>,
}

impl Usage {
    fn remove(&mut self, number: u64) {
        if let Some((_, bytes)) = self.settling.remove(&number) {
            self.settling_bytes = self.settling_bytes.saturating_sub(bytes);
        }
    }

    /// Removes work that the measurement now includes.
    fn remove_measured(&mut self, now: Instant) {
        while let Some((number, (since, _))) = self.settling.first_key_value()
            && now.saturating_duration_since(*since) >= SETTLING
        {
            let number = *number;
            self.remove(number);
        }
    }

    fn add(&mut self, now: Instant, bytes: usize) -> u64 {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.settling.insert(number, (now, bytes));
        self.settling_bytes = self.settling_bytes.saturating_add(bytes);
        number
    }
}

fn lock(usage: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    usage.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryLimit {
    fn new(bytes: usize, measure: fn() -> Option<usize>) -> Self {
        let threshold = |(numerator, denominator): (usize, usize)| bytes.saturating_mul(numerator) / denominator;
        Self { soft: threshold(SOFT), serial: threshold(SERIAL), hard: threshold(HARD), measure, usage: Arc::default() }
    }

    async fn admit(&self, bytes: usize, wait: Duration) -> Result<Admission, LimitReached> {
        let since = Instant::now();
        loop {
            if let Ok(admission) = self.try_admit(bytes) {
                return Ok(admission);
            }
            if since.elapsed() >= wait {
                return Err(LimitReached);
            }
            sleep_until(Instant::now() + MEASURE_INTERVAL).await;
        }
    }

    fn try_admit(&self, bytes: usize) -> Result<Admission, LimitReached> {
        let now = Instant::now();
        let mut usage = self.measure_if_stale(now);
        usage.remove_measured(now);
        let expected = usage.resident.saturating_add(usage.settling_bytes).saturating_add(bytes);
        let limit = if usage.settling.is_empty() { self.serial } else { self.soft };
        if expected > limit {
            self.warn(&mut usage, now, bytes);
            return Err(LimitReached);
        }
        let number = usage.add(now, bytes);
        Ok(Admission { counted: Some((Arc::clone(&self.usage), number)) })
    }

    fn is_soft_limit_reached(&self) -> bool {
        self.is_above(self.soft.saturating_add(1))
    }

    fn is_hard_limit_reached(&self) -> bool {
        self.is_above(self.hard)
    }

    /// Returns whether resident memory is at least `bytes`. Callers then refuse work, so this function logs a
    /// warning.
    fn is_above(&self, bytes: usize) -> bool {
        let now = Instant::now();
        let mut usage = self.measure_if_stale(now);
        let is_above = usage.resident >= bytes;
        if is_above {
            self.warn(&mut usage, now, 0);
        }
        is_above
    }

    fn measure_if_stale(&self, now: Instant) -> MutexGuard<'_, Usage> {
        let mut usage = lock(&self.usage);
        if usage.measured_at.is_none_or(|at| now.saturating_duration_since(at) >= MEASURE_INTERVAL) {
            usage.resident = (self.measure)().unwrap_or_default();
            usage.measured_at = Some(now);
        }
        usage
    }

    fn warn(&self, usage: &mut Usage, now: Instant, requested_bytes: usize) {
        if usage.warned_at.is_none_or(|at| now.saturating_duration_since(at) >= WARNING_INTERVAL) {
            usage.warned_at = Some(now);
            let (resident_bytes, soft_bytes) = (usage.resident, self.soft);
            // The decision compares the limit with the sum of these values, so the log line contains all of them.
            let (unmeasured_items, unmeasured_bytes) = (usage.settling.len(), usage.settling_bytes);
            tracing::warn!(
                resident_bytes,
                unmeasured_items,
                unmeasured_bytes,
                requested_bytes,
                soft_bytes,
                "expected memory exceeds the soft limit; delaying or refusing work"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A limit with the thresholds 240 (soft), 280 (hard) and 320 (serial).
    const LIMIT: usize = 400;

    #[tokio::test(start_paused = true)]
    async fn admits_one_work_item_at_a_time_above_soft_limit() {
        let limit = MemoryLimit::new(LIMIT, || Some(230));
        let small = limit.try_admit(5).unwrap();
        assert!(limit.try_admit(5).is_ok());
        assert!(limit.try_admit(6).is_err());
        drop(small);
        assert!(limit.try_admit(91).is_err());
        let large = limit.try_admit(90).unwrap();
        assert!(limit.try_admit(1).is_err());
        drop(large);
        assert!(limit.try_admit(1).is_ok());
        assert!(!limit.is_soft_limit_reached() && !limit.is_hard_limit_reached());
        assert!(MemoryLimit::new(LIMIT, || Some(241)).is_soft_limit_reached());
        assert!(!MemoryLimit::new(LIMIT, || Some(279)).is_hard_limit_reached());
        assert!(MemoryLimit::new(LIMIT, || Some(280)).is_hard_limit_reached());
    }

    #[tokio::test(start_paused = true)]
    async fn counts_admitted_work_until_it_is_done_or_measured() {
        let limit = MemoryLimit::new(LIMIT, || Some(200));
        let admission = limit.try_admit(40).unwrap();
        assert!(limit.try_admit(40).is_err());
        drop(admission);
        limit.try_admit(40).unwrap().detach();
        assert!(limit.try_admit(40).is_err());
        tokio::time::advance(SETTLING).await;
        let admission = limit.try_admit(40).unwrap();
        tokio::time::advance(SETTLING).await;
        // Dropping work that the measurement includes releases no estimate.
        let second_admission = limit.try_admit(40).unwrap();
        drop(admission);
        assert!(limit.try_admit(40).is_err());
        drop(second_admission);
        assert_eq!(lock(&limit.usage).settling_bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_memory_up_to_the_wait_time() {
        static RESIDENT: AtomicUsize = AtomicUsize::new(360);
        let limit = MemoryLimit::new(LIMIT, || Some(RESIDENT.load(Ordering::Relaxed)));
        let wait = Duration::from_secs(2);
        let since = Instant::now();
        assert!(limit.admit(1, wait).await.is_err());
        assert_eq!(since.elapsed(), wait);
        let release_memory = async {
            sleep_until(Instant::now() + MEASURE_INTERVAL * 3).await;
            RESIDENT.store(100, Ordering::Relaxed);
        };
        assert!(tokio::join!(limit.admit(1, wait), release_memory).0.is_ok());
    }

    #[tokio::test]
    async fn admits_everything_without_limit_or_measurement() {
        assert!(try_admit(usize::MAX).is_ok());
        assert!(MemoryLimit::new(LIMIT, || None).try_admit(LIMIT / 2).is_ok());
    }

    #[test]
    fn measures_the_resident_memory_of_this_process() {
        if cfg!(target_os = "linux") {
            let before = resident_memory().unwrap();
            let allocation = vec![1_u8; 64 << 20];
            assert!(resident_memory().unwrap() >= before + (60 << 20), "{}", allocation.len());
        }
    }
}
