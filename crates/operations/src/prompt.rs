//! Prompts: resolution of included assets, and previews.

pub(crate) mod include;
mod preview;
