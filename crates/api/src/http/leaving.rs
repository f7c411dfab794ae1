//! Whether this process is about to end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Known to everybody who answers: from the announcement on, every answer is the last one on its connection, so that a
/// client goes elsewhere between two requests and never in the middle of one.
#[derive(Clone, Debug, Default)]
pub struct Leaving(Arc<AtomicBool>);

impl Leaving {
    /// From now on.
    pub fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an answer says of it. Whoever puts this among an answer's extensions has its goodbye agree with what its body says,
/// however soon after the announcement comes.
#[derive(Clone, Copy, Debug)]
pub struct SaidLeaving(pub bool);
