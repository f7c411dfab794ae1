//! What is kept for a time only, and taken away after it.

use crate::{Failure, Services, asset::Swept};
use std::time::Duration;

/// How often things past their time are looked for.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Takes away what is past its time, for ever. Any number of processes may do it at once.
pub async fn retain_forever(services: Services) {
    loop {
        match services.forget_old_keys().await {
            Ok(keys) => tracing::info!(keys, "idempotency keys past their time were forgotten"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "old idempotency keys could not be forgotten");
            }
        }
        match services.forget_clients().await {
            Ok(clients) => tracing::info!(clients, "clients with nothing to wait for were forgotten"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "clients could not be forgotten");
            }
        }
        match services.forget_turns().await {
            Ok(turns) => tracing::info!(turns, "turns of conversations past their time were forgotten"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "old turns could not be forgotten");
            }
        }
        match services.sweep_when_due().await {
            Ok(Some(swept)) => {
                let Swept { seen, removed } = swept;
                tracing::info!(seen, removed, "artifacts without a row were taken away");
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the artifact store could not be swept");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

impl Services {
    /// Forgets idempotency keys past their time; answers how many.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn forget_old_keys(&self) -> Result<u64, Failure> {
        Ok(self.stores.idempotency.sweep().await?)
    }
}
