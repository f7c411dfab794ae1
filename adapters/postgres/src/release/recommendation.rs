//! Recommendations to roll back a release.

use crate::{
    database::Database,
    guarded::{Guarded, Input, Query},
};
use async_trait::async_trait;
use fairway_domain::{
    release::{Release, ports::RecommendationStore},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};

#[async_trait]
impl RecommendationStore for Database {
    async fn claim_recommendation_job(&self) -> Result<bool, StoreError> {
        static CLAIM: Query = Query::new(
            "claimed AS (
                UPDATE chore SET due_at = fairway_now() + interval '15 seconds' FROM input
                WHERE chore.name = input.name AND due_at <= fairway_now() RETURNING 1
            )
            SELECT FROM claimed",
        );
        let input = Input::one().with("name", "advise_rollbacks");
        Ok(!self.write_idempotent(CLAIM.text(&input)?, &input.params()).await?.is_empty())
    }

    async fn commit_recommendation(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError> {
        static RECOMMEND: Guarded = Guarded::new(
            "changed AS (
                UPDATE release SET rollback_advised = input.is_advised
                FROM input
                WHERE release.tenant_id = input.tenant_id AND release.release_id = input.release_id
                    AND state = 'active' AND rollback_advised <> input.is_advised
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM changed)",
        );
        let ChangeRecord { next, fact, .. } = change.into_record();
        let input =
            Input::new(scope).with("release_id", next.release_id.uuid()).with("is_advised", next.rollback_advised);
        self.commit_guarded(&RECOMMEND, scope, &fact, None, input).await.map(|_| ())
    }
}
