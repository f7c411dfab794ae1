//! A runtime gateway that does what the test says.

use async_trait::async_trait;
use fairway_domain::execution::code::{
    CodeGateway, CodeRequest, CodeResult, GatewayFailure, GivenUp, Language, PreparedGateway, Script, ScriptLimits,
};
use serde_json::Value;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
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
pub struct StubGateway(Arc<Stub>);

struct Stub {
    behaviour: watch::Sender<Gateways>,
    prepared: AtomicUsize,
    waiting: AtomicUsize,
    handed: watch::Sender<usize>,
    scripts: Mutex<Vec<Script>>,
    limits: Mutex<Vec<ScriptLimits>>,
}

impl StubGateway {
    /// A gateway that begins so.
    #[must_use]
    pub fn new(behaviour: Gateways) -> Arc<Self> {
        Arc::new(Self(Arc::new(Stub {
            behaviour: watch::Sender::new(behaviour),
            prepared: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            handed: watch::Sender::new(0),
            scripts: Mutex::default(),
            limits: Mutex::default(),
        })))
    }

    /// A gateway by which every script comes to nothing, and well.
    #[must_use]
    pub fn quiet() -> Arc<Self> {
        Self::new(Gateways::Answers(Ok(CodeResult { result: Ok(Value::Null), stdout: String::new() })))
    }

    /// Goes on so; scripts that are held get it too.
    pub fn becomes(&self, behaviour: Gateways) {
        self.0.behaviour.send_replace(behaviour);
    }

    /// How many scripts it was handed.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.0.handed.borrow()
    }

    /// How often it was made ready for a script, and how many of those it was made ready for are neither handed over nor
    /// given up.
    #[must_use]
    pub fn prepared(&self) -> (usize, usize) {
        (self.0.prepared.load(Ordering::SeqCst), self.0.waiting.load(Ordering::SeqCst))
    }

    /// What it was handed, oldest first.
    #[must_use]
    pub fn scripts(&self) -> Vec<Script> {
        self.0.scripts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What each script might use, oldest first.
    #[must_use]
    pub fn limits(&self) -> Vec<ScriptLimits> {
        self.0.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it was handed so many.
    pub async fn handed(&self, times: usize) {
        // The sender is this very gateway, so waiting cannot fail.
        let _ = self.0.handed.subscribe().wait_for(|count| *count >= times).await;
    }
}

impl CodeGateway for StubGateway {
    fn name(&self) -> &'static str {
        "stub"
    }

    /// As one of somebody else.
    fn when_given_up(&self) -> GivenUp {
        GivenUp::MayGoOn
    }

    fn prepare(&self, _: Language, _: ScriptLimits) -> Box<dyn PreparedGateway> {
        self.0.prepared.fetch_add(1, Ordering::SeqCst);
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        Box::new(Prepared(Arc::clone(&self.0)))
    }
}

/// A stub that waits for one script.
struct Prepared(Arc<Stub>);

impl Drop for Prepared {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl PreparedGateway for Prepared {
    async fn run(self: Box<Self>, request: CodeRequest<'_>) -> Result<CodeResult, GatewayFailure> {
        let stub = Arc::clone(&self.0);
        drop(self);
        stub.scripts.lock().unwrap_or_else(PoisonError::into_inner).push(request.script.clone());
        stub.limits.lock().unwrap_or_else(PoisonError::into_inner).push(request.limits);
        stub.handed.send_modify(|count| *count += 1);
        let mut behaviour = stub.behaviour.subscribe();
        let settled = behaviour.wait_for(|behaviour| *behaviour != Gateways::Holds).await;
        match settled.map(|behaviour| behaviour.clone()) {
            Ok(Gateways::Answers(answer)) => answer,
            // The gateway is gone, and the test with it.
            Ok(Gateways::Holds) | Err(_) => Err(GatewayFailure::Lost),
        }
    }
}
