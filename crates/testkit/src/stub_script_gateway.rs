//! A stub of the runtime gateway, which executes scripts.

use async_trait::async_trait;
use fairway_domain::execution::script::{
    GatewayFailure, InterruptedScriptBehaviour, Language, PreparedGateway, Script, ScriptGateway, ScriptLimits,
    ScriptRequest, ScriptResult,
};
use serde_json::Value;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::watch;

/// The behaviour of a [`StubScriptGateway`] when it receives a script.
#[derive(Clone, PartialEq, Debug)]
pub enum ScriptGatewayBehaviour {
    /// Returns this result.
    Answers(Result<ScriptResult, GatewayFailure>),
    /// Blocks until the behaviour changes.
    Blocks,
}

/// A runtime gateway that returns a result, fails or blocks, and records the received scripts.
pub struct StubScriptGateway(Arc<StubState>);

struct StubState {
    behaviour: watch::Sender<ScriptGatewayBehaviour>,
    prepared: AtomicUsize,
    waiting: AtomicUsize,
    script_count: watch::Sender<usize>,
    scripts: Mutex<Vec<Script>>,
    limits: Mutex<Vec<ScriptLimits>>,
}

impl StubScriptGateway {
    /// Creates a gateway with this initial behaviour.
    #[must_use]
    pub fn new(behaviour: ScriptGatewayBehaviour) -> Arc<Self> {
        Arc::new(Self(Arc::new(StubState {
            behaviour: watch::Sender::new(behaviour),
            prepared: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            script_count: watch::Sender::new(0),
            scripts: Mutex::default(),
            limits: Mutex::default(),
        })))
    }

    /// Creates a gateway that completes every script with the result `null`.
    #[must_use]
    pub fn succeeding() -> Arc<Self> {
        Self::new(ScriptGatewayBehaviour::Answers(Ok(ScriptResult { result: Ok(Value::Null), stdout: String::new() })))
    }

    /// Changes the behaviour. Blocked scripts continue with the new behaviour.
    pub fn set_behaviour(&self, behaviour: ScriptGatewayBehaviour) {
        self.0.behaviour.send_replace(behaviour);
    }

    /// The number of received scripts.
    #[must_use]
    pub fn script_count(&self) -> usize {
        *self.0.script_count.borrow()
    }

    /// The number of prepared sandboxes, and how many of them still wait for a script.
    #[must_use]
    pub fn prepared_and_waiting_sandboxes(&self) -> (usize, usize) {
        (self.0.prepared.load(Ordering::SeqCst), self.0.waiting.load(Ordering::SeqCst))
    }

    /// The received scripts, oldest first.
    #[must_use]
    pub fn received_scripts(&self) -> Vec<Script> {
        self.0.scripts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The limits of each received script, oldest first.
    #[must_use]
    pub fn received_limits(&self) -> Vec<ScriptLimits> {
        self.0.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the gateway has received this number of scripts.
    pub async fn wait_for_scripts(&self, script_count: usize) {
        // `self` owns the sender, so the wait cannot fail.
        let _ = self.0.script_count.subscribe().wait_for(|count| *count >= script_count).await;
    }
}

impl ScriptGateway for StubScriptGateway {
    fn name(&self) -> &'static str {
        "stub"
    }

    /// Behaves like an external gateway, where the script of an interrupted run may continue.
    fn interrupted_script_behaviour(&self) -> InterruptedScriptBehaviour {
        InterruptedScriptBehaviour::MayContinue
    }

    fn prepare(&self, _: Language, _: ScriptLimits) -> Box<dyn PreparedGateway> {
        self.0.prepared.fetch_add(1, Ordering::SeqCst);
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        Box::new(PreparedStub(Arc::clone(&self.0)))
    }
}

/// A prepared sandbox of the stub, which waits for one script.
struct PreparedStub(Arc<StubState>);

impl Drop for PreparedStub {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl PreparedGateway for PreparedStub {
    async fn run(self: Box<Self>, request: ScriptRequest<'_>) -> Result<ScriptResult, GatewayFailure> {
        let stub = Arc::clone(&self.0);
        drop(self);
        stub.scripts.lock().unwrap_or_else(PoisonError::into_inner).push(request.script.clone());
        stub.limits.lock().unwrap_or_else(PoisonError::into_inner).push(request.limits);
        stub.script_count.send_modify(|count| *count += 1);
        let mut behaviour = stub.behaviour.subscribe();
        let decided = behaviour.wait_for(|behaviour| *behaviour != ScriptGatewayBehaviour::Blocks).await;
        match decided.map(|behaviour| behaviour.clone()) {
            Ok(ScriptGatewayBehaviour::Answers(result)) => result,
            // An error means that the test dropped the gateway.
            Ok(ScriptGatewayBehaviour::Blocks) | Err(_) => Err(GatewayFailure::Lost),
        }
    }
}
