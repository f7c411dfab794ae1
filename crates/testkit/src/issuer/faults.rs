//! Faults of the test issuer: withheld responses and failing endpoints.

use super::TestIssuer;
use tokio::sync::watch;

/// Whether responses are withheld, and the number of withheld responses.
#[derive(Default, Debug)]
pub(super) struct ResponseGate(watch::Sender<(bool, usize)>);

impl ResponseGate {
    /// Waits until responses are no longer withheld.
    pub(super) async fn pass(&self) {
        if !self.0.borrow().0 {
            return;
        }
        self.0.send_modify(|(_, waiting)| *waiting = waiting.saturating_add(1));
        // The wait cannot fail: the sender exists as long as the issuer.
        let _ = self.0.subscribe().wait_for(|(is_holding, _)| !is_holding).await;
        self.0.send_modify(|(_, waiting)| *waiting = waiting.saturating_sub(1));
    }
}

impl TestIssuer {
    /// Sets whether the userinfo endpoint fails from now on.
    pub fn set_userinfo_failure(&self, fails: bool) {
        self.state.person().fails_userinfo = fails;
    }

    /// Withholds all responses from now on until [`Self::release_responses`]. Requests still have their usual effect.
    pub fn hold_responses(&self) {
        self.state.gate.0.send_modify(|(is_holding, _)| *is_holding = true);
    }

    /// Waits until at least one response is withheld.
    pub async fn wait_for_held_response(&self) {
        let _ = self.state.gate.0.subscribe().wait_for(|(_, waiting)| *waiting > 0).await;
    }

    /// Sends the withheld responses.
    pub fn release_responses(&self) {
        self.state.gate.0.send_modify(|(is_holding, _)| *is_holding = false);
    }
}
