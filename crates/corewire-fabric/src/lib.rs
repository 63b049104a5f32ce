//! corewire as a provider of libfabric: unmodified MPI programs send their messages over corewire's endpoints.
//!
//! The library `libcorewire_fabric.so`, installed as `libcorewire-fi.so` in a directory that `FI_PROVIDER_PATH` names,
//! exports [`fi_prov_ini`] and nothing else. It needs the C library and `libgcc_s`. One binary serves libfabric 1.17 to
//! 2.x.
//!
//! It offers reliable datagrams (`FI_EP_RDM`) with and without tags. Access to a peer's memory is not offered: MPICH and
//! Open MPI do their one-sided calls by messages then.
//!
//! # Layout
//!
//! One module for each object of libfabric, above the public operations of the crate `corewire`. The way of a message is
//! short: `endpoint::tagged` (the calls), `endpoint::send`, `endpoint::receive`, `cq::read`, `endpoint::ends`.
//!
//! # Pointers
//!
//! Every call checks its object: null, one of another class, and a closed one end with `-FI_EINVAL`, since the memory of
//! objects is never freed (`object`). Null pointers to structures do the same. Beyond that the library trusts the program
//! to pass what libfabric's manual pages demand, as every library of C must.
//!
//! # Panics
//!
//! Nothing unwinds into C: the functions that libfabric calls are `extern "C"`, and Rust ends the process if a panic
//! reaches one. No input causes one; it would be a defect, after which the state of the endpoint is unknown.
//!
//! # Forks
//!
//! In a forked child every call returns `-FI_EIO`. The parent goes on.

mod address;
mod at_exit;
mod av;
mod cntr;
mod cq;
mod directory;
mod domain;
mod endpoint;
mod eq;
mod errors;
mod fabric;
mod fork;
mod gate;
mod getinfo;
mod host;
mod limits;
mod member;
mod memory;
mod mr;
mod names;
mod object;
mod opening;
mod poll;
mod provider;
mod refusals;
mod strings;
mod wait;

use core::ffi::CStr;

pub use provider::fi_prov_ini;

/// The name of the provider, its fabric and its domain.
const NAME: &CStr = c"corewire";
