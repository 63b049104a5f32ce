//! Eight bytes back to back, compared with a bare ring of the same number of slots.

use std::hint::black_box;
use std::time::Instant;

use corewire_harness::report::Report;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::{all, alternate, numbers, per_second};
use corewire_published::yardstick::BareRing;
use corewire_ring::sync::pause;

use super::super::options::{Options, setup};
use super::common::{check, ends, receive_number};
use corewire_harness::failure::Failure;

pub(in super::super) const ROLE: Role<Options> = Role { name: "endpoint stream", work: peer };

/// Number of messages in a block of about 10 ms.
const MESSAGES: u64 = 300_000;
/// Number of slots of an endpoint's own rings.
const SLOTS: usize = 256;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let setup = setup(1).memory_bytes(BareRing::bytes(SLOTS, 1));
    let mut crew = setup.start(&ROLE, |_| options.clone())?;
    let bare = BareRing::new(&crew.board().work()?, SLOTS, 1);
    let (mut endpoint, other) = ends(crew.domain()?, options, "parent", "peer")?;
    let blocks = alternate(options.rounds, |round| {
        let numbers = numbers(round, MESSAGES);
        let start = Instant::now();
        bare.send(numbers.start, numbers.end, pause);
        crew.await_step(0, 2 * round + 1)?;
        let baseline = per_second(MESSAGES, start);
        let start = Instant::now();
        for number in numbers {
            endpoint.send(other, 1, &black_box(number).to_le_bytes())?;
        }
        crew.await_step(0, 2 * round + 2)?;
        Ok::<_, Failure>([baseline, per_second(MESSAGES, start)])
    })?;
    report.rate("bare_pair_messages_per_s", "a bare ring of 256 slots", blocks.median(0));
    report.rate("stream_messages_per_s", "8 bytes back to back", blocks.median(1));
    let ratios = blocks.ratios(1, 0);
    report.spread_with_line("stream_ratio", "ratio to the bare ring", &ratios);
    endpoint.close()?;
    crew.finish()
}

fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let bare = BareRing::new(&worker.board().work()?, SLOTS, 1);
    let (mut endpoint, _) = ends(&domain, &options, "peer", "parent")?;
    let mut sum = 0;
    for round in all(options.rounds) {
        let numbers = numbers(round, MESSAGES);
        sum += bare.receive(0, numbers.start, numbers.end, pause);
        worker.reach(2 * round + 1);
        for number in numbers {
            check(receive_number(&mut endpoint)?, number)?;
        }
        worker.reach(2 * round + 2);
    }
    black_box(sum);
    Ok(())
}
