//! What leaves and what does not, seen from the other side: listeners that count who comes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first surprise, its listeners included")]

mod answers;
mod canary;
mod names;
mod proxies;
mod spellings;
mod trust;
