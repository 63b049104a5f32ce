//! The provider through its own tables, as libfabric calls it.
//!
//! | file | tests |
//! |---|---|
//! | `driver` | what the tests share: a program that uses the provider, without C |
//! | `getinfo` | what is offered, and what is not |
//! | `messages` | sends and receives of every kind and length |
//! | `accesses` | access to a peer's memory |
//! | `matching` | peek, claim, discard, cancel, truncation, many messages into one buffer |
//! | `queues` | formats, failures at the head, counters, waiting, event queues |
//! | `addresses` | address vectors, sources, names |
//! | `refusals` | every operation of every table with null, closed, foreign, too large and too many |
//! | `processes` | death, stop and fork |

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    clippy::cast_possible_truncation,
    reason = "calls through tables, with pointers to what the test holds, and bytes of small numbers"
)]

mod accesses;
mod addresses;
mod driver;
mod getinfo;
mod matching;
mod messages;
mod processes;
mod queues;
mod refusals;
