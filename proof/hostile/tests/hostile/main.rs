//! Peers that write and send anything.

#[path = "../wire/mod.rs"]
mod wire;

mod links;
mod listener;
mod owner;
mod socket;
mod window;
