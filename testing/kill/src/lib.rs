//! Kills a role after each of its stores: a sender, a receiver or an endpoint dies at any instruction, and the
//! others then find nothing lost that was committed, nothing invented, torn, out of order or
//! delivered twice, no room gone for good, and nobody left asleep.
//!
//! The rings are `corewire_ring`'s, built with `--cfg corewire_kill`: `sync::kill` then counts the
//! *effects* of a role (stores to shared memory, halves of payloads, wake-ups), and lets it die in
//! place of any. Other deaths are no different to the survivors, who see of a process nothing but
//! its effects. Roles take turns on one thread; what happens at the same time is for the models.
//!
//! | module | holds |
//! |---|---|
//! | [`engine`] | for every operation in every start: counts its effects, kills at each, alone and after the death of another; knows of no ring |
//! | [`start`] | policies and states |
//! | [`broadcast`] | the channel of one sender: its starts, the table of its operations, how its survivors recover, and the oracle |
//! | [`shared`] | the same for the channel of several senders |
//! | [`pairs`] | the same for endpoints |
//! | [`report`] | what came out, and the tables that are checked in |
//!
//! Another ring joins as another [`engine::World`] with a table of its own. `make kill` runs all of
//! it, and compares the effects of each operation with the tables in `points/`.

#![cfg(corewire_kill)]

pub mod broadcast;
pub mod engine;
mod kernel;
pub mod pairs;
pub mod report;
pub mod shared;
pub mod start;
