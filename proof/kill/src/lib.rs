//! Kills a role (a sender, a receiver, an endpoint or a participant of a window) after each of its stores, which covers a
//! death at any instruction. The survivors must then find that no committed message is lost, that
//! none is invented, torn, out of order or delivered twice, that no room is lost forever, and that
//! no party stays asleep.
//!
//! The rings are those of `corewire_ring`, built with `--cfg corewire_kill`. `sync::kill` then
//! counts the *effects* of a role (stores to shared memory, halves of payloads, wake-ups) and can
//! let the role die in place of any of them. Deaths at other instructions look the same to the
//! survivors, which see only the effects of a process. Roles take turns on one thread; the models
//! check what happens concurrently.
//!
//! | module | holds |
//! |---|---|
//! | `engine` | for every operation in every start: counts its effects and kills at each, alone and after the death of another role; independent of any ring |
//! | `start` | policies and states |
//! | `broadcast` | the channel of one sender: its starts, the table of its operations, the recovery of its survivors, and the oracle |
//! | `shared` | the same for the channel of several senders |
//! | `pairs` | the same for endpoints |
//! | `windows` | the same for windows |
//! | `report` | the results, and the tables that are checked in |
//!
//! To add another ring, add another `engine::World` with a table of its own. `make kill` runs
//! everything and compares the effects of each operation with the tables in `points/`.

#![cfg(corewire_kill)]

pub mod broadcast;
pub mod engine;
mod kernel;
pub mod pairs;
pub mod report;
pub mod shared;
pub mod start;
pub mod windows;
