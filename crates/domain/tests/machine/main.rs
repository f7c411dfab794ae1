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
