//! The mechanisms between two processes: this program, and itself started once more as a child.

mod arena;
mod deaths;
mod lists;
mod refusals;
mod roles;
