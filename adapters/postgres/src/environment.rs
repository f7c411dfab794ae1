//! The store of environment settings.

use crate::{
    batch_load::BatchLoader,
    database::{Database, StatementPool, read},
    guarded_commit::{GuardedCommit, Input, Query},
    revisioned_row::{ROW_STORED, RevisionedRow},
    row::{Row, require_decoded},
};
use async_trait::async_trait;
use fairway_domain::{
    environment::{Environment, EnvironmentRecord, EnvironmentSettings, EnvironmentStore},
    id::WorkspaceId,
    release::review::SelfApproval,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Revision, StoreError},
    tenant::TenantScope,
};
use std::collections::HashMap;
use uuid::Uuid;

fn environment(row: &Row) -> Result<Environment, StoreError> {
    let allows_self_approval: bool = row.column("allow_self_approval")?;
    Ok(Environment::restore(EnvironmentRecord {
        workspace_id: row.id("workspace_id")?,
        environment: row.slug("environment")?,
        settings: EnvironmentSettings {
            min_approvals: require_decoded("min_approvals", u16::try_from(row.column::<i16>("min_approvals")?).ok())?,
            self_approval: if allows_self_approval { SelfApproval::Allowed } else { SelfApproval::Refused },
            pin_documents: row.column("pin_documents")?,
        },
        updated_at: row.timestamp("updated_at")?,
        updated_by: row.actor("updated_by")?,
        revision: row.revision("revision")?,
    }))
}

/// Loads environment settings by tenant, workspace and name.
pub(crate) struct EnvironmentLoader(pub(crate) StatementPool);

type EnvironmentKey = (Uuid, Uuid, String);

#[async_trait]
impl BatchLoader for EnvironmentLoader {
    type Key = EnvironmentKey;
    type Value = Environment;
    const LABEL: &'static str = "settings of environments";

    async fn load_batch(&self, keys: &[EnvironmentKey]) -> Result<HashMap<EnvironmentKey, Environment>, StoreError> {
        static LOAD: Query = Query::new(
            "SELECT tenant_id, workspace_id, environment, min_approvals, allow_self_approval, pin_documents,
                revision, updated_at, updated_by
            FROM input JOIN environment_settings USING (tenant_id, workspace_id, environment)",
        );
        let input = Input::many()
            .with_column("tenant_id", keys.iter().map(|(tenant, ..)| *tenant))
            .with_column("workspace_id", keys.iter().map(|(_, workspace, _)| *workspace))
            .with_column("environment", keys.iter().map(|(.., name)| name.as_str()));
        let rows = read(&self.0, LOAD.text(&input)?, &input.params()).await?;
        rows.iter()
            .map(|row| {
                let key = (row.column("tenant_id")?, row.column("workspace_id")?, row.column("environment")?);
                Ok((key, environment(row)?))
            })
            .collect()
    }
}

#[async_trait]
impl EnvironmentStore for Database {
    async fn find_settings(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        name: &Slug,
    ) -> Result<Option<Environment>, StoreError> {
        self.environments.load((scope.tenant().uuid(), workspace.uuid(), name.to_string())).await
    }

    async fn commit_settings(&self, scope: TenantScope, change: Change<Environment>) -> Result<(), CommitError> {
        static STORE: GuardedCommit = GuardedCommit::from_fn(
            || {
                RevisionedRow {
                    table: "environment_settings",
                    key: &["tenant_id", "workspace_id", "environment"],
                    fixed: &[],
                    replaced: &[
                        "min_approvals",
                        "allow_self_approval",
                        "pin_documents",
                        "revision",
                        "updated_at",
                        "updated_by",
                    ],
                }
                .ctes()
            },
            ROW_STORED,
        );
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let settings = &next.settings;
        let input = Input::new(scope)
            .with("workspace_id", next.workspace_id.uuid())
            .with("environment", next.environment.as_str())
            // The domain limits the number of approvals far below `i16::MAX`.
            .with("min_approvals", i16::try_from(settings.min_approvals).unwrap_or(i16::MAX))
            .with("allow_self_approval", settings.self_approval == SelfApproval::Allowed)
            .with("pin_documents", settings.pin_documents)
            .with("revision", next.revision.get())
            .with("updated_at", next.updated_at.to_datetime())
            .with("updated_by", next.updated_by.to_string())
            .with("expected_revision", expected_revision.map(Revision::get));
        self.commit_guarded(&STORE, scope, &fact, None, input).await.map(|_| ())
    }
}
