//! The tree, tiles and notes against published vectors, a naive model and a foreign implementation.

mod notes;
mod tree;
