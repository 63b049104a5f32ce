//! One connection between two endpoints, once both have said hello: frames, credit, and how it ends.
//!
//! A link is given what has arrived, and says what it is and what is to be sent. It makes no system call and reads no
//! clock: who carries the bytes does. So simulations run the very source that sockets do.
//!
//! # Data path
//!
//! 1. The sender [begins a frame](Link::begin) if there is room for all of it, and hands its header and its bytes to what
//!    carries them. A message of more than [`FRAME_BYTES_MAX`](corewire_layout::net::FRAME_BYTES_MAX) takes several.
//! 2. The receiver [advances](Link::advance) over what has arrived, to the next bytes for its engine. It takes them in as
//!    many parts as it likes, from wherever they are ([`pass`](Link::pass)).
//! 3. Having passed half of what may be under way, a quarter while it pulls messages, or 64 frames and all that has arrived, it
//!    lets the sender send more ([`credit`](Link::credit)); earlier if a frame goes that way anyhow, or a whole one would find no
//!    room.
//!
//! # Credit
//!
//! Never are more bytes under way than the receiver has allowed: less than half of what its kernel keeps for a process that
//! does not read. So the kernel of a host acknowledges everything even while the process is stopped, and a connection on
//! which nothing is acknowledged means a silent host, never a stopped process. What may be sent is counted from the
//! beginning of the connection: nothing is lost if such a count arrives late, or only the last of several. A receiver that takes
//! all of it in about the time of a round trip lets more be under way, up to 4 MiB.
//!
//! A frame begins only if all of it may be sent. Otherwise two sides that are each in the middle of a frame would each wait
//! for credit that the other could tell only behind its own.
//!
//! # Cost
//!
//! 16 bytes for each frame, 8 more each with an immediate and with the length of a message that takes several; another 16
//! for each half of the credit or 64 frames, or behind a frame that goes that way. No allocation.
//!
//! # What is promised
//!
//! Messages arrive once, in order and whole, or the link is lost. Then each side knows how many of its messages the other
//! has received at least ([`loss`](Link::loss)); those behind them may have arrived or not. A side that closes says so: an
//! end without that is a loss, never a death, of which no other host can tell.
//!
//! Sources: Buntinas and others, "Design and Evaluation of Nemesis", 2.2 and 3.4; `docs/layout.md`, "Between hosts".

mod incoming;
mod outgoing;
mod whole;

use corewire_endpoint::transport::{Loss, LossReason, PeerViolation};
use corewire_layout::net::{
    FrameKind, HEADER_BYTES_MAX, HEADER_BYTES_MIN, Header, Hello, NetError,
};

pub use self::incoming::Head;
use self::incoming::Incoming;
pub use self::outgoing::CREDIT_BYTES_MAX;
use self::outgoing::Outgoing;

/// A header, of which so many bytes count.
pub type HeaderBytes = ([u8; HEADER_BYTES_MAX], usize);

/// One connection, of which both sides know each other.
#[derive(Debug)]
pub struct Link {
    outgoing: Outgoing,
    incoming: Incoming,
    /// Bytes behind those that were gone over up to which what has arrived was [looked over](Self::foresee).
    foreseen: u64,
    /// Among those is that the other side has left: nothing behind that is looked at.
    foresees_end: bool,
}

impl Link {
    /// The link of a side that has said `own` and heard `other`.
    #[must_use]
    pub fn new(own: &Hello, other: &Hello) -> Self {
        Self {
            outgoing: Outgoing::new(u64::from(other.credit_bytes)),
            incoming: Incoming::new(u64::from(own.credit_bytes)),
            foreseen: 0,
            foresees_end: false,
        }
    }

    // Sending.

    /// Bytes that may be sent now, headers included.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.outgoing.room()
    }

    /// Begins a frame: its header, and then its bytes, are the next thing to be sent. `None` if there is no room for all of
    /// it; nothing was begun then.
    pub fn begin(&mut self, header: &Header) -> Option<HeaderBytes> {
        let (bytes, length) = header.to_bytes();
        self.outgoing.has_begun(header, length as u64).then_some((bytes, length))
    }

    /// Begins a frame that is a whole message, of so many bytes with its header. False if there is no room for it.
    #[inline]
    pub fn has_sent(&mut self, bytes: u64) -> bool {
        self.outgoing.has_sent(bytes)
    }

    /// Whether the other side should be told now what it may send. Otherwise it is told behind a frame that goes there anyhow.
    /// `is_all` says that all that has arrived was taken, `is_pulling` that it pulls messages from there.
    #[inline]
    #[must_use]
    pub fn is_credit_due(&self, is_all: bool, is_pulling: bool) -> bool {
        self.incoming.is_credit_due(is_all, is_pulling)
    }

    /// Whether there is something to tell the other side.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.incoming.has_news()
    }

    /// What the other side is told, between two frames: that it may send more, and how much has been received. `None` if that
    /// is not new.
    pub fn credit(&mut self) -> Option<HeaderBytes> {
        let (limit, messages, immediate) = self.incoming.credit()?;
        Some(Header { immediate, ..Header::new(FrameKind::Credit, limit, messages) }.to_bytes())
    }

    /// Lets so many bytes be under way from now on, if that is more than before. The other side is told with the next [`credit`](Self::credit).
    pub fn grow(&mut self, credit: u64) {
        self.incoming.grow(credit.min(CREDIT_BYTES_MAX));
    }

    /// What may be under way, as the other side has said at the beginning.
    #[must_use]
    pub fn under_way_max(&self) -> u64 {
        self.outgoing.credit()
    }

    /// Bytes of the frames that were begun, and how many of them the other side is known to have taken.
    #[must_use]
    pub fn counted(&self) -> (u64, u64) {
        self.outgoing.counted()
    }

    /// No more pieces of a message follow; or none are wanted.
    #[must_use]
    pub fn end_of_pieces(kind: FrameKind, number: u64) -> [u8; HEADER_BYTES_MIN] {
        short(&Header::new(kind, number, 0))
    }

    /// The last thing to be sent, behind all frames: this side closes.
    #[must_use]
    pub fn leave() -> [u8; HEADER_BYTES_MIN] {
        short(&Header::new(FrameKind::Leave, 0, 0))
    }

    /// Messages and bytes that were sent, and those that were received.
    #[must_use]
    pub fn traffic(&self) -> ((u64, u64), (u64, u64)) {
        (self.outgoing.traffic(), self.incoming.traffic())
    }

    // Receiving.

    /// Takes a whole frame of so many bytes with its header at once, which is a message and lies at the head. False if that is
    /// not so, or the other side has sent too much: then [`advance`](Self::advance) says what is.
    #[inline]
    pub fn is_taken(&mut self, bytes: u64) -> bool {
        let is_taken = self.incoming.is_taken(bytes);
        if is_taken {
            self.foreseen = self.foreseen.saturating_sub(bytes);
        }
        is_taken
    }

    /// Goes over what has arrived, up to the bytes of a frame for the engine. Returns how many bytes it has used, and what
    /// lies behind them.
    ///
    /// # Errors
    /// The other side breaks the rules: the connection must end.
    pub fn advance(&mut self, arrived: &[u8]) -> Result<(usize, Head), PeerViolation> {
        let mut used = 0;
        let head = loop {
            if let Some(head) = self.incoming.head() {
                break head;
            }
            let rest = arrived.get(used..).unwrap_or_default();
            let Some((header, length)) = Header::parse(rest).map_err(violation)? else {
                break Head::More;
            };
            used += length;
            match header.kind {
                FrameKind::Credit => {
                    self.outgoing.allow(header.number, header.bytes, header.immediate)?
                }
                FrameKind::Leave => self.incoming.leave(),
                FrameKind::Void | FrameKind::Stop => break Head::Word(header),
                _ => self.incoming.begin(header, length as u64)?,
            }
            if header.kind == FrameKind::Pull {
                self.incoming.pass(0, true)?;
                break Head::Word(header);
            }
        };
        self.foreseen = self.foreseen.saturating_sub(used as u64);
        Ok((used, head))
    }

    /// Looks over what has arrived, of which [`advance`](Self::advance) has used `start` bytes, although nothing of it is taken: for
    /// what the other side lets this one send, without which both might wait for each other. Takes that out of it. Returns whether
    /// the other side has left.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    pub fn foresee(&mut self, arrived: &mut Vec<u8>, start: usize) -> Result<bool, PeerViolation> {
        let head = self.incoming.head();
        if self.foresees_end || head == Some(Head::Left) {
            return Ok(true);
        }
        if self.foreseen == 0
            && let Some(Head::Frame(header, taken)) = head
        {
            self.foreseen = header.payload_bytes() - taken;
        }
        // What is kept of those behind is moved over what was taken out, all at once.
        let Some(mut from) =
            usize::try_from(self.foreseen).ok().and_then(|it| start.checked_add(it))
        else {
            return Ok(false);
        };
        let mut to = from;
        let looked = loop {
            let Some(rest) = arrived.get(from..) else { break Ok(()) };
            let (header, length) = match Header::parse(rest) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                Err(error) => break Err(violation(error)),
            };
            if header.kind == FrameKind::Credit {
                from += length;
                if let Err(error) =
                    self.outgoing.allow(header.number, header.bytes, header.immediate)
                {
                    break Err(error);
                }
                continue;
            }
            let whole = length as u64 + header.payload_bytes();
            self.foreseen += whole;
            let there = usize::try_from(whole).unwrap_or(usize::MAX).min(rest.len());
            arrived.copy_within(from..from + there, to);
            (from, to) = (from + there, to + there);
            self.foresees_end = header.kind == FrameKind::Leave;
            if self.foresees_end || (there as u64) < whole {
                break Ok(());
            }
        };
        if to < from {
            arrived.drain(to..from);
        }
        looked.map(|()| self.foresees_end)
    }

    /// Whether a frame lies at the head of which nothing is left but to [pass](Self::pass) it.
    #[must_use]
    pub fn has_empty(&self) -> bool {
        self.left_of_frame() == Some(0)
    }

    /// How much of the frame at the head was not taken yet; `None` if no frame lies there.
    #[must_use]
    pub fn left_of_frame(&self) -> Option<u64> {
        match self.incoming.head()? {
            Head::Frame(header, taken) => Some(header.payload_bytes() - taken),
            _ => None,
        }
    }

    /// Notes that so many more bytes of the frame at the head have been taken, all at once or in parts. True if that was
    /// the last of them. Of a frame without bytes, call it with 0.
    ///
    /// # Errors
    /// The other side has sent more than it may.
    pub fn pass(&mut self, bytes: u64) -> Result<bool, PeerViolation> {
        self.foreseen = self.foreseen.saturating_sub(bytes);
        self.incoming.pass(bytes, true)
    }

    /// As [`pass`](Self::pass), of a frame whose message nobody has received.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    pub fn discard(&mut self, bytes: u64) -> Result<bool, PeerViolation> {
        self.foreseen = self.foreseen.saturating_sub(bytes);
        self.incoming.pass(bytes, false)
    }

    // Its end.

    /// How it is lost, for this reason.
    #[must_use]
    pub fn loss(&self, reason: LossReason) -> Loss {
        Loss { reason, delivered: self.outgoing.delivered() }
    }
}

/// The bytes of a header without more than a number.
fn short(header: &Header) -> [u8; HEADER_BYTES_MIN] {
    let (bytes, _) = header.to_bytes();
    std::array::from_fn(|at| bytes[at])
}

fn violation(error: NetError) -> PeerViolation {
    match error {
        NetError::Field { field: word, found } => PeerViolation { word, found, position: 0 },
        // No header has anything else.
        _ => PeerViolation { word: "a frame", found: 0, position: 0 },
    }
}
