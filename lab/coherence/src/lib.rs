//! Counts what a ring costs in line transfers, on a model of coherent caches. It runs the rings' own
//! source, with any number of roles, on a machine of any number of cores.
//!
//! The modules [`broadcast`], [`copying`], [`doorbell`], [`pair`], [`region`], [`shared`] and [`sync`] are those of
//! `corewire-ring`, and [`published`] is the module `rings` of `corewire-published`. They are compiled
//! a second time, with the variant of `sync` that reports each access to [`caches`].
//!
//! | module | holds |
//! |---|---|
//! | [`caches`] | private caches and a directory: transfers, upgrades, invalidations, time |
//! | [`scheduler`] | which core runs next: always the one with the earliest clock |
//! | [`rings`] | the rings that can be run, each with its roles |

extern crate alloc;

pub mod caches;
pub mod rings;
pub mod scheduler;

#[path = "../ring/bell.rs"]
mod bell;
#[path = "../ring/broadcast/mod.rs"]
pub mod broadcast;
#[path = "../ring/channel/mod.rs"]
mod channel;
#[path = "../ring/cold.rs"]
mod cold;
#[path = "../ring/copying/mod.rs"]
pub mod copying;
#[path = "../ring/doorbell.rs"]
pub mod doorbell;
#[path = "../ring/host.rs"]
mod host;
#[path = "../ring/message/mod.rs"]
pub mod message;
#[path = "../ring/pair/mod.rs"]
pub mod pair;
#[path = "../published/rings/mod.rs"]
pub mod published;
#[path = "../ring/region/mod.rs"]
pub mod region;
#[path = "../ring/shared/mod.rs"]
pub mod shared;
#[path = "../ring/sync.rs"]
pub mod sync;

pub use host::{Control, Host, Kernel, Lock, Trusted};
