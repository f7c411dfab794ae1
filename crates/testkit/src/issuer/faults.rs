//! Faults of an issuer: answers that it keeps back until its test releases them, and endpoints that fail.

use super::TestIssuer;
use tokio::sync::watch;

/// Whether answers are kept back, and how many wait.
#[derive(Default, Debug)]
pub(super) struct HeldAnswers(watch::Sender<(bool, usize)>);

impl HeldAnswers {
    /// Waits while answers are kept back.
    pub(super) async fn pass(&self) {
        if !self.0.borrow().0 {
            return;
        }
        self.0.send_modify(|(_, waiting)| *waiting = waiting.saturating_add(1));
        // The sender lives as long as the issuer.
        let _ = self.0.subscribe().wait_for(|(is_holding, _)| !is_holding).await;
        self.0.send_modify(|(_, waiting)| *waiting = waiting.saturating_sub(1));
    }
}

impl TestIssuer {
    /// Decides whether userinfo fails from now on.
    pub fn fail_userinfo(&self, fails: bool) {
        self.state.person().fails_userinfo = fails;
    }

    /// Decides requests as always from now on, and keeps the answers back until [`Self::release`].
    pub fn hold(&self) {
        self.state.held.0.send_modify(|(is_holding, _)| *is_holding = true);
    }

    /// Waits until an answer is kept back.
    pub async fn wait_for_held(&self) {
        let _ = self.state.held.0.subscribe().wait_for(|(_, waiting)| *waiting > 0).await;
    }

    /// Sends the answers that were kept back.
    pub fn release(&self) {
        self.state.held.0.send_modify(|(is_holding, _)| *is_holding = false);
    }
}
