//! The parts of a measurement.
//!
//! A *controller* starts *workers*, which are processes of the same program ([`program`], [`setup`],
//! [`crew`]). Controller and workers share words and memory ([`board`]); each of them has a core of its
//! own if there are enough ([`places`]). A worker follows an order in a role that the program has registered ([`role`]). A figure
//! and its baseline are measured in alternating blocks ([`rounds`]) and compared round by round
//! ([`statistics`]). A report has keys for programs and lines for people ([`report`]).
//!
//! Two measurements concern the machine itself: how long a line takes from core to core and back
//! ([`mod@line`], [`distance`]), and what it costs to read a line that another core has written ([`walk`]).

pub mod board;
pub mod crew;
pub mod distance;
pub mod line;
mod output;
pub mod places;
pub mod program;
pub mod report;
pub mod role;
pub mod rounds;
pub mod setup;
pub mod statistics;
pub mod walk;
