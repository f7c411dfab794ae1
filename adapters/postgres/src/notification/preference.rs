//! Preferences of people, and the default profiles of roles.

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input},
    revisioned_row::{ROW_STORED, RevisionedRow},
    row::require_decoded,
    schema::{notification_default_profiles, notification_preference, release, tenant},
    store_error::inconsistent,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    pg::Pg,
};
use fairway_domain::{
    access::{ActorRef, Role},
    id::WorkloadId,
    notification::{
        Channel, Tier,
        ports::PreferenceStore,
        preference::{
            DefaultPreference, DefaultPreferences, DefaultPreferencesRecord, NotificationSettings, Preference,
            PreferenceScope, PreferenceSet, PreferenceSetRecord,
        },
    },
    notification_category::NotificationCategory,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use time::OffsetDateTime;
use uuid::Uuid;

/// A setting as stored. `profile_ref` is set only in default profiles.
#[derive(Deserialize)]
struct StoredSetting {
    profile_ref: Option<String>,
    category: String,
    channel: String,
    enabled: bool,
}

impl StoredSetting {
    fn preference(&self) -> Result<Preference, StoreError> {
        Ok(Preference {
            category: require_decoded("settings.category", NotificationCategory::parse(&self.category))?,
            channel: require_decoded("settings.channel", Channel::parse(&self.channel))?,
            enabled: self.enabled,
        })
    }

    fn role(&self) -> Result<Role, StoreError> {
        require_decoded("settings.profile_ref", self.profile_ref.as_deref().and_then(Role::parse))
    }
}

fn settings_of(value: Value) -> Result<Vec<StoredSetting>, StoreError> {
    serde_json::from_value(value)
        .map_err(|_| inconsistent("stored notification settings have an unexpected shape".into()))
}

fn preference_json(preference: Preference) -> Value {
    let Preference { category, channel, enabled } = preference;
    json!({ "category": category, "channel": channel.as_str(), "enabled": enabled })
}

fn default_json(default: DefaultPreference) -> Value {
    let DefaultPreference { role, preference: Preference { category, channel, enabled } } = default;
    json!({ "profile_ref": role.as_str(), "category": category, "channel": channel.as_str(), "enabled": enabled })
}

/// The preferences of a person in a scope, as stored.
#[derive(Queryable, Selectable)]
#[diesel(table_name = notification_preference, check_for_backend(Pg))]
pub(super) struct StoredPreferences {
    principal: String,
    scope_kind: String,
    scope_ref: Uuid,
    environment: String,
    preference_set_id: Uuid,
    settings: Value,
    revision: i64,
    updated_at: OffsetDateTime,
}

impl StoredPreferences {
    pub(super) fn into_value(self) -> Result<PreferenceSet, StoreError> {
        let scope = match self.scope_kind.as_str() {
            "global" => PreferenceScope::Global,
            "workspace" => PreferenceScope::Workspace(self.scope_ref.into()),
            "project" => PreferenceScope::Project(self.scope_ref.into()),
            "environment" => {
                let environment = require_decoded("environment", Slug::parse(&self.environment).ok())?;
                PreferenceScope::Environment(self.scope_ref.into(), environment)
            }
            _ => return Err(inconsistent("the scope of stored preferences is unknown".into())),
        };
        let stored = settings_of(self.settings)?;
        let settings = stored.iter().map(StoredSetting::preference);
        let settings = settings
            .map(|setting| setting.map(|preference| ((preference.category, preference.channel), preference.enabled)));
        Ok(PreferenceSet::restore(PreferenceSetRecord {
            preference_set_id: self.preference_set_id.into(),
            principal: require_decoded("principal", ActorRef::parse(&self.principal).ok())?,
            scope,
            settings: settings.collect::<Result<_, _>>()?,
            updated_at: Timestamp::new(self.updated_at),
            revision: Revision::new(self.revision),
        }))
    }
}

/// The values of the columns `scope_ref` and `environment` for a scope.
fn key_of(scope: TenantScope, preference_scope: &PreferenceScope) -> (Uuid, String) {
    let (reference, environment) = preference_scope.reference();
    (reference.unwrap_or(scope.tenant().uuid()), environment.unwrap_or_default().to_owned())
}

static STORE: GuardedCommit = GuardedCommit::from_fn(
    || {
        RevisionedRow {
            table: "notification_preference",
            key: &["tenant_id", "principal", "scope_kind", "scope_ref", "environment"],
            fixed: &["preference_set_id"],
            replaced: &["settings", "revision", "updated_at"],
        }
        .ctes()
    },
    ROW_STORED,
);

static STORE_PROFILES: GuardedCommit = GuardedCommit::from_fn(
    || {
        RevisionedRow {
            table: "notification_default_profiles",
            key: &["tenant_id"],
            fixed: &[],
            replaced: &["settings", "revision", "updated_at", "updated_by"],
        }
        .ctes()
    },
    ROW_STORED,
);

#[derive(Queryable, Selectable)]
#[diesel(table_name = notification_default_profiles, check_for_backend(Pg))]
struct StoredDefaultProfiles {
    settings: Value,
    revision: i64,
    updated_at: OffsetDateTime,
    updated_by: String,
}

impl StoredDefaultProfiles {
    fn into_value(self) -> Result<DefaultPreferences, StoreError> {
        let settings = settings_of(self.settings)?.into_iter().map(|setting| {
            let Preference { category, channel, enabled } = setting.preference()?;
            Ok(((setting.role()?, category, channel), enabled))
        });
        Ok(DefaultPreferences::restore(DefaultPreferencesRecord {
            settings: settings.collect::<Result<_, StoreError>>()?,
            updated_at: Timestamp::new(self.updated_at),
            updated_by: require_decoded("updated_by", ActorRef::parse(&self.updated_by).ok())?,
            revision: Revision::new(self.revision),
        }))
    }
}

#[async_trait]
impl PreferenceStore for Database {
    async fn find_sets(
        &self,
        scope: TenantScope,
        principal: &ActorRef,
        scopes: &[PreferenceScope],
    ) -> Result<Vec<PreferenceSet>, StoreError> {
        let (tenant, principal) = (scope.tenant().uuid(), principal.to_string());
        let keys: HashSet<(&str, Uuid, String)> = scopes
            .iter()
            .map(|preference_scope| {
                let (reference, environment) = key_of(scope, preference_scope);
                (preference_scope.kind(), reference, environment)
            })
            .collect();
        // The filters compare each part of the keys alone, so that the statement has one text for any number of
        // scopes. Rows that combine parts of different keys are removed below.
        let find = || {
            let kinds: Vec<&str> = keys.iter().map(|key| key.0).collect();
            let references: Vec<Uuid> = keys.iter().map(|key| key.1).collect();
            let environments: Vec<String> = keys.iter().map(|key| key.2.clone()).collect();
            let of_person = notification_preference::tenant_id
                .eq(tenant)
                .and(notification_preference::principal.eq(principal.clone()));
            notification_preference::table
                .filter(of_person)
                .filter(notification_preference::scope_kind.eq_any(kinds))
                .filter(notification_preference::scope_ref.eq_any(references))
                .filter(notification_preference::environment.eq_any(environments))
                .select(StoredPreferences::as_select())
        };
        let mut found: Vec<StoredPreferences> = self.load("preferences of a person", find).await?;
        found.retain(|row| keys.contains(&(row.scope_kind.as_str(), row.scope_ref, row.environment.clone())));
        found.into_iter().map(StoredPreferences::into_value).collect()
    }

    async fn commit_set(&self, scope: TenantScope, change: Change<PreferenceSet>) -> Result<(), CommitError> {
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let (reference, environment) = key_of(scope, &next.scope);
        let input = Input::new(scope)
            .with("principal", next.principal.to_string())
            .with("scope_kind", next.scope.kind())
            .with("scope_ref", reference)
            .with("environment", environment)
            .with("preference_set_id", next.preference_set_id.uuid())
            .with("settings", next.preferences().map(preference_json).collect::<Value>())
            .with("revision", next.revision.get())
            .with("updated_at", next.updated_at.to_datetime())
            .with("expected_revision", expected_revision.map(Revision::get));
        self.commit_guarded(&STORE, scope, &fact, None, input).await.map(|_| ())
    }

    async fn find_default_profiles(&self, scope: TenantScope) -> Result<Option<DefaultPreferences>, StoreError> {
        let tenant = scope.tenant().uuid();
        let find = || notification_default_profiles::table.find(tenant).select(StoredDefaultProfiles::as_select());
        self.first("default profiles", find).await?.map(StoredDefaultProfiles::into_value).transpose()
    }

    async fn commit_default_profiles(
        &self,
        scope: TenantScope,
        change: Change<DefaultPreferences>,
    ) -> Result<(), CommitError> {
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let input = Input::new(scope)
            .with("settings", next.defaults().map(default_json).collect::<Value>())
            .with("revision", next.revision.get())
            .with("updated_at", next.updated_at.to_datetime())
            .with("updated_by", next.updated_by.to_string())
            .with("expected_revision", expected_revision.map(Revision::get));
        self.commit_guarded(&STORE_PROFILES, scope, &fact, None, input).await.map(|_| ())
    }

    async fn switches(&self, scope: TenantScope) -> Result<NotificationSettings, StoreError> {
        let id = scope.tenant().uuid();
        let find = || {
            let settings = (tenant::notifications_enabled, tenant::advanced_notifications_enabled);
            tenant::table.find(id).select(settings)
        };
        let found: Option<(bool, bool)> = self.first("notification settings", find).await?;
        Ok(match require_decoded("notifications_enabled", found)? {
            (false, _) => NotificationSettings::Disabled,
            (true, false) => NotificationSettings::Enabled(Tier::Standard),
            (true, true) => NotificationSettings::Enabled(Tier::Advanced),
        })
    }

    async fn environments(&self, scope: TenantScope, workload: WorkloadId) -> Result<Vec<Slug>, StoreError> {
        let (tenant, workload) = (scope.tenant().uuid(), workload.uuid());
        let find = || {
            release::table
                .filter(release::tenant_id.eq(tenant).and(release::workload_id.eq(workload)))
                .select(release::environment)
                .distinct()
                .order(release::environment)
        };
        let names: Vec<String> = self.load("environments of a workload", find).await?;
        names.iter().map(|name| require_decoded("environment", Slug::parse(name).ok())).collect()
    }
}
