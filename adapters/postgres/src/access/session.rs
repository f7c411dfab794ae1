//! Browser sessions. Every statement compares times with the database's clock.

use crate::{
    batch_load::BatchLoader,
    clock_and_length_functions::{database_now, time_ago},
    database::{Database, StatementPool, read},
    guarded_commit::{GuardedCommit, Input, Query},
    row::{Row, read_count, require_decoded},
    schema::{identity, session},
};
use async_trait::async_trait;
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, QueryDsl as _, pg::Pg};
use fairway_domain::{
    access::{
        ActorRef,
        session::{
            LogoutTarget, MAX_GROUPS_AGE, NewSession, RENEWAL_LEASE_DURATION, RenewalLease, SessionForLogout,
            SessionLifetime, SessionSnapshot, SessionStore, USE_RECORD_INTERVAL,
        },
    },
    audit::Fact,
    id::SessionId,
    share_link::TokenHash,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use std::{collections::HashMap, time::Duration};
use time::OffsetDateTime;
use uuid::Uuid;

/// Loads sessions by tenant and hash of the session secret. Concurrent loads share a statement.
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
                ended_at IS NOT NULL OR expires_at <= fairway_now() AS has_ended,
                extract(epoch FROM fairway_now() - last_used_at)::float8 AS unused_seconds,
                extract(epoch FROM fairway_now() - groups_read_at)::float8 AS groups_seconds
            FROM input JOIN session USING (tenant_id, secret_hash) JOIN identity USING (tenant_id, identity_id)",
        );
        let input = Input::many()
            .with_column("tenant_id", keys.iter().map(|(tenant, _)| *tenant))
            .with_column("secret_hash", keys.iter().map(|(_, hash)| hash.as_slice()));
        let rows = read(&self.0, LOAD.text(&input)?, &input.params()).await?;
        rows.iter()
            .map(|row| {
                let hash: &[u8] = row.column("secret_hash")?;
                let key = (row.column("tenant_id")?, require_decoded("secret_hash", hash.try_into().ok())?);
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
        has_ended: row.column("has_ended")?,
        unused_for: seconds("unused_seconds")?,
        groups_age: seconds("groups_seconds")?,
    })
}

fn actors(names: &[String]) -> Result<Vec<ActorRef>, StoreError> {
    names.iter().map(|name| require_decoded("groups", ActorRef::parse(name).ok())).collect()
}

fn texts(actors: &[ActorRef]) -> Vec<String> {
    actors.iter().map(ActorRef::to_string).collect()
}

/// The input of a statement on the session that this claim renews. These statements are text, so that they run on
/// point connections and do not wait behind lists. A wait would be harmful: the provider may already have
/// invalidated the old refresh token, and the new one is not yet stored.
fn input_of_claim<'v>(scope: TenantScope, claim: RenewalLease) -> Input<'v> {
    Input::new(scope).with("session_id", claim.session_id.uuid()).with("renewal_id", claim.renewal_id.uuid())
}

/// The query for a session that this claim renews.
#[diesel::dsl::auto_type(no_type_alias)]
fn claimed_session(tenant: Uuid, session: Uuid, renewal: Uuid) -> _ {
    let of_claim = session::renewal_id.eq(renewal);
    session::table.find((tenant, session)).filter(of_claim)
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
        static CREATE: GuardedCommit = GuardedCommit::new(
            "inserted_session AS (
                INSERT INTO session (tenant_id, session_id, secret_hash, identity_id, issuer_session, display_name,
                    groups, groups_read_at, sealed_tokens, created_at, last_used_at, expires_at)
                SELECT tenant_id, session_id, secret_hash, identity_id, issuer_session, display_name, groups,
                    fairway_now(), sealed_tokens, fairway_now(), fairway_now(),
                    fairway_now() + make_interval(secs => lifetime_seconds)
                FROM input
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM inserted_session)",
        );
        let input = Input::new(scope)
            .with("session_id", session.session_id.uuid())
            .with("secret_hash", hash.bytes().as_slice())
            .with("identity_id", session.identity_id.uuid())
            .with("issuer_session", session.issuer_session.as_deref())
            .with("display_name", session.display_name.as_str())
            .with_list("groups", texts(&session.groups))
            .with("sealed_tokens", session.sealed_tokens.as_slice())
            .with("lifetime_seconds", lifetime.total.as_secs_f64());
        self.commit_guarded(&CREATE, scope, &fact, None, input).await.map(|_| ())
    }

    async fn record_use(&self, scope: TenantScope, session: SessionId) -> Result<(), StoreError> {
        let key = (scope.tenant().uuid(), session.uuid());
        let record = || {
            let unrecorded = session::table.find(key).filter(session::last_used_at.lt(time_ago(USE_RECORD_INTERVAL)));
            diesel::update(unrecorded).set(session::last_used_at.eq(database_now()))
        };
        self.execute("use of a session", record).await.map(drop)
    }

    async fn claim_renewal(&self, scope: TenantScope, claim: RenewalLease) -> Result<Option<Vec<u8>>, StoreError> {
        // A repeated statement finds the claim that its first attempt wrote, so it succeeds too.
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
            .with("lease_seconds", RENEWAL_LEASE_DURATION.as_secs_f64())
            .with("max_age_seconds", MAX_GROUPS_AGE.as_secs_f64());
        let rows = self.write_idempotent(CLAIM.text(&input)?, &input.params()).await?;
        rows.first().map(|row| row.column("sealed_tokens")).transpose()
    }

    async fn store_renewed_tokens(
        &self,
        scope: TenantScope,
        claim: RenewalLease,
        sealed_tokens: &[u8],
    ) -> Result<(), StoreError> {
        static STORE_TOKENS: Query = Query::new(
            "stored AS (
                UPDATE session SET sealed_tokens = new_tokens FROM input
                WHERE session.tenant_id = input.tenant_id AND session.session_id = input.session_id
                    AND session.renewal_id = input.renewal_id AND ended_at IS NULL
                RETURNING 1
            )
            SELECT count(*) FROM stored",
        );
        let input = input_of_claim(scope, claim).with("new_tokens", sealed_tokens);
        self.write_idempotent(STORE_TOKENS.text(&input)?, &input.params()).await.map(drop)
    }

    async fn release_renewal(&self, scope: TenantScope, claim: RenewalLease) -> Result<(), StoreError> {
        let (tenant, session, renewal) = (scope.tenant().uuid(), claim.session_id.uuid(), claim.renewal_id.uuid());
        let release = || {
            diesel::update(claimed_session(tenant, session, renewal))
                .set(session::renewal_until.eq(None::<OffsetDateTime>))
        };
        self.execute("release of a session", release).await.map(drop)
    }

    async fn complete_renewal(
        &self,
        scope: TenantScope,
        claim: RenewalLease,
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
            input_of_claim(scope, claim).with_list("new_groups", texts(groups)).with("new_tokens", sealed_tokens);
        self.write_idempotent(RENEW.text(&input)?, &input.params()).await.map(drop)
    }

    async fn commit_end(&self, scope: TenantScope, session: SessionId, fact: Fact) -> Result<(), CommitError> {
        static END: GuardedCommit = GuardedCommit::new(
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

    async fn list_for_logout(&self, issuer: &str, target: &LogoutTarget) -> Result<Vec<SessionForLogout>, StoreError> {
        let issuer = issuer.to_owned();
        let live = || {
            let of_identity =
                identity::tenant_id.eq(session::tenant_id).and(identity::identity_id.eq(session::identity_id));
            let of_issuer = session::table
                .inner_join(identity::table.on(of_identity))
                .filter(identity::issuer.eq(issuer.clone()).and(session::ended_at.is_null()))
                .select((session::tenant_id, session::session_id, identity::actor))
                .into_boxed::<'static, Pg>();
            match target {
                LogoutTarget::IssuerSession(id) => of_issuer.filter(session::issuer_session.eq(id.clone())),
                LogoutTarget::Subject(subject) => of_issuer.filter(identity::subject.eq(subject.clone())),
            }
        };
        let found: Vec<(Uuid, Uuid, String)> = self.load("sessions of a logout", live).await?;
        let session = |(tenant, session, actor): (Uuid, Uuid, String)| {
            Ok(SessionForLogout {
                tenant: tenant.into(),
                session_id: session.into(),
                actor: require_decoded("actor", ActorRef::parse(&actor).ok())?,
            })
        };
        found.into_iter().map(session).collect()
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        static DELETE: Query = Query::new(
            // Deletes by row address (`ctid`), because the planner would scan the whole table for a join with many
            // rows.
            "deleted_session AS (
                DELETE FROM session WHERE ctid = ANY (ARRAY(
                    SELECT ctid FROM session
                    WHERE least(expires_at, coalesce(ended_at, expires_at)) < fairway_now() - interval '1 day'
                    LIMIT (SELECT max_sessions FROM input)
                ))
                RETURNING 1
            )
            SELECT count(*) FROM deleted_session",
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

/// Maximum number of sessions that one statement deletes.
const MAX_DELETED_SESSIONS: i64 = 10_000;
