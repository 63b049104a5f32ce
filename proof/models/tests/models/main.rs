//! Loom models of every protocol, and the labels of their orderings.

#[cfg(loom)]
mod exposures;
#[cfg(loom)]
mod grants;
#[cfg(loom)]
mod held;
#[cfg(not(loom))]
mod ordering;
#[cfg(loom)]
mod pairs;
#[cfg(loom)]
mod policies;
#[cfg(loom)]
mod published;
#[cfg(loom)]
mod rendezvous;
#[cfg(loom)]
mod ring;
#[cfg(loom)]
mod shared;
#[cfg(loom)]
mod windows;
