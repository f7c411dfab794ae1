//! Browser sessions. Every statement decides by the database's clock.

use crate::{
    batch_load::BatchLoader,
    database::{Database, StatementPool, read},
    guarded::{Guarded, Input, Query},
    row::{Row, decode, read_count},
};
use async_trait::async_trait;
use fairway_domain::{
    access::{
        ActorRef,
        session::{
            LiveSession, LogoutTarget, MAX_GROUPS_AGE, NewSession, RENEWAL_LEASE, RenewalClaim, SessionLifetime,
            SessionSnapshot, SessionStore, USE_INTERVAL,
        },
    },
    audit::Fact,
    id::SessionId,
    share_link::TokenHash,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use std::{collections::HashMap, time::Duration};
use uuid::Uuid;

/// Reads sessions by tenant and hash; requests that arrive together share a statement.
pub(crate) struct SessionLoader(pub(crate) StatementPool);

#[async_trait]
impl BatchLoader for SessionLoader {
    type Key = (Uuid, [u8; 32]);
    type Value = SessionSnapshot;
    const LABEL: &'static str = "sessions";

    async fn load_batch(&self, keys: &[Self::Key]) -> Result<HashMap<Self::Key, SessionSnapshot>, StoreError> {
        static LOAD: Query = Query::new(
            "SELECT session.tenant_id, session.secret_hash, session_id, identity.actor, identity.issuer, identity.subject,
                display_name, session.groups, sealed_tokens, expires_at,
                ended_at IS NOT NULL OR expires_at <= fairway_now() AS is_over,
                extract(epoch FROM fairway_now() - last_used_at)::float8 AS unused_seconds,
                extract(epoch FROM fairway_now() - groups_read_at)::float8 AS groups_seconds
            FROM input JOIN session USING (tenant_id, secret_hash) JOIN identity USING (tenant_id, identity_id)",
        );
        let input = Input::many()
            .with_all("tenant_id", keys.iter().map(|(tenant, _)| *tenant).collect())
            .with_all("secret_hash", keys.iter().map(|(_, hash)| hash.as_slice()).collect());
        let rows = read(&self.0, LOAD.text(&input)?, &input.params()).await?;
        rows.iter()
            .map(|row| {
                let hash: &[u8] = row.column("secret_hash")?;
                let key = (row.column("tenant_id")?, decode("secret_hash", hash.try_into().ok())?);
                Ok((key, snapshot(row)?))
            })
            .collect()
    }
}

fn snapshot(row: &Row) -> Result<SessionSnapshot, StoreError> {
    let seconds = |name| row.column::<f64>(name).map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
    Ok(SessionSnapshot {
        session_id: row.id("session_id")?,
        actor: row.actor("actor")?,
        issuer: row.column("issuer")?,
        subject: row.column("subject")?,
        display_name: row.column("display_name")?,
        groups: actors(&row.column::<Vec<String>>("groups")?)?,
        sealed_tokens: row.column("sealed_tokens")?,
        expires_at: row.timestamp("expires_at")?,
        is_over: row.column("is_over")?,
        unused_for: seconds("unused_seconds")?,
        groups_age: seconds("groups_seconds")?,
    })
}

fn actors(names: &[String]) -> Result<Vec<ActorRef>, StoreError> {
    names.iter().map(|name| decode("groups", ActorRef::parse(name).ok())).collect()
}

fn texts(actors: &[ActorRef]) -> Vec<String> {
    actors.iter().map(ActorRef::to_string).collect()
}

fn input_of_claim<'v>(scope: TenantScope, claim: RenewalClaim) -> Input<'v> {
    Input::new(scope).with("session_id", claim.session_id.uuid()).with("renewal_id", claim.renewal_id.uuid())
}

#[async_trait]
impl SessionStore for Database {
    async fn find(&self, scope: TenantScope, hash: &TokenHash) -> Result<Option<SessionSnapshot>, StoreError> {
        self.sessions.load((scope.tenant().uuid(), *hash.bytes())).await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        session: &NewSession,
        hash: &TokenHash,
        lifetime: SessionLifetime,
        fact: Fact,
    ) -> Result<(), CommitError> {
        static CREATE: Guarded = Guarded::new(
            "made AS (
                INSERT INTO session (tenant_id, session_id, secret_hash, identity_id, issuer_session, display_name,
                    groups, groups_read_at, sealed_tokens, created_at, last_used_at, expires_at)
                SELECT tenant_id, session_id, secret_hash, identity_id, issuer_session, display_name, groups,
                    fairway_now(), sealed_tokens, fairway_now(), fairway_now(),
                    fairway_now() + make_interval(secs => lifetime_seconds)
                FROM input
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM made)",
        );
        let input = Input::new(scope)
            .with("session_id", session.session_id.uuid())
            .with("secret_hash", hash.bytes().as_slice())
            .with("identity_id", session.identity_id.uuid())
            .with("issuer_session", session.issuer_session.as_deref())
            .with("display_name", session.display_name.as_str())
            .with_all("groups", texts(&session.groups))
            .with("sealed_tokens", session.sealed_tokens.as_slice())
            .with("lifetime_seconds", lifetime.total.as_secs_f64());
        self.commit_guarded(&CREATE, scope, &fact, None, input).await.map(|_| ())
    }

    async fn record_use(&self, scope: TenantScope, session: SessionId) -> Result<(), StoreError> {
        static USE: Query = Query::new(
            "used AS (
                UPDATE session SET last_used_at = fairway_now() FROM input
                WHERE session.tenant_id = input.tenant_id AND session.session_id = input.session_id
                    AND last_used_at < fairway_now() - make_interval(secs => interval_seconds)
                RETURNING 1
            )
            SELECT count(*) FROM used",
        );
        let input =
            Input::new(scope).with("session_id", session.uuid()).with("interval_seconds", USE_INTERVAL.as_secs_f64());
        self.write_idempotent(USE.text(&input)?, &input.params()).await.map(drop)
    }

    async fn claim_renewal(&self, scope: TenantScope, claim: RenewalClaim) -> Result<Option<Vec<u8>>, StoreError> {
        // A repeated statement finds its own claim.
        static CLAIM: Query = Query::new(
            "claimed AS (
                UPDATE session SET renewal_id = input.renewal_id,
                    renewal_until = fairway_now() + make_interval(secs => lease_seconds)
                FROM input
                WHERE session.tenant_id = input.tenant_id AND session.session_id = input.session_id
                    AND ended_at IS NULL
                    AND groups_read_at <= fairway_now() - make_interval(secs => max_age_seconds)
                    AND (renewal_until IS NULL OR renewal_until <= fairway_now()
                        OR session.renewal_id = input.renewal_id)
                RETURNING sealed_tokens
            )
            SELECT sealed_tokens FROM claimed",
        );
        let input = input_of_claim(scope, claim)
            .with("lease_seconds", RENEWAL_LEASE.as_secs_f64())
            .with("max_age_seconds", MAX_GROUPS_AGE.as_secs_f64());
        let rows = self.write_idempotent(CLAIM.text(&input)?, &input.params()).await?;
        rows.first().map(|row| row.column("sealed_tokens")).transpose()
    }

    async fn keep_tokens(
        &self,
        scope: TenantScope,
        claim: RenewalClaim,
        sealed_tokens: &[u8],
    ) -> Result<(), StoreError> {
        static KEEP: Query = Query::new(
            "kept AS (
                UPDATE session SET sealed_tokens = new_tokens FROM input
                WHERE session.tenant_id = input.tenant_id AND session.session_id = input.session_id
                    AND session.renewal_id = input.renewal_id AND ended_at IS NULL
                RETURNING 1
            )
            SELECT count(*) FROM kept",
        );
        let input = input_of_claim(scope, claim).with("new_tokens", sealed_tokens);
        self.write_idempotent(KEEP.text(&input)?, &input.params()).await.map(drop)
    }

    async fn release_renewal(&self, scope: TenantScope, claim: RenewalClaim) -> Result<(), StoreError> {
        static RELEASE: Query = Query::new(
            "released AS (
                UPDATE session SET renewal_until = NULL FROM input
                WHERE session.tenant_id = input.tenant_id AND session.session_id = input.session_id
                    AND session.renewal_id = input.renewal_id
                RETURNING 1
            )
            SELECT count(*) FROM released",
        );
        let input = input_of_claim(scope, claim);
        self.write_idempotent(RELEASE.text(&input)?, &input.params()).await.map(drop)
    }

    async fn renew(
        &self,
        scope: TenantScope,
        claim: RenewalClaim,
        groups: &[ActorRef],
        sealed_tokens: &[u8],
    ) -> Result<(), StoreError> {
        static RENEW: Query = Query::new(
            "renewed AS (
                UPDATE session SET groups = new_groups, groups_read_at = fairway_now(), sealed_tokens = new_tokens,
                    renewal_until = NULL
                FROM input
                WHERE session.tenant_id = input.tenant_id AND session.session_id = input.session_id
                    AND session.renewal_id = input.renewal_id AND ended_at IS NULL
                RETURNING 1
            )
            SELECT count(*) FROM renewed",
        );
        let input =
            input_of_claim(scope, claim).with_all("new_groups", texts(groups)).with("new_tokens", sealed_tokens);
        self.write_idempotent(RENEW.text(&input)?, &input.params()).await.map(drop)
    }

    async fn commit_end(&self, scope: TenantScope, session: SessionId, fact: Fact) -> Result<(), CommitError> {
        static END: Guarded = Guarded::new(
            "ended AS (
                UPDATE session SET ended_at = fairway_now(), sealed_tokens = ''
                FROM input
                WHERE session.tenant_id = input.tenant_id AND session.session_id = input.session_id
                    AND ended_at IS NULL
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM ended)",
        );
        let input = Input::new(scope).with("session_id", session.uuid());
        self.commit_guarded(&END, scope, &fact, None, input).await.map(|_| ())
    }

    async fn list_for_logout(&self, issuer: &str, target: &LogoutTarget) -> Result<Vec<LiveSession>, StoreError> {
        static OF_SESSION: Query = Query::new(
            "SELECT session.tenant_id, session_id, actor
            FROM input JOIN session USING (issuer_session) JOIN identity USING (tenant_id, identity_id)
            WHERE identity.issuer = wanted_issuer AND ended_at IS NULL",
        );
        static OF_SUBJECT: Query = Query::new(
            "SELECT session.tenant_id, session_id, actor
            FROM input JOIN identity ON identity.subject = wanted_subject AND identity.issuer = wanted_issuer
            JOIN session USING (tenant_id, identity_id)
            WHERE ended_at IS NULL",
        );
        let input = Input::one().with("wanted_issuer", issuer);
        let rows = match target {
            LogoutTarget::IssuerSession(id) => {
                self.fetch(&OF_SESSION, input.with("issuer_session", id.as_str())).await?
            }
            LogoutTarget::Subject(subject) => {
                self.fetch(&OF_SUBJECT, input.with("wanted_subject", subject.as_str())).await?
            }
        };
        let session = |row: &Row| {
            Ok(LiveSession {
                tenant: row.id("tenant_id")?,
                session_id: row.id("session_id")?,
                actor: row.actor("actor")?,
            })
        };
        rows.iter().map(session).collect()
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        static DELETE: Query = Query::new(
            // By row address, because the planner would read the whole table for a join with many rows.
            "gone AS (
                DELETE FROM session WHERE ctid = ANY (ARRAY(
                    SELECT ctid FROM session
                    WHERE least(expires_at, coalesce(ended_at, expires_at)) < fairway_now() - interval '1 day'
                    LIMIT (SELECT max_sessions FROM input)
                ))
                RETURNING 1
            )
            SELECT count(*) FROM gone",
        );
        let input = Input::one().with("max_sessions", MAX_DELETED_SESSIONS);
        let mut deleted = 0_u64;
        loop {
            let batch = read_count(&self.write_idempotent(DELETE.text(&input)?, &input.params()).await?)?;
            deleted = deleted.saturating_add(batch);
            if i64::try_from(batch).unwrap_or(0) < MAX_DELETED_SESSIONS {
                return Ok(deleted);
            }
        }
    }
}

/// Sessions that one statement deletes.
const MAX_DELETED_SESSIONS: i64 = 10_000;
