//! Registered memory: its number, its token, and its description for the other side.
//!
//! ```text
//!   0          4      8        16      24             40              48
//!   | mechanism | role | number | bytes | token (u128) | its address   | address | bytes | ...
//! ```
//!
//! The *token* is 128 bits that lie in the owner's memory as long as the piece is registered. A process that copies from a piece
//! by the kernel reads the token last, in the same call: if it is gone, the bytes are not used. (Kaput's registration
//! returns such a token, too: Buntinas and others, II-D.) The *number* does the same for mechanisms that have a link.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

use corewire_layout::rendezvous::{MemoryPlace, Stretch};
use corewire_os::OsError;
use corewire_ring::message::{Memory, Sink, Source};
use corewire_ring::region::Region;
use corewire_ring::sync::{Ordering::Relaxed, Ordering::Release, fence};

use crate::kernel_copy::Remote;
use crate::mechanisms::outcome::{CopyError, NotRegistered, RegisterError, Role};
use crate::pull::{Help, Pull};
use crate::thresholds::{PARTS_MAX, PIECES_MAX};

/// Which mechanism a description belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    SharedBuffer = 1,
    MessageQueue = 2,
    KernelGet = 3,
    KernelPut = 4,
    BothSides = 5,
    Ptrace = 6,
    Mapped = 7,
}

impl Kind {
    /// Whether the other side must know where the memory lies.
    const fn has_place(self) -> bool {
        !matches!(self, Self::SharedBuffer | Self::MessageQueue)
    }
}

const PREFIX_BYTES: usize = 40;
/// The longest description in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = PREFIX_BYTES + 8 + PARTS_MAX * size_of::<Stretch>();

/// A piece of memory, described for the other side: bytes that are sent in a message, and for mapped memory a
/// descriptor that is sent with them.
#[derive(Clone)]
pub struct Description {
    /// The bytes, at most [`DESCRIPTION_BYTES_MAX`].
    pub bytes: Vec<u8>,
    /// The descriptor.
    pub descriptor: Option<Arc<dyn AsFd + Send + Sync>>,
}

impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Description").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// A description that has been checked.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) number: u64,
    /// Bytes of the message, or of the room for it.
    pub(crate) bytes: u64,
    pub(crate) token: u128,
    pub(crate) place: MemoryPlace,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl Described {
    /// What a peer has sent.
    pub(crate) fn parse(other: &Description, kind: Kind, role: Role) -> Result<Self, CopyError> {
        let bytes = &other.bytes;
        let bad = |what, found| CopyError::Unexpected { what, found };
        let length = bytes.len() as u64;
        if bytes.len() > DESCRIPTION_BYTES_MAX {
            return Err(bad("the length of a description", length));
        }
        let (head, rest) =
            bytes.split_at_checked(PREFIX_BYTES).ok_or(bad("a description", length))?;
        let word = |at| word(head, at).ok_or(bad("a description", length));
        let (expected, found) = (u64::from(kind as u32) | u64::from(role as u32) << 32, word(0)?);
        if found != expected {
            return Err(bad("mechanism and role", found));
        }
        let (number, bytes) = (word(8)?, word(16)?);
        let token = u128::from(word(24)?) | u128::from(word(32)?) << 64;
        let place = if kind.has_place() {
            let place = MemoryPlace::parse(rest, bytes);
            place.ok_or(bad("the place of a description", rest.len() as u64))?
        } else if rest.is_empty() {
            MemoryPlace { cookie: 0, stretches: Vec::new() }
        } else {
            return Err(bad("the length of a description", length));
        };
        Ok(Self { number, bytes, token, place })
    }
}

/// A copy out of a map.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) region: Region,
    pub(crate) number: u64,
    pub(crate) place: MemoryPlace,
    pub(crate) bytes: u64,
    pub(crate) done: u64,
}

/// What a copy has done so far.
#[derive(Debug)]
pub(crate) enum Copying {
    Nothing,
    /// Nothing more: the words of this copy cannot be used again.
    Spent,
    /// From the peer's memory, by the kernel.
    Reading(Reading),
    /// From both ends, or by the source alone: the source's side.
    Helping {
        help: Help,
        target: u64,
        steps: u64,
    },
    /// The same, the target's side. The source has the number `number`, and may have said that everything is there.
    Pulling {
        pull: Pull,
        number: u64,
        is_told: bool,
    },
    /// From both ends: the source has copied what it could. The target, whose piece has the number `target`, says when it
    /// has everything.
    Awaiting {
        target: u64,
    },
    /// The same, the target's side: it has everything, and must say so to the source, whose piece has the number `number`.
    Telling {
        number: u64,
        bytes: u64,
    },
    /// Through a pipe, of the message with the number `number`.
    Piping {
        number: u64,
        bytes: u64,
        done: u64,
    },
    /// From memory that is mapped here.
    Viewing(View),
}

/// A copy from the peer's memory, by the kernel.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) remote: Remote,
    pub(crate) place: MemoryPlace,
    pub(crate) bytes: u64,
    pub(crate) done: u64,
}

/// A registered piece of memory.
///
/// # Example
/// ```
/// use corewire_ring::message::Memory;
/// use corewire_transfer::mechanisms::{CopyError, KernelGet, Mechanism, Peer, Role};
///
/// let own = Peer::own()?;
/// let mut sender = KernelGet::initialise(own.clone(), Role::Source, ())?;
/// let mut receiver = KernelGet::initialise(own, Role::Target, ())?;
/// let source = sender.register(Memory::from(vec![vec![1; 70], vec![2; 30]]))?;
/// assert_eq!(source.bytes(), 100);
/// let description = source.description();
///
/// // Memory that is not registered any more cannot be read by mistake.
/// sender.deregister(source)?;
/// let mut target = receiver.register(Memory::from(vec![0; 100]))?;
/// assert_eq!(receiver.copy_local(&mut target, &description), Err(CopyError::Deregistered));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Piece<M = Memory> {
    /// Dropped before the memory: its drop waits for the other side's writes.
    pub(crate) copying: Copying,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    kind: Kind,
    role: Role,
    token: Token,
    stretches: Vec<Stretch>,
    descriptor: Option<Arc<dyn AsFd + Send + Sync>>,
    pub(crate) memory: M,
}

impl<M> fmt::Debug for Piece<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, role, number, bytes, .. } = self;
        f.debug_struct("Piece")
            .field("mechanism", kind)
            .field("role", role)
            .field("number", number)
            .field("bytes", bytes)
            .finish_non_exhaustive()
    }
}

impl<M> Piece<M> {
    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What this process does with it.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Its description for the other side.
    #[must_use]
    pub fn description(&self) -> Description {
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + 8 + 16 * self.stretches.len());
        bytes.extend((self.kind as u32).to_le_bytes());
        bytes.extend((self.role as u32).to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.bytes.to_le_bytes());
        bytes.extend(self.token.value.to_le_bytes());
        if self.kind.has_place() {
            let stretches = self.stretches.clone();
            MemoryPlace { cookie: self.token.address, stretches }.append_to(&mut bytes);
        }
        Description { bytes, descriptor: self.descriptor.clone() }
    }

    /// Where it lies in this process.
    pub(crate) fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Checks that it is a piece of this mechanism, and that the call is one of the side that has this role.
    pub(crate) fn check(&self, kind: Kind, role: Role) -> Result<(), CopyError> {
        if self.kind != kind {
            return Err(CopyError::Misused { what: "the piece belongs to another mechanism" });
        }
        if self.role != role {
            return Err(CopyError::Misused { what: "the other side must make this call" });
        }
        if let Copying::Spent = self.copying {
            let what = "the piece has served one message, and must be registered again";
            return Err(CopyError::Misused { what });
        }
        Ok(())
    }
}

/// Checks that a message of `bytes` bytes fits in `room` bytes.
pub(crate) fn check_room(bytes: u64, room: u64) -> Result<(), CopyError> {
    if bytes <= room { Ok(()) } else { Err(CopyError::TooLong { bytes, room }) }
}

/// The token of a piece.
#[derive(Debug, Clone, Copy)]
struct Token {
    value: u128,
    address: u64,
    index: usize,
}

/// The pieces that one process has registered for one mechanism.
#[derive(Debug)]
pub(crate) struct Registry {
    kind: Kind,
    role: Role,
    /// The tokens of the pieces that are registered: two words each, the upper one the same for all.
    tokens: Region,
    random: u64,
    uses: u64,
    free: Vec<usize>,
}

const TOKEN_BYTES: usize = size_of::<u128>();

/// What a mechanism adds to a piece.
#[derive(Default)]
pub(crate) struct Extra {
    /// Its number, if its link gives one.
    pub(crate) number: Option<u64>,
    /// Where it lies, if not at its own addresses.
    pub(crate) stretches: Option<Vec<Stretch>>,
    pub(crate) descriptor: Option<Arc<dyn AsFd + Send + Sync>>,
}

impl Registry {
    #[expect(clippy::cast_possible_truncation, reason = "64 of 128 random bits")]
    pub(crate) fn new(kind: Kind, role: Role) -> Result<Self, OsError> {
        let random = corewire_os::random_u128()? as u64;
        let tokens = Region::private(PIECES_MAX * TOKEN_BYTES).ok_or(OsError {
            what: "allocate the table of registered memory".into(),
            errno: libc::ENOMEM,
        })?;
        Ok(Self { kind, role, tokens, random, uses: 0, free: (0..PIECES_MAX).rev().collect() })
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Checks that one more piece can be registered, of so many parts.
    pub(crate) fn check(&self, parts: usize) -> Result<(), RegisterError> {
        if parts > PARTS_MAX {
            return Err(RegisterError::Parts { asked: parts, max: PARTS_MAX });
        }
        if self.free.is_empty() {
            return Err(RegisterError::Numbers { max: PIECES_MAX });
        }
        Ok(())
    }

    /// Registers `memory`. `extra` is asked only if that is possible.
    pub(crate) fn register<M: Source + Sink + fmt::Debug>(
        &mut self,
        memory: M,
        extra: impl FnOnce(&M) -> Result<Extra, RegisterError>,
    ) -> Result<Piece<M>, NotRegistered<M>> {
        let bytes = match self.role {
            Role::Source => memory.bytes(),
            Role::Target => memory.room() as u64,
        };
        let mut stretches = Vec::new();
        memory.stretches(&mut |stretch| stretches.push(stretch));
        let extra = match self.check(stretches.len()).and_then(|()| extra(&memory)) {
            Ok(extra) => extra,
            Err(why) => return Err(NotRegistered { memory, why }),
        };
        let Some(token) = self.make_token() else {
            return Err(NotRegistered { memory, why: RegisterError::Numbers { max: PIECES_MAX } });
        };
        Ok(Piece {
            copying: Copying::Nothing,
            number: extra.number.unwrap_or(self.uses),
            bytes,
            kind: self.kind,
            role: self.role,
            token,
            stretches: extra.stretches.unwrap_or(stretches),
            descriptor: extra.descriptor,
            memory,
        })
    }

    fn make_token(&mut self) -> Option<Token> {
        let index = self.free.pop()?;
        self.uses += 1;
        let (base, _) = self.tokens.address();
        let value = u128::from(self.uses) | u128::from(self.random) << 64;
        let address = base.as_ptr().expose_provenance() as u64 + (index * TOKEN_BYTES) as u64;
        // The description, which the other side gets later, publishes them.
        self.tokens.word64(index * TOKEN_BYTES).store(self.uses, Relaxed);
        self.tokens.word64(index * TOKEN_BYTES + 8).store(self.random, Relaxed);
        Some(Token { value, address, index })
    }

    /// The piece is not registered any more. Returns its memory.
    pub(crate) fn deregister<M>(&mut self, piece: Piece<M>) -> M {
        let Piece { copying, token, memory, .. } = piece;
        self.tokens.word64(token.index * TOKEN_BYTES).store(0, Relaxed);
        // A copy that has found anything that is written to the memory from now on finds no token. The other side is
        // the kernel, which reads the token after the bytes: between the two it releases their pages, with a locked
        // instruction.
        fence(Release);
        self.free.push(token.index);
        drop(copying);
        memory
    }
}

/// Zeroed memory in parts of these lengths.
pub(crate) fn allocate(parts: &[usize]) -> Memory {
    match parts {
        [one] => Memory::from(vec![0; *one]),
        parts => Memory::from(parts.iter().map(|&bytes| vec![0; bytes]).collect::<Vec<_>>()),
    }
}
