//! Reads of large texts under a permit and a memory reservation.
//!
//! A statement that reads small rows omits a text of more than [`MAX_SMALL_TEXT_BYTES`] bytes and returns its length
//! instead. A [`LargeRead`] then reads the text in a second statement
//! ([0076](../../../docs/decisions/0076-memory-limit.md)).

use crate::{
    database::{Database, STATEMENT_TIMEOUT},
    param::Param,
    row::Row,
    store_error::unavailable,
};
use fairway_domain::{id::TenantId, store::StoreError, tenant::TenantScope};
use fairway_fair_queue::{FairSemaphore, Limits, Permit};
use fairway_memory_limit::{Admission, admit};
use std::sync::LazyLock;

/// Maximum length of a text that is read without a permit, in bytes.
pub(crate) const MAX_SMALL_TEXT_BYTES: i32 = 64 << 10;
/// Permits for concurrent reads of large texts, per process. Tenants take turns.
static PERMITS: LazyLock<FairSemaphore<TenantId>> = LazyLock::new(|| FairSemaphore::new(Limits::unlimited_per_key(4)));
/// Memory that a large text needs while it is read and parsed, as a multiple of its length. It covers the driver's
/// copy, the text itself, and the values of dense JSON.
const MEMORY_FACTOR: usize = 6;

/// A permit and a memory reservation to read and parse one large text.
pub(crate) struct LargeRead((Permit<TenantId>, Admission));

impl LargeRead {
    /// Acquires the permit and the memory to read `bytes` for a tenant.
    ///
    /// # Errors
    /// `Unavailable` if no permit becomes free within [`STATEMENT_TIMEOUT`], or if the memory is not available
    /// within another [`STATEMENT_TIMEOUT`] after that.
    pub(crate) async fn acquire(scope: TenantScope, bytes: i64) -> Result<Self, StoreError> {
        let permit = PERMITS.acquire(scope.tenant(), STATEMENT_TIMEOUT).await;
        let permit = permit.map_err(|error| unavailable(Box::new(error)))?;
        let bytes = usize::try_from(bytes).unwrap_or_default().saturating_mul(MEMORY_FACTOR);
        let memory = admit(bytes, STATEMENT_TIMEOUT).await.map_err(|error| unavailable(Box::new(error)))?;
        Ok(Self((permit, memory)))
    }

    /// Reads the rows. Returns `self` with them, which the caller holds until it has parsed the rows.
    pub(crate) async fn rows(
        self,
        database: &Database,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<(Vec<Row>, Self), StoreError> {
        let (rows, permit) = database.read_with_permit(self.0, sql, params).await?;
        Ok((rows, Self(permit)))
    }
}

/// Two columns for a text. `{name}` has the text, or null if it is large. `{name}_bytes` has its length, or null if
/// it is small.
pub(crate) fn small_text_columns(text: &str, name: &str) -> String {
    format!(
        "CASE WHEN octet_length({text}) <= {MAX_SMALL_TEXT_BYTES} THEN {text} END AS {name},
         CASE WHEN octet_length({text}) > {MAX_SMALL_TEXT_BYTES} THEN octet_length({text})::bigint END AS {name}_bytes"
    )
}
