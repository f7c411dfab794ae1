//! Reads of large rows, a few at a time.
//!
//! A statement that reads small rows leaves out a text of more than [`MAX_SMALL`] bytes and says how long it is. The text is
//! then read by itself with a [`LargeRead`] ([0076](../../../docs/decisions/0076-memory-limit.md)).

use crate::{
    database::{ANSWER, Database, Param},
    failure::unavailable,
};
use fairway_domain::{id::TenantId, store::StoreError, tenant::TenantScope};
use fairway_fair_queue::{FairSemaphore, Limits, Permit};
use fairway_memory_limit::{Admission, admit};
use std::sync::LazyLock;
use tokio_postgres::Row;

/// Most bytes of a text that is read without a permit.
pub(crate) const MAX_SMALL: i32 = 64 << 10;
/// Large texts that a process reads at the same time. Tenants take turns.
static PERMITS: LazyLock<FairSemaphore<TenantId>> = LazyLock::new(|| FairSemaphore::new(Limits::of(4)));
/// What a large text takes in terms of its length, until its caller has it: the driver's copy, the text, and the values of
/// dense JSON.
const COPIES: usize = 6;

/// The right to read one large text, and to parse it.
pub(crate) struct LargeRead((Permit<TenantId>, Admission));

impl LargeRead {
    /// The right to read `bytes` for a tenant.
    ///
    /// # Errors
    /// When no permit becomes free in the time of a statement, or the process has no memory within that time again.
    pub(crate) async fn acquire(scope: TenantScope, bytes: i64) -> Result<Self, StoreError> {
        let permit = PERMITS.acquire(scope.tenant(), ANSWER).await;
        let permit = permit.map_err(|refused| unavailable(Box::new(refused)))?;
        let bytes = usize::try_from(bytes).unwrap_or_default().saturating_mul(COPIES);
        let memory = admit(bytes, ANSWER).await.map_err(|refused| unavailable(Box::new(refused)))?;
        Ok(Self((permit, memory)))
    }

    /// Reads the rows. The caller keeps the permit until it parsed them.
    pub(crate) async fn rows(
        self,
        database: &Database,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<(Vec<Row>, Self), StoreError> {
        let (rows, permit) = database.read_permitted(self.0, sql, params).await?;
        Ok((rows, Self(permit)))
    }
}

/// Two columns for a text: `{name}`, which is null if the text is large, and `{name}_bytes`, which is null if it is not.
pub(crate) fn small_text(text: &str, name: &str) -> String {
    format!(
        "CASE WHEN octet_length({text}) <= {MAX_SMALL} THEN {text} END AS {name},
         CASE WHEN octet_length({text}) > {MAX_SMALL} THEN octet_length({text})::bigint END AS {name}_bytes"
    )
}
