//! The receiver's side: pulling messages, piece by piece.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::rendezvous::Verb;
use corewire_ring::message::Sink;

use super::Incoming;
use crate::caller::{Caller, CallerState};
use crate::list::Key;
use crate::matching::KeptBytes;
use crate::operations::{Operation, Operations};
use crate::peers::Peers;
use crate::rendezvous::{Destination, Stage, Transfer};
use crate::transport::{Pulled, Transport};

/// Steps in which a sender may be copying before this side may sleep: about a millisecond.
const BUSY_STEPS_MAX: u32 = 10_000;

impl Incoming {
    /// Pulls a piece of each message. True if anything was done.
    pub(crate) fn step_transfers<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        mut caller: Option<&mut Caller<'_>>,
    ) -> bool {
        let (mut has_news, mut has_awaited) = (false, false);
        let mut index = 0;
        self.passes += 1;
        while index < peers.transfers().len() {
            let row = peers.transfers()[index].row() as usize;
            if self.rows[row].pulled_in == self.passes {
                index += 1;
                continue;
            }
            let mut transfer = peers.take_transfer(index);
            match self.step(peers, &mut transfer, &mut caller) {
                Stepped::Over => has_news = true,
                stepped => {
                    has_news |= stepped != Stepped::Nothing;
                    has_awaited |= stepped == Stepped::Awaits;
                    if transfer.holds_row() {
                        self.rows[row].pulled_in = self.passes;
                    }
                    peers.put_transfer(index, transfer);
                    index += 1;
                }
            }
        }
        if has_awaited {
            self.fetch_held(peers);
        }
        has_news
    }

    fn step<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        transfer: &mut Transfer<T::Pull>,
        caller: &mut Option<&mut Caller<'_>>,
    ) -> Stepped {
        let Peers { operations, transport, .. } = peers;
        let pulled = match &mut transfer.stage {
            Stage::Awaited(_) => return Stepped::Nothing,
            Stage::Queued => return self.begin_pull(peers, transfer, caller),
            Stage::Closing(pull, _) => {
                return if transport.close_pull(pull) { Stepped::Over } else { Stepped::Nothing };
            }
            Stage::Stopping(pull, why) => {
                if !transport.close_pull(pull) {
                    return Stepped::Nothing;
                }
                let why = *why;
                return self.await_data(peers, transfer, why);
            }
            Stage::Fetching(pull, memory) => transport.pull(pull, memory),
            Stage::Pulling(pull) => match target_of(operations, transfer.to, caller) {
                Some(target) => transport.pull(pull, target),
                None => return Stepped::Nothing,
            },
        };
        let could_sleep = std::mem::replace(&mut transfer.may_sleep, pulled == Pulled::Later);
        if transfer.may_sleep {
            // What lies before it must not keep it from coming.
            return if could_sleep { Stepped::Nothing } else { Stepped::Awaits };
        }
        if let Destination::Kept(key) = transfer.to {
            return self.fetched(peers, transfer, key, pulled);
        }
        match pulled {
            Pulled::Later => Stepped::Nothing,
            Pulled::More => {
                self.busy_steps = 0;
                Stepped::On
            }
            Pulled::Busy => {
                self.busy_steps = self.busy_steps.saturating_add(1);
                if self.busy_steps < BUSY_STEPS_MAX { Stepped::On } else { Stepped::Nothing }
            }
            Pulled::Done => {
                self.busy_steps = 0;
                self.finish_transfer(peers, transfer, caller);
                Stepped::Over
            }
            Pulled::Void => self.stop(peers, transfer, None),
            Pulled::Refused { bytes, is_final } => {
                self.stop(peers, transfer, Some((bytes, is_final)))
            }
        }
    }

    /// A message cannot be read on: data follows once the sender writes nothing more to the target.
    fn stop<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        transfer: &mut Transfer<T::Pull>,
        why: Option<(u64, bool)>,
    ) -> Stepped {
        self.busy_steps = 0;
        if let Stage::Pulling(pull) = &mut transfer.stage
            && transfer.is_invited
            && !peers.transport.close_pull(pull)
        {
            let before = std::mem::replace(&mut transfer.stage, Stage::Queued);
            if let Stage::Pulling(pull) = before {
                transfer.stage = Stage::Stopping(pull, why);
            }
            return Stepped::On;
        }
        self.await_data(peers, transfer, why)
    }

    fn await_data<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        transfer: &mut Transfer<T::Pull>,
        why: Option<(u64, bool)>,
    ) -> Stepped {
        transfer.offer.place = Vec::new();
        transfer.stage = Stage::Awaited(why.map_or(0, |(bytes, _)| bytes));
        if let Some((bytes, is_final)) = why {
            peers.request_data(transfer.row(), &mut transfer.offer, bytes, is_final);
        }
        Stepped::Awaits
    }

    fn begin_pull<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        transfer: &mut Transfer<T::Pull>,
        caller: &mut Option<&mut Caller<'_>>,
    ) -> Stepped {
        let (row, number) = (transfer.row(), transfer.offer.number);
        if let Destination::Kept(key) = transfer.to {
            return self.begin_fetch(peers, transfer, key);
        }
        let is_helped = match transfer.to {
            Destination::Caller => caller.as_ref().is_some_and(|caller| caller.lets_sender_write()),
            _ => true,
        };
        let Peers { operations, transport, .. } = peers;
        let Some(target) = target_of(operations, transfer.to, caller) else {
            return Stepped::Nothing;
        };
        let bytes = transfer.total.min(target.room() as u64);
        if bytes == 0 {
            self.finish_transfer(peers, transfer, caller);
            return Stepped::Over;
        }
        transfer.awaited = bytes;
        let (place, total) = (&transfer.offer.place, transfer.total);
        match transport.start_pull(row, number, place, total, bytes, is_helped) {
            Ok(mut pull) => {
                if transport.begin_pull(&mut pull) {
                    let mut answer = Vec::new();
                    let is_invited = transport.answer(row, &mut pull, target, &mut answer);
                    transfer.stage = Stage::Pulling(pull);
                    transfer.is_invited = is_invited;
                    if is_invited {
                        peers.notify_of_place(row, number, Verb::Answer, bytes, &answer);
                    }
                    // At once: a receive without time must get on, too.
                    return self.step(peers, transfer, caller);
                } else {
                    return self.await_data(peers, transfer, None);
                }
            }
            Err(violation) => {
                // What waits for it ends when the peer is removed.
                transfer.stage = Stage::Awaited(0);
                peers.cut_off(row, violation);
            }
        }
        Stepped::On
    }

    /// Begins to fetch a message that no receive has asked for, whose sender waits, if there is room for it by now.
    fn begin_fetch<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        transfer: &mut Transfer<T::Pull>,
        key: Key,
    ) -> Stepped {
        let (row, total) = (transfer.row(), transfer.total);
        let Some((mut offer, _)) = self.matching.offer_of(key) else { return Stepped::Over };
        if !self.may_keep(row, total) {
            return Stepped::Over;
        }
        let Some(memory) = self.pool.take(total) else { return Stepped::Over };
        let (number, place) = (offer.number, &offer.place);
        let mut pull = match peers.transport.start_pull(row, number, place, total, total, false) {
            Ok(pull) => pull,
            Err(violation) => {
                peers.cut_off(row, violation);
                return Stepped::Over;
            }
        };
        if peers.transport.begin_pull(&mut pull) {
            transfer.stage = Stage::Fetching(pull, memory);
            return Stepped::On;
        }
        offer.place = Vec::new();
        self.matching.set_offer(key, Some(offer), KeptBytes::default());
        Stepped::Over
    }

    /// A step of such a message has been done.
    fn fetched<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        transfer: &mut Transfer<T::Pull>,
        key: Key,
        pulled: Pulled,
    ) -> Stepped {
        let row = transfer.row();
        if pulled == Pulled::More {
            return Stepped::On;
        }
        let Stage::Fetching(_, memory) = &mut transfer.stage else { return Stepped::Over };
        let mut memory = std::mem::take(memory);
        let Some((mut offer, _)) = self.matching.offer_of(key) else { return Stepped::Over };
        match pulled {
            Pulled::Done => {
                self.keep_pulled(peers, row, key, offer.number, memory);
                return Stepped::Over;
            }
            Pulled::Refused { bytes, is_final } => {
                peers.request_data(row, &mut offer, bytes, is_final);
                memory.truncate(usize::try_from(bytes).unwrap_or(0));
            }
            // It was not invited to copy, too: it is never busy.
            Pulled::More | Pulled::Busy | Pulled::Later | Pulled::Void => {
                offer.place = Vec::new();
                memory.clear();
            }
        }
        if memory.is_empty() {
            self.pool.give_back(std::mem::take(&mut memory));
        }
        self.matching.set_offer(key, Some(offer), memory.into());
        Stepped::Over
    }

    /// All of a message that is kept has been pulled to `memory`.
    pub(super) fn keep_pulled<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        key: Key,
        number: u64,
        memory: Vec<u8>,
    ) {
        let bytes = memory.len() as u64;
        self.matching.set_offer(key, None, memory.into());
        peers.transport.count(EndpointCounter::Pulled);
        peers.transport.count_received(row, bytes);
        self.show_kept(peers, row);
        self.finish_with(peers, row, number);
    }

    fn finish_transfer<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        transfer: &Transfer<T::Pull>,
        caller: &mut Option<&mut Caller<'_>>,
    ) {
        let row = transfer.row();
        self.finish_with(peers, row, transfer.offer.number);
        peers.transport.count(EndpointCounter::Pulled);
        peers.transport.count_received(row, transfer.total);
        match transfer.to {
            Destination::Operation(operation) => peers.end_receive(operation, transfer.status()),
            Destination::Caller => {
                if let Some(caller) = caller {
                    caller.state = CallerState::Ended(Ok(transfer.status()));
                }
            }
            Destination::Kept(_) | Destination::Nobody => {}
        }
    }

    /// Whether a message is being pulled, and its sender has not kept this side waiting for long.
    pub(crate) fn is_pulling<T: Transport>(&self, peers: &Peers<T>) -> bool {
        let is_pulled = |transfer: &Transfer<T::Pull>| {
            let is_read = matches!(transfer.stage, Stage::Pulling(_) | Stage::Fetching(..));
            is_read && !transfer.may_sleep
        };
        peers.transfers().iter().any(is_pulled) && self.busy_steps < BUSY_STEPS_MAX
    }
}

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stepped {
    Nothing,
    On,
    /// From now on it waits for data.
    Awaits,
    Over,
}

/// Where a message goes.
fn target_of<'a>(
    operations: &'a mut Operations,
    to: Destination,
    caller: &'a mut Option<&mut Caller<'_>>,
) -> Option<&'a mut dyn Sink> {
    match to {
        Destination::Operation(operation) => match operations.by_index(operation) {
            Operation::Receive { memory, .. } => Some(memory as &mut dyn Sink),
            _ => None,
        },
        Destination::Caller => caller.as_mut().map(|caller| &mut *caller.target as &mut dyn Sink),
        Destination::Kept(_) | Destination::Nobody => None,
    }
}
