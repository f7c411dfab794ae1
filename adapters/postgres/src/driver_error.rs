//! Errors of the driver and of the pool, without the values that they quote.
//!
//! PostgreSQL repeats stored and sent values in the message, DETAIL and HINT of an error, such as
//! `Key (slug)=(…) already exists`. Every consumer of an error logs its whole chain, and traces carry it to a collector. So
//! an error keeps its SQLSTATE and the name of the violated constraint, which are ours, and drops the rest.

use deadpool_postgres::{HookError, PoolError};
use std::{error::Error, fmt};
use tokio_postgres::error::{DbError, SqlState};

/// Opaque to everybody but the log.
pub(crate) type Source = Box<dyn Error + Send + Sync>;

/// PostgreSQL refused a statement or a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Refused {
    sqlstate: SqlState,
    constraint: Option<String>,
}

impl Refused {
    fn of(error: &DbError) -> Self {
        Self { sqlstate: error.code().clone(), constraint: error.constraint().map(str::to_owned) }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PostgreSQL answered SQLSTATE {}", self.sqlstate.code())?;
        if let Some(constraint) = &self.constraint {
            write!(out, ", constraint `{constraint}`")?;
        }
        match advice(&self.sqlstate) {
            Some(advice) => write!(out, " ({advice})"),
            None => Ok(()),
        }
    }
}

impl Error for Refused {}

/// What operators meet most when they connect a server, in words; all other codes stand in PostgreSQL's manual, appendix A.
fn advice(code: &SqlState) -> Option<&'static str> {
    match code.code() {
        "28P01" => Some("the password is wrong"),
        "28000" => Some("the role may not log in"),
        "3D000" => Some("there is no such database"),
        "42501" => Some("the role lacks a privilege"),
        "53300" => Some("there are too many connections"),
        "57P03" => Some("the server starts or stops"),
        _ => None,
    }
}

/// An error of the driver. One that PostgreSQL did not answer, such as a broken connection, quotes no values.
pub(crate) fn of_driver(error: tokio_postgres::Error) -> Source {
    match error.as_db_error() {
        Some(database) => Box::new(Refused::of(database)),
        None => Box::new(error),
    }
}

/// An error of the pool.
pub(crate) fn of_pool(error: PoolError) -> Source {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => of_driver(error),
        PoolError::Timeout(_) | PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            Box::new(error)
        }
    }
}

/// A migration that failed: which one, and what PostgreSQL answered.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
struct FailedMigration {
    step: String,
    #[source]
    source: Refused,
}

/// An error of the migration runner.
pub(crate) fn of_runner(error: refinery::Error) -> Source {
    let refused = if let refinery::error::Kind::Connection(step, source) = error.kind() {
        let database = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::as_db_error);
        database.map(|database| FailedMigration { step: step.clone(), source: Refused::of(database) })
    } else {
        None
    };
    match refused {
        Some(refused) => Box::new(refused),
        None => Box::new(error),
    }
}
