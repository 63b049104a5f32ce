//! What is left and found in directories, what a peer's memory is, and sleeps that only a wake-up ends.

mod directory;
mod segments;
mod windows;
