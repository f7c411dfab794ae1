//! The tree, tiles and notes against published vectors, a naive model and a foreign implementation.

mod log_audit;
mod notes;
mod tree;
