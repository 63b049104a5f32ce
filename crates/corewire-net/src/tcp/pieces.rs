//! What is known of messages that are pulled, on both sides.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use corewire_layout::net::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use corewire_layout::rendezvous::Stretch;
use corewire_os::stream;

use crate::link::Link;

/// Messages that the peer may pull, by number.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// How many there were.
    pub(super) count: u64,
    pub(super) all: BTreeMap<u64, Offer>,
}

#[derive(Debug)]
pub(super) struct Offer {
    pub(super) stretches: Arc<[Stretch]>,
    pub(super) bytes: u64,
    /// The peer has asked for it.
    pub(super) has_begun: bool,
}

/// Messages of which the peer wants pieces, in the order in which it has asked for them.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) all: VecDeque<Wanted>,
    /// A piece that has not left to its end.
    pub(super) begun: Option<Begun>,
    /// Bytes of other frames since the last piece.
    pub(super) others: u64,
}

#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) number: u64,
    pub(super) stretches: Arc<[Stretch]>,
    pub(super) bytes: u64,
    pub(super) sent: u64,
}

impl Wanted {
    /// The room that the next piece needs. If it is not a piece's turn, messages of another frame's length find room all the
    /// same, and are not behind much; where little may be under way, shorter ones. While it pulls, the other side lets three
    /// quarters of what may be under way be there sooner or later.
    fn needs(&self, is_their_turn: bool, under_way_max: u64) -> u64 {
        let whole = FRAME_BYTES_MAX + HEADER_BYTES_MAX as u64;
        let bytes = (self.bytes - self.sent).min(FRAME_BYTES_MAX) + HEADER_BYTES_MAX as u64;
        let most = (under_way_max / 4 * 3).saturating_sub(whole);
        let left = if is_their_turn { 0 } else { (whole * 2).min(most) };
        bytes + left
    }
}

/// What is left of a piece: what is left of its header, which bytes of the message, and where they lie.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) head: Vec<u8>,
    pub(super) number: u64,
    pub(super) stretches: Arc<[Stretch]>,
    pub(super) from: u64,
    pub(super) bytes: u64,
    /// The same, copied, once their memory was taken back.
    pub(super) copied: Option<Vec<u8>>,
}

impl Asked {
    /// Whether no piece has left in part.
    pub(super) const fn is_between(&self) -> bool {
        self.begun.is_none()
    }

    pub(super) fn has(&self, number: u64) -> bool {
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

    /// Whether a piece can begin.
    pub(super) fn is_wanted(&self, link: &Link) -> bool {
        let needs = |wanted: &Wanted| wanted.needs(self.is_their_turn(), link.under_way_max());
        self.all.front().is_some_and(|wanted| link.room() >= needs(wanted))
    }
}

/// Messages that are pulled from the peer.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    /// By number: what is left, and whether somebody wants it.
    pub(super) all: BTreeMap<u64, Pulling>,
    /// The number of the message of which a piece lies at the head, if somebody wants it.
    pub(super) head: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Pulling {
    pub(super) left: u64,
    pub(super) wanted: Weak<()>,
    /// The peer was told that no more is wanted.
    pub(super) is_stopped: bool,
    /// No more comes: the peer has taken the message back.
    pub(super) is_void: bool,
}

impl Pulls {
    /// Whether a piece lies at the head that somebody wants.
    pub(super) fn has_head(&self) -> bool {
        let head = self.head.and_then(|number| self.all.get(&number));
        head.is_some_and(|pulling| pulling.wanted.strong_count() > 0 && !pulling.is_stopped)
    }

    pub(super) fn has_some(&self) -> bool {
        !self.all.is_empty()
    }
}

/// A message that is pulled.
#[derive(Debug)]
pub struct Pull {
    pub(super) row: u32,
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) taken: u64,
    /// As long as it lives, somebody wants the message.
    pub(super) wanted: Arc<()>,
    pub(super) is_asked: bool,
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

impl Begun {
    /// So many bytes of it have left.
    pub(super) fn advance(&mut self, gone: usize) {
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

    pub(super) fn is_over(&self) -> bool {
        let left = self.copied.as_ref().map_or(self.bytes, |copied| copied.len() as u64);
        self.head.is_empty() && left == 0
    }

    /// Copies what is left, before its memory is used for something else.
    pub(super) fn keep(&mut self) -> std::io::Result<()> {
        if self.copied.is_none() {
            let rest = stream::copy_of(&self.stretches, self.from, self.bytes)?;
            let head = std::mem::take(&mut self.head);
            self.copied = Some([head, rest].concat());
        }
        Ok(())
    }
}
