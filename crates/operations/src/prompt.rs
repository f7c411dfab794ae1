//! Prompts: their included assets, and previews.

pub(crate) mod include;
mod preview;
