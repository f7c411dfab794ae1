//! Confinement of the sandbox child. None of it can be reverted.
//!
//! It has two phases, because a child may have to wait for its script. The first drops resources that others need;
//! the second, with the time limit, follows when the script arrives.

use fairway_domain::execution::script::ScriptLimits;

/// Reason why a child cannot be confined; it then runs no script.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A resource limit cannot be set.
    #[error("a limit cannot be set")]
    Limit(#[from] nix::Error),
    /// The open file descriptors cannot be listed.
    #[error("open descriptors cannot be listed")]
    Descriptors,
    /// The memory in use cannot be read.
    #[error("the memory in use cannot be read")]
    Memory,
    /// The child would outlive its parent.
    #[error("the kernel does not end the child with its parent")]
    Parent,
    /// The system call filter cannot be installed.
    #[error("system calls cannot be filtered: {0}")]
    Filter(String),
    /// This operating system has no such filter.
    #[error("this system cannot confine a process")]
    Unsupported,
}

impl ConfineError {
    /// The exit code of a child that cannot be confined.
    pub(crate) const fn failure(&self) -> ConfinementFailure {
        match self {
            Self::Limit(_) => ConfinementFailure::Limit,
            Self::Descriptors => ConfinementFailure::Descriptors,
            Self::Memory => ConfinementFailure::Memory,
            Self::Parent => ConfinementFailure::Parent,
            Self::Filter(_) => ConfinementFailure::Filter,
            Self::Unsupported => ConfinementFailure::Unsupported,
        }
    }
}

/// The reason why a child ran no script, as its exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConfinementFailure {
    Limit,
    Descriptors,
    Memory,
    Parent,
    Filter,
    Unsupported,
}

impl ConfinementFailure {
    pub(crate) const ALL: [Self; 6] =
        [Self::Limit, Self::Descriptors, Self::Memory, Self::Parent, Self::Filter, Self::Unsupported];

    /// The exit code of the child.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Limit => 70,
            Self::Descriptors => 71,
            Self::Memory => 72,
            Self::Parent => 73,
            Self::Filter => 74,
            Self::Unsupported => 75,
        }
    }

    /// A description of the reason.
    pub(crate) const fn cause(self) -> &'static str {
        match self {
            Self::Limit => "a limit cannot be set",
            Self::Descriptors => "open descriptors cannot be listed",
            Self::Memory => "the memory in use cannot be read",
            Self::Parent => "the kernel does not end the child with its parent",
            Self::Filter => "system calls cannot be filtered",
            Self::Unsupported => "this system cannot confine a process",
        }
    }

    /// The reason of an exit code; `None` for any other code.
    pub(crate) fn of_exit_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|unconfined| i32::from(unconfined.exit_code()) == code)
    }
}

/// Confines the process: limits memory and time, closes files, and forbids other processes and all system calls
/// except those for computation. The kernel kills the process on any other call. Only standard input can be read,
/// only standard output and error written. The kernel kills the process when the thread that started it ends.
///
/// # Errors
/// When any part of the confinement fails.
pub fn confine() -> Result<(), ConfineError> {
    detach()?;
    lock_down(&ScriptLimits::MAXIMUM)
}

/// The first phase: lowers the priority, closes files, and binds the process to the thread that started it.
pub(crate) fn detach() -> Result<(), ConfineError> {
    imp::lower_priority();
    imp::close()?;
    imp::die_with_parent()
}

/// The second phase: limits memory, time and system calls.
pub(crate) fn lock_down(limits: &ScriptLimits) -> Result<(), ConfineError> {
    imp::limit(limits)?;
    imp::filter()
}

/// Seconds after which the kernel kills an orphaned child: slightly later than its parent would.
fn max_seconds(limits: &ScriptLimits) -> u64 {
    limits.wall_time.as_secs().saturating_add(1)
}

#[cfg(target_os = "linux")]
mod imp {
    use super::{ConfineError, max_seconds};
    use fairway_domain::execution::script::ScriptLimits;
    use nix::{
        libc,
        sys::{
            prctl::set_pdeathsig,
            resource::{Resource, getrlimit, setrlimit},
            signal::{SigEvent, SigevNotify, Signal},
            timer::{Expiration, Timer, TimerSetTimeFlags},
        },
        time::ClockId,
        unistd::{alarm, getpid},
    };
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        TargetArch,
    };
    use std::collections::BTreeMap;

    /// Memory that the program itself may still need, and that allocators leave unused, in bytes.
    const SLACK: u64 = 16 << 20;
    /// Maximum stack, in bytes: the usual default.
    const STACK: u64 = 8 << 20;
    /// The lowest scheduling priority.
    const LOWEST_PRIORITY: i32 = 19;
    /// The highest out-of-memory score: the kernel kills this process first.
    const HIGHEST_OOM_SCORE: &str = "1000";

    /// Lowers the process's scheduling and memory priority. Failures are ignored, because the limits still hold.
    pub(super) fn lower_priority() {
        let _as_it_was = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        let _as_it_was = std::fs::write("/proc/self/oom_score_adj", HIGHEST_OOM_SCORE);
    }

    /// Has the kernel kill this process when the thread that started it ends, regardless of blocked signals. Serving
    /// threads live as long as the server.
    pub(super) fn die_with_parent() -> Result<(), ConfineError> {
        set_pdeathsig(Signal::SIGKILL).map_err(|_| ConfineError::Parent)
    }

    /// Closes inherited file descriptors of the server.
    pub(super) fn close() -> Result<(), ConfineError> {
        let open = std::fs::read_dir("/proc/self/fd").map_err(|_| ConfineError::Descriptors)?;
        let open: Vec<i32> =
            open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect();
        for descriptor in open {
            // One of them belonged to the directory listing and is closed already.
            let _gone = nix::unistd::close(descriptor);
        }
        Ok(())
    }

    pub(super) fn limit(limits: &ScriptLimits) -> Result<(), ConfineError> {
        let memory = memory_in_use()?.saturating_add(limits.memory_bytes as u64).saturating_add(SLACK);
        let last = max_seconds(limits);
        let (_, stack) = getrlimit(Resource::RLIMIT_STACK)?;
        for (resource, most) in [
            (Resource::RLIMIT_DATA, memory),
            // A lower existing limit stays.
            (Resource::RLIMIT_STACK, stack.min(STACK)),
            (Resource::RLIMIT_CPU, last),
            (Resource::RLIMIT_FSIZE, 0),
            (Resource::RLIMIT_NOFILE, 0),
            (Resource::RLIMIT_NPROC, 0),
            (Resource::RLIMIT_CORE, 0),
            (Resource::RLIMIT_MEMLOCK, 0),
            (Resource::RLIMIT_MSGQUEUE, 0),
        ] {
            setrlimit(resource, most, most)?;
        }
        alarm::set(u32::try_from(last).unwrap_or(u32::MAX));
        if limits.cpu_time < limits.wall_time {
            set_cpu_timer(limits)?;
        }
        Ok(())
    }

    /// Has the kernel end this process after the script's processor time. The process limit counts whole seconds,
    /// including the engine's setup.
    fn set_cpu_timer(limits: &ScriptLimits) -> Result<(), ConfineError> {
        let notify = SigevNotify::SigevSignal { signal: Signal::SIGXCPU, si_value: 0 };
        let mut timer = Timer::new(ClockId::CLOCK_PROCESS_CPUTIME_ID, SigEvent::new(notify))?;
        // A timer of zero would be disarmed.
        let time = limits.cpu_time.max(std::time::Duration::from_millis(1));
        timer.set(Expiration::OneShot(time.into()), TimerSetTimeFlags::empty())?;
        // The timer stays armed: the system call filter forbids its removal.
        std::mem::forget(timer);
        Ok(())
    }

    /// Memory in use that counts against the limit, in bytes.
    fn memory_in_use() -> Result<u64, ConfineError> {
        let status = std::fs::read_to_string("/proc/self/status").map_err(|_| ConfineError::Memory)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).ok_or(ConfineError::Memory)?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().map_err(|_| ConfineError::Memory)?;
        Ok(kibibytes.saturating_mul(1024))
    }

    pub(super) fn filter() -> Result<(), ConfineError> {
        let failed = |error: &dyn std::fmt::Display| ConfineError::Filter(error.to_string());
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| failed(&error))?;
        let rules = rules().map_err(|error| failed(&error))?;
        let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch);
        let program: BpfProgram = filter
            .map_err(|error| failed(&error))?
            .try_into()
            .map_err(|error: seccompiler::BackendError| failed(&error))?;
        // Also sets `no_new_privs`.
        seccompiler::apply_filter(&program).map_err(|error| failed(&error))
    }

    fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
        let when = |argument, length, op, value| SeccompCondition::new(argument, length, op, value);
        let is =
            |argument, value| SeccompRule::new(vec![when(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?]);
        // Writable memory is never executable.
        let never_runs = |argument| {
            let mask = SeccompCmpOp::MaskedEq(u64::from(libc::PROT_EXEC.cast_unsigned()));
            when(argument, SeccompCmpArgLen::Dword, mask, 0)
        };
        // The memory limit counts only private writable memory, neither shared memory nor growing stacks.
        let counted = {
            let mask = libc::MAP_TYPE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN;
            let mask = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            when(3, SeccompCmpArgLen::Dword, mask, u64::from(flags.cast_unsigned()))?
        };
        // The runtime and `abort` restore these handlers before exit. No rule allows to ignore the alarm.
        let ending =
            [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS].map(|signal| is(0, u64::from(signal.cast_unsigned())));
        let [abort, segment, bus] = ending;
        let own = u64::from(getpid().as_raw().cast_unsigned());
        let says = || Ok::<_, seccompiler::BackendError>(vec![is(0, 1)?, is(0, 2)?]);
        let mut rules = BTreeMap::from([
            (libc::SYS_read, vec![is(0, 0)?]),
            (libc::SYS_write, says()?),
            (libc::SYS_writev, says()?),
            (libc::SYS_mmap, vec![SeccompRule::new(vec![never_runs(2)?, counted])?]),
            (libc::SYS_mprotect, vec![SeccompRule::new(vec![never_runs(2)?])?]),
            // The allocator names its memory.
            (libc::SYS_prctl, vec![is(0, u64::from(libc::PR_SET_VMA.cast_unsigned()))?]),
            (libc::SYS_rt_sigaction, vec![abort?, segment?, bus?]),
            // Used to abort when memory is exhausted.
            (libc::SYS_tgkill, vec![is(0, own)?]),
        ]);
        for free in [
            libc::SYS_brk,
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_madvise,
            libc::SYS_futex,
            libc::SYS_sched_yield,
            libc::SYS_getrandom,
            libc::SYS_getpid,
            libc::SYS_gettid,
            libc::SYS_rt_sigprocmask,
            libc::SYS_rt_sigreturn,
            libc::SYS_sigaltstack,
            libc::SYS_restart_syscall,
            libc::SYS_exit,
            libc::SYS_exit_group,
        ] {
            rules.insert(free, Vec::new());
        }
        Ok(rules)
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::ConfineError;
    use fairway_domain::execution::script::ScriptLimits;

    pub(super) const fn lower_priority() {}

    pub(super) fn close() -> Result<(), ConfineError> {
        Err(ConfineError::Unsupported)
    }

    pub(super) fn die_with_parent() -> Result<(), ConfineError> {
        Err(ConfineError::Unsupported)
    }

    pub(super) fn limit(_: &ScriptLimits) -> Result<(), ConfineError> {
        Err(ConfineError::Unsupported)
    }

    pub(super) fn filter() -> Result<(), ConfineError> {
        Err(ConfineError::Unsupported)
    }
}
