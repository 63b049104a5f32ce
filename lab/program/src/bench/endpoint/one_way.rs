//! Eight bytes one way, through a receive that matches tag and sender, compared with a bare cache line.

use corewire::Selector;
use corewire_harness::report::Report;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::{WARM_UP, all, alternate, numbers, one_way_times};
use corewire_harness::statistics::{percentile, typical};

use super::super::latency::ROUND_TRIPS;
use super::super::options::{Options, setup};
use super::common::{BYTES, check, ends};
use corewire_harness::failure::Failure;

pub(in super::super) const ROLE: Role<Options> = Role { name: "endpoint", work: peer };

const TAG: u64 = 7;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let crew = setup(1).start(&ROLE, |_| options.clone())?;
    let mut raw = crew.board().raw_line()?;
    let (mut endpoint, other) = ends(crew.domain()?, options, "parent", "peer")?;
    let selector = Selector::tag(TAG).from(other);
    let mut times_of_all = vec![];
    let blocks = alternate(options.rounds, |round| {
        let baseline = raw.ask(ROUND_TRIPS);
        let times = one_way_times(numbers(round, ROUND_TRIPS), |number| {
            endpoint.send(other, TAG, &number.to_le_bytes())?;
            let mut word = [0; BYTES];
            endpoint.receive_into(selector, &mut word)?;
            check(u64::from_le_bytes(word), number)
        })?;
        let p50 = typical(&times);
        if round > WARM_UP {
            times_of_all.extend(times);
        }
        Ok::<_, Failure>([baseline, p50])
    })?;
    report.value("bytes", BYTES);
    report.value("rounds", options.rounds);
    let baseline = blocks.median(0);
    report.figure("raw_line_one_way_ns", "a bare cache line, one way", baseline, "ns");
    let (p50, p99) = (typical(&times_of_all), percentile(&times_of_all, 0.99));
    report.figure("one_way_ns_p50", "8 bytes, one way, p50", p50, "ns");
    report.figure("one_way_ns_p99", "8 bytes, one way, p99", p99, "ns");
    report.ratio("p50 to the bare line of the same round", &blocks.ratios(1, 0));
    crew.describe(report);
    endpoint.close()?;
    crew.finish()
}

fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let domain = worker.domain()?;
    let mut raw = worker.board().raw_line()?;
    let (mut endpoint, other) = ends(&domain, &options, "peer", "parent")?;
    let selector = Selector::tag(TAG).from(other);
    for _ in all(options.rounds) {
        raw.answer(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let mut word = [0; BYTES];
            endpoint.receive_into(selector, &mut word)?;
            endpoint.send(other, TAG, &word)?;
        }
    }
    Ok(endpoint.close()?)
}
