//! A provider with the concurrency limit, prices and residency of its account.

use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The number of tokens to which a price applies.
const PRICED_TOKENS: u128 = 1_000_000;

/// The token prices of a model, in millionths of the account's currency per million tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelPrice {
    /// The name of the model, as routes contain it.
    pub model: String,
    /// Price of a million input tokens.
    pub input: u64,
    /// Price of a million output tokens.
    pub output: u64,
}

impl ModelPrice {
    /// The cost of a number of tokens, rounded up so that it is never below the exact cost.
    fn of(&self, tokens_in: u64, tokens_out: u64) -> u64 {
        let part = |tokens: u64, price: u64| u128::from(tokens).saturating_mul(u128::from(price));
        let sum = part(tokens_in, self.input).saturating_add(part(tokens_out, self.output));
        u64::try_from(sum.div_ceil(PRICED_TOKENS)).unwrap_or(u64::MAX)
    }
}

/// A provider whose calls are limited and priced by the settings of its account.
pub struct ProviderWithAccountSettings {
    provider: Arc<dyn Provider>,
    residency: Option<String>,
    call_slots: Option<Semaphore>,
    prices: Vec<ModelPrice>,
}

impl ProviderWithAccountSettings {
    /// Wraps a provider without a concurrency limit, prices and residency.
    #[must_use]
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider, residency: None, call_slots: None, prices: Vec::new() }
    }

    /// Sets the region in which the provider keeps its data.
    #[must_use]
    pub fn with_residency(self, residency: Option<String>) -> Self {
        Self { residency, ..self }
    }

    /// Limits the number of concurrent calls; a further call fails immediately. `None` sets no limit.
    #[must_use]
    pub fn with_max_concurrent_calls(self, max_calls: Option<usize>) -> Self {
        Self { call_slots: max_calls.map(|max_calls| Semaphore::new(max_calls.min(Semaphore::MAX_PERMITS))), ..self }
    }

    /// Sets the token prices of the account's models.
    #[must_use]
    pub fn with_prices(self, prices: Vec<ModelPrice>) -> Self {
        Self { prices, ..self }
    }

    /// Acquires a call slot, or fails immediately: another route may answer sooner than a slot becomes free.
    fn acquire_slot(&self) -> Result<Option<SemaphorePermit<'_>>, ProviderFailure> {
        match &self.call_slots {
            Some(slots) => Ok(Some(slots.try_acquire().map_err(|_| ProviderError::Busy)?)),
            None => Ok(None),
        }
    }

    fn cost(&self, model: &str, tokens_in: u64, tokens_out: u64) -> Option<u64> {
        // If the response has no token counts, the cost is unknown.
        let price =
            self.prices.iter().find(|price| price.model == model).filter(|_| tokens_in > 0 || tokens_out > 0)?;
        Some(price.of(tokens_in, tokens_out))
    }
}

#[async_trait]
impl Provider for ProviderWithAccountSettings {
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        let _slot = self.acquire_slot()?;
        let completion = self.provider.complete(call, listener).await?;
        let cost_micros = self.cost(&call.route.model, completion.tokens_in, completion.tokens_out);
        Ok(Completion { cost_micros, ..completion })
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        let _slot = self.acquire_slot()?;
        let embeddings = self.provider.embed(call).await?;
        let cost_micros = self.cost(&call.route.model, embeddings.tokens_in, 0);
        Ok(Embeddings { cost_micros, ..embeddings })
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        self.residency.as_deref()
    }

    fn is_local(&self, account_slot: &str) -> bool {
        self.provider.is_local(account_slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalProvider, local::tests::call};
    use tokio::sync::Notify;

    #[tokio::test]
    async fn prices_tokens_of_known_models() {
        let price = ModelPrice { model: "rules".to_owned(), input: 1_000_000, output: 2_000_001 };
        let account = ProviderWithAccountSettings::new(Arc::new(LocalProvider)).with_prices(vec![price.clone()]);
        let completion = account.complete(&call("", "one two"), None).await.unwrap();
        assert_eq!((completion.tokens_in, completion.tokens_out, completion.cost_micros), (2, 2, Some(7)));
        let mut call_of_unknown_model = call("", "one two");
        call_of_unknown_model.route.model = "unknown".to_owned();
        assert_eq!(account.complete(&call_of_unknown_model, None).await.unwrap().cost_micros, None);
        let embeddings = EmbeddingCall { route: call("", "").route, texts: vec!["one two three".to_owned()] };
        assert_eq!(account.embed(&embeddings).await.unwrap().cost_micros, Some(3));
        assert_eq!(price.of(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!((price.of(0, 0), price.of(1, 0)), (0, 1));
    }

    #[test]
    fn reports_its_residency() {
        let account = ProviderWithAccountSettings::new(Arc::new(LocalProvider)).with_residency(Some("de".to_owned()));
        assert_eq!(account.residency("any"), Some("de"));
    }

    /// A provider that notifies the first handle when a call starts, and answers when the second handle is
    /// notified.
    struct NotifiedProvider(Arc<Notify>, Arc<Notify>);

    #[async_trait]
    impl Provider for NotifiedProvider {
        async fn complete(
            &self,
            _call: &ProviderCall,
            _listener: Option<&dyn DeltaListener>,
        ) -> Result<Completion, ProviderFailure> {
            self.0.notify_one();
            self.1.notified().await;
            Ok(Completion::default())
        }

        async fn embed(&self, _call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
            Ok(Embeddings::default())
        }

        fn residency(&self, _account_slot: &str) -> Option<&str> {
            None
        }
    }

    #[tokio::test]
    async fn is_busy_at_its_call_limit() {
        let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let provider = NotifiedProvider(Arc::clone(&started), Arc::clone(&finish));
        let account = Arc::new(ProviderWithAccountSettings::new(Arc::new(provider)).with_max_concurrent_calls(Some(1)));
        let first = tokio::spawn({
            let account = Arc::clone(&account);
            async move { account.complete(&call("", ""), None).await }
        });
        started.notified().await;
        assert_eq!(account.complete(&call("", ""), None).await, Err(ProviderError::Busy.into()));
        let texts = EmbeddingCall { route: call("", "").route, texts: Vec::new() };
        assert_eq!(account.embed(&texts).await, Err(ProviderError::Busy.into()));
        // A cancelled call releases its slot.
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(account.embed(&texts).await.is_ok());
        finish.notify_one();
        assert!(account.complete(&call("", ""), None).await.is_ok());
    }
}
