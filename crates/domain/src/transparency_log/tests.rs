//! Tests of the tree, the tiles and the notes against published vectors, a naive model and a third-party
//! implementation.

mod log_audit;
mod notes;
mod tree;
