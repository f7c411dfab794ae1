//! Calls of addresses that contents name, with the secrets of the tenant whose contents they are.

use crate::Services;
use fairway_domain::{
    execution::outward::{OutwardCall, OutwardError},
    tenant::TenantScope,
};
use serde_json::Value;

impl Services {
    /// Makes a call once.
    pub(super) async fn call_outward(&self, scope: TenantScope, call: &OutwardCall) -> Result<Value, OutwardError> {
        // A tenant's secrets lie below its slug.
        let tenant = self.stores.tenants.find(scope).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the tenant of a call could not be found");
            OutwardError::Unprepared
        })?;
        let tenant = tenant.ok_or(OutwardError::Unprepared)?;
        self.outward.call(&tenant.slug, call).await
    }
}
