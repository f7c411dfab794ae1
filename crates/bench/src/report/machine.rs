//! The machine on which the results were measured.

use std::fs;
use std::thread;

/// A short description of the machine.
pub(crate) struct Machine {
    /// Number of processors available to this program.
    pub(crate) processors: usize,
    /// The model name of the processor.
    pub(crate) processor: String,
    /// Memory in GiB.
    pub(crate) memory: u64,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The major version of PostgreSQL.
    pub(crate) postgres: u32,
    /// The load average of the minute before the benchmark.
    pub(crate) load: String,
}

impl Machine {
    /// Describes this machine. Must be called before the benchmark loads the machine.
    pub(crate) fn current(postgres: u32) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: String, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            line.map_or_else(
                || "unknown".to_owned(),
                |line| line.trim_start_matches([' ', '\t', ':']).trim().to_owned(),
            )
        };
        let memory = field(read("/proc/meminfo"), "MemTotal");
        let memory = memory.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        Machine {
            processors: thread::available_parallelism().map_or(1, usize::from),
            processor: field(read("/proc/cpuinfo"), "model name"),
            memory: memory.div_ceil(1_024 * 1_024),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            postgres,
            load: read("/proc/loadavg").split(' ').next().unwrap_or("unknown").to_owned(),
        }
    }
}
