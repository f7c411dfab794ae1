//! Runs in the states that requests require.

use super::Stage;
use fairway_testkit::connect;

impl Stage<'_> {
    /// Creates another caller's run that awaits review.
    pub(super) async fn waiting(&self) -> String {
        let id = self.ran().await;
        self.execute_sql(&format!(
            "UPDATE execution SET status = 'awaiting_review', outcome = NULL, finished_at = NULL,
                submitter = 'user:somebody-else' WHERE execution_id = '{id}';
             INSERT INTO execution_review SELECT tenant_id, execution_id, workload_id, workspace_id, release_id, now(),
                now() + interval '1 hour' FROM execution WHERE execution_id = '{id}'"
        ))
        .await;
        id
    }

    /// Creates a run with an unknown outcome.
    pub(super) async fn unknown(&self) -> String {
        let id = self.ran().await;
        self.execute_sql(&format!(
            "UPDATE execution SET status = 'unknown', outcome = 'unknown' WHERE execution_id = '{id}';
             INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
             SELECT tenant_id, 'unknown', execution_id, workload_id, workspace_id, release_id
             FROM execution WHERE execution_id = '{id}'"
        ))
        .await;
        id
    }

    pub(super) async fn ran(&self) -> String {
        let ran = self.app.post(self.workload.execute_path(), self.body("execute_workload"));
        ran.in_tenant(&self.tenant).await.expect(200)["execution_id"].as_str().unwrap().to_owned()
    }

    /// Gives the run as much evidence as a long run has, so that reading the evidence takes measurable time.
    pub(crate) async fn multiply_evidence(&self) {
        let of_run = format!("WHERE execution_id = '{}'", self.execution);
        self.execute_sql(&format!(
            "INSERT INTO context_lineage SELECT tenant_id, execution_id, gen_random_uuid(), origin, influence_role,
                action_class, ref, digest, size_bytes, untrusted_reason, created_at
             FROM context_lineage, generate_series(1, 300) {of_run};
             INSERT INTO evidence_artifact SELECT tenant_id, execution_id, gen_random_uuid(), artifact_kind, storage_ref,
                body, created_at
             FROM evidence_artifact, generate_series(1, 300) {of_run}"
        ))
        .await;
    }

    pub(super) async fn execute_sql(&self, sql: &str) {
        connect(self.app.database_url()).await.unwrap().batch_execute(sql).await.unwrap();
    }

    /// Creates a running run with a lease of one hour that no worker renews.
    pub(super) async fn under_way(&self) -> String {
        let id = self.ran().await;
        let again = format!(
            "UPDATE execution SET status = 'running', outcome = NULL, finished_at = NULL WHERE execution_id = '{id}';
             INSERT INTO execution_lease SELECT tenant_id, execution_id, gen_random_uuid(), interval '1 hour',
                now() + interval '1 hour', now() + interval '1 hour' FROM execution WHERE execution_id = '{id}'"
        );
        self.execute_sql(&again).await;
        id
    }
}
