//! Assets.
pub mod canonical;
pub mod content;
pub mod kind;
