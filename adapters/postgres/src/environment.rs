//! Settings of environments.

use crate::{
    batch_load::BatchLoader,
    commit_tail::{CommitParams, commit_tail},
    database::{Database, read},
    row::{RowExt, decode},
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    environment::{Environment, EnvironmentRecord, EnvironmentSettings, EnvironmentStore},
    id::WorkspaceId,
    release::review::SelfApproval,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};
use std::collections::HashMap;
use tokio_postgres::Row;
use uuid::Uuid;

fn environment(row: &Row) -> Result<Environment, StoreError> {
    let allowed: bool = row.column("allow_self_approval")?;
    Ok(Environment::restore(EnvironmentRecord {
        workspace_id: row.id("workspace_id")?,
        environment: row.slug("environment")?,
        settings: EnvironmentSettings {
            min_approvals: decode("min_approvals", u16::try_from(row.column::<i16>("min_approvals")?).ok())?,
            self_approval: if allowed { SelfApproval::Allowed } else { SelfApproval::Refused },
            pin_documents: row.column("pin_documents")?,
        },
        updated_at: row.timestamp("updated_at")?,
        updated_by: row.actor("updated_by")?,
        revision: row.revision("revision")?,
    }))
}

/// Loads environment settings by tenant, workspace and name.
pub(crate) struct EnvironmentLoader(pub(crate) Pool);

type EnvironmentKey = (Uuid, Uuid, String);

#[async_trait]
impl BatchLoader for EnvironmentLoader {
    type Key = EnvironmentKey;
    type Value = Environment;
    const LABEL: &'static str = "settings of environments";

    async fn load_batch(&self, places: &[EnvironmentKey]) -> Result<HashMap<EnvironmentKey, Environment>, StoreError> {
        const SQL: &str =
            "SELECT tenant_id, workspace_id, environment, min_approvals, allow_self_approval, pin_documents,
                revision, updated_at, updated_by
            FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS asked (tenant_id, workspace_id, environment)
            JOIN environment_settings USING (tenant_id, workspace_id, environment)";
        let tenants: Vec<Uuid> = places.iter().map(|(tenant, ..)| *tenant).collect();
        let workspaces: Vec<Uuid> = places.iter().map(|(_, workspace, _)| *workspace).collect();
        let names: Vec<&str> = places.iter().map(|(.., name)| name.as_str()).collect();
        let rows = read(&self.0, SQL, &[&tenants, &workspaces, &names]).await?;
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
    async fn find(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        name: &Slug,
    ) -> Result<Option<Environment>, StoreError> {
        self.environments.load((scope.tenant().uuid(), workspace.uuid(), name.to_string())).await
    }

    async fn commit_settings(&self, scope: TenantScope, change: Change<Environment>) -> Result<(), CommitError> {
        const FIRST: &str = concat!(
            "WITH said AS (
                INSERT INTO environment_settings (tenant_id, workspace_id, environment, min_approvals,
                    allow_self_approval, pin_documents, revision, updated_at, updated_by)
                VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $20)
                ON CONFLICT DO NOTHING
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM said), ",
            commit_tail!(),
            ")"
        );
        const NEXT: &str = concat!(
            "WITH said AS (
                UPDATE environment_settings SET min_approvals = $15, allow_self_approval = $16, pin_documents = $17,
                    revision = $18, updated_at = $19, updated_by = $20
                WHERE tenant_id = $1 AND workspace_id = $13 AND environment = $14 AND revision = $21
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM said), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, None);
        let (workspace, name) = (next.workspace_id.uuid(), next.environment.as_str());
        let settings = &next.settings;
        // The domain limits the value far below `i16::MAX`.
        let approvals = i16::try_from(settings.min_approvals).unwrap_or(i16::MAX);
        let allowed = settings.self_approval == SelfApproval::Allowed;
        let (revision, at, by) = (next.revision.get(), next.updated_at.to_datetime(), next.updated_by.to_string());
        let mut own =
            tail.with(&[&workspace, &name, &approvals, &allowed, &settings.pin_documents, &revision, &at, &by]);
        match decided_on.map(fairway_domain::store::Revision::get) {
            None => self.commit(FIRST, &own).await,
            Some(seen) => {
                own.push(&seen);
                self.commit(NEXT, &own).await
            }
        }
        .map(|_| ())
    }
}
