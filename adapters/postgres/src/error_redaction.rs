//! Converts errors of the driver and of the pool to errors without the values that they quote.
//!
//! PostgreSQL repeats stored and sent values in the message, DETAIL and HINT of an error, such as `Key (slug)=(…)
//! already exists`. Logs and traces contain the whole error chain. A converted error therefore contains only the
//! SQLSTATE and the name of the violated constraint.

use deadpool_postgres::{HookError, PoolError};
use std::{error::Error, fmt};
use tokio_postgres::error::{DbError, SqlState};

/// The source of an error. It is logged and never returned to a client.
pub(crate) type ErrorSource = Box<dyn Error + Send + Sync>;

/// The error of a statement or connection that PostgreSQL refused.
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

/// Explains the SQLSTATEs that operators most often see when they connect a server. Appendix A of PostgreSQL's
/// manual lists all codes.
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

/// Converts a driver error. An error that PostgreSQL did not send, such as a broken connection, contains no values
/// and is returned unchanged.
pub(crate) fn redact_driver_error(error: tokio_postgres::Error) -> ErrorSource {
    match error.as_db_error() {
        Some(database) => Box::new(ServerError::of(database)),
        None => Box::new(error),
    }
}

/// Converts a pool error to an error without the values that it quotes.
pub(crate) fn redact_pool_error(error: PoolError) -> ErrorSource {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => redact_driver_error(error),
        PoolError::Timeout(_) | PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            Box::new(error)
        }
    }
}
