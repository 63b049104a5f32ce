//! Large messages of an endpoint and its hostile peer. Both offer, copy from both ends, take back and close, as far as
//! the words of rendezvous let them; the hostile peer's are its table of offers and the words of its row for the
//! victim.

use std::hint::black_box;

use corewire_layout::rendezvous::{OFFERS_MAX, helped, offer_key, offer_number, pulled};
use corewire_ring::pair::{Claim, Helper, Puller};

use super::{HONEST, HOSTILE, Pairs};
use crate::effort::Effort;
use crate::kernel::Idle;
use crate::step::Step;

/// The victim's row at both of its peers.
const ROW_AT_HOSTILE: u32 = 3;
const ROW_AT_HONEST: u32 = 1;
/// Offers and copies of one side at a time.
const COUNT_MAX: usize = 3;
/// Numbers of chunks of a message.
const CHUNKS: [u16; 4] = [1, 2, 7, u16::MAX];
/// Chunks that one call copies at most.
const CLAIMS_MAX: u32 = 3;

/// The large messages between the two.
#[derive(Debug, Default)]
pub(super) struct Large {
    /// The victim's offers.
    offers: Vec<Offered>,
    /// The messages of the hostile peer that the victim copies.
    pulls: Vec<Pull>,
    /// The hostile peer's offers, with the number of their chunks, and what it copies itself.
    theirs: Vec<(u64, u16)>,
    their_help: Option<Helper>,
    their_pull: Option<Puller>,
    /// Outcomes.
    pub(super) tally: LargeTally,
}

#[derive(Debug)]
struct Offered {
    number: u64,
    helper: Helper,
    /// Number of the chunk that it may claim next at the most, plus one; 0 after it has given up.
    left: u16,
}

#[derive(Debug)]
struct Pull {
    puller: Puller,
    chunks: u16,
    next: u32,
}

/// Counts of outcomes, and of hostile words that may have led to them.
#[derive(Debug, Clone, Copy, Default)]
pub struct LargeTally {
    /// Words of the table, of copies by the sender and of copies by the receiver that were overwritten.
    pub words: [u64; 3],
    /// Offers made; those that were taken back before and after they were begun.
    pub offers: [u64; 3],
    /// Chunks that the victim claimed as the sender, and claims that it did not get.
    pub helped: [u64; 2],
    /// Messages that the victim began to copy, and those that were taken back before.
    pub begun: [u64; 2],
    /// Claims of chunks as the receiver, and times that it had to wait.
    pub pulled: [u64; 2],
    /// Messages that were complete, and those that were not valid any more.
    pub complete: [u64; 2],
    /// Messages that the victim closed, and times that it had to wait for that.
    pub closed: [u64; 2],
    /// Messages that the honest peer has copied, with the victim's help.
    pub honest: u64,
}

impl LargeTally {
    /// Whether every outcome was reached.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let Self { words, offers, helped, begun, pulled, complete, closed, honest } = self;
        let all = [&words[..], offers, helped, begun, pulled, complete, closed, &[*honest]];
        all.iter().all(|counts| counts.iter().all(|&count| count > 0))
    }
}

impl Large {
    /// Ends everything with a peer that is about to be removed.
    pub(super) fn end(&mut self, pairs: &mut Pairs) {
        self.offers.drain(..).for_each(|offered| pairs.end_offer(offered.number));
        *self = Self { tally: self.tally, ..Self::default() };
    }

    /// The hostile peer goes on as an honest one would.
    pub(super) fn go_on_there(&mut self, hostile: &mut Pairs, step: &Step) {
        let row = ROW_AT_HOSTILE;
        let chunks = CHUNKS[step.choose(CHUNKS.len())];
        if self.theirs.len() < COUNT_MAX
            && let Some(number) = hostile.make_offer(row)
        {
            self.theirs.push((number, chunks));
            self.their_help = hostile.helper(row, number, chunks);
        }
        if let Some(helper) = &mut self.their_help
            && helper.claim().is_some()
            && !step.happens(3)
        {
            helper.finish();
        }
        if step.happens(7)
            && let Some((number, _)) = self.theirs.pop()
        {
            hostile.end_offer(number);
        }
        match &mut self.their_pull {
            Some(puller) if !step.happens(9) => _ = black_box(puller.claim(1)),
            _ => self.begin_there(hostile, step),
        }
    }

    fn begin_there(&mut self, hostile: &Pairs, step: &Step) {
        let Some(offered) = self.offers.get(step.choose(COUNT_MAX)) else { return };
        let chunks = offered.left.max(1);
        let mut puller = hostile.puller(ROW_AT_HOSTILE, offered.number, chunks);
        if let Some(puller) = &mut puller {
            puller.invite();
            _ = black_box(puller.begin());
        }
        self.their_pull = puller;
    }

    /// A value for one of the words: close to one that would mean something.
    pub(super) fn value(&self, step: &Step) -> u64 {
        let value = step.value;
        let [a, b, ..] = value.to_le_bytes();
        let own = self.offers.get(step.choose(COUNT_MAX)).map_or(0, |offered| offered.number);
        let theirs = self.theirs.last().map_or((1 << 16, 1), |&(number, chunks)| (number, chunks));
        let near = |centre: u16| centre.wrapping_add(u16::from(a % 5)).wrapping_sub(2);
        let count = match b % 4 {
            0 => near(0),
            1 => near(theirs.1),
            2 => near(u16::MAX),
            _ => u16::from(a % 8),
        };
        match value >> 32 & 7 {
            0 | 1 => pulled(offer_key(own), a.into(), count),
            2 => pulled(offer_key(own).wrapping_add(1), 0, count),
            3 | 4 => helped(offer_key(theirs.0), count, near(count)),
            5 => helped(offer_key(theirs.0), count, count),
            6 => offer_number(near(0), value >> 40 & 0xff),
            _ => theirs.0.wrapping_add(u64::from(a)).wrapping_sub(2),
        }
    }

    /// The victim as a sender.
    pub(super) fn offer(
        &mut self,
        pairs: &mut Pairs,
        (effort, kernel): (&Effort, &Idle),
        step: &Step,
    ) {
        let tally = &mut self.tally;
        let choice = step.value >> 5 & 7;
        let index = step.choose(COUNT_MAX);
        if self.offers.len() < COUNT_MAX && choice < 3 {
            let chunks = CHUNKS[usize::from(step.shape) % CHUNKS.len()];
            let number = effort.bound(kernel, 1, || pairs.make_offer(HOSTILE));
            let number = number.expect("only the victim's own offers are in its table");
            let helper = pairs.helper(HOSTILE, number, chunks).expect("it is linked");
            self.offers.push(Offered { number, helper, left: chunks });
            tally.offers[0] += 1;
        } else if index < self.offers.len() {
            match choice {
                0..=5 => help(&mut self.offers[index], effort, kernel, step, tally),
                6 => {
                    let number = self.offers.swap_remove(index).number;
                    let is_unsent =
                        effort.bound(kernel, 1, || pairs.withdraw_offer(HOSTILE, number));
                    tally.offers[if is_unsent { 1 } else { 2 }] += 1;
                }
                _ => {
                    let number = self.offers[index].number;
                    if effort.bound(kernel, 1, || pairs.has_begun(HOSTILE, number)) {
                        effort.bound(kernel, 1, || pairs.end_offer(number));
                        self.offers.swap_remove(index);
                    }
                }
            }
        }
    }

    /// The victim as a receiver.
    pub(super) fn pull(
        &mut self,
        pairs: &mut Pairs,
        (effort, kernel): (&Effort, &Idle),
        step: &Step,
    ) {
        let tally = &mut self.tally;
        let choice = step.value >> 8 & 7;
        let index = step.choose(COUNT_MAX);
        if self.pulls.len() < COUNT_MAX && choice < 3 {
            // Now and then an offer with a number that was never made.
            let found = self.theirs.last().copied().filter(|_| !step.happens(6));
            let (number, chunks) = found.unwrap_or((step.value, CHUNKS[step.choose(4)]));
            let Some(mut puller) = pairs.puller(HOSTILE, number, chunks) else { return };
            if step.value >> 60 & 1 == 0 {
                puller.invite();
            }
            let has_begun = effort.bound(kernel, 1, || puller.begin());
            tally.begun[usize::from(!has_begun)] += 1;
            if has_begun {
                self.pulls.push(Pull { puller, chunks, next: 0 });
            }
            return;
        }
        let Some(pull) = self.pulls.get_mut(index) else { return };
        let Pull { puller, chunks, next } = pull;
        if choice == 7 {
            let is_over = effort.bound(kernel, 1, || puller.close()) == Claim::Over;
            tally.closed[usize::from(!is_over)] += 1;
            if is_over {
                self.pulls.swap_remove(index);
            }
            return;
        }
        let count = [1, 2, 64, u32::MAX][step.choose(4)];
        for _ in 0..CLAIMS_MAX {
            match effort.bound(kernel, 1, || puller.claim(count)) {
                Claim::Chunks(claimed) => {
                    assert!(claimed.start == *next && !claimed.is_empty(), "{claimed:?}, {next}");
                    let is_possible = claimed.end <= u32::from(*chunks);
                    assert!(is_possible, "chunks {claimed:?} of {chunks}");
                    assert!(claimed.end - claimed.start <= count, "{claimed:?}: {count} at most");
                    *next = claimed.end;
                    assert_eq!(puller.taken(), *next);
                    tally.pulled[0] += 1;
                }
                Claim::Busy => {
                    tally.pulled[1] += 1;
                    black_box(puller.has_helper());
                    return;
                }
                Claim::Over => {
                    let is_valid = effort.bound(kernel, 1, || puller.is_valid());
                    tally.complete[usize::from(!is_valid)] += 1;
                    self.pulls.swap_remove(index);
                    return;
                }
            }
        }
    }

    /// A large message for the honest peer, from its offer to its end: nothing in it depends on the hostile peer.
    pub(super) fn exchange(&mut self, pairs: &mut Pairs, honest: &mut Pairs, step: &Step) {
        let chunks = CHUNKS[step.choose(3)];
        let own = "the honest peer is linked";
        let number = pairs.make_offer(HONEST).expect(own);
        if step.happens(12) {
            assert!(pairs.withdraw_offer(HONEST, number), "the honest one has not begun");
            let mut puller = honest.puller(ROW_AT_HONEST, number, chunks).expect(own);
            assert!(!puller.begin(), "it was taken back");
            return;
        }
        let mut puller = honest.puller(ROW_AT_HONEST, number, chunks).expect(own);
        assert!(puller.begin(), "it is valid");
        puller.invite();
        let mut helper = pairs.helper(HONEST, number, chunks).expect(own);
        let mut copied = vec![0; chunks.into()];
        loop {
            if let Some(chunk) = helper.claim() {
                copied[usize::from(chunk)] += 1;
                helper.finish();
            }
            match puller.claim(1) {
                Claim::Chunks(claimed) => claimed.for_each(|chunk| copied[chunk as usize] += 1),
                Claim::Over => break,
                Claim::Busy => panic!("the victim does not copy"),
            }
        }
        assert!(puller.is_valid() && pairs.has_begun(HONEST, number));
        assert!(copied.iter().all(|&count| count == 1), "chunks were copied {copied:?} times");
        pairs.end_offer(number);
        assert!(!puller.is_valid(), "it has ended");
        self.tally.honest += 1;
    }

    /// The victim ends all of its offers at once.
    pub(super) fn end_all(&mut self, pairs: &mut Pairs, effort: &Effort, kernel: &Idle) {
        self.offers.drain(..).for_each(|offered| pairs.end_offer(offered.number));
        effort.visiting(OFFERS_MAX.into()).bound(kernel, 1, || pairs.end_offers());
    }
}

/// Claims chunks as a sender, which must be the last ones, in their order.
fn help(
    offered: &mut Offered,
    effort: &Effort,
    kernel: &Idle,
    step: &Step,
    tally: &mut LargeTally,
) {
    let Offered { helper, left, .. } = offered;
    for _ in 0..CLAIMS_MAX {
        let Some(chunk) = effort.bound(kernel, 1, || helper.claim()) else {
            tally.helped[1] += 1;
            return;
        };
        assert_eq!(Some(chunk), left.checked_sub(1), "a sender copies from the end, once each");
        tally.helped[0] += 1;
        if step.happens(11) {
            effort.bound(kernel, 1, || helper.give_up());
            *left = 0;
            return;
        }
        effort.bound(kernel, 1, || helper.finish());
        *left = chunk;
    }
}
