//! Tests of the tree, the tiles and the notes. They compare with published vectors, a naive model and a third-party
//! implementation.

mod log_audit;
mod notes;
mod tree;
