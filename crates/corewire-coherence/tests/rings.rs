//! What rings cost on the model, against what their heads promise.

use corewire_coherence::caches::{Counts, Machine};
use corewire_coherence::rings::{Figures, broadcast};
use corewire_coherence::scheduler::Rhythm;

const SLOTS: u64 = 256;
const ROUNDS: u64 = 2;
const MESSAGES: u64 = ROUNDS * SLOTS;
/// Messages for which one cursor is published.
const BATCH: u64 = SLOTS / 8;
const SEEDS: u64 = 3;

fn figures(receivers: u32, rhythm: Rhythm, seed: u64) -> Figures {
    let ring = broadcast(receivers, SLOTS).unwrap();
    ring.measure(Machine::default(), rhythm, MESSAGES, seed).unwrap()
}

#[test]
fn one_message_at_a_time_costs_a_transfer_for_each_receiver_and_an_upgrade_for_the_sender() {
    for receivers in [1, 2, 8, 9, 40] {
        let Figures { sender, receivers: each, .. } = figures(receivers, Rhythm::OneByOne, 0);
        // The cursors are read once a round, when the limit is reached, and are all at the head then.
        let cursors = u64::from(receivers) * ROUNDS;
        let expected = Counts {
            near: cursors,
            upgrades: MESSAGES,
            invalidations: MESSAGES * u64::from(receivers),
            ..Counts::default()
        };
        assert_eq!(sender, expected, "{receivers} receivers");
        let expected =
            Counts { near: MESSAGES, upgrades: ROUNDS, invalidations: ROUNDS, ..Counts::default() };
        assert!(each.iter().all(|counts| *counts == expected), "{receivers} receivers: {each:?}");
    }
}

#[test]
fn a_stream_costs_no_more_than_promised_and_locks_nothing() {
    for receivers in [1, 3, 8, 9, 64, 255] {
        for seed in 0..if receivers > 9 { 1 } else { SEEDS } {
            let Figures { sender, receivers: each, .. } = figures(receivers, Rhythm::Stream, seed);
            let transfers = sender.transfers() + sender.upgrades;
            let allowed = MESSAGES + 8 * u64::from(receivers) * ROUNDS;
            assert!(transfers <= allowed, "{receivers}: {transfers} of {allowed}");
            for counts in each.iter().chain([&sender]) {
                assert_eq!(counts.modifies, 0, "{receivers} receivers");
            }
            let allowed = MESSAGES + 4 * MESSAGES / BATCH;
            let worst =
                each.iter().map(|counts| counts.transfers() + counts.upgrades).max().unwrap();
            assert!(worst <= allowed, "{receivers} receivers: {worst} of {allowed}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    for rhythm in [Rhythm::OneByOne, Rhythm::Stream] {
        let [one, other] = [(); 2].map(|()| figures(5, rhythm, 7));
        assert_eq!(one.time_ns, other.time_ns);
        assert_eq!((one.sender, one.receivers), (other.sender, other.receivers));
    }
}

#[test]
fn receivers_afar_cost_the_same_transfers_and_more_time() {
    let far = Machine { domain_cores: 1, ..Machine::default() };
    let near = figures(4, Rhythm::OneByOne, 0);
    let ring = broadcast(4, SLOTS).unwrap();
    let far = ring.measure(far, Rhythm::OneByOne, MESSAGES, 0).unwrap();
    assert_eq!(near.sender.transfers(), far.sender.transfers());
    assert_eq!((far.sender.near, far.sender.far), (0, near.sender.near));
    assert!(far.time_ns > near.time_ns, "{} and {} ns", far.time_ns, near.time_ns);
}
