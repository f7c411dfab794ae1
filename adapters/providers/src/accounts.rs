//! The configured accounts. A call names an account slot, which selects the account and its provider.

use crate::LocalProvider;
use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use std::{collections::BTreeMap, sync::Arc};
use tracing::Instrument as _;

/// The account slot of the built-in local provider.
const LOCAL: &str = "local";

/// A provider that delegates each call to the account of its slot.
pub struct AccountRouter {
    by_slot: BTreeMap<String, Arc<dyn Provider>>,
}

impl AccountRouter {
    /// Creates the accounts. Adds the local provider under `local`, unless a configured account has that name.
    #[must_use]
    pub fn new(configured: impl IntoIterator<Item = (String, Arc<dyn Provider>)>) -> Self {
        let built_in: Arc<dyn Provider> = Arc::new(LocalProvider);
        let by_slot = std::iter::once((LOCAL.to_owned(), built_in)).chain(configured).collect();
        Self { by_slot }
    }
}

impl AccountRouter {
    fn account(&self, account_slot: &str) -> Result<&Arc<dyn Provider>, ProviderFailure> {
        self.by_slot.get(account_slot).ok_or_else(|| ProviderError::UnknownAccount.into())
    }
}

#[async_trait]
impl Provider for AccountRouter {
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        let provider = self.account(&call.route.account_slot)?;
        // The span contains account and model, but no content of the call.
        let span = tracing::debug_span!(
            "chat",
            otel.kind = "client",
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = call.route.provider,
            gen_ai.request.model = call.route.model,
        );
        provider.complete(call, listener).instrument(span).await
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        let provider = self.account(&call.route.account_slot)?;
        let span = tracing::debug_span!(
            "embeddings",
            otel.kind = "client",
            gen_ai.operation.name = "embeddings",
            gen_ai.provider.name = call.route.provider,
            gen_ai.request.model = call.route.model,
        );
        provider.embed(call).instrument(span).await
    }

    fn residency(&self, account_slot: &str) -> Option<&str> {
        self.by_slot.get(account_slot)?.residency(account_slot)
    }

    fn has_account(&self, account_slot: &str) -> bool {
        self.by_slot.contains_key(account_slot)
    }

    fn is_local(&self, account_slot: &str) -> bool {
        self.by_slot.get(account_slot).is_some_and(|provider| provider.is_local(account_slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::tests::call;

    #[tokio::test]
    async fn asks_the_account_of_the_slot() {
        let accounts = AccountRouter::new([("second".to_owned(), Arc::new(LocalProvider) as Arc<dyn Provider>)]);
        for (slot, is_known) in [("local", true), ("second", true), ("third", false), ("", false)] {
            let mut call = call("", "Hello.");
            call.route.account_slot = slot.to_owned();
            assert_eq!(accounts.complete(&call, None).await.is_ok(), is_known, "{slot}");
            assert_eq!(accounts.has_account(slot), is_known, "{slot}");
        }
        let mut unknown_call = call("", "Hello.");
        unknown_call.route.account_slot = "third".to_owned();
        assert_eq!(accounts.complete(&unknown_call, None).await, Err(ProviderError::UnknownAccount.into()));
    }
}
