//! The receiver's side: messages that are taken back, whose sender goes, or whose receive ends before they have come.

use super::Incoming;
use crate::caller::{Caller, CallerState};
use crate::error::MessageError;
use crate::matching::Unexpected;
use crate::peers::Peers;
use crate::rendezvous::{ArrivedOffer, Destination, Stage, Transfer};
use crate::selector::{Peer, Status};
use crate::transport::{Pulled, Transport};

impl Incoming {
    /// The sender has taken an offer back.
    pub(super) fn offer_is_cancelled<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        row: u32,
        number: u64,
        caller: Option<&mut Caller<'_>>,
    ) {
        let source = peers.peer_of(row);
        if let Some(index) = peers.transfer_of(source, number) {
            let transfer = peers.take_transfer(index);
            self.forget_offer(row, number);
            self.abandon_transfer(peers, &transfer, &MessageError::Cancelled, caller);
        } else if let Some(key) = self.matching.find_offered(source, number) {
            peers.end_fetch(key);
            self.forget_offer(row, number);
            drop(self.matching.take(key));
        }
    }

    /// A message that was offered will never be complete: its receive waits for another.
    pub(super) fn abandon_transfer<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        transfer: &Transfer<T::Pull>,
        error: &MessageError,
        caller: Option<&mut Caller<'_>>,
    ) {
        match transfer.to {
            Destination::Caller => {
                if let Some(caller) = caller {
                    caller.state = CallerState::Waiting;
                    // What has arrived meanwhile may be what it asks for, unless it asks for a message that was
                    // claimed.
                    if !caller.is_claimed {
                        self.take_kept(peers, caller);
                    }
                }
            }
            Destination::Operation(operation) => self.abandon_receive(peers, operation, error),
            Destination::Kept(_) | Destination::Nobody => {}
        }
    }

    /// The peer has gone: what it has offered does not come any more.
    pub(crate) fn abandon_offers_of<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        peer: Peer,
        error: &MessageError,
        mut caller: Option<&mut Caller<'_>>,
    ) {
        while let Some(index) = peers.transfers().iter().position(|it| it.source == peer) {
            // Waits until the peer, which may still be dying, writes nothing more to its target.
            let mut transfer = peers.take_transfer(index);
            transfer.stage = Stage::Awaited(0);
            self.abandon_transfer(peers, &transfer, error, caller.as_deref_mut());
        }
        while let Some(key) = self.matching.any_offered(peer) {
            drop(self.matching.take(key));
        }
    }

    /// A receive from any peer that waits for the rest of a message takes a whole one of another peer instead, if there is one:
    /// the sender of the first may be stopped. That one stays, and goes on to come. True if it has done so.
    pub(crate) fn step_aside<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        caller: &mut Caller<'_>,
    ) -> bool {
        let CallerState::Filling(Status { source, .. }) = caller.state else { return false };
        let is_writing = |it: &Transfer<T::Pull>| it.to == Destination::Caller && it.is_invited;
        // Of a sender that may be writing to the target, the end would be waited for.
        if caller.is_claimed
            || caller.source().is_some()
            || peers.transfers().iter().any(is_writing)
        {
            return false;
        }
        let Some(key) = self.matching.find_whole_of_others(&caller.selector, source) else {
            return false;
        };
        self.leave(peers, caller);
        self.take_kept_of(peers, key, caller);
        true
    }

    /// A receive that was called ends while its message is pulled: the message can be received by another. True if that
    /// was so.
    pub(super) fn leave_transfer<T: Transport>(
        &mut self,
        peers: &mut Peers<T>,
        caller: &mut Caller<'_>,
    ) -> bool {
        let is_it = |transfer: &Transfer<T::Pull>| transfer.to == Destination::Caller;
        let Some(index) = peers.transfers().iter().position(is_it) else { return false };
        let transfer = peers.take_transfer(index);
        let Transfer { source, mut offer, envelope, total, order, stage, is_invited, .. } =
            transfer;
        // What is pulled over a network takes longer than a receive without time: it would never come.
        let must_push = transfer.may_sleep;
        caller.state = CallerState::Waiting;
        let (mut bytes, mut is_whole) = (Vec::new(), false);
        match stage {
            Stage::Queued | Stage::Fetching(..) | Stage::Closing(..) => {}
            Stage::Awaited(there) => {
                bytes = caller.target.written(usize::try_from(there).unwrap_or(usize::MAX));
            }
            Stage::Pulling(mut pull) | Stage::Stopping(mut pull, _) if is_invited => {
                if caller.target.adopts() && !peers.transport.close_pull(&mut pull) {
                    // The sender may be stopped while it writes to this memory.
                    let memory = caller.target.written(0);
                    let (to, stage) = (Destination::Nobody, Stage::Closing(pull, memory));
                    let offer = ArrivedOffer { number: offer.number, place: Vec::new() };
                    let (what, where_to) = ((envelope, total), (order, to));
                    let kept = self.matching.budget.kept(source.row()).bytes;
                    let transfer = Transfer::new(source, offer, what, where_to, stage, kept);
                    peers.put_transfer(index, Transfer { is_invited, ..transfer });
                }
                // Another copy from both ends would meet a sender that still knows the old target.
                peers.request_data(source.row(), &mut offer, 0, false);
            }
            Stage::Pulling(mut pull) | Stage::Stopping(mut pull, _) => {
                // What is there is kept, so that receives with short limits get the message in the end.
                let there = peers.transport.stop_pull(&mut pull, &mut *caller.target);
                if there == total {
                    // Nothing is left to request. If the sender has taken the offer back, all of the message follows.
                    is_whole = peers.transport.pull(&mut pull, &mut *caller.target) == Pulled::Done;
                    offer.place = Vec::new();
                } else if there > 0 || must_push {
                    peers.request_data(source.row(), &mut offer, there, false);
                }
                if is_whole || (there > 0 && there < total) {
                    bytes = caller.target.written(usize::try_from(there).unwrap_or(usize::MAX));
                }
            }
        }
        if !bytes.is_empty() {
            let missing = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(bytes.len());
            // Appending never grows it.
            bytes.reserve_exact(missing);
        }
        let number = offer.number;
        let beginning = if is_whole { Vec::new() } else { std::mem::take(&mut bytes) };
        let message = Unexpected::offered(source, envelope, total, offer, beginning.into());
        let key = self.matching.keep_offered(order, message);
        if is_whole {
            self.keep_pulled(peers, source.row(), key, number, bytes);
        }
        // A receive may have been posted meanwhile that asks for it.
        self.make_available(peers, key);
        true
    }
}
