//! The store of notification profiles: time zone, digests and chat of a person.

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input},
    revisioned_row::{ROW_STORED, RevisionedRow},
    row::require_decoded,
    schema::notification_profile,
    store_error::inconsistent,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    notification::{
        digest::{DigestFrequency, Zone},
        ports::ProfileStore,
        profile::{NotificationProfile, NotificationProfileRecord, ProfileSettings},
    },
    notification_category::NotificationCategory,
    store::{Change, ChangeRecord, CommitError, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Queryable, Selectable)]
#[diesel(table_name = notification_profile, check_for_backend(Pg))]
struct StoredProfile {
    principal: String,
    profile_id: Uuid,
    time_zone: String,
    digest: Value,
    chat_secret_ref: Option<String>,
    revision: i64,
    updated_at: OffsetDateTime,
}

fn digest(stored: &Value) -> Result<BTreeMap<NotificationCategory, DigestFrequency>, StoreError> {
    let Value::Object(members) = stored else { return Err(inconsistent("a stored digest is no object".into())) };
    let entry = |(category, frequency): (&String, &Value)| {
        let frequency = frequency.as_str().and_then(DigestFrequency::parse);
        Ok((require_decoded("digest", NotificationCategory::parse(category))?, require_decoded("digest", frequency)?))
    };
    members.iter().map(entry).collect()
}

impl StoredProfile {
    fn into_value(self) -> Result<NotificationProfile, StoreError> {
        Ok(NotificationProfile::restore(NotificationProfileRecord {
            profile_id: self.profile_id.into(),
            principal: require_decoded("principal", ActorRef::parse(&self.principal).ok())?,
            settings: ProfileSettings {
                // A time zone that this server does not know counts as unset. The database of a newer server may
                // have renamed it.
                zone: Zone::parse(&self.time_zone).unwrap_or_else(Zone::utc),
                digest: digest(&self.digest)?,
                chat_secret_ref: self.chat_secret_ref,
            },
            updated_at: Timestamp::new(self.updated_at),
            revision: Revision::new(self.revision),
        }))
    }
}

static STORE: GuardedCommit = GuardedCommit::from_fn(
    || {
        RevisionedRow {
            table: "notification_profile",
            key: &["tenant_id", "principal"],
            fixed: &["profile_id"],
            replaced: &["time_zone", "digest", "chat_secret_ref", "revision", "updated_at"],
        }
        .ctes()
    },
    ROW_STORED,
);

#[async_trait]
impl ProfileStore for Database {
    async fn find(&self, scope: TenantScope, principal: &ActorRef) -> Result<Option<NotificationProfile>, StoreError> {
        let key = (scope.tenant().uuid(), principal.to_string());
        let find = || notification_profile::table.find(key.clone()).select(StoredProfile::as_select());
        self.first("notification profile", find).await?.map(StoredProfile::into_value).transpose()
    }

    async fn find_many(&self, scope: TenantScope, people: &[ActorRef]) -> Result<Vec<NotificationProfile>, StoreError> {
        let tenant = scope.tenant().uuid();
        let people: Vec<String> = people.iter().map(ToString::to_string).collect();
        let find = || {
            let of_people = notification_profile::principal.eq_any(people.clone());
            notification_profile::table
                .filter(notification_profile::tenant_id.eq(tenant).and(of_people))
                .select(StoredProfile::as_select())
        };
        let found: Vec<StoredProfile> = self.load("notification profiles", find).await?;
        found.into_iter().map(StoredProfile::into_value).collect()
    }

    async fn commit(&self, scope: TenantScope, change: Change<NotificationProfile>) -> Result<(), CommitError> {
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let digest: Map<String, Value> = next
            .settings
            .digest
            .iter()
            .map(|(category, frequency)| (category.as_str().to_owned(), frequency.as_str().into()))
            .collect();
        let input = Input::new(scope)
            .with("principal", next.principal.to_string())
            .with("profile_id", next.profile_id.uuid())
            .with("time_zone", next.settings.zone.name())
            .with("digest", Value::Object(digest))
            .with("chat_secret_ref", next.settings.chat_secret_ref.as_deref())
            .with("revision", next.revision.get())
            .with("updated_at", next.updated_at.to_datetime())
            .with("expected_revision", expected_revision.map(Revision::get));
        self.commit_guarded(&STORE, scope, &fact, None, input).await.map(|_| ())
    }
}
