//! The harness with which corewire is measured. It starts and pins the processes of a measurement, lets
//! figure and baseline take turns, computes medians and ratios, writes reports, and measures what a
//! cache line costs between two cores. `corewire bench`, `corewire doctor --measure` and the study use
//! it.
//!
//! [`calls`] is an interface and a service that the measurements of typed calls share; [`circuits`] reaches it through
//! monitors.
//!
//! The study itself, `corewire-study`, repeats the papers' experiments with corewire's rivals. It is a
//! program of this package and is built with the feature `rivals`. The library depends on no rival.

#![forbid(unsafe_code)]

pub mod calls;
pub mod circuits;
pub mod failure;
pub mod harness;
pub mod usage;
