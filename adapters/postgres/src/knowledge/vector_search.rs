//! Vector search over chunks.
//!
//! The comparison is exact, without an approximate index, so results are exact under every filter. If a revision
//! has more chunks than one query may compare, the search compares the oldest ones and marks the result as capped.
//! Searches in the same revision are deterministic.
//!
//! With the extension `vector`, PostgreSQL compares the vectors and returns the best hits. Without it, this process
//! reads the vectors and compares them on a blocking thread.

use super::{Lexemes, revision_params};
use crate::{
    database::{Database, STATEMENT_TIMEOUT},
    guarded_commit::{Input, Query},
    row::{Row, require_decoded},
    store_error::unavailable,
};
use fairway_domain::{
    id::TenantId,
    knowledge::{
        document::metadata_hashes,
        ports::SearchScope,
        retrieval::{SearchHit, SearchResults, VectorSearchCoverage, max_compared_vectors, unit_vector_similarity},
    },
    store::StoreError,
    tenant::TenantScope,
};
use fairway_fair_queue::{FairSemaphore, Limits, Permit};
use std::{fmt::Write as _, sync::LazyLock};
use tokio::task::spawn_blocking;

/// Maximum number of concurrent vector searches in this process. Each may use the maximum bytes of compared
/// vectors, or a processor of the database server.
const MAX_SEARCHES: usize = 2;
/// Maximum number of vectors that PostgreSQL compares for one query.
const MAX_COMPARED: u32 = 100_000;
/// Maximum bytes of vectors that PostgreSQL reads for one query.
const MAX_COMPARED_BYTES: usize = 128 << 20;

/// Permits for vector searches. They are per process, because they limit its memory. Tenants take turns.
static SEARCH_PERMITS: LazyLock<FairSemaphore<TenantId>> =
    LazyLock::new(|| FairSemaphore::new(Limits::unlimited_per_key(MAX_SEARCHES)));

/// The chunks that a search compares.
struct Candidates<'a> {
    scope: TenantScope,
    search_scope: &'a SearchScope,
    filter: Option<String>,
}

impl<'a> Candidates<'a> {
    fn of(scope: TenantScope, search_scope: &'a SearchScope) -> Self {
        let lexemes = Lexemes::of(scope.tenant(), search_scope.asset);
        let metadata_lexemes: Vec<String> =
            metadata_hashes(&search_scope.filters).iter().map(|hash| lexemes.metadata_hash(hash)).collect();
        Self { scope, search_scope, filter: (!metadata_lexemes.is_empty()).then(|| metadata_lexemes.join(" & ")) }
    }

    /// The parameters that select the candidates.
    fn params(&self) -> Input<'a> {
        revision_params(self.scope, self.search_scope.asset, self.search_scope.revision)
            .with_param("filter", self.filter.clone())
    }
}

/// Selects the chunks of a revision that have a vector.
const FROM_EMBEDDED_CHUNKS: &str = "
    FROM knowledge_chunk
    WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} AND from_revision <= {revision}
        AND (until_revision IS NULL OR until_revision > {revision}) AND embedded_by <> ''";

/// The further condition on the chunks that a search compares. The search in PostgreSQL, the search in the server and
/// the count share it, so that they agree on the candidates.
const MATCHES_FILTER: &str = " AND ({filter} IS NULL OR words @@ {filter}::tsquery)";

pub(super) async fn search_vectors(
    database: &Database,
    scope: TenantScope,
    search_scope: &SearchScope,
    vector: &[f32],
) -> Result<SearchResults, StoreError> {
    let candidates = Candidates::of(scope, search_scope);
    // The permit is acquired before any read, so that it limits the rows in memory.
    let permit = SEARCH_PERMITS
        .acquire(scope.tenant(), STATEMENT_TIMEOUT)
        .await
        .map_err(|error| unavailable(Box::new(error)))?;
    if has_vector_column(database).await? {
        return search_in_database(database, &candidates, vector, permit).await;
    }
    let limit = max_compared_vectors(vector.len());
    let (rows, permit) = fetch_candidates(database, &candidates, limit, permit).await?;
    let (vector, hit_limit) = (vector.to_vec(), search_scope.limit);
    // The comparison runs on a blocking thread, because it would block an async worker thread. That thread drops
    // rows and permit together, even if the request is cancelled.
    let compared = spawn_blocking(move || {
        let results = rank_candidates(&vector, &rows, limit);
        drop((rows, permit));
        results
    });
    Ok(compared.await.map_err(|error| unavailable(Box::new(error)))??.top(hit_limit))
}

/// Whether `knowledge_chunk` has the vector column. The result is cached, because only a migration changes it.
async fn has_vector_column(database: &Database) -> Result<bool, StoreError> {
    const SQL: &str = "SELECT EXISTS (
            SELECT FROM pg_attribute
            WHERE attrelid = 'knowledge_chunk'::regclass AND attname = 'meaning' AND NOT attisdropped
        ) AS has_column";
    let read = async || database.read_one(SQL, &[]).await?.map_or(Ok(false), |row| row.column("has_column"));
    database.has_vector_column.get_or_try_init(read).await.copied()
}

/// Searches in PostgreSQL. All vectors have length 1, so the inner product equals the cosine similarity.
async fn search_in_database(
    database: &Database,
    candidates: &Candidates<'_>,
    vector: &[f32],
    permit: Permit<TenantId>,
) -> Result<SearchResults, StoreError> {
    static SEARCH: Query = Query::of_parts(&[
        "SELECT chunk_id, score, count(*) OVER () AS compared
        FROM (
            SELECT chunk_id, least(1, greatest(0, -(meaning <#> {vector}::vector))) AS score
            FROM (SELECT chunk_id, meaning ",
        FROM_EMBEDDED_CHUNKS,
        MATCHES_FILTER,
        " ORDER BY from_revision, chunk_id LIMIT {max_candidates}) AS candidate
            OFFSET 0
        ) AS compared
        ORDER BY score DESC, chunk_id LIMIT {limit}",
    ]);
    let limit = max_compared_in_database(vector.len());
    let input = candidates
        .params()
        .with_param("max_candidates", i64::from(limit).saturating_add(1))
        .with_param("vector", to_pgvector_text(vector))
        .with_param("limit", i64::from(candidates.search_scope.limit));
    let (rows, _permit) = database.read_with_permit(permit, SEARCH.text(&input)?, &input.params()).await?;
    let hits = rows.iter().map(|row| Ok(SearchHit { chunk_id: row.id("chunk_id")?, score: row.column("score")? }));
    let hits = hits.collect::<Result<Vec<SearchHit>, StoreError>>()?;
    let compared: i64 = rows.first().map_or(Ok(0), |row| row.column("compared"))?;
    Ok(SearchResults { hits, is_capped: compared > i64::from(limit) })
}

/// Maximum number of vectors with this number of dimensions that PostgreSQL compares for one query.
fn max_compared_in_database(dimensions: usize) -> u32 {
    let max_vectors = MAX_COMPARED_BYTES / dimensions.saturating_mul(size_of::<f32>()).max(1);
    u32::try_from(max_vectors).map_or(MAX_COMPARED, |vectors| vectors.min(MAX_COMPARED))
}

/// Determines whether a search compares all matching chunks. The count stops one above the limit, so it is fast for
/// every revision.
pub(super) async fn coverage(
    database: &Database,
    scope: TenantScope,
    search_scope: &SearchScope,
) -> Result<VectorSearchCoverage, StoreError> {
    static LENGTH: Query = Query::of_parts(&[
        "SELECT octet_length(embedding) / 4 AS dimensions ",
        FROM_EMBEDDED_CHUNKS,
        " ORDER BY from_revision, chunk_id LIMIT 1",
    ]);
    static COUNT: Query = Query::of_parts(&[
        "SELECT count(*) AS chunks FROM (SELECT ",
        FROM_EMBEDDED_CHUNKS,
        MATCHES_FILTER,
        " LIMIT {max_candidates}) AS candidate",
    ]);
    let input = revision_params(scope, search_scope.asset, search_scope.revision);
    let first = database.fetch_one(&LENGTH, input).await?;
    let dimensions = first.map_or(Ok(0), |row| row.column::<i32>("dimensions"))?;
    let dimensions = require_decoded("dimensions", usize::try_from(dimensions).ok())?;
    let limit = if has_vector_column(database).await? {
        max_compared_in_database(dimensions)
    } else {
        max_compared_vectors(dimensions)
    };
    let input =
        Candidates::of(scope, search_scope).params().with_param("max_candidates", i64::from(limit).saturating_add(1));
    // The statement runs on a list connection, which plans for the given values: without a filter, an index-only
    // scan suffices.
    let rows = database.read_list(0, COUNT.text(&input)?, &input.params()).await?;
    let chunks: i64 = rows.first().map_or(Ok(0), |row| row.column("chunks"))?;
    Ok(VectorSearchCoverage { limit, is_complete: chunks <= i64::from(limit) })
}

/// Renders a vector in PostgreSQL's text format.
fn to_pgvector_text(vector: &[f32]) -> String {
    let mut text = String::from("[");
    for (index, component) in vector.iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        // Errors are ignored, because writing to a string cannot fail.
        let _ = write!(text, "{separator}{component}");
    }
    text.push(']');
    text
}

async fn fetch_candidates(
    database: &Database,
    candidates: &Candidates<'_>,
    limit: u32,
    permit: Permit<TenantId>,
) -> Result<(Vec<Row>, Permit<TenantId>), StoreError> {
    static READ: Query = Query::of_parts(&[
        "SELECT chunk_id, embedding ",
        FROM_EMBEDDED_CHUNKS,
        MATCHES_FILTER,
        " ORDER BY from_revision, chunk_id LIMIT {max_candidates}",
    ]);
    let input = candidates.params().with_param("max_candidates", i64::from(limit).saturating_add(1));
    database.read_with_permit(permit, READ.text(&input)?, &input.params()).await
}

/// Computes the similarity of a vector to the first `limit` rows.
fn rank_candidates(vector: &[f32], rows: &[Row], limit: u32) -> Result<SearchResults, StoreError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut hits = Vec::with_capacity(rows.len());
    for row in rows.iter().take(limit) {
        let bytes: &[u8] = row.column("embedding")?;
        let candidate: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|part| f32::from_le_bytes(*part)).collect();
        require_decoded("embedding", (candidate.len() == vector.len()).then_some(()))?;
        hits.push(SearchHit { chunk_id: row.id("chunk_id")?, score: unit_vector_similarity(vector, &candidate) });
    }
    Ok(SearchResults { hits, is_capped: rows.len() > limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseOptions;
    use fairway_domain::knowledge::IndexRevision;
    use fairway_fair_queue::AcquireError;
    use fairway_testkit::TestDatabase;
    use serde_json::Map;
    use std::{future::ready, pin::pin, time::Duration};
    use tokio::time::sleep;
    use uuid::Uuid;

    #[tokio::test]
    async fn tenants_take_turns_for_search_permits() {
        const LONG: Duration = Duration::from_secs(600);
        let tenant = |number| TenantScope::for_background_task(Uuid::from_u128(number).into());
        let (busy_tenant, other_tenant) = (tenant(1), tenant(2));
        let mut permits = Vec::new();
        for _ in 0..MAX_SEARCHES {
            permits.push(SEARCH_PERMITS.acquire(busy_tenant.tenant(), LONG).await.unwrap());
        }
        for expected_waiting in 1..=8 {
            tokio::spawn(async move {
                let _permit = SEARCH_PERMITS.acquire(busy_tenant.tenant(), LONG).await.unwrap();
                std::future::pending::<()>().await;
            });
            while SEARCH_PERMITS.waiting_count_of(&busy_tenant.tenant()) < expected_waiting {
                tokio::task::yield_now().await;
            }
        }
        // The server at this address refuses connections, so a search that acquires a permit fails with a
        // connection error.
        let url = "postgres://nobody@127.0.0.1:1/none".to_owned();
        let options = DatabaseOptions { url, connections: 1, result_retention: LONG };
        let database = Database::new(&options).unwrap();
        let asset = Uuid::from_u128(3).into();
        let search_scope = SearchScope { asset, revision: IndexRevision::new(1), filters: Map::new(), limit: 1 };
        let release_permit = async {
            while SEARCH_PERMITS.waiting_count_of(&other_tenant.tenant()) == 0 {
                tokio::task::yield_now().await;
            }
            drop(permits.pop());
        };
        let (error, ()) = tokio::join!(search_vectors(&database, other_tenant, &search_scope, &[1.0]), release_permit);
        let error = error.unwrap_err();
        assert!(!error.source.is::<AcquireError>(), "the tenant without a permit must get the next one: {error:?}");
    }

    /// The number of lock requests on `knowledge_chunk` that are waiting.
    const BLOCKED: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'knowledge_chunk'::regclass";

    #[tokio::test]
    async fn cancelled_search_keeps_its_permit_until_postgresql_ends_it() {
        const LONG: Duration = Duration::from_secs(600);
        // A statement waits for a lock for about a second. On a slow machine it may time out before the check
        // below, so the test retries.
        const ROUNDS: usize = 50;
        let clone = TestDatabase::create().await.unwrap();
        let owner = clone.connect_as_owner().await.unwrap();
        let options = DatabaseOptions { url: clone.url_for_owner(), connections: 4, result_retention: LONG };
        let database = Database::new(&options).unwrap();
        let scope = TenantScope::for_background_task(Uuid::from_u128(1).into());
        let asset = Uuid::from_u128(3).into();
        let search_scope = SearchScope { asset, revision: IndexRevision::new(1), filters: Map::new(), limit: 1 };
        search_vectors(&database, scope, &search_scope, &[1.0]).await.unwrap();
        for _ in 0..ROUNDS {
            owner.batch_execute("BEGIN; LOCK TABLE knowledge_chunk IN ACCESS EXCLUSIVE MODE").await.unwrap();
            let search = || {
                let (database, search_scope) = (database.clone(), search_scope.clone());
                tokio::spawn(async move { search_vectors(&database, scope, &search_scope, &[1.0]).await.map(|_| ()) })
            };
            let searches: Vec<_> = (0..MAX_SEARCHES).map(|_| search()).collect();
            let expected_blocked = i64::try_from(MAX_SEARCHES).unwrap();
            while owner.query_one(BLOCKED, &[]).await.unwrap().get::<_, i64>(0) < expected_blocked
                && !searches.iter().any(tokio::task::JoinHandle::is_finished)
            {
                sleep(Duration::from_millis(5)).await;
            }
            for search in searches {
                search.abort();
                // The search was cancelled, or its lock wait timed out.
                let _ = search.await;
            }
            let mut next = pin!(SEARCH_PERMITS.acquire(scope.tenant(), LONG));
            let has_waited = tokio::select! {
                biased;
                _ = &mut next => false,
                () = ready(()) => true,
            };
            owner.batch_execute("ROLLBACK").await.unwrap();
            if has_waited {
                let _permit = next.await.unwrap();
                return;
            }
        }
        panic!("permits of searches were released while PostgreSQL executed them");
    }
}
