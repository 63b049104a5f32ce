//! What the rings of `corewire-ring` are measured against. Nothing here runs in a program that
//! uses corewire.
//!
//! | module | contents |
//! |---|---|
//! | [`rings`] | the papers' own rings, as printed |
//! | [`yardstick`] | what the hardware allows: bare loops over shared memory |
//!
//! Both use memory and atomics through `corewire_ring::region` and `corewire_ring::sync`, so that
//! loom and Miri run the same source. `corewire-coherence` compiles [`rings`] a second time.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod rings;
pub mod yardstick;

// The modules name these as `crate::region` and so on, which `corewire-coherence` has, too.
use corewire_ring::{Trusted, fence_at, order, region, sync};
