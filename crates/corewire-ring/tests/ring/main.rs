//! The rings on real threads over private memory.

#![cfg(not(loom))]

#[path = "../yielding/mod.rs"]
mod yielding;

mod pair;
mod shared;
mod threads;
mod windows;
