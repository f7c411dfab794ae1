//! Processor time and memory of processes, from the kernel's `/proc` (proc(5)).

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The duration of one tick. Linux reports processor times in hundredths of a second on every machine.
const TICK: Duration = Duration::from_millis(10);

/// The relevant fields of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// User and system time of the process itself, in ticks.
    own: u32,
    /// User and system time of its children that ended and were waited for, in ticks.
    ended_children: u32,
}

/// User and system time of a process, without its children.
pub(crate) fn processor_time(process: u32) -> Result<Duration> {
    let stat = stat(process).with_context(|| format!("process {process} does not exist"))?;
    Ok(TICK.saturating_mul(stat.own))
}

/// Processor time of a process and all its children, including ended ones.
pub(crate) fn processor_time_with_children(process: u32) -> Result<Duration> {
    let main = stat(process).with_context(|| format!("process {process} does not exist"))?;
    let mut ticks = main.own.saturating_add(main.ended_children);
    for entry in fs::read_dir("/proc")? {
        // A child that ends during the iteration is counted by its parent's `ended_children`.
        let Some(child) = entry?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(stat) else {
            continue;
        };
        if child.parent == process {
            ticks = ticks.saturating_add(child.own);
        }
    }
    Ok(TICK.saturating_mul(ticks))
}

/// Busy processor time of the whole machine.
pub(super) fn machine_time() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let ticks = busy_ticks(&text).context("/proc/stat has no total of all processors")?;
    Ok(TICK.saturating_mul(ticks))
}

/// Resident memory of a process in bytes.
pub(crate) fn resident_memory(process: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    resident_bytes(&text).context("the process status has no resident memory")
}

/// Peak resident memory of a process in bytes.
pub(crate) fn peak_resident_memory(process: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    kibibytes(&text, "VmHWM:").context("the process status has no peak resident memory")
}

fn stat(process: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Counts fields after the last closing parenthesis: the program name is in parentheses and may itself contain any
/// character.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let mut ticks = fields.skip(9).map(|field| field.parse::<u32>().ok());
    let own = ticks.next()??.saturating_add(ticks.next()??);
    let ended_children = ticks.next()??.saturating_add(ticks.next()??);
    Some(Stat { parent, own, ended_children })
}

/// Sums user, nice, system and interrupt times. Idle, I/O wait and steal times are excluded, because no local
/// process used them.
fn busy_ticks(text: &str) -> Option<u32> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let busy = line.split_whitespace().enumerate().filter(|(index, _)| matches!(index, 0..=2 | 5 | 6));
    let ticks: Option<Vec<u64>> = busy.map(|(_, field)| field.parse().ok()).collect();
    // Only differences of this sum are used, so wrapping is harmless. With one busy processor, at a hundred ticks per
    // second, the sum wraps after more than a year.
    u32::try_from(ticks?.iter().sum::<u64>() % u64::from(u32::MAX)).ok()
}

fn resident_bytes(status: &str) -> Option<u64> {
    kibibytes(status, "VmRSS:")
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_stat_with_parentheses_in_the_name() {
        let line = "4242 (post) 1 (gres) S 17 4242 4242 0 -1 4194560 900 0 3 0 120 30 7 2 20 0 1 0 555 1000 200 18";
        assert_eq!(parse_stat(line), Some(Stat { parent: 17, own: 150, ended_children: 9 }));
        assert_eq!(parse_stat("4242 (short) S 17"), None);
    }

    #[test]
    fn busy_ticks_exclude_waiting_and_steal() {
        assert_eq!(busy_ticks("cpu  10 20 30 4000 500 6 7 80 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"), Some(73));
        assert_eq!(busy_ticks("intr 1"), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   2048 kB\n"), Some(2_097_152));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn measures_its_own_process() {
        let own = std::process::id();
        assert!(resident_memory(own).unwrap() > 100_000);
        let before = processor_time(own).unwrap();
        let mut sum = 0_u64;
        while processor_time(own).unwrap() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(processor_time_with_children(own).unwrap() >= processor_time(own).unwrap() - TICK);
        assert!(machine_time().unwrap() > Duration::ZERO);
    }
}
