//! The receiver's side: matching offers, pulling messages, and data that follows.

use corewire_layout::counters::EndpointCounter;
use corewire_layout::rendezvous::{OFFERS_MAX, Offer, Verb};
use corewire_ring::message::{Arrival, Envelope, Sink, Space, Wants};
use corewire_ring::pair::PairViolation;

use super::{ArrivedOffer, ArrivingData, Destination, Stage, Transfer, envelope_of};
use crate::arrivals::Place;
use crate::engine::Engine;
use crate::error::MessageError;
use crate::list::Key;
use crate::matching::Unexpected;
use crate::operations::{Operation, Operations};
use crate::receive::{Caller, CallerState};
use crate::selector::{Peer, Status};
use crate::transport::{Pulled, Transport};

/// Steps in which a sender may be copying before this side may sleep: about a millisecond.
const BUSY_STEPS_MAX: u32 = 10_000;

impl<P> Transfer<P> {
    fn row(&self) -> u32 {
        self.source.row()
    }

    pub(crate) fn status(&self) -> Status {
        let Envelope { tag, immediate, .. } = self.envelope;
        Status { source: self.source, tag, bytes: self.total, immediate }
    }

    fn holds_row(&self) -> bool {
        !matches!(self.stage, Stage::Awaited(_))
    }
}

impl<T: Transport> Engine<T> {
    // Offers that arrive.

    /// A message is offered.
    pub(crate) fn handle_offer(
        &mut self,
        row: u32,
        tag: u64,
        offer: &Offer,
        place: &[u8],
        caller: Option<&mut Caller<'_>>,
    ) {
        let offers = &mut self.rows[row as usize].offers_here;
        // Some of those that their sender has taken back may still be awaited.
        let is_new = offers.len() < 2 * usize::from(OFFERS_MAX) && offers.insert(offer.number);
        if !is_new || place.is_empty() {
            let violation = PairViolation { word: "offer", found: offer.number, position: 0 };
            return self.cut_off(row, violation);
        }
        let envelope = envelope_of(offer, tag);
        let arrived = ArrivedOffer { number: offer.number, place: place.to_vec() };
        let (space, total) = (envelope.space, offer.total);
        let source = self.peer_of(row);
        let order = self.matching.new_order();
        let unexpected = Unexpected::offered(source, envelope, total, arrived, Vec::new());
        if space == Space::Request && self.owes_too_much(row) {
            let key = self.matching.keep_offered(order, unexpected);
            return self.defer_kept(row, key, 0);
        }
        while let Some(posted) = self.matching.take_posted(space, source, tag) {
            if self.prepare(posted.operation, total) {
                let to = Destination::Operation(posted.operation);
                return self.begin_transfer(order, unexpected, to);
            }
        }
        if let Some(caller) = caller
            && caller.is_waiting()
            && caller.selector.takes_of(space, source, tag)
        {
            match caller.target.prepare(total) {
                Ok(()) => {
                    caller.state = CallerState::Filling(unexpected.status());
                    return self.begin_transfer(order, unexpected, Destination::Caller);
                }
                Err(MessageError::NoMemory { .. }) if space == Space::Request => {
                    self.drop_request(source, tag);
                    return self.finish_with(row, offer.number);
                }
                Err(error) => caller.state = CallerState::Ended(Err(error)),
            }
        }
        self.transport.count(EndpointCounter::Unexpected);
        self.has_news = true;
        let key = self.matching.keep_offered(order, unexpected);
        if offer.is_blocking && self.may_fetch(row, total) {
            self.transfers.push(Transfer {
                source,
                offer: ArrivedOffer { number: offer.number, place: Vec::new() },
                envelope,
                total,
                order,
                to: Destination::Kept(key),
                stage: Stage::Queued,
                is_invited: false,
            });
            self.count_chores();
        }
    }

    /// Whether a message whose sender waits is fetched before a receive asks for it: if the budget allows it. One message
    /// of each peer that is no longer than what this endpoint itself is sending always is, since one of two endpoints
    /// that send to each other must go on.
    fn may_fetch(&self, row: u32, total: u64) -> bool {
        self.matching.budget.has_room(row, total)
            || (total <= self.blocked_bytes && self.matching.budget.kept(row).messages == 0)
    }

    /// This side needs the sender's memory no more.
    pub(crate) fn finish_with(&mut self, row: u32, number: u64) {
        self.forget_offer(row, number);
        self.notify(row, number, Verb::Done, 0);
    }

    /// Nobody will receive this message.
    pub(crate) fn drop_offer(&mut self, source: Peer, number: u64) {
        if let Ok(row) = self.row_of(source) {
            self.finish_with(row, number);
        }
    }

    fn forget_offer(&mut self, row: u32, number: u64) {
        self.rows[row as usize].offers_here.remove(&number);
    }

    /// A message that was offered goes to a receive.
    pub(crate) fn begin_transfer(&mut self, order: u64, message: Unexpected, to: Destination) {
        let Unexpected { source, envelope, total, bytes, offer, .. } = message;
        let Some(offer) = offer else { return };
        let stage =
            if offer.place.is_empty() { Stage::Awaited(bytes.len() as u64) } else { Stage::Queued };
        self.pool.give_back(bytes);
        // It need not be fetched any more.
        let number = offer.number;
        self.transfers.retain(|other| other.source != source || other.offer.number != number);
        let is_invited = false;
        self.transfers.push(Transfer {
            source,
            offer,
            envelope,
            total,
            order,
            to,
            stage,
            is_invited,
        });
        self.busy_steps = 0;
        self.count_chores();
        if self.awaits_data(source.row()) {
            // What lies before the data must not keep it from coming.
            self.fetch_held();
        }
    }

    // Pulling.

    /// Pulls a piece of each message. True if anything was done.
    pub(crate) fn step_transfers(&mut self, mut caller: Option<&mut Caller<'_>>) -> bool {
        let (mut has_news, mut has_awaited) = (false, false);
        let mut index = 0;
        while index < self.transfers.len() {
            let row = self.transfers[index].row();
            let mut earlier = self.transfers[..index].iter();
            if earlier.any(|other| other.row() == row && other.holds_row()) {
                index += 1;
                continue;
            }
            let mut transfer = self.transfers.remove(index);
            match self.step(&mut transfer, &mut caller) {
                Stepped::Over => has_news = true,
                stepped => {
                    has_news |= stepped != Stepped::Nothing;
                    has_awaited |= stepped == Stepped::Awaits;
                    self.transfers.insert(index, transfer);
                    index += 1;
                }
            }
        }
        self.count_chores();
        if has_awaited {
            self.fetch_held();
        }
        has_news
    }

    fn step(
        &mut self,
        transfer: &mut Transfer<T::Pull>,
        caller: &mut Option<&mut Caller<'_>>,
    ) -> Stepped {
        let Self { operations, transport, .. } = self;
        let pulled = match &mut transfer.stage {
            Stage::Awaited(_) => return Stepped::Nothing,
            Stage::Queued => return self.begin_pull(transfer, caller),
            Stage::Closing(pull, _) => {
                return if transport.close_pull(pull) { Stepped::Over } else { Stepped::Nothing };
            }
            Stage::Stopping(pull, why) => {
                if !transport.close_pull(pull) {
                    return Stepped::Nothing;
                }
                let why = *why;
                return self.await_data(transfer, why);
            }
            Stage::Fetching(pull, memory) => transport.pull(pull, memory),
            Stage::Pulling(pull) => match target_of(operations, transfer.to, caller) {
                Some(target) => transport.pull(pull, target),
                None => return Stepped::Nothing,
            },
        };
        if let Destination::Kept(key) = transfer.to {
            return self.fetched(transfer, key, pulled);
        }
        match pulled {
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
                self.finish_transfer(transfer, caller);
                Stepped::Over
            }
            Pulled::Void => self.stop(transfer, None),
            Pulled::Refused { bytes, is_final } => self.stop(transfer, Some((bytes, is_final))),
        }
    }

    /// A message cannot be read on: data follows once the sender writes nothing more to the target.
    fn stop(&mut self, transfer: &mut Transfer<T::Pull>, why: Option<(u64, bool)>) -> Stepped {
        self.busy_steps = 0;
        if let Stage::Pulling(pull) = &mut transfer.stage
            && transfer.is_invited
            && !self.transport.close_pull(pull)
        {
            let before = std::mem::replace(&mut transfer.stage, Stage::Queued);
            if let Stage::Pulling(pull) = before {
                transfer.stage = Stage::Stopping(pull, why);
            }
            return Stepped::On;
        }
        self.await_data(transfer, why)
    }

    fn await_data(
        &mut self,
        transfer: &mut Transfer<T::Pull>,
        why: Option<(u64, bool)>,
    ) -> Stepped {
        transfer.offer.place = Vec::new();
        transfer.stage = Stage::Awaited(why.map_or(0, |(bytes, _)| bytes));
        if let Some((bytes, is_final)) = why {
            self.request_data(transfer.row(), &mut transfer.offer, bytes, is_final);
        }
        Stepped::Awaits
    }

    /// Whether the message of the receive that is being called is pulled now.
    #[must_use]
    pub fn is_pulling_for_caller(&self) -> bool {
        let mut pulled = self.transfers.iter().filter(|transfer| transfer.holds_row());
        pulled.any(|transfer| transfer.to == Destination::Caller)
    }

    fn begin_pull(
        &mut self,
        transfer: &mut Transfer<T::Pull>,
        caller: &mut Option<&mut Caller<'_>>,
    ) -> Stepped {
        let (row, number) = (transfer.row(), transfer.offer.number);
        if let Destination::Kept(key) = transfer.to {
            return self.begin_fetch(transfer, key);
        }
        let is_helped = match transfer.to {
            Destination::Caller => caller.as_ref().is_some_and(|caller| caller.lets_sender_write()),
            _ => true,
        };
        let Self { operations, transport, .. } = self;
        let Some(target) = target_of(operations, transfer.to, caller) else {
            return Stepped::Nothing;
        };
        let bytes = transfer.total.min(target.room() as u64);
        if bytes == 0 {
            self.finish_transfer(transfer, caller);
            return Stepped::Over;
        }
        let (place, total) = (&transfer.offer.place, transfer.total);
        match transport.start_pull(row, number, place, total, bytes, is_helped) {
            Ok(mut pull) => {
                if transport.begin_pull(&mut pull) {
                    let mut answer = Vec::new();
                    let is_invited = transport.answer(row, &mut pull, target, &mut answer);
                    transfer.stage = Stage::Pulling(pull);
                    transfer.is_invited = is_invited;
                    if is_invited {
                        self.notify_of_place(row, number, Verb::Answer, bytes, &answer);
                    }
                    // At once: a receive without time must get on, too.
                    return self.step(transfer, caller);
                } else {
                    return self.await_data(transfer, None);
                }
            }
            Err(violation) => {
                // What waits for it ends when the peer is removed.
                transfer.stage = Stage::Awaited(0);
                self.cut_off(row, violation);
            }
        }
        Stepped::On
    }

    /// Begins to fetch a message that no receive has asked for, whose sender waits, if there is room for it by now.
    fn begin_fetch(&mut self, transfer: &mut Transfer<T::Pull>, key: Key) -> Stepped {
        let (row, total) = (transfer.row(), transfer.total);
        let Some((mut offer, _)) = self.matching.offer_of(key) else { return Stepped::Over };
        if !self.may_fetch(row, total) {
            return Stepped::Over;
        }
        let Some(memory) = self.pool.take(total) else { return Stepped::Over };
        let (number, place) = (offer.number, &offer.place);
        let mut pull = match self.transport.start_pull(row, number, place, total, total, false) {
            Ok(pull) => pull,
            Err(violation) => {
                self.cut_off(row, violation);
                return Stepped::Over;
            }
        };
        if self.transport.begin_pull(&mut pull) {
            transfer.stage = Stage::Fetching(pull, memory);
            return Stepped::On;
        }
        offer.place = Vec::new();
        self.matching.set_offer(key, Some(offer), Vec::new());
        Stepped::Over
    }

    /// A step of such a message has been done.
    fn fetched(&mut self, transfer: &mut Transfer<T::Pull>, key: Key, pulled: Pulled) -> Stepped {
        let row = transfer.row();
        if pulled == Pulled::More {
            return Stepped::On;
        }
        let Stage::Fetching(_, memory) = &mut transfer.stage else { return Stepped::Over };
        let mut memory = std::mem::take(memory);
        let Some((mut offer, total)) = self.matching.offer_of(key) else { return Stepped::Over };
        match pulled {
            Pulled::Done => {
                self.matching.set_offer(key, None, memory);
                self.transport.count(EndpointCounter::Pulled);
                self.transport.count_received(row, total);
                self.show_kept(row);
                self.finish_with(row, offer.number);
                return Stepped::Over;
            }
            Pulled::Refused { bytes, is_final } => {
                self.request_data(row, &mut offer, bytes, is_final);
                memory.truncate(usize::try_from(bytes).unwrap_or(0));
            }
            // It was not invited to copy, too: it is never busy.
            Pulled::More | Pulled::Busy | Pulled::Void => {
                offer.place = Vec::new();
                memory.clear();
            }
        }
        if memory.is_empty() {
            self.pool.give_back(std::mem::take(&mut memory));
        }
        self.matching.set_offer(key, Some(offer), memory);
        Stepped::Over
    }

    fn finish_transfer(
        &mut self,
        transfer: &Transfer<T::Pull>,
        caller: &mut Option<&mut Caller<'_>>,
    ) {
        let row = transfer.row();
        self.finish_with(row, transfer.offer.number);
        self.transport.count(EndpointCounter::Pulled);
        self.transport.count_received(row, transfer.total);
        match transfer.to {
            Destination::Operation(operation) => self.end_receive(operation, transfer.status()),
            Destination::Caller => {
                if let Some(caller) = caller {
                    caller.state = CallerState::Ended(Ok(transfer.status()));
                }
            }
            Destination::Kept(_) | Destination::Nobody => {}
        }
    }

    /// Whether a message is being copied, in any direction: then there is something to do.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        let is_pulling = self.transfers.iter().any(Transfer::holds_row);
        !self.helps.is_empty() || (is_pulling && self.busy_steps < BUSY_STEPS_MAX)
    }

    /// Requests the message from byte `from` on.
    fn request_data(&mut self, row: u32, offer: &mut ArrivedOffer, from: u64, is_final: bool) {
        let verb = if is_final { Verb::Refuse } else { Verb::Push };
        offer.place = Vec::new();
        self.transport.count(EndpointCounter::Refusals);
        self.notify(row, offer.number, verb, from);
    }

    // Data.

    /// Whether a receive waits for data of the peer of `row`.
    pub(crate) fn awaits_data(&self, row: u32) -> bool {
        let mut of_row = self.transfers.iter().filter(|transfer| transfer.row() == row);
        of_row.any(|transfer| matches!(transfer.stage, Stage::Awaited(_)))
    }

    fn transfer_of(&self, source: Peer, number: u64) -> Option<usize> {
        self.transfers.iter().position(|transfer| {
            let is_wanted = matches!(transfer.to, Destination::Operation(_) | Destination::Caller);
            is_wanted && transfer.source == source && transfer.offer.number == number
        })
    }

    /// The message of an offer, or its end, arrives. False if it stays where it is.
    pub(crate) fn begin_data(
        &mut self,
        row: u32,
        arrival: &Arrival,
        caller: Option<&mut Caller<'_>>,
    ) -> bool {
        let (source, number) = (self.peer_of(row), arrival.envelope.tag);
        let rest = arrival.total;
        let from_of =
            |total: u64, there: u64| total.checked_sub(rest).filter(|from| *from <= there);
        if let Some(index) = self.transfer_of(source, number) {
            let transfer = self.transfers.remove(index);
            self.count_chores();
            self.forget_offer(row, number);
            let there = match transfer.stage {
                Stage::Awaited(bytes) => bytes,
                _ => 0,
            };
            let Some(from) = from_of(transfer.total, there) else {
                self.abandon_transfer(&transfer, &MessageError::Cancelled, caller);
                self.cut_off(row, PairViolation { word: "total", found: rest, position: 0 });
                return false;
            };
            let place = match transfer.to {
                Destination::Operation(operation) => Place::Operation(operation),
                _ => Place::Caller,
            };
            let done = (transfer.envelope.wants != Wants::Nothing).then_some(number);
            let (status, order) = (transfer.status(), transfer.order);
            self.set_data_place(row, place, from, ArrivingData { status, done, order });
            return true;
        }
        if let Some(key) = self.matching.find_offered(source, number) {
            return self.begin_kept_data(row, key, from_of, rest);
        }
        // Nobody wants it any more. Its sender may wait for that all the same.
        let status = Status { source, tag: 0, bytes: rest, immediate: None };
        let (done, order) = (Some(number), 0);
        self.set_data_place(row, Place::Nowhere, 0, ArrivingData { status, done, order });
        true
    }

    fn begin_kept_data(
        &mut self,
        row: u32,
        key: Key,
        from_of: impl Fn(u64, u64) -> Option<u64>,
        rest: u64,
    ) -> bool {
        self.transfers.retain(|transfer| transfer.to != Destination::Kept(key));
        self.count_chores();
        let Some((offer, total)) = self.matching.offer_of(key) else { return false };
        self.forget_offer(row, offer.number);
        let there = self.matching.get(key).map_or(0, |message| message.bytes.len() as u64);
        let Some(from) = from_of(total, there) else {
            self.cut_off(row, PairViolation { word: "total", found: rest, position: 0 });
            return false;
        };
        let is_departed = self.rows[row as usize].is_departed();
        let has_room = from > 0
            || is_departed
            || self.awaits_data(row)
            || self.matching.budget.has_room(row, total);
        let memory = match from {
            0 => has_room.then(|| self.pool.take(total)).flatten(),
            _ => self.matching.get_mut(key).map(|message| std::mem::take(&mut message.bytes)),
        };
        let is_held = memory.is_none();
        self.matching.begin_data(key, offer.number, memory);
        if is_held {
            self.transport.count(EndpointCounter::Stalls);
            self.transport.hold(row);
            if is_departed {
                self.fetch_held();
            }
            return false;
        }
        self.begin_kept_data_at(row, key, from);
        self.show_kept(row);
        true
    }

    /// Data goes to where its message is kept.
    pub(crate) fn begin_kept_data_at(&mut self, row: u32, key: Key, from: u64) {
        let Some(message) = self.matching.get(key) else { return };
        let (total, data) = (message.total, message.data());
        self.set_place(row, Place::Kept(key), total);
        self.rows[row as usize].filled = usize::try_from(from).unwrap_or(usize::MAX);
        self.note_data(key, &data);
    }

    /// What arrives is the data of a message that was kept under this key.
    pub(crate) fn note_data(&mut self, key: Key, data: &Option<(Peer, Status, Option<u64>)>) {
        if let Some((source, status, done)) = *data {
            let order = key.order;
            self.rows[source.row() as usize].data = Some(ArrivingData { status, done, order });
        }
    }

    fn set_data_place(&mut self, row: u32, place: Place, from: u64, data: ArrivingData) {
        self.set_place(row, place, data.status.bytes);
        let entry = &mut self.rows[row as usize];
        entry.filled = usize::try_from(from).unwrap_or(usize::MAX);
        entry.data = Some(data);
    }

    // Ends.

    /// The sender has taken an offer back.
    pub(crate) fn offer_is_cancelled(
        &mut self,
        row: u32,
        number: u64,
        caller: Option<&mut Caller<'_>>,
    ) {
        let source = self.peer_of(row);
        if let Some(index) = self.transfer_of(source, number) {
            let transfer = self.transfers.remove(index);
            self.count_chores();
            self.forget_offer(row, number);
            self.abandon_transfer(&transfer, &MessageError::Cancelled, caller);
        } else if let Some(key) = self.matching.find_offered(source, number) {
            self.transfers.retain(|transfer| transfer.to != Destination::Kept(key));
            self.count_chores();
            self.forget_offer(row, number);
            drop(self.matching.take(key));
        }
    }

    /// A message that was offered will never be complete: its receive waits for another.
    fn abandon_transfer(
        &mut self,
        transfer: &Transfer<T::Pull>,
        error: &MessageError,
        caller: Option<&mut Caller<'_>>,
    ) {
        match transfer.to {
            Destination::Caller => {
                if let Some(caller) = caller {
                    caller.state = CallerState::Waiting;
                }
            }
            Destination::Operation(operation) => self.abandon_receive(operation, error),
            Destination::Kept(_) | Destination::Nobody => {}
        }
    }

    /// The peer has gone: what it has offered does not come any more.
    pub(crate) fn abandon_offers_of(
        &mut self,
        peer: Peer,
        error: &MessageError,
        mut caller: Option<&mut Caller<'_>>,
    ) {
        while let Some(index) = self.transfers.iter().position(|it| it.source == peer) {
            // Waits until the peer, which may still be dying, writes nothing more to its target.
            let mut transfer = self.transfers.remove(index);
            transfer.stage = Stage::Awaited(0);
            self.abandon_transfer(&transfer, error, caller.as_deref_mut());
        }
        self.count_chores();
        while let Some(key) = self.matching.any_offered(peer) {
            drop(self.matching.take(key));
        }
    }

    /// A receive that was called ends while its message is pulled: the message can be received by another. True if that
    /// was so.
    pub(crate) fn leave_transfer(&mut self, caller: &mut Caller<'_>) -> bool {
        let is_it = |transfer: &Transfer<T::Pull>| transfer.to == Destination::Caller;
        let Some(index) = self.transfers.iter().position(is_it) else { return false };
        let transfer = self.transfers.remove(index);
        let Transfer { source, mut offer, envelope, total, order, stage, is_invited, .. } =
            transfer;
        caller.state = CallerState::Waiting;
        let mut bytes = Vec::new();
        match stage {
            Stage::Queued | Stage::Fetching(..) | Stage::Closing(..) => {}
            Stage::Awaited(there) => {
                bytes = caller.target.written(usize::try_from(there).unwrap_or(usize::MAX));
            }
            Stage::Pulling(mut pull) | Stage::Stopping(mut pull, _) if is_invited => {
                if caller.target.adopts() && !self.transport.close_pull(&mut pull) {
                    // The sender may be stopped while it writes to this memory.
                    let memory = caller.target.written(0);
                    let (to, stage) = (Destination::Nobody, Stage::Closing(pull, memory));
                    let offer = ArrivedOffer { number: offer.number, place: Vec::new() };
                    self.transfers.insert(
                        index,
                        Transfer { source, offer, envelope, total, order, to, stage, is_invited },
                    );
                }
                // Another copy from both ends would meet a sender that still knows the old target.
                self.request_data(source.row(), &mut offer, 0, false);
            }
            Stage::Pulling(mut pull) | Stage::Stopping(mut pull, _) => {
                // What is there is kept, so that receives with short limits get the message in the end.
                let there = self.transport.stop_pull(&mut pull, &mut *caller.target);
                if there > 0 {
                    bytes = caller.target.written(usize::try_from(there).unwrap_or(usize::MAX));
                    self.request_data(source.row(), &mut offer, there, false);
                }
            }
        }
        if !bytes.is_empty() {
            let missing = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(bytes.len());
            // Appending never grows it.
            bytes.reserve_exact(missing);
        }
        self.count_chores();
        let message = Unexpected::offered(source, envelope, total, offer, bytes);
        let key = self.matching.keep_offered(order, message);
        // A receive may have been posted meanwhile that asks for it.
        self.make_available(key);
        true
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
