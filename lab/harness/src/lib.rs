//! The harness with which corewire is measured.
//!
//! A *controller* starts *workers*, which are processes of the same program ([`program`], [`setup`],
//! [`crew`]). Controller and workers share words and memory ([`board`]); each of them has a core of its
//! own if there are enough ([`places`]). A worker follows an order in a role that the program has registered ([`role`]). A figure
//! and its baseline are measured in alternating blocks ([`rounds`]) and compared round by round
//! ([`statistics`]). A report has keys for programs and lines for people ([`report`]).
//!
//! How long a line takes from core to core and back ([`mod@line`]) says how far they are apart ([`distance`]).
//!
//! [`calls`] is an interface and a service that the measurements of typed calls share; [`circuits`] reaches it through
//! monitors.

#![forbid(unsafe_code)]

pub mod board;
pub mod calls;
pub mod circuits;
pub mod crew;
pub mod distance;
pub mod failure;
pub mod line;
pub mod places;
pub mod program;
pub mod report;
pub mod role;
pub mod rounds;
pub mod setup;
pub mod statistics;
