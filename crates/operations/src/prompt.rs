//! Included assets of prompts: checked when a version is created, and composed for runs.

pub(crate) mod include;
