//! The configured accounts: a call names a slot, the slot names who answers.

use crate::Local;
use async_trait::async_trait;
use fairway_domain::execution::provider::{Completion, Provider, ProviderCall, ProviderError};
use std::{collections::BTreeMap, sync::Arc};
use tracing::Instrument as _;

/// The slot that is always there.
const LOCAL: &str = "local";

/// Asks the provider whose account slot a call names.
pub struct Accounts {
    by_slot: BTreeMap<String, Arc<dyn Provider>>,
}

impl Accounts {
    /// The configured accounts, and `local` beside them unless one of them took that name.
    #[must_use]
    pub fn new(configured: impl IntoIterator<Item = (String, Arc<dyn Provider>)>) -> Self {
        let built_in: Arc<dyn Provider> = Arc::new(Local);
        let by_slot = std::iter::once((LOCAL.to_owned(), built_in)).chain(configured).collect();
        Self { by_slot }
    }
}

#[async_trait]
impl Provider for Accounts {
    async fn complete(&self, call: &ProviderCall) -> Result<Completion, ProviderError> {
        let provider = self.by_slot.get(&call.account_slot).ok_or(ProviderError::UnknownAccount)?;
        // Whatever account and model were configured, and nothing of what is said.
        let span = tracing::debug_span!(
            "chat",
            otel.kind = "client",
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = call.provider,
            gen_ai.request.model = call.model,
        );
        provider.complete(call).instrument(span).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::tests::call;

    #[tokio::test]
    async fn asks_the_account_of_the_slot() {
        let accounts = Accounts::new([("second".to_owned(), Arc::new(Local) as Arc<dyn Provider>)]);
        for (slot, known) in [("local", true), ("second", true), ("third", false), ("", false)] {
            let mut call = call("", "Hello.");
            call.account_slot = slot.to_owned();
            assert_eq!(accounts.complete(&call).await.is_ok(), known, "{slot}");
        }
        let mut unknown = call("", "Hello.");
        unknown.account_slot = "third".to_owned();
        assert_eq!(accounts.complete(&unknown).await, Err(ProviderError::UnknownAccount));
    }
}
