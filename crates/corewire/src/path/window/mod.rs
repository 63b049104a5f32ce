//! The data path of windows: bytes are copied where they are mapped, and numbers are used in place.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the window, put and get, numbers |
//! | `parts.rs` | put and get of lists |
//! | `recent.rs` | which parts are in this process's caches |
//! | `locks.rs` | passive epochs: locks |
//! | `epochs.rs` | active epochs: fences; post, start, complete and wait |
//! | `counters.rs` | completion counters |
//! | `waits.rs` | how these wait, and why a wait ends |

mod counters;
mod epochs;
mod locks;
mod parts;
mod recent;
mod waits;

use std::fmt;
use std::sync::Arc;

use corewire_layout::name::ChannelName;
use corewire_layout::window::Rights;
use corewire_os::sleep::Linux;
use corewire_ring::copying::STREAMED_FROM_BYTES;
use corewire_ring::sync::{Ordering::SeqCst, fence};
use corewire_ring::window::{Data, Number, Participant, Seat, Turn, WindowShared, Word};

pub use self::locks::{Lock, WindowLock};
use self::recent::Recent;
use crate::error::WindowError;
use crate::halves::{WindowHalf, window_notice as notice};
use crate::wait::{Interrupter, Wait};
use crate::window_handle::WindowHandle;

/// Memory that several processes read and write: the owner, which has created it, and the other participants, which have
/// attached to it ([`Domain::window`](crate::Domain::window), [`Domain::attach_window`](crate::Domain::attach_window)).
///
/// The memory is mapped in each of them. So [`put`](Self::put) and [`get`](Self::get) copy once, without a system call and
/// without the owner, which may do anything meanwhile; [`at`](Self::at) gives a number in place, for bare loads, stores and
/// atomic operations. What one participant puts while another one gets the same bytes may be copied as any mixture. To
/// agree on who uses what when, use a [lock](Self::lock), a [fence](Self::fence), epochs ([`post`](Self::post),
/// [`start`](Self::start)), [counters](Self::put_counted), or numbers of the window itself.
///
/// A handle belongs to one thread at a time, but several threads may share it for puts, gets and numbers. When the owner
/// dies or closes the window, calls of other participants end with an error; numbers located before stay mapped. In a
/// forked child, calls return [`WindowError::Forked`], and the memory is not there: an access by a number that was located
/// before the fork ends the child with `SIGSEGV`.
///
/// Source: Buntinas and others, "Design and Evaluation of Nemesis" (2.3), and "Data Transfers between Processes in a SMP
/// System" (IV-B).
pub struct Window {
    data: Data,
    /// Nothing for a guest.
    participant: Option<Participant>,
    half: Arc<dyn WindowHalf>,
    /// What `half` gives this thread to know.
    shared: Arc<WindowShared>,
    base: WindowBase,
    recent: Box<Recent>,
    linux: Linux,
    wait: Wait,
    /// The fence that this participant has entered and that has not ended, because its time was up.
    fence: Option<u64>,
    /// The participants of whose end a fence has told.
    missed: Vec<Seat>,
    /// The participants to which the owner has opened the window.
    posted: Vec<(Seat, Turn)>,
    /// Whether this participant has started an epoch.
    has_started: bool,
}

/// What a participant is told of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowBase {
    /// What this participant may do.
    pub(crate) rights: Rights,
    /// Where the window begins in the owner's address space.
    pub(crate) address: u64,
}

/// A participant of a window, as [`Window::participants`] names it. A later participant in the same row is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowParticipant(Seat);

impl WindowParticipant {
    /// Its row: 0 for the owner.
    #[must_use]
    pub fn row(self) -> u32 {
        self.0.row
    }
}

impl Window {
    pub(crate) fn new(
        data: Data,
        participant: Option<Participant>,
        half: Arc<dyn WindowHalf>,
        base: WindowBase,
    ) -> Self {
        Self {
            data,
            participant,
            shared: Arc::clone(half.shared()),
            half,
            base,
            recent: Box::default(),
            linux: Linux::get(),
            wait: Wait::default(),
            fence: None,
            missed: Vec::new(),
            posted: Vec::new(),
            has_started: false,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.half.name().as_str()
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.data.bytes()
    }

    /// What this participant may do.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.base.rights
    }

    /// What another process needs to attach to this window: to be sent in a message.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-handle-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::{WindowHandle, WindowRights};
    ///
    /// let window = domain.window("w", 4096).create()?;
    /// let message = window.handle().to_bytes();
    /// // Where the message arrives:
    /// let there = domain.attach_window_of(&WindowHandle::of_bytes(&message)?, WindowRights::READ)?;
    /// assert_eq!(there.bytes(), 4096);
    /// # drop((there, window, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn handle(&self) -> WindowHandle {
        self.half.handle()
    }

    /// Where the window begins in the address space of its owner.
    #[must_use]
    pub fn target_address(&self) -> u64 {
        self.base.address
    }

    /// The offset of an address of the owner's address space, for programs that exchange addresses: a window is mapped at
    /// another address in each process.
    ///
    /// # Errors
    /// [`WindowError::Address`] if it is not in the window.
    pub fn offset_of(&self, address: u64) -> Result<u64, WindowError> {
        let offset = address.checked_sub(self.base.address);
        offset.filter(|offset| *offset < self.bytes()).ok_or_else(|| WindowError::Address {
            name: self.name_of().clone(),
            address,
            begin: self.base.address,
            bytes: self.bytes(),
        })
    }

    /// Copies `source` to the window, from `offset` on. When it returns, the bytes are there. 8 bytes at a multiple of 8 are
    /// written at once.
    ///
    /// # Errors
    /// [`WindowError::Range`], [`WindowError::Rights`]; [`WindowError::PeerDied`] or [`WindowError::Closed`] if the owner
    /// is gone, [`WindowError::Forked`]. Then nothing has been copied.
    #[inline]
    pub fn put(&self, offset: u64, source: &[u8]) -> Result<(), WindowError> {
        self.check(Rights::WRITE)?;
        if let Ok(word) = <[u8; 8]>::try_from(source)
            && let Some(number) = self.data.at::<u64>(offset)
        {
            number.store(u64::from_le_bytes(word).to_le());
            return Ok(());
        }
        let at = self.find(offset, source.len() as u64)?;
        self.put_at(at, source);
        Ok(())
    }

    /// Copies bytes to the window, at a place that has been checked.
    #[inline]
    fn put_at(&self, at: usize, source: &[u8]) {
        if source.len() >= STREAMED_FROM_BYTES && self.recent.note(at, source.len()) {
            self.data.put_far(at, source);
        } else {
            self.data.put(at, source);
        }
    }

    /// Copies the bytes of the window from `offset` on to `target`. 8 bytes at a multiple of 8 are read at once.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    #[inline]
    pub fn get(&self, offset: u64, target: &mut [u8]) -> Result<(), WindowError> {
        self.check(Rights::READ)?;
        if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *target)
            && let Some(number) = self.data.load::<u64>(offset)
        {
            *word = u64::from_le(number).to_le_bytes();
            return Ok(());
        }
        let at = self.find(offset, target.len() as u64)?;
        self.data.get(at, target);
        Ok(())
    }

    /// The number at `offset`, a multiple of its size: `u32`, `i32`, `f32`, `u64`, `i64` or `f64`. It is checked here, once;
    /// its loads, stores and atomic operations are those of the processor. Needs the right of atomic operations. For
    /// loads alone, see [`load`](Self::load).
    ///
    /// # Errors
    /// [`WindowError::Range`], [`WindowError::Misaligned`], [`WindowError::Rights`], and as for [`put`](Self::put).
    #[inline]
    pub fn at<T: Number>(&self, offset: u64) -> Result<Word<'_, T>, WindowError> {
        match self.data.at(offset) {
            Some(word) if self.may(Rights::ATOMIC) => Ok(word),
            _ => Err(self.no_number::<T>(Rights::ATOMIC, offset)),
        }
    }

    /// Loads the number at `offset`, a multiple of its size. What its writer had put before is visible.
    ///
    /// # Errors
    /// As for [`at`](Self::at), but it needs only the right to read.
    #[inline]
    pub fn load<T: Number>(&self, offset: u64) -> Result<T, WindowError> {
        // Before the load: in a forked child the data is not there.
        let number = if self.may(Rights::READ) { self.data.load(offset) } else { None };
        number.ok_or_else(|| self.no_number::<T>(Rights::READ, offset))
    }

    /// Makes what this thread has put visible to every participant that learns of it in any way: a fence. Locks, fences,
    /// epochs, counters and numbers do this by themselves.
    #[inline]
    pub fn flush(&self) {
        fence(SeqCst);
    }

    /// The participants of the owner's user that are there, the owner first, with the numbers of their processes; 0 for
    /// one that the owner cannot see. A guest sees none.
    #[must_use]
    pub fn participants(&self) -> Vec<(WindowParticipant, u32)> {
        let book = self.participant.iter().map(Participant::book);
        book.flat_map(|book| book.present().map(|(seat, pid)| (WindowParticipant(seat), pid)))
            .collect()
    }

    /// This participant; `None` for a guest.
    #[must_use]
    pub fn participant(&self) -> Option<WindowParticipant> {
        self.participant.as_ref().map(|participant| WindowParticipant(participant.seat()))
    }

    /// Whether this process has created the window, and this is the handle that it got.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.participant.as_ref().is_some_and(|participant| participant.seat().row == 0)
    }

    /// Sets how calls wait. Default: [`Wait::Adaptive`].
    pub fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Returns a handle with which another thread can end a wait of this one.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        let (shared, linux) = (Arc::clone(&self.shared), self.linux);
        Interrupter::new(move || shared.notify(notice::INTERRUPTED, &linux))
    }

    fn name_of(&self) -> &ChannelName {
        self.half.name()
    }

    /// Whether this participant may do something now.
    #[inline(always)]
    fn may(&self, needed: Rights) -> bool {
        let notices = self.shared.notices() & !notice::INTERRUPTED;
        notices == 0 && self.base.rights.include(needed)
    }

    #[inline(always)]
    fn check(&self, needed: Rights) -> Result<(), WindowError> {
        if self.may(needed) { Ok(()) } else { Err(self.refused(needed)) }
    }

    #[cold]
    fn refused(&self, needed: Rights) -> WindowError {
        self.ended().unwrap_or_else(|| WindowError::Rights {
            name: self.name_of().clone(),
            needed,
            given: self.base.rights,
        })
    }

    /// Why the window cannot be used any more.
    fn ended(&self) -> Option<WindowError> {
        let notices = self.shared.notices();
        let name = || self.name_of().clone();
        match notices {
            _ if notices & notice::FORKED != 0 => Some(WindowError::Forked),
            _ if notices & notice::CLOSED != 0 => Some(WindowError::Closed(name())),
            _ if notices & notice::DIED != 0 => {
                Some(WindowError::PeerDied { name: name(), pid: self.half.owner_pid() })
            }
            _ if notices & notice::DETACHED != 0 => Some(WindowError::Detached(name())),
            _ => None,
        }
    }

    #[inline]
    fn find(&self, offset: u64, bytes: u64) -> Result<usize, WindowError> {
        self.data.find(offset, bytes).ok_or_else(|| self.out_of_range(offset, bytes))
    }

    #[cold]
    fn out_of_range(&self, offset: u64, bytes: u64) -> WindowError {
        let (name, window_bytes) = (self.name_of().clone(), self.bytes());
        WindowError::Range { name, offset, bytes, window_bytes }
    }

    /// Why a number cannot be located.
    #[cold]
    fn no_number<T: Number>(&self, needed: Rights, offset: u64) -> WindowError {
        let size = size_of::<T>() as u64;
        if let Err(error) = self.check(needed).and_then(|()| self.find(offset, size)) {
            return error;
        }
        WindowError::Misaligned { name: self.name_of().clone(), offset, needed: size }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.half.close();
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("name", &self.name())
            .field("bytes", &self.bytes())
            .field("rights", &self.rights())
            .finish_non_exhaustive()
    }
}
