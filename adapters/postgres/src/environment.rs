//! What environments ask for.

use crate::{
    database::Database,
    guarded::{Tail, commit_tail},
    row::{Columns, known},
};
use async_trait::async_trait;
use fairway_domain::{
    environment::{Environment, EnvironmentSettings, EnvironmentStore},
    id::WorkspaceId,
    release::review::SelfApproval,
    slug::Slug,
    store::{Change, CommitError, StoreError},
    tenant::TenantScope,
};
use tokio_postgres::Row;

fn environment(row: &Row) -> Result<Environment, StoreError> {
    let allowed: bool = row.column("allow_self_approval")?;
    Ok(Environment {
        workspace_id: row.id("workspace_id")?,
        environment: row.slug("environment")?,
        settings: EnvironmentSettings {
            min_approvals: known("min_approvals", u16::try_from(row.column::<i16>("min_approvals")?).ok())?,
            self_approval: if allowed { SelfApproval::Allowed } else { SelfApproval::Refused },
            pin_documents: row.column("pin_documents")?,
        },
        updated_at: row.moment("updated_at")?,
        updated_by: row.actor("updated_by")?,
        revision: row.revision("revision")?,
    })
}

#[async_trait]
impl EnvironmentStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        name: &Slug,
    ) -> Result<Option<Environment>, StoreError> {
        const SQL: &str =
            "SELECT workspace_id, environment, min_approvals, allow_self_approval, pin_documents, revision,
                updated_at, updated_by
            FROM environment_settings WHERE tenant_id = $1 AND workspace_id = $2 AND environment = $3";
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &workspace.uuid(), &name.as_str()]).await?;
        row.as_ref().map(environment).transpose()
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
        let Change { next, decided_on, fact } = change;
        let tail = Tail::new(scope, &fact, None);
        let (workspace, name) = (next.workspace_id.uuid(), next.environment.as_str());
        let settings = &next.settings;
        // The domain bounds it far below.
        let approvals = i16::try_from(settings.min_approvals).unwrap_or(i16::MAX);
        let allowed = settings.self_approval == SelfApproval::Allowed;
        let (revision, at, by) = (next.revision.get(), next.updated_at.moment(), next.updated_by.to_string());
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
