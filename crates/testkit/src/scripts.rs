//! A runtime gateway that does what the test says.

use async_trait::async_trait;
use fairway_domain::execution::code::{CodeGateway, CodeRequest, CodeResult, GatewayFailure, Script};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What a gateway does with a script.
#[derive(Clone, PartialEq, Debug)]
pub enum Gateways {
    /// Says that it came out so.
    Answers(Result<CodeResult, GatewayFailure>),
    /// Says nothing until the behaviour changes.
    Holds,
}

/// A gateway that answers, fails or keeps its caller waiting, and remembers what it was handed.
pub struct StubGateway {
    behaviour: watch::Sender<Gateways>,
    handed: watch::Sender<usize>,
    scripts: Mutex<Vec<Script>>,
}

impl StubGateway {
    /// A gateway that begins so.
    #[must_use]
    pub fn new(behaviour: Gateways) -> Arc<Self> {
        Arc::new(Self {
            behaviour: watch::Sender::new(behaviour),
            handed: watch::Sender::new(0),
            scripts: Mutex::default(),
        })
    }

    /// A gateway by which every script comes to nothing, and well.
    #[must_use]
    pub fn quiet() -> Arc<Self> {
        Self::new(Gateways::Answers(Ok(CodeResult { result: Ok(Value::Null), stdout: String::new() })))
    }

    /// Goes on so; scripts that are held get it too.
    pub fn becomes(&self, behaviour: Gateways) {
        self.behaviour.send_replace(behaviour);
    }

    /// How many scripts it was handed.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.handed.borrow()
    }

    /// What it was handed, oldest first.
    #[must_use]
    pub fn scripts(&self) -> Vec<Script> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it was handed so many.
    pub async fn handed(&self, times: usize) {
        // The sender is this very gateway, so waiting cannot fail.
        let _ = self.handed.subscribe().wait_for(|count| *count >= times).await;
    }
}

#[async_trait]
impl CodeGateway for StubGateway {
    fn name(&self) -> &'static str {
        "stub"
    }

    async fn run(&self, request: CodeRequest<'_>) -> Result<CodeResult, GatewayFailure> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner).push(request.script.clone());
        self.handed.send_modify(|count| *count += 1);
        let mut behaviour = self.behaviour.subscribe();
        let settled = behaviour.wait_for(|behaviour| *behaviour != Gateways::Holds).await;
        match settled.map(|behaviour| behaviour.clone()) {
            Ok(Gateways::Answers(answer)) => answer,
            // The gateway is gone, and the test with it.
            Ok(Gateways::Holds) | Err(_) => Err(GatewayFailure::Lost),
        }
    }
}
