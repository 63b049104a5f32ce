//! Counts what a ring costs in line transfers, on a model of coherent caches. It runs the rings' own
//! source, with any number of roles, on a machine of any number of cores.
//!
//! The modules [`broadcast`], [`pair`], [`published`], [`region`], [`shared`] and [`sync`] are those of
//! `corewire-ring`, compiled a second time with the variant of `sync` that reports each access to
//! [`caches`].
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

#[path = "../../corewire-ring/src/broadcast/mod.rs"]
pub mod broadcast;
#[path = "../../corewire-ring/src/host.rs"]
mod host;
#[path = "../../corewire-ring/src/pair/mod.rs"]
pub mod pair;
#[path = "../../corewire-ring/src/published/mod.rs"]
pub mod published;
#[path = "../../corewire-ring/src/region.rs"]
pub mod region;
#[path = "../../corewire-ring/src/shared/mod.rs"]
pub mod shared;
#[path = "../../corewire-ring/src/sync.rs"]
pub mod sync;

pub use host::{Kernel, Lock, Trusted};
