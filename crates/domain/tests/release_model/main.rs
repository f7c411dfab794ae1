//! Model-based tests of the state machine of releases, lanes and rollouts. They explore small cases exhaustively, and
//! run random histories that seeds determine.

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod in_memory_store;
#[cfg(test)]
#[path = "../../../testkit/src/long_form.rs"]
mod long_form;
#[cfg(test)]
#[path = "model.rs"]
mod model;

/// The value of an environment variable; `FAIRWAY_TEST_SEED` contains the first seed.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "only tests read the environment; the domain does not")]
fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether the long form of the tests is requested.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "only tests read the environment; the domain does not")]
fn is_long() -> bool {
    long_form::is_long(std::env::args(), |name| env_variable(name).is_some())
}
