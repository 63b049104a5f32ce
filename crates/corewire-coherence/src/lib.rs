//! What a ring costs in line transfers, counted on a model of coherent caches: the rings' own source,
//! run by any number of roles, on a machine of any number of cores.
//!
//! The modules [`broadcast`], [`pair`], [`published`], [`region`], [`shared`] and [`sync`] are those of `corewire-ring`,
//! compiled here a second time with the face of `sync` that reports each access to [`caches`].
//!
//! | module | holds |
//! |---|---|
//! | [`caches`] | private caches and a directory: transfers, upgrades, invalidations, time |
//! | [`scheduler`] | whose turn it is: always that of the core whose time is least |
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
