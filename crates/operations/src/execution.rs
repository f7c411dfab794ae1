//! Running a workload: accept, run, end. At most two commits and two round trips for a synchronous run.

pub(crate) mod admission;
mod engine;
mod evidence;
pub(crate) mod live;
pub mod plan;
mod recovery;
mod run;
mod start;

pub(crate) use plan::source;

pub use evidence::{Disclosure, ExecutionQuery, ReadExecution};
pub use recovery::recover_forever;
pub use start::{Answer, ExecuteRequest};
