//! The caches, and what the rings cost on them.

mod caches;
mod rings;
