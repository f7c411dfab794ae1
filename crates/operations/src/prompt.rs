//! Prompts: their included assets.

pub(crate) mod include;
