//! Large messages, copied by both sides: what their words allow, the world does.

use corewire_layout::rendezvous::{Notice, Offer, Verb, offer_index};
use corewire_ring::message::Space;
use corewire_ring::pair::Claim;
use corewire_ring::sync::Ordering::Relaxed;
use corewire_ring::sync::kill;

use super::offers::{Offered, Offering, Pull, Pulling, Word};
use super::{CHUNKS, LARGE, Pairs, Role};
use crate::engine::fail;
use crate::ensure;

/// Bytes of a chunk.
const CHUNK: usize = LARGE / CHUNKS as usize;

impl Pairs {
    /// `role` has received a word of `from`.
    pub(super) fn handle_word(&mut self, role: Role, from: Role, (envelope, bytes): &Word) {
        let number = envelope.tag;
        match envelope.space {
            Space::Offer => {
                let Some((offer, _)) = Offer::parse(bytes) else { fail("a torn offer".into()) };
                self.party(role).talk(from).pulls.push(Pull {
                    number: offer.number,
                    puller: None,
                    target: vec![0; LARGE],
                    copies: [0; CHUNKS as usize],
                    stage: Pulling::Queued,
                });
            }
            Space::Data => {
                if self.party(role).talk(from).completed.contains(&number) {
                    return;
                }
                let pull = self.pull_of(role, from, number);
                let is_over = pull.puller.as_mut().is_none_or(|it| it.close() == Claim::Over);
                ensure!(is_over, "a sender that sends data copies, too");
                self.complete(role, from, number, bytes);
            }
            _ => {
                let Some((notice, _)) = Notice::parse(bytes) else { fail("a torn notice".into()) };
                self.handle_notice(role, from, number, notice.verb);
            }
        }
    }

    fn handle_notice(&mut self, role: Role, from: Role, number: u64, verb: Verb) {
        match verb {
            Verb::Answer => {
                let party = self.party(role);
                let helper = party.pairs.helper(from.0, number, CHUNKS);
                let offered = party.offered(from, number);
                if offered.stage == Offering::Valid {
                    offered.helper = helper;
                }
            }
            Verb::Done | Verb::Push => self.party(role).end_offer(from, number, verb),
            Verb::Cancelled => {
                let stage = self.pull_of(role, from, number).stage;
                ensure!(stage != Pulling::On, "what was begun is never sent");
                self.party(role).talk(from).pulls.retain(|pull| pull.number != number);
            }
            _ => fail(format!("no party says {verb:?}")),
        }
    }

    fn pull_of(&mut self, role: Role, from: Role, number: u64) -> &mut Pull {
        let found = self.party(role).talk(from).pulls.iter_mut().find(|it| it.number == number);
        found.unwrap_or_else(|| fail(format!("message {number} of row {} is invented", from.0)))
    }

    /// `role` goes on with everything that it pulls from `from`, by one step each. Returns whether anything was done.
    pub(super) fn pull(&mut self, role: Role, from: Role) -> bool {
        let pulls = &self.party(role).talk(from).pulls;
        let numbers: Vec<_> = pulls.iter().map(|pull| pull.number).collect();
        numbers.into_iter().filter(|&number| self.step(role, from, number)).count() > 0
    }

    fn step(&mut self, role: Role, from: Role, number: u64) -> bool {
        let stage = self.pull_of(role, from, number).stage;
        match stage {
            Pulling::Queued => self.begin(role, from, number),
            Pulling::On => return self.copy_chunk(role, from, number),
            Pulling::Stopping(asks) => return self.stop(role, from, number, asks),
            Pulling::Awaited => return false,
        }
        true
    }

    fn begin(&mut self, role: Role, from: Role, number: u64) {
        let Some(mut puller) = self.party(role).pairs.puller(from.0, number, CHUNKS) else {
            fail(format!("there is no word for offer {number}"))
        };
        let has_begun = puller.begin();
        puller.invite();
        let pull = self.pull_of(role, from, number);
        pull.stage = if has_begun { Pulling::On } else { Pulling::Awaited };
        if has_begun {
            pull.puller = Some(puller);
            self.party(role).notify(from, number, Verb::Answer);
        }
    }

    fn copy_chunk(&mut self, role: Role, from: Role, number: u64) -> bool {
        let pull = self.pull_of(role, from, number);
        let Some(puller) = &mut pull.puller else { return false };
        match puller.claim(1) {
            Claim::Busy => return false,
            Claim::Over if puller.is_valid() => {
                let (target, copies) = (pull.target.clone(), pull.copies);
                ensure!(copies == [1; CHUNKS as usize], "chunks were copied {copies:?} times");
                let memory = &self.parties[from.0 as usize].memory;
                let word = offer_index(number).map(|index| memory.offer(index).load(Relaxed));
                ensure!(word == Some(number), "what has ended counts as received");
                self.complete(role, from, number, &target);
                self.party(role).notify(from, number, Verb::Done);
            }
            Claim::Over => return self.stop(role, from, number, false),
            Claim::Chunks(chunks) => {
                // Nothing can be read of a process that has ended. This is not tried again.
                if self.dead.contains(&from) {
                    self.pull_of(role, from, number).stage = Pulling::Awaited;
                    return false;
                }
                ensure!(chunks.end <= CHUNKS.into(), "chunks {chunks:?} of {CHUNKS}");
                for chunk in chunks {
                    let at = chunk as usize * CHUNK..(chunk as usize + 1) * CHUNK;
                    let bytes = self.party(from).offered(role, number).memory[at.clone()].to_vec();
                    let pull = self.pull_of(role, from, number);
                    pull.target[at].copy_from_slice(&bytes);
                    pull.copies[chunk as usize] += 1;
                }
            }
        }
        true
    }

    /// Stops as soon as the sender copies nothing more.
    fn stop(&mut self, role: Role, from: Role, number: u64, asks: bool) -> bool {
        let pull = self.pull_of(role, from, number);
        let is_over = pull.puller.as_mut().is_none_or(|puller| puller.close() == Claim::Over);
        pull.stage = if is_over { Pulling::Awaited } else { Pulling::Stopping(asks) };
        if is_over && asks {
            self.party(role).notify(from, number, Verb::Push);
        }
        is_over
    }

    /// The receive of the first message from `from` that is being copied ends before it is complete: it will need data.
    pub(super) fn cancel(&mut self, role: Role, from: Role) {
        let mut pulls = self.party(role).talk(from).pulls.iter();
        let Some(pull) = pulls.find(|pull| pull.stage == Pulling::On) else { return };
        let number = pull.number;
        self.stop(role, from, number, true);
    }

    fn complete(&mut self, role: Role, from: Role, number: u64, bytes: &[u8]) {
        let offered = self.party(from).offered(role, number);
        ensure!(offered.stage != Offering::Cancelled, "what was taken back has come");
        ensure!(offered.content == bytes, "large message {number} of row {} is torn", from.0);
        let talk = self.party(role).talk(from);
        ensure!(!talk.completed.contains(&number), "large message {number} comes twice");
        talk.completed.push(number);
        talk.pulls.retain(|pull| pull.number != number);
    }

    /// `role` claims the next chunk of its first offer to `to` that it has been asked to copy.
    pub(super) fn claim_chunk(&mut self, role: Role, to: Role) -> bool {
        let Some(number) = self.party(role).first_offer(to) else { return false };
        let offered = self.party(role).offered(to, number);
        let Some(helper) = &mut offered.helper else { return false };
        ensure!(offered.claimed.is_none(), "one chunk at a time");
        offered.claimed = helper.claim();
        if let Some(chunk) = offered.claimed {
            ensure!(chunk < CHUNKS, "chunk {chunk} of {CHUNKS}");
            return true;
        }
        offered.helper = None;
        false
    }

    /// `role` copies the chunk that it has claimed.
    pub(super) fn copy_claimed(&mut self, role: Role, to: Role) -> bool {
        let Some(number) = self.party(role).first_offer(to) else { return false };
        let offered = self.party(role).offered(to, number);
        let Some(chunk) = offered.claimed else { return false };
        let chunk = usize::from(chunk);
        let bytes = offered.memory[chunk * CHUNK..][..CHUNK].to_vec();
        let pull = self.pull_of(to, role, number);
        ensure!(pull.stage != Pulling::Awaited, "memory is written that is not lent any more");
        for half in [0..CHUNK / 2, CHUNK / 2..CHUNK] {
            if kill::effect() {
                let begin = chunk * CHUNK;
                pull.target[begin + half.start..begin + half.end].copy_from_slice(&bytes[half]);
            }
        }
        pull.copies[chunk] += 1;
        let offered = self.party(role).offered(to, number);
        offered.claimed = None;
        if let Some(helper) = &mut offered.helper {
            helper.finish();
        }
        true
    }

    /// `role` cannot copy the chunk that it has claimed.
    pub(super) fn give_up_chunk(&mut self, role: Role, to: Role) {
        let Some(number) = self.party(role).first_offer(to) else { return };
        let offered = self.party(role).offered(to, number);
        if offered.claimed.take().is_some()
            && let Some(helper) = &mut offered.helper
        {
            helper.give_up();
        }
    }

    /// Claims a chunk, unless one is claimed, and copies it.
    pub(super) fn help(&mut self, role: Role, to: Role) -> bool {
        if self.copy_claimed(role, to) {
            return true;
        }
        self.claim_chunk(role, to) && self.copy_claimed(role, to)
    }

    /// Checks the large messages from `from` that `to` has received.
    pub(super) fn check_large(&mut self, to: Role, from: Role) {
        let waiting = self.party(to).talk(from).pulls.len();
        ensure!(waiting == 0, "row {} waits for {waiting} large messages for ever", to.0);
        let completed = self.party(to).talk(from).completed.clone();
        for offered in &self.party(from).talk(to).offers {
            let Offered { number, stage, .. } = offered;
            ensure!(*stage != Offering::Valid, "row {} waits for ever until it is free", from.0);
            let is_sent = *stage != Offering::Cancelled;
            let has_come = completed.contains(number);
            ensure!(has_come == is_sent, "large message {number}: {stage:?}, come: {has_come}");
        }
    }

    /// Checks that large messages can be sent, taken back, and sent as data once begun.
    pub(super) fn use_offers(&mut self, from: Role, to: Role) {
        self.party(from).use_all_offers(to);
        self.offer_surely(from, to);
        self.settle();
        self.offer_surely(from, to);
        let number = self.party(from).first_offer(to);
        self.party(from).withdraw(to);
        if let Some(number) = number {
            let stage = self.party(from).offered(to, number).stage;
            ensure!(stage == Offering::Cancelled, "an offer that nobody has seen is {stage:?}");
        }
        self.settle();
        self.offer_surely(from, to);
        self.receive_all(to);
        while self.party(to).talk(from).pulls.iter().any(|pull| pull.stage == Pulling::Queued) {
            self.pull(to, from);
        }
        self.party(from).withdraw(to);
        self.settle();
    }

    fn offer_surely(&mut self, from: Role, to: Role) {
        self.fetch_ring(from, to);
        ensure!(self.party(from).offer(to), "no room for an offer to row {}", to.0);
    }
}
