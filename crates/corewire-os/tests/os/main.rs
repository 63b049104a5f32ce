//! What is left and found in directories, and what a peer's memory is.

mod directory;
mod segments;
