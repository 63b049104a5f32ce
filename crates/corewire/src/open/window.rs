//! Windows: memory that other processes read and write.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use corewire_layout::frame::WindowFacts;
use corewire_layout::name::{ChannelName, NameKind, NameRecord, SocketName};
use corewire_layout::window::{PARTICIPANTS_MAX, Rights, book_bytes};
use corewire_os::directory::ClaimError;
use corewire_os::fork::Descriptor;
use corewire_os::memory::{MemoryOptions, Segment};
use corewire_os::{OsError, process, random_u128};
use corewire_ring::region::Region;
use corewire_ring::window::{Book, Data, Participant, Roster, Seat, WindowShared};

use crate::control::asking::ANSWER_TIMEOUT;
use crate::control::look::{self, Observed};
use crate::control::reachable::Kind;
use crate::control::window::observer::WindowObserver;
use crate::control::window::{self, Attached, WindowControl, WindowParts};
use crate::error::{AttachError, JoinError, OpenError, WindowCreateError};
use crate::open::domain::Domain;
use crate::path::window::{Window, WindowBase};
use crate::wait::Patience;
use crate::window_handle::WindowHandle;

/// The number of participants if none is said.
const PARTICIPANTS: u32 = 64;

impl Domain {
    /// Returns the builder of a window: `bytes` bytes of memory that this process shares with others.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-window-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::WindowRights;
    ///
    /// let window = domain.window("grid", 1 << 20).create()?;
    /// // In this or another process:
    /// let grid = domain.attach_window("grid", WindowRights::ATOMIC)?;
    /// grid.put(4096, b"a row of the grid")?;
    /// assert_eq!(grid.at::<u64>(0)?.fetch_add(1), 0);
    ///
    /// let mut row = [0; 5];
    /// window.get(4096, &mut row)?;
    /// assert_eq!((&row, window.at::<u64>(0)?.load()), (b"a row", 1));
    /// # drop((grid, window, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn window(&self, name: &str, bytes: u64) -> WindowBuilder<'_> {
        WindowBuilder {
            domain: self,
            name: name.to_owned(),
            bytes,
            rights: Rights::ATOMIC,
            participants_max: PARTICIPANTS,
            memory: MemoryOptions::default(),
        }
    }

    /// Attaches to the existing window `name`, which may be in this process, with these rights. Waits for the answer of
    /// its process for at most 10 s.
    ///
    /// # Errors
    /// [`AttachError::NotFound`] if there is none; [`AttachError::Rights`] if the window gives others fewer rights;
    /// otherwise another [`AttachError`].
    pub fn attach_window(&self, name: &str, rights: Rights) -> Result<Window, AttachError> {
        let name = ChannelName::new(name)?;
        Ok(attached(window::attach(&self.inner, &name, None, rights, Patience::Forever)?))
    }

    /// Attaches to the window `name` as soon as it exists. Waits for at most `timeout`; `None` waits without a limit. A
    /// window that exists has at least half a second and at most 10 s to answer.
    ///
    /// # Errors
    /// [`AttachError::NotCreated`] if it was not created in time; otherwise as for [`attach_window`](Self::attach_window).
    pub fn attach_window_when_created(
        &self,
        name: &str,
        rights: Rights,
        timeout: Option<Duration>,
    ) -> Result<Window, AttachError> {
        let name = ChannelName::new(name)?;
        Ok(attached(window::attach_when_created(&self.inner, &name, rights, timeout)?))
    }

    /// Attaches to the window that a message has named: see [`Window::handle`].
    ///
    /// # Errors
    /// As for [`attach_window`](Self::attach_window).
    pub fn attach_window_of(
        &self,
        handle: &WindowHandle,
        rights: Rights,
    ) -> Result<Window, AttachError> {
        let which = Some((SocketName(handle.socket), handle.incarnation));
        let patience = Patience::Forever;
        Ok(attached(window::attach(&self.inner, &handle.name, which, rights, patience)?))
    }

    /// How a message names the existing window `name`: the [handle](Window::handle) of that window, without attaching to it.
    /// Never waits for its process.
    ///
    /// # Errors
    /// [`AttachError::NotFound`] if there is none; [`AttachError::NotAWindow`]; [`AttachError::Forked`].
    pub fn window_handle(&self, name: &str) -> Result<WindowHandle, AttachError> {
        window::handle_of(&self.inner, &ChannelName::new(name)?)
    }

    /// Lists the names of the existing windows, in order, like [`channels`](Self::channels): a guest sees those of
    /// processes that admit guests.
    ///
    /// # Errors
    /// As for [`channels`](Self::channels).
    pub fn windows(&self) -> Result<Vec<ChannelName>, OpenError> {
        self.names_of(NameKind::Window)
    }

    /// Observes window `name` without attaching to it: who has, and who holds its lock. A guest sees no participants. Waits
    /// for the answer of its process for at most 10 s.
    ///
    /// # Errors
    /// As for joining, and [`JoinError::NotAWindow`].
    pub fn observe_window(&self, name: &str) -> Result<WindowObserver, JoinError> {
        let name = ChannelName::new(name)?;
        match look::one(&self.inner, &name, NameKind::Window, ANSWER_TIMEOUT)? {
            Observed::Window(observer) => Ok(observer),
            _ => Err(JoinError::NotAWindow(name)),
        }
    }
}

fn attached(attached: Attached) -> Window {
    let Attached { half, facts, data, participant } = attached;
    let data = Data::new(data, facts.bytes, facts.rights.can_write());
    let base = WindowBase { rights: facts.rights, address: facts.address };
    Window::new(data, participant, half, base)
}

/// Builder of a window, returned by [`Domain::window`].
#[must_use = "nothing is created before `create`"]
pub struct WindowBuilder<'a> {
    domain: &'a Domain,
    name: String,
    bytes: u64,
    rights: Rights,
    participants_max: u32,
    memory: MemoryOptions,
}

impl WindowBuilder<'_> {
    /// The most that other participants may do. Default: everything. With [`WindowRights::READ`](crate::WindowRights::READ) the
    /// kernel gives no other process memory that it could write; with `NONE` nobody can attach. Guests of the domain can
    /// attach to read in any case but the last.
    pub fn rights_of_others(mut self, rights: Rights) -> Self {
        self.rights = rights;
        self
    }

    /// Maximum number of participants of this user, the owner included. Default: 64; at most 1,024. Each takes 1 KiB.
    pub fn participants_max(mut self, count: u32) -> Self {
        self.participants_max = count;
        self
    }

    /// Asks for huge pages, where the machine provides them for shared memory.
    pub fn huge_pages(mut self, wanted: bool) -> Self {
        self.memory.huge_pages = wanted;
        self
    }

    /// Touches every page at creation, so that no operation of the owner pays for a page fault. Another participant still
    /// pays for each page that it touches first.
    pub fn prefault(mut self, wanted: bool) -> Self {
        self.memory.prefault = wanted;
        self
    }

    /// Locks the memory, so that it is never swapped out.
    pub fn lock_memory(mut self, wanted: bool) -> Self {
        self.memory.lock = wanted;
        self
    }

    /// Allocates the memory on this NUMA node.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.memory.numa_node = Some(node);
        self
    }

    /// Creates the window, zeroed. Never waits for another process.
    ///
    /// # Errors
    /// [`WindowCreateError`]: a bad name or number, a name in use by a living process, another user's domain, no memory.
    pub fn create(self) -> Result<Window, WindowCreateError> {
        let Self { bytes, rights, participants_max, memory, .. } = self;
        let name = ChannelName::new(&self.name)?;
        if bytes == 0 {
            return Err(WindowCreateError::Empty);
        }
        if !(1..=PARTICIPANTS_MAX).contains(&participants_max) {
            return Err(WindowCreateError::Participants { asked: participants_max });
        }
        let domain = &self.domain.inner;
        if domain.is_forked() {
            return Err(WindowCreateError::Forked);
        }
        let Some(socket) = domain.socket_name() else {
            let (owner, user) = (domain.directory.owner(), process::effective_uid());
            return Err(WindowCreateError::Guest { owner, user });
        };
        let incarnation = random_u128()?.max(1);
        let claim = domain.directory.claim(&name).map_err(|error| match error {
            ClaimError::AlreadyExists(name) => {
                WindowCreateError::AlreadyExists(domain.name_in_use(&name))
            }
            error => error.into(),
        })?;
        // The senders of a shared channel have its name even during a change of host.
        let is_taken = domain.directory.has_members(&name);
        if !matches!(is_taken, Ok(false)) {
            claim.release(&domain.directory);
            is_taken?;
            return Err(WindowCreateError::AlreadyExists(domain.name_in_use(&name)));
        }
        let memory = match Memory::allocate(bytes, rights, participants_max, memory) {
            Ok(memory) => memory,
            Err(error) => {
                claim.release(&domain.directory);
                return Err(error.into());
            }
        };
        let Memory { data: (data_segment, region), read_only, book: (book_segment, book) } = memory;
        let book = Book::new(book, participants_max);
        let roster = Roster::new(book.clone(), process::pid());
        let shared = Arc::new(WindowShared::default());
        let data = Data::new(region, bytes, true);
        let address = data.address();
        let control = WindowControl::new(WindowParts {
            name,
            incarnation,
            facts: WindowFacts { bytes, address, rights, participants_max },
            data: data_segment,
            read_only,
            book: book_segment,
            roster,
            shared: Arc::clone(&shared),
            domain: domain.clone(),
        });
        domain.add(Kind::Window, control.name_of(), &control);
        let written = claim.write(NameRecord { kind: NameKind::Window, socket, incarnation });
        control.keep_claim(claim);
        let owner = Participant::new(book, Seat { row: 0, generation: 1 }, shared);
        // Dropping the window releases the name.
        let base = WindowBase { rights: Rights::ATOMIC, address };
        let window = Window::new(data, Some(owner), control, base);
        written?;
        Ok(window)
    }
}

/// A window's memory.
struct Memory {
    data: (Segment, Region),
    read_only: Descriptor,
    book: (Segment, Region),
}

impl Memory {
    fn allocate(
        bytes: u64,
        rights: Rights,
        participants_max: u32,
        options: MemoryOptions,
    ) -> Result<Self, OsError> {
        let data = Segment::create_window(bytes, rights.can_write(), options)?;
        let book = Segment::create_shared(book_bytes(participants_max))?;
        book.0.allocate(0, book_bytes(participants_max))?;
        Ok(Self { read_only: data.0.reopen_read_only()?, data, book })
    }
}

impl fmt::Debug for WindowBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
