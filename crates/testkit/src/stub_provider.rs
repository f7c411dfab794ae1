//! A stub model provider.

use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use serde_json::{Map, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The behaviour of a [`StubProvider`] when it receives a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProviderBehaviour {
    /// Returns this answer.
    Answers(String),
    /// Fails with this error.
    Fails(ProviderError),
    /// Answers this many calls, counted from the first call of the provider. Blocks later calls until the
    /// behaviour changes.
    AnswersUntil(usize, String),
    /// Blocks calls until the behaviour changes.
    Blocks,
}

/// A provider that answers, fails or blocks, and records its calls.
pub struct StubProvider {
    behaviour: watch::Sender<ProviderBehaviour>,
    call_count: watch::Sender<usize>,
    calls: Mutex<Vec<ProviderCall>>,
}

impl StubProvider {
    /// Creates a provider with this initial behaviour.
    #[must_use]
    pub fn new(behaviour: ProviderBehaviour) -> Arc<Self> {
        Arc::new(Self {
            behaviour: watch::Sender::new(behaviour),
            call_count: watch::Sender::new(0),
            calls: Mutex::default(),
        })
    }

    /// Changes the behaviour. Blocked calls continue with the new behaviour.
    pub fn set_behaviour(&self, behaviour: ProviderBehaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// The number of calls that the provider has received.
    #[must_use]
    pub fn call_count(&self) -> usize {
        *self.call_count.borrow()
    }

    /// The recorded calls, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<ProviderCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the provider has received this number of calls.
    pub async fn wait_for_calls(&self, call_count: usize) {
        // `self` owns the sender, so the wait cannot fail.
        let _ = self.call_count.subscribe().wait_for(|count| *count >= call_count).await;
    }
}

#[async_trait]
impl Provider for StubProvider {
    async fn complete(
        &self,
        call: &ProviderCall,
        _listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        let mut number = 0;
        self.call_count.send_modify(|count| {
            *count += 1;
            number = *count;
        });
        let mut behaviour = self.behaviour.subscribe();
        let is_decided = |behaviour: &ProviderBehaviour| match behaviour {
            ProviderBehaviour::Answers(_) | ProviderBehaviour::Fails(_) => true,
            ProviderBehaviour::AnswersUntil(last, _) => number <= *last,
            ProviderBehaviour::Blocks => false,
        };
        let decided = behaviour.wait_for(is_decided).await;
        match decided.map(|behaviour| behaviour.clone()) {
            Ok(ProviderBehaviour::Answers(text) | ProviderBehaviour::AnswersUntil(_, text)) => {
                let mut metadata = Map::new();
                metadata.insert("provider".to_owned(), json!("stub"));
                Ok(Completion { text, tokens_in: 1, tokens_out: 1, metadata, ..Completion::default() })
            }
            Ok(ProviderBehaviour::Fails(error)) => Err(error.into()),
            Ok(ProviderBehaviour::Blocks) | Err(_) => Err(ProviderError::Unavailable.into()),
        }
    }

    async fn embed(&self, _call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        None
    }
}
