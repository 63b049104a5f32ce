//! How long binding takes while the links on the way are flooded: two monitors, a service that is bound to, a service
//! and a client that exchange nothing but a stream, each a process of its own.

use std::time::Instant;

use corewire::Domain;

use super::many::MONITORS;
use super::{Does, Part, bind, processes};
use crate::calls::SERVICE;
use crate::failure::{Doing, Failure};
use crate::program::Program;
use crate::report::Report;
use crate::role::Role;
use crate::rounds::per_second;
use crate::statistics::{median, percentile};

/// The service of the stream.
const STREAMED: &str = "streamed";
/// How often a client binds in one part.
const BOUND: usize = 500;

/// Binds while nothing happens, and while the links are flooded.
///
/// # Errors
/// If a process fails, or a client cannot be bound.
pub fn measure(program: Program, role: &Role<Part>, report: &mut Report) -> Result<(), Failure> {
    let service = |name| Does::serve(name, Some(MONITORS - 1), None);
    let others = [service(SERVICE), service(STREAMED), Does::Flood(STREAMED.to_owned())];
    let crew = processes(program, role, MONITORS, others)?;
    let domain = crew.domain()?.clone();
    // The link of this process, and the client that counts.
    let mut counter = bind(&domain, STREAMED)?;
    let idle_us = bind_many(&domain)?;
    let before = counter.counts().doing("call")?.received;
    crew.go();
    let start = Instant::now();
    let flooded_us = bind_many(&domain)?;
    let after = counter.counts().doing("call")?.received;
    let messages_per_s = per_second(after - before, start);
    for (key, words, times) in [
        ("bind", "binding, nothing else happens", &idle_us),
        ("bind_flooded", "binding, links are flooded", &flooded_us),
    ] {
        report.figure(&format!("{key}_us"), words, median(times.iter().copied()), "us");
        let p99 = percentile(times, 0.99);
        report.figure(&format!("{key}_p99_us"), "the same, one in a hundred", p99, "us");
    }
    let ratio = percentile(&flooded_us, 0.99) / percentile(&idle_us, 0.99);
    report.figure("bind_flooded_p99_ratio", "one in a hundred, flooded to idle", ratio, "");
    report.rate("flood_messages_per_s", "the flood, 32 bytes each", messages_per_s);
    Ok(())
}

/// The time of each bind, in microseconds.
fn bind_many(domain: &Domain) -> Result<Vec<f64>, Failure> {
    let one = |_| {
        let start = Instant::now();
        let client = bind(domain, SERVICE)?;
        let took = start.elapsed().as_secs_f64() * 1e6;
        drop(client);
        Ok(took)
    };
    (0..BOUND).map(one).collect()
}
