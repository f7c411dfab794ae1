//! Confinement of the sandbox child. Once set, no part of it can be removed.
//!
//! The confinement has two phases, because a child may wait for its script. The first phase releases resources that
//! other processes need. The second phase starts the time limit, so it runs when the script arrives.

use fairway_domain::execution::script::ScriptLimits;

/// Reason why a child cannot be confined. Such a child runs no script.
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
    /// The kernel cannot be told to end the child with its parent.
    #[error("the kernel does not end the child with its parent")]
    Parent,
    /// The system call filter cannot be installed.
    #[error("system calls cannot be filtered: {0}")]
    Filter(String),
    /// This operating system cannot filter system calls.
    #[error("this system cannot confine a process")]
    Unsupported,
}

impl ConfineError {
    /// The failure that the child reports as its exit code.
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

/// Reason why the confinement failed and no script ran, reported as an exit code.
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

    /// A description of the failure, for the log.
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

    /// The failure with this exit code; `None` for an exit code that reports no confinement failure.
    pub(crate) fn of_exit_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| i32::from(failure.exit_code()) == code)
    }
}

/// Confines the process irrevocably:
///
/// - It limits memory and time, and closes all files except standard input, output and error.
/// - It forbids other processes and all system calls that computation does not need. The kernel kills the process on
///   any other call.
/// - It permits reads from standard input only, and writes to standard output and error only.
/// - It makes the kernel kill the process when the thread that started it ends.
///
/// # Errors
/// When any part of the confinement fails.
pub fn confine() -> Result<(), ConfineError> {
    prepare_confinement()?;
    lock_down(&ScriptLimits::MAXIMUM)
}

/// The first phase: lowers the priority, closes files, and makes the kernel kill the process when its starting
/// thread ends.
pub(crate) fn prepare_confinement() -> Result<(), ConfineError> {
    imp::lower_priority();
    imp::close()?;
    imp::die_with_parent()
}

/// The second phase: limits memory, time and system calls.
pub(crate) fn lock_down(limits: &ScriptLimits) -> Result<(), ConfineError> {
    imp::limit(limits)?;
    imp::filter()
}

/// Seconds after which the kernel kills an orphaned child. The parent's own timeout is slightly shorter.
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

    /// Memory that the program itself may still allocate, or that its allocator may leave unused, in bytes.
    const SLACK: u64 = 16 << 20;
    /// Maximum stack in bytes, equal to the usual default.
    const STACK: u64 = 8 << 20;
    /// The lowest scheduling priority (nice value).
    const LOWEST_PRIORITY: i32 = 19;
    /// The highest out-of-memory score. When memory is exhausted, the kernel kills this process first.
    const HIGHEST_OOM_SCORE: &str = "1000";

    /// Lowers the scheduling priority, and raises the out-of-memory score. Failures are ignored, because the limits
    /// apply anyway.
    pub(super) fn lower_priority() {
        let _ignored = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        let _ignored = std::fs::write("/proc/self/oom_score_adj", HIGHEST_OOM_SCORE);
    }

    /// Makes the kernel kill this process when the thread that started it ends, even if signals are blocked. The
    /// server's threads that start children live as long as the server.
    pub(super) fn die_with_parent() -> Result<(), ConfineError> {
        set_pdeathsig(Signal::SIGKILL).map_err(|_| ConfineError::Parent)
    }

    /// Closes all open file descriptors except standard input, output and error.
    pub(super) fn close() -> Result<(), ConfineError> {
        let entries = std::fs::read_dir("/proc/self/fd").map_err(|_| ConfineError::Descriptors)?;
        let descriptors: Vec<i32> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|fd| *fd > 2)
            .collect();
        for descriptor in descriptors {
            // The descriptor of the directory listing itself is already closed, so errors are ignored.
            let _ignored = nix::unistd::close(descriptor);
        }
        Ok(())
    }

    pub(super) fn limit(limits: &ScriptLimits) -> Result<(), ConfineError> {
        let memory = memory_in_use()?.saturating_add(limits.memory_bytes as u64).saturating_add(SLACK);
        let seconds = max_seconds(limits);
        let (_, stack) = getrlimit(Resource::RLIMIT_STACK)?;
        for (resource, maximum) in [
            (Resource::RLIMIT_DATA, memory),
            // If the existing limit is lower, it is kept.
            (Resource::RLIMIT_STACK, stack.min(STACK)),
            (Resource::RLIMIT_CPU, seconds),
            (Resource::RLIMIT_FSIZE, 0),
            (Resource::RLIMIT_NOFILE, 0),
            (Resource::RLIMIT_NPROC, 0),
            (Resource::RLIMIT_CORE, 0),
            (Resource::RLIMIT_MEMLOCK, 0),
            (Resource::RLIMIT_MSGQUEUE, 0),
        ] {
            setrlimit(resource, maximum, maximum)?;
        }
        alarm::set(u32::try_from(seconds).unwrap_or(u32::MAX));
        if limits.cpu_time < limits.wall_time {
            set_cpu_timer(limits)?;
        }
        Ok(())
    }

    /// Makes the kernel end this process when the script has used its processor time. A timer is needed, because
    /// the process's resource limit counts whole seconds and includes the engine's setup.
    fn set_cpu_timer(limits: &ScriptLimits) -> Result<(), ConfineError> {
        let notify = SigevNotify::SigevSignal { signal: Signal::SIGXCPU, si_value: 0 };
        let mut timer = Timer::new(ClockId::CLOCK_PROCESS_CPUTIME_ID, SigEvent::new(notify))?;
        // A duration of zero would disarm the timer.
        let cpu_time = limits.cpu_time.max(std::time::Duration::from_millis(1));
        timer.set(Expiration::OneShot(cpu_time.into()), TimerSetTimeFlags::empty())?;
        // Dropping the timer would delete it, which the system call filter forbids.
        std::mem::forget(timer);
        Ok(())
    }

    /// Bytes of memory that the process has in use and that count against its limit.
    fn memory_in_use() -> Result<u64, ConfineError> {
        let status = std::fs::read_to_string("/proc/self/status").map_err(|_| ConfineError::Memory)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).ok_or(ConfineError::Memory)?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().map_err(|_| ConfineError::Memory)?;
        Ok(kibibytes.saturating_mul(1024))
    }

    pub(super) fn filter() -> Result<(), ConfineError> {
        let to_error = |error: &dyn std::fmt::Display| ConfineError::Filter(error.to_string());
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| to_error(&error))?;
        let rules = rules().map_err(|error| to_error(&error))?;
        let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch);
        let program: BpfProgram = filter
            .map_err(|error| to_error(&error))?
            .try_into()
            .map_err(|error: seccompiler::BackendError| to_error(&error))?;
        // `apply_filter` also sets `no_new_privs`, which the kernel requires for a filter.
        seccompiler::apply_filter(&program).map_err(|error| to_error(&error))
    }

    fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
        let condition = |argument, length, op, value| SeccompCondition::new(argument, length, op, value);
        let equals = |argument, value| {
            SeccompRule::new(vec![condition(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?])
        };
        // Memory mappings must not be executable.
        let not_executable = |argument| {
            let mask = SeccompCmpOp::MaskedEq(u64::from(libc::PROT_EXEC.cast_unsigned()));
            condition(argument, SeccompCmpArgLen::Dword, mask, 0)
        };
        // Only private anonymous mappings are permitted, because the memory limit does not count shared mappings
        // and growing stacks.
        let private_anonymous = {
            let mask = libc::MAP_TYPE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN;
            let mask = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            condition(3, SeccompCmpArgLen::Dword, mask, u64::from(flags.cast_unsigned()))?
        };
        // Before an exit, the Rust runtime and `abort` restore the handlers of these signals. Changes of other
        // handlers are forbidden, so that a script cannot ignore `SIGALRM`.
        let fatal_signals =
            [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS].map(|signal| equals(0, u64::from(signal.cast_unsigned())));
        let [sigabrt, sigsegv, sigbus] = fatal_signals;
        let own_pid = u64::from(getpid().as_raw().cast_unsigned());
        let to_stdout_or_stderr = || Ok::<_, seccompiler::BackendError>(vec![equals(0, 1)?, equals(0, 2)?]);
        let mut rules = BTreeMap::from([
            (libc::SYS_read, vec![equals(0, 0)?]),
            (libc::SYS_write, to_stdout_or_stderr()?),
            (libc::SYS_writev, to_stdout_or_stderr()?),
            (libc::SYS_mmap, vec![SeccompRule::new(vec![not_executable(2)?, private_anonymous])?]),
            (libc::SYS_mprotect, vec![SeccompRule::new(vec![not_executable(2)?])?]),
            // The allocator assigns names to its memory mappings.
            (libc::SYS_prctl, vec![equals(0, u64::from(libc::PR_SET_VMA.cast_unsigned()))?]),
            (libc::SYS_rt_sigaction, vec![sigabrt?, sigsegv?, sigbus?]),
            // `abort` sends its signal with `tgkill`, for example when memory is exhausted.
            (libc::SYS_tgkill, vec![equals(0, own_pid)?]),
        ]);
        for unrestricted_call in [
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
            rules.insert(unrestricted_call, Vec::new());
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
