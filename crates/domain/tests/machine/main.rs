//! The machine of releases, lanes and rollouts beside a model of it: every state that few releases reach, and histories
//! drawn from seeds.

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod memory;
#[cfg(test)]
#[path = "model.rs"]
mod model;

/// What a run was asked for: its seed (`FAIRWAY_TEST_SEED`), and to be a long one (`FAIRWAY_TEST_LONG`).
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the domain itself asks its environment for nothing")]
fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
fn is_long() -> bool {
    asked("FAIRWAY_TEST_LONG").is_some()
}
