//! What the child gives up before it reads a script. None of it can be taken back.
//!
//! It is given up in two halves, because a child may have to wait for its script: what others would miss goes before, and what
//! keeps the script in, its time among it, once there is one to keep.

use fairway_domain::execution::code::ScriptLimits;

/// Why a child cannot be confined; then it runs nothing.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A limit cannot be set.
    #[error("a limit cannot be set")]
    Limit(#[from] nix::Error),
    /// What is open cannot be listed.
    #[error("open descriptors cannot be listed")]
    Descriptors,
    /// How much the child has already cannot be read.
    #[error("how much memory is taken cannot be read")]
    Memory,
    /// Nothing would end the child when whoever started it has gone.
    #[error("the kernel does not end the child with its parent")]
    Parent,
    /// The filter of system calls cannot be put in place.
    #[error("system calls cannot be filtered: {0}")]
    Filter(String),
    /// This system has no such filter.
    #[error("this system cannot confine a process")]
    Unsupported,
}

impl ConfineError {
    /// What a child that cannot be confined has to say: it ends with a code for each.
    pub(crate) const fn unconfined(&self) -> Unconfined {
        match self {
            Self::Limit(_) => Unconfined::Limit,
            Self::Descriptors => Unconfined::Descriptors,
            Self::Memory => Unconfined::Memory,
            Self::Parent => Unconfined::Parent,
            Self::Filter(_) => Unconfined::Filter,
            Self::Unsupported => Unconfined::Unsupported,
        }
    }
}

/// Which of the errors kept a child from running anything, as its end tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unconfined {
    Limit,
    Descriptors,
    Memory,
    Parent,
    Filter,
    Unsupported,
}

impl Unconfined {
    pub(crate) const ALL: [Self; 6] =
        [Self::Limit, Self::Descriptors, Self::Memory, Self::Parent, Self::Filter, Self::Unsupported];

    /// What the child ends with.
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

    /// What it could not give up.
    pub(crate) const fn cause(self) -> &'static str {
        match self {
            Self::Limit => "a limit cannot be set",
            Self::Descriptors => "open descriptors cannot be listed",
            Self::Memory => "how much memory is taken cannot be read",
            Self::Parent => "the kernel does not end the child with its parent",
            Self::Filter => "system calls cannot be filtered",
            Self::Unsupported => "this system cannot confine a process",
        }
    }

    /// Which one a child ended with; `None` where it ended with something else.
    pub(crate) fn of_exit_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|unconfined| i32::from(unconfined.exit_code()) == code)
    }
}

/// Gives up memory, time, files, other processes, and every system call but those that thinking needs. Whoever makes another
/// one is ended by the kernel at once. Input is read from the standard input alone, and said on the standard output and error.
/// The kernel ends the process with the thread that started it.
///
/// # Errors
/// When any of it cannot be given up.
pub fn confine() -> Result<(), ConfineError> {
    give_up()?;
    shut(&ScriptLimits::GREATEST)
}

/// The first half: gives up its place in line, its files, and a life beyond that of the thread that started it.
pub(crate) fn give_up() -> Result<(), ConfineError> {
    imp::step_back();
    imp::close()?;
    imp::die_with_parent()
}

/// The second half: gives up memory, time, and every system call but those that thinking needs.
pub(crate) fn shut(limits: &ScriptLimits) -> Result<(), ConfineError> {
    imp::limit(limits)?;
    imp::filter()
}

/// Seconds after which the kernel ends a child whose parent has gone: a little later than the parent would.
fn last(limits: &ScriptLimits) -> u64 {
    limits.wall.as_secs().saturating_add(1)
}

#[cfg(target_os = "linux")]
mod imp {
    use super::{ConfineError, last};
    use fairway_domain::execution::code::ScriptLimits;
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

    /// Memory that the program itself may still come to need, and what allocators leave unused, in bytes.
    const SLACK: u64 = 16 << 20;
    /// Stack, in bytes: what systems usually give, also where this one gives more.
    const STACK: u64 = 8 << 20;
    /// The lowest priority that there is.
    const LAST_IN_LINE: i32 = 19;
    /// What makes a process the first one that the kernel ends when the machine has no memory left.
    const FIRST_TO_GO: &str = "1000";

    /// Lets everything else on the machine go first, in time and in memory. A child that may not say so runs nevertheless: its
    /// limits hold.
    pub(super) fn step_back() {
        let _as_it_was = rustix::process::setpriority_process(None, LAST_IN_LINE);
        let _as_it_was = std::fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
    }

    /// Has the kernel end this process when the thread that started it ends, whatever the process does about signals. The
    /// threads that serve last as long as the server.
    pub(super) fn die_with_parent() -> Result<(), ConfineError> {
        set_pdeathsig(Signal::SIGKILL).map_err(|_| ConfineError::Parent)
    }

    /// Closes whatever the server had open and did not keep for itself: it would be open here too.
    pub(super) fn close() -> Result<(), ConfineError> {
        let open = std::fs::read_dir("/proc/self/fd").map_err(|_| ConfineError::Descriptors)?;
        let open: Vec<i32> =
            open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect();
        for descriptor in open {
            // One of them was the folder's own, and is closed already.
            let _gone = nix::unistd::close(descriptor);
        }
        Ok(())
    }

    pub(super) fn limit(limits: &ScriptLimits) -> Result<(), ConfineError> {
        let memory = taken()?.saturating_add(limits.memory as u64).saturating_add(SLACK);
        let last = last(limits);
        let (_, stack) = getrlimit(Resource::RLIMIT_STACK)?;
        for (resource, most) in [
            (Resource::RLIMIT_DATA, memory),
            // A limit that is lower already stays.
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
        if limits.cpu < limits.wall {
            end_after(limits)?;
        }
        Ok(())
    }

    /// Has the kernel end this process once it has taken the script's processor time from now on. The limit of the process
    /// counts whole seconds, and what the engine took to get ready.
    fn end_after(limits: &ScriptLimits) -> Result<(), ConfineError> {
        let notify = SigevNotify::SigevSignal { signal: Signal::SIGXCPU, si_value: 0 };
        let mut timer = Timer::new(ClockId::CLOCK_PROCESS_CPUTIME_ID, SigEvent::new(notify))?;
        // A timer that is set to nothing is not set at all.
        let time = limits.cpu.max(std::time::Duration::from_millis(1));
        timer.set(Expiration::OneShot(time.into()), TimerSetTimeFlags::empty())?;
        // Nothing takes it away again: the filter of system calls lets nobody.
        std::mem::forget(timer);
        Ok(())
    }

    /// Memory that counts against the limit and is taken already, in bytes.
    fn taken() -> Result<u64, ConfineError> {
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
        // Sets `no_new_privs` too.
        seccompiler::apply_filter(&program).map_err(|error| failed(&error))
    }

    fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
        let when = |argument, length, op, value| SeccompCondition::new(argument, length, op, value);
        let is =
            |argument, value| SeccompRule::new(vec![when(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?]);
        // Memory that is written is never run.
        let never_runs = |argument| {
            let mask = SeccompCmpOp::MaskedEq(u64::from(libc::PROT_EXEC.cast_unsigned()));
            when(argument, SeccompCmpArgLen::Dword, mask, 0)
        };
        // The limit of memory counts what is private and written, and neither what is shared nor what grows as stacks do.
        let counted = {
            let mask = libc::MAP_TYPE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN;
            let mask = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            when(3, SeccompCmpArgLen::Dword, mask, u64::from(flags.cast_unsigned()))?
        };
        // What the runtime and `abort` put back in front of the end. Nobody makes a process deaf to its alarm.
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
            // The allocator gives its memory a name.
            (libc::SYS_prctl, vec![is(0, u64::from(libc::PR_SET_VMA.cast_unsigned()))?]),
            (libc::SYS_rt_sigaction, vec![abort?, segment?, bus?]),
            // What ends the process when it has no memory left.
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
    use fairway_domain::execution::code::ScriptLimits;

    pub(super) const fn step_back() {}

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
