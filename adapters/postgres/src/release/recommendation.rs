//! The store of recommendations to roll back a release.

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input},
};
use async_trait::async_trait;
use fairway_domain::{
    release::{Release, ports::RecommendationStore},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};
use std::time::Duration;

/// Time between two passes that compare error rates of all releases, across all processes.
const ADVICE_INTERVAL: Duration = Duration::from_secs(15);

#[async_trait]
impl RecommendationStore for Database {
    async fn claim_recommendation_job(&self) -> Result<bool, StoreError> {
        self.claim_scheduled_job("advise_rollbacks", ADVICE_INTERVAL).await
    }

    async fn commit_recommendation(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError> {
        static RECOMMEND: GuardedCommit = GuardedCommit::new(
            "updated_release AS (
                UPDATE release SET rollback_advised = input.is_advised
                FROM input
                WHERE release.tenant_id = input.tenant_id AND release.release_id = input.release_id
                    AND state = 'active' AND rollback_advised <> input.is_advised
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM updated_release)",
        );
        let ChangeRecord { next, fact, .. } = change.into_record();
        let input =
            Input::new(scope).with("release_id", next.release_id.uuid()).with("is_advised", next.rollback_advised);
        self.commit_guarded(&RECOMMEND, scope, &fact, None, input).await.map(|_| ())
    }
}
