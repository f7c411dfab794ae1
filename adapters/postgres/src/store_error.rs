//! Maps driver errors to store errors. Violated constraints and error codes that Fairway's SQL functions raise
//! become conflicts. All other errors keep only the fault that they indicate.

use crate::error_redaction::{ErrorSource, redact_driver_error};
use fairway_domain::store::{CommitError, ConstraintConflict, StoreError, StoreFault};
use std::{error::Error, io};
use tokio_postgres::error::SqlState;

/// SQLSTATE that `fairway_commit` raises when the guard does not hold.
const LOST_GUARD: &str = "FW001";
/// SQLSTATE that `fairway_commit` raises when the idempotency key is already used.
const KEY_TAKEN: &str = "FW002";

/// SQLSTATE that `fairway_archive_asset` raises when a release still needs the asset.
const ASSET_IN_USE: &str = "FW004";

/// SQLSTATE that `fairway_use_share_link` raises when the link is missing, revoked, expired or used up.
const SHARE_LINK_CLOSED: &str = "FW005";

pub(crate) fn commit_from_driver(error: tokio_postgres::Error) -> CommitError {
    let Some(database) = error.as_db_error() else {
        return CommitError::Store(from_driver(error));
    };
    match database.code().code() {
        LOST_GUARD => CommitError::Stale,
        KEY_TAKEN => CommitError::DuplicateKey,
        SHARE_LINK_CLOSED => CommitError::Conflict(ConstraintConflict::ShareLinkClosed),
        ASSET_IN_USE => CommitError::Conflict(ConstraintConflict::AssetInUse),
        _ => match conflict(database.code(), database.constraint()) {
            Some(conflict) => CommitError::Conflict(conflict),
            None => CommitError::Store(from_driver(error)),
        },
    }
}

fn conflict(code: &SqlState, constraint: Option<&str>) -> Option<ConstraintConflict> {
    if *code == SqlState::FOREIGN_KEY_VIOLATION {
        return Some(ConstraintConflict::MissingReference);
    }
    if *code != SqlState::UNIQUE_VIOLATION {
        return None;
    }
    match constraint? {
        "tenant_slug_key" | "workspace_slug_key" | "asset_slug_key" | "workload_slug_key" => {
            Some(ConstraintConflict::DuplicateSlug)
        }
        "asset_version_label_key" => Some(ConstraintConflict::DuplicateVersionLabel),
        "release_binding_role_key" => Some(ConstraintConflict::DuplicateRole),
        "asset_grant_once" => Some(ConstraintConflict::DuplicateGrant),
        "role_binding_once" => Some(ConstraintConflict::DuplicateRoleBinding),
        "access_contract_owner" => Some(ConstraintConflict::ContractNameTaken),
        "access_contract_revoked" => Some(ConstraintConflict::ContractRevoked),
        "tenant_public_host_key" => Some(ConstraintConflict::HostTaken),
        "connection_name_key" => Some(ConstraintConflict::DuplicateConnection),
        "use_case_refinement_once" => Some(ConstraintConflict::RefinementKeyTaken),
        "notification_destination_once" => Some(ConstraintConflict::DuplicateDestination),
        "identity_actor_key" => Some(ConstraintConflict::ActorNameTaken),
        _ => None,
    }
}

pub(crate) fn from_driver(error: tokio_postgres::Error) -> StoreError {
    let is_temporary = match error.code() {
        // An error without a code did not come from PostgreSQL: the connection could not be opened, or it broke.
        None => is_broken_connection(&error),
        Some(code) => is_transient(code),
    };
    let fault = if is_temporary { StoreFault::Unavailable } else { StoreFault::Inconsistent };
    StoreError { source: redact_driver_error(error), fault }
}

/// Whether a statement with this error may have been committed, provided that it was sent. This is so if the connection
/// broke before the response, or if the response states it: SQLSTATE class 08 or 40003, which connection poolers
/// send for a broken connection. After any other error, PostgreSQL has rolled the statement back.
pub(crate) fn is_outcome_unknown(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        None => is_broken_connection(error),
        Some(code) => code.code().starts_with("08") || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN,
    }
}

/// Whether an error without a code means that the connection is closed or that its socket failed.
fn is_broken_connection(error: &tokio_postgres::Error) -> bool {
    error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>())
}

/// Whether a retry may succeed, because the server restarts, is overloaded, or another transaction holds a lock.
fn is_transient(code: &SqlState) -> bool {
    let class = code.code().get(0..2).unwrap_or_default();
    matches!(class, "08" | "53" | "57" | "58") || matches!(code.code(), "40001" | "40P01" | "55P03" | "25006")
}

pub(crate) fn unavailable(source: ErrorSource) -> StoreError {
    StoreError { source, fault: StoreFault::Unavailable }
}

/// The error of a change that may have been committed although no response arrived.
pub(crate) fn outcome_unknown(source: ErrorSource) -> StoreError {
    StoreError { source, fault: StoreFault::OutcomeUnknown }
}

/// The error source for requests whose shared statement failed or got no response. The cause is logged once, for
/// the batch.
pub(crate) fn missing_batch_response() -> ErrorSource {
    Box::new(io::Error::other("the shared statement of a batch got no answer"))
}

pub(crate) fn inconsistent(source: ErrorSource) -> StoreError {
    StoreError { source, fault: StoreFault::Inconsistent }
}
