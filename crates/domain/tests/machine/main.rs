//! The machine of releases, lanes and rollouts beside a model of it: every state that few releases reach, and histories
//! drawn from seeds.

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod histories;
#[cfg(test)]
#[path = "../../../testkit/src/long_form.rs"]
mod long_form;
#[cfg(test)]
mod memory;
#[cfg(test)]
#[path = "model.rs"]
mod model;

/// What a run was asked for, such as its seed (`FAIRWAY_TEST_SEED`).
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the domain itself asks its environment for nothing")]
fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether this run asks for the long forms of tests.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the domain itself asks its environment for nothing")]
fn is_long() -> bool {
    long_form::is_long(std::env::args(), |name| asked(name).is_some())
}
