//! Errors of the driver and of the pool, without the values that they quote.
//!
//! PostgreSQL repeats stored and sent values in the message, DETAIL and HINT of an error, such as `Key (slug)=(…)
//! already exists`. Consumers log the whole error chain, and traces export it. So an error keeps its SQLSTATE and the
//! name of the violated constraint, and drops the rest.

use deadpool_postgres::{HookError, PoolError};
use std::{error::Error, fmt};
use tokio_postgres::error::{DbError, SqlState};

/// An error source for the log only.
pub(crate) type Source = Box<dyn Error + Send + Sync>;

/// PostgreSQL refused a statement or a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ServerError {
    sqlstate: SqlState,
    constraint: Option<String>,
}

impl ServerError {
    fn of(error: &DbError) -> Self {
        Self { sqlstate: error.code().clone(), constraint: error.constraint().map(str::to_owned) }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PostgreSQL answered SQLSTATE {}", self.sqlstate.code())?;
        if let Some(constraint) = &self.constraint {
            write!(out, ", constraint `{constraint}`")?;
        }
        match hint(&self.sqlstate) {
            Some(advice) => write!(out, " ({advice})"),
            None => Ok(()),
        }
    }
}

impl Error for ServerError {}

/// Explains the SQLSTATEs that operators see most when they connect a server. All codes: PostgreSQL's manual, appendix
/// A.
fn hint(code: &SqlState) -> Option<&'static str> {
    match code.code() {
        "28P01" => Some("the password is wrong"),
        "28000" => Some("the role may not log in"),
        "3D000" => Some("the database does not exist"),
        "42501" => Some("the role lacks a privilege"),
        "53300" => Some("too many connections"),
        "57P03" => Some("the server is starting up or shutting down"),
        _ => None,
    }
}

/// Converts a driver error. An error that did not come from PostgreSQL, such as a broken connection, quotes no values
/// and is kept as it is.
pub(crate) fn redact_driver_error(error: tokio_postgres::Error) -> Source {
    match error.as_db_error() {
        Some(database) => Box::new(ServerError::of(database)),
        None => Box::new(error),
    }
}

/// Converts a pool error.
pub(crate) fn redact_pool_error(error: PoolError) -> Source {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => redact_driver_error(error),
        PoolError::Timeout(_) | PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            Box::new(error)
        }
    }
}
