//! The limit of open files of the process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard limit. At the usual soft limit of 1024, that many idle
/// connections would block all further connections.
pub(crate) fn raise_limit() {
    let result = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, limit)| setrlimit(Resource::RLIMIT_NOFILE, limit, limit).map(|()| limit));
    match result {
        Ok(limit) => tracing::info!(limit, "open file limit set"),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to raise the open file limit; continuing with the current limit"
            )
        }
    }
}
