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

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::sync::{Arc, Weak};

use corewire_endpoint::Sink;
use corewire_endpoint::transport::PeerViolation;
use corewire_layout::net::{FRAME_BYTES_MAX, FrameKind, HEADER_BYTES_MAX, Header};
use corewire_layout::rendezvous::{OFFERS_MAX, Stretch, offer_number};
use corewire_os::stream;

use super::connection::Connection;
use crate::link::Link;

/// Bytes that one step of a pull takes at most.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// Messages that the peer may pull, by number.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// How many there were.
    count: u64,
    all: BTreeMap<u64, Offer>,
}

#[derive(Debug)]
struct Offer {
    stretches: Arc<[Stretch]>,
    bytes: u64,
    /// The peer has asked for it.
    has_begun: bool,
}

/// Messages of which the peer wants pieces, in the order in which it has asked for them.
#[derive(Debug, Default)]
pub(super) struct Asked {
    all: VecDeque<Wanted>,
    /// A piece that has not left to its end.
    begun: Option<Begun>,
    /// Bytes of other frames since the last piece.
    others: u64,
}

#[derive(Debug)]
struct Wanted {
    number: u64,
    stretches: Arc<[Stretch]>,
    bytes: u64,
    sent: u64,
}

impl Wanted {
    /// The room that the next piece needs. If it is not a piece's turn, messages of another frame's length find room all the
    /// same.
    fn needs(&self, is_their_turn: bool) -> u64 {
        let bytes = (self.bytes - self.sent).min(FRAME_BYTES_MAX);
        let left = if is_their_turn { 0 } else { FRAME_BYTES_MAX + HEADER_BYTES_MAX as u64 };
        bytes + HEADER_BYTES_MAX as u64 + left
    }
}

/// What is left of a piece: what is left of its header, which bytes of the message, and where they lie.
#[derive(Debug)]
struct Begun {
    head: Vec<u8>,
    number: u64,
    stretches: Arc<[Stretch]>,
    from: u64,
    bytes: u64,
    /// The same bytes, copied, once their memory was taken back.
    copied: Option<Vec<u8>>,
}

impl Asked {
    /// Whether no piece has left in part.
    pub(super) const fn is_between(&self) -> bool {
        self.begun.is_none()
    }

    fn has(&self, number: u64) -> bool {
        self.all.iter().any(|wanted| wanted.number == number)
    }

    /// Whether something is to be sent.
    pub(super) fn has_some(&self) -> bool {
        self.begun.is_some() || !self.all.is_empty()
    }

    /// Whether it is a piece's turn: as many bytes of other frames have gone since the last one as a piece has.
    #[inline]
    pub(super) fn is_their_turn(&self) -> bool {
        self.others >= FRAME_BYTES_MAX && !self.all.is_empty()
    }

    /// So many bytes of another frame go.
    #[inline]
    pub(super) fn note_other(&mut self, bytes: u64) {
        if !self.all.is_empty() {
            self.others += bytes;
        }
    }

    /// Whether something can be sent, with so much room.
    pub(super) fn is_wanted(&self, room: u64) -> bool {
        let fits = |wanted: &Wanted| room >= wanted.needs(self.is_their_turn());
        self.begun.is_some() || self.all.front().is_some_and(fits)
    }
}

/// Messages that are pulled from the peer.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    /// By number: what is left, and whether somebody wants it.
    all: BTreeMap<u64, Pulling>,
    /// The number of the message of which a piece lies at the head, if somebody wants it.
    head: Option<u64>,
}

#[derive(Debug)]
struct Pulling {
    left: u64,
    wanted: Weak<()>,
    /// The peer was told that no more is wanted.
    is_stopped: bool,
    /// No more comes: the peer has taken the message back.
    is_void: bool,
}

impl Pulls {
    /// Whether a piece lies at the head that somebody wants.
    pub(super) const fn has_head(&self) -> bool {
        self.head.is_some()
    }

    pub(super) fn has_some(&self) -> bool {
        !self.all.is_empty()
    }
}

/// A message that is pulled.
#[derive(Debug)]
pub struct Pull {
    pub(super) row: u32,
    number: u64,
    bytes: u64,
    taken: u64,
    /// As long as it lives, somebody wants the message.
    wanted: Arc<()>,
    is_asked: bool,
}

impl Pull {
    pub(super) fn new(row: u32, number: u64, bytes: u64) -> Self {
        Self { row, number, bytes, taken: 0, wanted: Arc::new(()), is_asked: false }
    }

    /// Bytes, from the first one on, that have come.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }
}

/// What a step of a pull has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stepped {
    /// It waits for the peer.
    Nothing,
    More,
    Done,
    Void,
}

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
        if let Some(begun) = self.asked.begun.as_mut().filter(|begun| begun.number == number) {
            begun.keep();
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
        let gone = match &begun.copied {
            Some(copied) => {
                let both = [&begun.head[..], copied].concat();
                self.send_now(&both, &[], 0, 0)
            }
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
        let (room, is_their_turn) = (self.link.room(), self.asked.is_their_turn());
        let wanted = self.asked.all.front_mut();
        let wanted = wanted.filter(|wanted| room >= wanted.needs(is_their_turn));
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
        self.pass_piece(header.number, bytes as u64);
        Ok(bytes > 0)
    }

    /// So many bytes of the piece at the head were taken.
    fn pass_piece(&mut self, number: u64, bytes: u64) {
        if let Err(violation) = self.link.pass(bytes) {
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
            count = match stream::receive_to(&self.wire, sink, at, in_kernel) {
                _ if in_kernel == 0 => 0,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(error) => {
                    self.lose(error.kind());
                    0
                }
            };
            if count == 0 {
                if !self.fill() {
                    return 0;
                }
                return self.take_piece(pull, sink);
            }
        }
        pull.taken += count as u64;
        self.pass_piece(pull.number, count as u64);
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

impl Begun {
    /// So many bytes of it have left.
    fn advance(&mut self, gone: usize) {
        let of_head = gone.min(self.head.len());
        self.head.drain(..of_head);
        let of_bytes = gone - of_head;
        match &mut self.copied {
            Some(copied) => drop(copied.drain(..of_bytes)),
            None => {
                self.from += of_bytes as u64;
                self.bytes -= of_bytes as u64;
            }
        }
    }

    fn is_over(&self) -> bool {
        let left = self.copied.as_ref().map_or(self.bytes, |copied| copied.len() as u64);
        self.head.is_empty() && left == 0
    }

    /// Copies what is left, before its memory is used for something else.
    fn keep(&mut self) {
        let copied = stream::copy_of(&self.stretches, self.from, self.bytes);
        // The owner of memory that is gone by now learns that the message was not sent; the peer gets as many bytes.
        let bytes = usize::try_from(self.bytes).unwrap_or(0);
        self.copied = Some(copied.unwrap_or_else(|_| vec![0; bytes]));
    }
}
