//! The approval status of model policy routes.

use crate::{
    batch_load::BatchLoader,
    database::{StatementPool, read},
    guarded_commit::{Input, Query},
};
use async_trait::async_trait;
use fairway_domain::store::StoreError;
use std::collections::HashMap;
use uuid::Uuid;

/// Loads whether a route is usable: its model policy is an active asset, and no later version withdrew the route.
/// The key is tenant, asset, version and route.
pub(crate) struct RouteStatusLoader(pub(crate) StatementPool);

type RouteKey = (Uuid, Uuid, Uuid, String);

#[async_trait]
impl BatchLoader for RouteStatusLoader {
    type Key = RouteKey;
    type Value = bool;
    const LABEL: &'static str = "routes of model policies";

    async fn load_batch(&self, routes: &[RouteKey]) -> Result<HashMap<RouteKey, bool>, StoreError> {
        // A version that does not exist counts as ordinal 0, so every withdrawal counts as later.
        static LOAD: Query = Query::new(
            "SELECT tenant_id, asset_id, input.version_id, input.route_id,
                asset.lifecycle_state = 'active' AND NOT EXISTS (
                    SELECT FROM withdrawn_route AS withdrawn
                    WHERE withdrawn.tenant_id = input.tenant_id AND withdrawn.asset_id = input.asset_id
                        AND withdrawn.route_id = input.route_id AND withdrawn.ordinal > coalesce((
                            SELECT ordinal FROM asset_version AS bound
                            WHERE bound.tenant_id = input.tenant_id AND bound.asset_version_id = input.version_id), 0)
                ) AS is_effective
            FROM input JOIN asset USING (tenant_id, asset_id)",
        );
        let input = Input::many()
            .with_column("tenant_id", routes.iter().map(|(tenant, ..)| *tenant))
            .with_column("asset_id", routes.iter().map(|(_, asset, ..)| *asset))
            .with_column("version_id", routes.iter().map(|(_, _, version, _)| *version))
            .with_column("route_id", routes.iter().map(|(.., name)| name.as_str()));
        let rows = read(&self.0, LOAD.text(&input)?, &input.params()).await?;
        rows.iter()
            .map(|row| {
                let key = (
                    row.column("tenant_id")?,
                    row.column("asset_id")?,
                    row.column("version_id")?,
                    row.column("route_id")?,
                );
                Ok((key, row.column("is_effective")?))
            })
            .collect()
    }
}
