//! A provider that does what the test says.

use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, EmbeddingCall, Embeddings, Listener, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use serde_json::{Map, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What a provider does with a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Behaviour {
    /// Answers this.
    Answers(String),
    /// Fails like this.
    Fails(ProviderError),
    /// Answers the questions up to this one, counted from the first that it was ever asked, and none after it until the
    /// behaviour changes.
    AnswersUntil(usize, String),
    /// Answers nothing until the behaviour changes.
    Holds,
}

/// A provider that answers, fails or keeps its caller waiting, and remembers what it was asked.
pub struct StubProvider {
    behaviour: watch::Sender<Behaviour>,
    asked: watch::Sender<usize>,
    calls: Mutex<Vec<ProviderCall>>,
}

impl StubProvider {
    /// A provider that begins so.
    #[must_use]
    pub fn new(behaviour: Behaviour) -> Arc<Self> {
        Arc::new(Self {
            behaviour: watch::Sender::new(behaviour),
            asked: watch::Sender::new(0),
            calls: Mutex::default(),
        })
    }

    /// Goes on so; calls that are held get it too.
    pub fn becomes(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// How often it was asked.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.asked.borrow()
    }

    /// What it was asked, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<ProviderCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it was asked so often.
    pub async fn asked(&self, times: usize) {
        // The sender is this very provider, so waiting cannot fail.
        let _ = self.asked.subscribe().wait_for(|count| *count >= times).await;
    }
}

#[async_trait]
impl Provider for StubProvider {
    async fn complete(
        &self,
        call: &ProviderCall,
        _listener: Option<&dyn Listener>,
    ) -> Result<Completion, ProviderFailure> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
        let mut number = 0;
        self.asked.send_modify(|count| {
            *count += 1;
            number = *count;
        });
        let mut behaviour = self.behaviour.subscribe();
        let settles = |behaviour: &Behaviour| match behaviour {
            Behaviour::Answers(_) | Behaviour::Fails(_) => true,
            Behaviour::AnswersUntil(last, _) => number <= *last,
            Behaviour::Holds => false,
        };
        let settled = behaviour.wait_for(settles).await;
        match settled.map(|behaviour| behaviour.clone()) {
            Ok(Behaviour::Answers(text) | Behaviour::AnswersUntil(_, text)) => {
                let mut metadata = Map::new();
                metadata.insert("provider".to_owned(), json!("stub"));
                Ok(Completion { text, tokens_in: 1, tokens_out: 1, metadata, ..Completion::default() })
            }
            Ok(Behaviour::Fails(error)) => Err(error.into()),
            Ok(Behaviour::Holds) | Err(_) => Err(ProviderError::Unavailable.into()),
        }
    }

    async fn embed(&self, _call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        None
    }
}
