//! Checks of a run's values against JSON Schemas.

use crate::{
    blocking::{ProcessorWait, run_blocking},
    execution::engine::RunEngine,
};
use fairway_domain::{
    asset::content::embedded_schema::SchemaCheckFailure, execution::run::SchemaCheck, id::ExecutionId,
    tenant::TenantScope,
};

impl RunEngine {
    /// Checks a value against a schema on the blocking pool. If no processor becomes free in time, the check fails as
    /// if the value did not match.
    pub(super) async fn check_schema(
        &self,
        scope: TenantScope,
        execution: ExecutionId,
        check: SchemaCheck,
    ) -> Result<(), SchemaCheckFailure> {
        match run_blocking(scope, ProcessorWait::Run, move || check.run()).await {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::warn!(
                    tenant_id = %scope.tenant(),
                    execution_id = %execution,
                    error = &error as &dyn std::error::Error,
                    "failed to check a value against its schema; rejecting the value"
                );
                Err(SchemaCheckFailure::BudgetExceeded)
            }
        }
    }
}
