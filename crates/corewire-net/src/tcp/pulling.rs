//! Large messages, which stay with their sender until the receiver asks for them.
//!
//! | who | does |
//! |---|---|
//! | sender | offers a message under a number, and keeps it where it is |
//! | receiver | once a receive asks for it: sends a pull, which says how many bytes it wants |
//! | sender | sends them in pieces, each a frame, between other frames, as the credit allows |
//! | receiver | receives each where it goes |
//!
//! A receiver that wants no more says stop, a sender that has taken its memory back says void. Each is sent once for a pull, and
//! counts for no credit: it must get through whatever waits. So that nobody asks for endless answers, a side that has much
//! to send takes no more frames.
//!
//! Pieces leave from where the message lies. Of a piece that has begun when the memory is taken back, the rest is copied.

use std::io::ErrorKind;
use std::sync::Arc;

use corewire_endpoint::Sink;
use corewire_endpoint::transport::PeerViolation;
use corewire_layout::net::{FRAME_BYTES_MAX, FrameKind, Header};
use corewire_layout::rendezvous::{OFFERS_MAX, Stretch, offer_number};
use corewire_os::stream;

use super::connection::Connection;
use super::pieces::{Begun, Offer, Pull, Pulling, Stepped, Wanted};
use crate::link::Link;

/// Bytes that one step of a pull takes at most.
const STEP_BYTES_MAX: u64 = 1 << 20;

fn violation<T>(word: &'static str, found: u64) -> Result<T, PeerViolation> {
    Err(PeerViolation { word, found, position: 0 })
}

impl Connection {
    // The sender's side.

    /// Lets the peer pull a message. `None` if there are too many offers.
    pub(super) fn offer(&mut self, stretches: Vec<Stretch>, bytes: u64) -> Option<u64> {
        if self.offers.all.len() >= usize::from(OFFERS_MAX) {
            return None;
        }
        self.offers.count += 1;
        let index = u16::try_from(self.offers.count % u64::from(OFFERS_MAX)).ok()?;
        // No two have the same.
        let number = offer_number(index, self.offers.count);
        let offer = Offer { stretches: stretches.into(), bytes, has_begun: false };
        self.offers.all.insert(number, offer);
        Some(number)
    }

    /// The memory of a message is taken back. True if the peer has not asked for it.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let Some(offer) = self.offers.all.remove(&number) else { return true };
        if let Some(begun) = self.asked.begun.as_mut().filter(|begun| begun.number == number)
            && let Err(error) = begun.keep()
        {
            // It cannot be sent to its end, and nothing can follow it.
            self.note_unsendable(error.kind());
        }
        let before = self.asked.all.len();
        self.asked.all.retain(|wanted| wanted.number != number);
        if self.asked.all.len() < before {
            self.out.extend(Link::end_of_pieces(FrameKind::Void, number));
        }
        !offer.has_begun
    }

    pub(super) fn has_begun(&self, number: u64) -> bool {
        self.offers.all.get(&number).is_some_and(|offer| offer.has_begun)
    }

    /// What the peer says about a message that is pulled.
    pub(super) fn take_word(&mut self, header: &Header) -> Result<(), PeerViolation> {
        let (number, wanted) = (header.number, header.immediate.unwrap_or(0));
        match header.kind {
            FrameKind::Pull => match self.offers.all.get_mut(&number) {
                // Its memory was taken back meanwhile, or never was offered.
                None => self.out.extend(Link::end_of_pieces(FrameKind::Void, number)),
                Some(offer) if wanted > offer.bytes || self.asked.has(number) => {
                    return violation("a message that is pulled", number);
                }
                Some(offer) => {
                    offer.has_begun = true;
                    let stretches = Arc::clone(&offer.stretches);
                    self.asked.all.push_back(Wanted { number, stretches, bytes: wanted, sent: 0 });
                }
            },
            FrameKind::Stop => {
                // All of it may have left.
                let before = self.asked.all.len();
                self.asked.all.retain(|wanted| wanted.number != number);
                if self.asked.all.len() < before {
                    self.out.extend(Link::end_of_pieces(FrameKind::Void, number));
                }
            }
            _ => match self.pulls.all.get_mut(&number) {
                Some(pulling) if pulling.is_stopped || pulling.wanted.strong_count() == 0 => {
                    self.pulls.all.remove(&number);
                }
                Some(pulling) => pulling.is_void = true,
                None => return violation("a message that is void", number),
            },
        }
        Ok(())
    }

    /// Sends the next piece, or what is left of one. False if nothing can be sent now.
    pub(super) fn send_piece(&mut self) -> bool {
        if self.asked.begun.is_none() && !self.has_begun_piece() {
            return false;
        }
        let Some(mut begun) = self.asked.begun.take() else { return false };
        if self.wire.is_tls()
            && let Err(error) = begun.keep()
        {
            self.note_unsendable(error.kind());
            return false;
        }
        let gone = match &begun.copied {
            Some(copied) => self.send_now(copied, &[], 0, 0),
            None => {
                let Begun { head, stretches, from, bytes, .. } = &begun;
                let stretches = Arc::clone(stretches);
                self.send_now(&head.clone(), &stretches, *from, *bytes)
            }
        };
        if gone == 0 {
            self.asked.begun = Some(begun);
            return false;
        }
        begun.advance(gone);
        if !begun.is_over() {
            self.asked.begun = Some(begun);
        }
        true
    }

    /// Begins the next piece, if there is one and room for it.
    fn has_begun_piece(&mut self) -> bool {
        if !self.asked.is_wanted(&self.link) {
            return false;
        }
        let wanted = self.asked.all.front_mut();
        let Some(Wanted { number, stretches, bytes, sent }) = wanted else { return false };
        let left = *bytes - *sent;
        let count = left.min(FRAME_BYTES_MAX);
        let header =
            Header { immediate: Some(left), ..Header::new(FrameKind::Piece, *number, count) };
        let Some((head, length)) = self.link.begin(&header) else { return false };
        self.asked.begun = Some(Begun {
            head: head[..length].to_vec(),
            number: *number,
            stretches: Arc::clone(stretches),
            from: *sent,
            bytes: count,
            copied: None,
        });
        *sent += count;
        if *sent == *bytes {
            self.asked.all.pop_front();
        }
        self.asked.others = 0;
        true
    }

    // The receiver's side.

    /// A piece lies at the head, of which so much is left, and so much has been read. True if something of it was taken here,
    /// since nobody wants it.
    pub(super) fn piece_at_head(
        &mut self,
        header: &Header,
        left: u64,
        there: usize,
    ) -> Result<bool, PeerViolation> {
        self.pulls.head = None;
        let pulling = self.pulls.all.get_mut(&header.number);
        let in_frame = header.payload_bytes() - left;
        let Some(pulling) =
            pulling.filter(|it| header.immediate == it.left.checked_add(in_frame) && !it.is_void)
        else {
            let wrong = violation("a piece of a message", header.number);
            self.broken = wrong.err();
            return wrong;
        };
        if pulling.wanted.strong_count() > 0 && !pulling.is_stopped {
            self.pulls.head = Some(header.number);
            return Ok(false);
        }
        if !std::mem::replace(&mut pulling.is_stopped, true) {
            self.out.extend(Link::end_of_pieces(FrameKind::Stop, header.number));
        }
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(there);
        self.start += bytes;
        let passed = self.link.discard(bytes as u64);
        self.pass_piece(header.number, bytes as u64, passed);
        Ok(bytes > 0)
    }

    /// So many bytes of the piece at the head were taken.
    fn pass_piece(&mut self, number: u64, bytes: u64, passed: Result<bool, PeerViolation>) {
        if let Err(violation) = passed {
            self.broken = Some(violation);
        }
        if let Some(pulling) = self.pulls.all.get_mut(&number) {
            pulling.left -= bytes;
            if pulling.left == 0 {
                self.pulls.all.remove(&number);
            }
        }
        self.pulls.head = None;
    }

    /// Takes what has come of a message to where it goes.
    pub(super) fn step_pull(
        &mut self,
        pull: &mut Pull,
        sink: &mut dyn Sink,
    ) -> Result<Stepped, PeerViolation> {
        if !pull.is_asked {
            // What was pulled before, and not to its end, is on its way still.
            if self.pulls.all.contains_key(&pull.number) {
                return self.arrival().map(|_| Stepped::Nothing);
            }
            let header = Header {
                immediate: Some(pull.bytes),
                ..Header::new(FrameKind::Pull, pull.number, 0)
            };
            let Some((head, length)) = self.link.begin(&header) else {
                return Ok(Stepped::Nothing);
            };
            self.out.extend_from_slice(&head[..length]);
            pull.is_asked = true;
            let (left, wanted) = (pull.bytes, Arc::downgrade(&pull.wanted));
            let pulling = Pulling { left, wanted, is_stopped: false, is_void: false };
            self.pulls.all.insert(pull.number, pulling);
            return Ok(Stepped::More);
        }
        let before = pull.taken;
        while pull.taken < pull.bytes && pull.taken - before < STEP_BYTES_MAX {
            if self.pulls.all.get(&pull.number).is_none_or(|pulling| pulling.is_void) {
                self.pulls.all.remove(&pull.number);
                return Ok(Stepped::Void);
            }
            // Goes on to the piece, if that is what comes.
            if self.arrival()?.is_some() || self.pulls.head != Some(pull.number) {
                break;
            }
            let count = self.take_piece(pull, sink);
            if count == 0 {
                break;
            }
        }
        Ok(match pull.taken {
            taken if taken == pull.bytes => Stepped::Done,
            taken if taken > before => Stepped::More,
            _ => Stepped::Nothing,
        })
    }

    /// Takes what there is of the piece at the head. Returns how many bytes.
    fn take_piece(&mut self, pull: &mut Pull, sink: &mut dyn Sink) -> u64 {
        let Some(left) = self.link.left_of_frame() else { return 0 };
        let at = usize::try_from(pull.taken).unwrap_or(usize::MAX);
        let there = self.arrived.len() - self.start;
        let mut count = usize::try_from(left).unwrap_or(usize::MAX).min(there);
        if count > 0 {
            sink.put(at, self.arrived(count));
            self.start += count;
        } else {
            let in_kernel = self.in_kernel(left);
            self.in_kernel.set(None);
            if in_kernel > 0 {
                count = match stream::receive_to(&self.wire, sink, at, in_kernel) {
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                    Err(error) => {
                        self.lose(error.kind());
                        0
                    }
                };
            }
            if count == 0 {
                if !self.fill() {
                    return 0;
                }
                return self.take_piece(pull, sink);
            }
        }
        pull.taken += count as u64;
        let passed = self.link.pass(count as u64);
        self.pass_piece(pull.number, count as u64, passed);
        count as u64
    }

    /// Nobody wants more of a message.
    pub(super) fn stop_pull(&mut self, pull: &Pull) {
        if let Some(pulling) = self.pulls.all.get_mut(&pull.number)
            && !std::mem::replace(&mut pulling.is_stopped, true)
        {
            self.out.extend(Link::end_of_pieces(FrameKind::Stop, pull.number));
        }
        self.pulls.head = None;
    }
}
