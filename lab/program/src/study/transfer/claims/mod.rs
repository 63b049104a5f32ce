//! The claims of the paper, each with what was found here and whether it holds. All of it is computed from the points of a
//! run. Where the library has a mechanism in another form than the paper, the form as printed is compared.
//!
//! `speed` has those about copies, latency and bandwidth, `costs` those about set-up, caches, and use in MPI.

mod costs;
mod speed;

use super::results::{Claim, Transfer};
use super::ways::Id;
use crate::study::page::units::nanoseconds;

/// A computed answer: what was found, and whether the claim holds.
type Answer = Option<(String, bool)>;

const KIB: u64 = 1024;
/// Figures that differ by less are alike.
const ALIKE: f64 = 1.03;
/// The mechanisms that copy by the kernel, and through a network interface.
const KERNEL: [Id; 2] = [Id::KernelPut, Id::KernelGet];
const NETWORK: [Id; 2] = [Id::NetworkPut, Id::NetworkGet];

fn claim(place: &str, paper: &str, figure: &str, answer: Answer) -> Claim {
    let (here, holds) = answer.map_or((None, None), |(here, holds)| (Some(here), Some(holds)));
    let [place, paper, figure] = [place, paper, figure].map(str::to_owned);
    Claim { place, paper, figure, here, holds }
}

/// All claims.
pub(super) fn of(found: &Transfer) -> Vec<Claim> {
    speed::of(found).into_iter().chain(costs::of(found)).collect()
}

/// `12 µs with kernel get`.
fn said(id: Id, time: f64) -> String {
    format!("{} with {}", nanoseconds(time), id.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::transfer::results::{Key, Measure, Point, Run, State};

    /// What a run would have found in which mechanisms have these latencies, in nanoseconds.
    fn with(latencies: &[(Id, f64)]) -> Transfer {
        let point = |(id, ns): &(Id, f64)| {
            let key = Key::new(Measure::Transfer, id.text(), 1, State::Cold);
            Point { key, runs: vec![Run { run: 0, blocks: vec![*ns], line_ns: None }] }
        };
        Transfer {
            runs: 1,
            rounds: 1,
            oversubscribed: false,
            cache_bytes: 512 << 10,
            arena_bytes: 4 << 20,
            sizes: vec![1],
            iterations: vec![1000],
            mechanisms: Vec::new(),
            failures: Vec::new(),
            points: latencies.iter().map(point).collect(),
            claims: Vec::new(),
        }
    }

    fn verdicts(found: &Transfer, place: &str) -> Vec<Option<bool>> {
        of(found).iter().filter(|claim| claim.place == place).map(|claim| claim.holds).collect()
    }

    #[test]
    fn the_latencies_of_the_paper_make_its_claims_hold() {
        let all = Id::all().filter_map(|id| Some((id, 1000.0 * id.paper_latency_us()?)));
        let found = with(&all.collect::<Vec<_>>());
        assert_eq!(verdicts(&found, "III-D, Table II"), [Some(true); 4]);
    }

    #[test]
    fn other_latencies_do_not_and_without_any_nothing_is_said() {
        let found = with(&[
            (Id::PrintedBuffer, 500.0),
            (Id::KernelGet, 300.0),
            (Id::Ptrace, 9000.0),
            (Id::NetworkGet, 10_000.0),
        ]);
        let expected = [Some(false), Some(true), Some(true), Some(false)];
        assert_eq!(verdicts(&found, "III-D, Table II"), expected);
        assert!(of(&with(&[])).iter().all(|claim| claim.here.is_none() && claim.holds.is_none()));
    }
}
