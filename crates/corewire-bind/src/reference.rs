//! References: endpoints, channels, services and windows as arguments. Each travels as a capability: the runtime directory of
//! its domain, and a note that says which one it is.

use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use corewire::{Domain, Window, WindowHandle};
use corewire_circuit::link::capability::Received;
use corewire_layout::name::NAME_BYTES_MAX as WINDOW_NAME_BYTES_MAX;
use rustix::fs::{Mode, OFlags};

/// The longest name of an endpoint, channel or service.
const NAME_BYTES_MAX: usize = 128;
/// Digits of a window's handle, before its name.
const HANDLE_DIGITS: usize = 64;
/// The longest note: a window's handle.
pub(crate) const NOTE_BYTES_MAX: usize = HANDLE_DIGITS + WINDOW_NAME_BYTES_MAX;

/// Something in a domain, which can be sent to a process that does not know the domain's runtime directory.
pub(crate) struct Named {
    directory: OwnedFd,
    /// Its name, or the handle of a window.
    note: String,
}

impl Named {
    fn new(domain: &Domain, name: &str) -> std::io::Result<Self> {
        if name.len() > NAME_BYTES_MAX {
            let (asked, what) = (name.len(), std::io::ErrorKind::InvalidInput);
            let text = format!("a name of {asked} bytes: at most {NAME_BYTES_MAX} are possible");
            return Err(std::io::Error::new(what, text));
        }
        Self::with(domain, name.to_owned())
    }

    fn with(domain: &Domain, note: String) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(domain.runtime_directory(), flags, Mode::empty())?;
        Ok(Self { directory, note })
    }

    /// What has arrived.
    pub(crate) fn of(found: Received) -> Self {
        Self { directory: found.descriptor.take(), note: found.note }
    }

    pub(crate) fn note(&self) -> &str {
        &self.note
    }

    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    fn is_in(&self, domain: &Domain) -> bool {
        let own = rustix::fs::fstat(&self.directory);
        let other = std::fs::metadata(domain.runtime_directory());
        matches!((own, other), (Ok(own), Ok(other)) if own.st_dev == other.dev() && own.st_ino == other.ino())
    }

    fn path(&self) -> std::io::Result<PathBuf> {
        use std::os::fd::AsRawFd;
        std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.note)
    }
}

macro_rules! placed {
    () => {
        /// Whether it is in this domain.
        #[must_use]
        pub fn is_in(&self, domain: &Domain) -> bool {
            self.0.is_in(domain)
        }

        /// The runtime directory of its domain. A process in another container may see none there.
        ///
        /// # Errors
        /// `/proc` cannot be read.
        pub fn runtime_directory(&self) -> std::io::Result<PathBuf> {
            self.0.path()
        }
    };
}

macro_rules! named {
    ($(#[$docs:meta])* $name:ident, $($of:ident)?, $value:expr, $what:literal) => {
        $(#[$docs])*
        #[derive(Debug)]
        pub struct $name$(<$of>)?(pub(crate) Named $(, pub(crate) PhantomData<fn() -> $of>)?);

        impl$(<$of>)? $name$(<$of>)? {
            #[doc = concat!("The ", $what, " of this name in a domain.")]
            ///
            /// # Errors
            /// The runtime directory cannot be opened.
            pub fn new(domain: &Domain, name: &str) -> std::io::Result<Self> {
                Named::new(domain, name).map($value)
            }

            /// Its name.
            #[must_use]
            pub fn name(&self) -> &str {
                &self.0.note
            }

            placed!();
        }
    };
}

named!(
    /// An endpoint as an argument: `endpoint` in interface files.
    EndpointRef, , Self, "endpoint"
);
named!(
    /// A channel as an argument: `channel<T>` in interface files.
    ChannelRef, T, |named| Self(named, PhantomData), "channel"
);
named!(
    /// A service as an argument: `client<I>` in interface files. A program that gets it can bind to the service.
    ServiceRef, , Self, "service"
);

/// A window as an argument: `window` in interface files. It means that one window: a later one of the same name is another
/// one. A program that gets it attaches by its [handle](Self::handle). It gives no right: see [`WindowHandle`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-window-ref-{}", std::process::id()));
/// # let domain = corewire::Domain::open_at(&dir)?;
/// use corewire::WindowRights;
/// use corewire_bind::WindowRef;
///
/// let window = domain.window("grid", 4096).create()?;
/// let memory = WindowRef::of(&domain, &window)?;
/// // Where it arrives:
/// assert!(memory.is_in(&domain));
/// let grid = domain.attach_window_of(memory.handle(), WindowRights::WRITE)?;
/// grid.put(0, b"a row")?;
/// # drop((grid, window, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
pub struct WindowRef(Named, WindowHandle);

impl WindowRef {
    /// This window, which is in this domain.
    ///
    /// # Errors
    /// The runtime directory cannot be opened.
    pub fn of(domain: &Domain, window: &Window) -> std::io::Result<Self> {
        Self::new(domain, window.handle())
    }

    /// The window of this handle in a domain: see [`Domain::window_handle`].
    ///
    /// # Errors
    /// As for [`of`](Self::of).
    pub fn new(domain: &Domain, handle: WindowHandle) -> std::io::Result<Self> {
        Named::with(domain, note_of(&handle)).map(|named| Self(named, handle))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.1.name()
    }

    /// Its handle, with which [`Domain::attach_window_of`] attaches.
    #[must_use]
    pub fn handle(&self) -> &WindowHandle {
        &self.1
    }

    placed!();

    /// What has arrived; `None` if its note is no handle.
    pub(crate) fn arrived(named: Named) -> Option<Self> {
        let handle = handle_of(&named.note)?;
        Some(Self(named, handle))
    }

    pub(crate) const fn named(&self) -> &Named {
        &self.0
    }
}

impl fmt::Debug for WindowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WindowRef").field(&format_args!("{}", self.name())).finish()
    }
}

/// A handle as a note, which is text: its numbers as digits, and the name.
fn note_of(handle: &WindowHandle) -> String {
    let (bytes, mut note) = (handle.to_bytes(), String::new());
    for byte in bytes.iter().take(HANDLE_DIGITS / 2) {
        // Writing to a string cannot fail.
        let _ = write!(note, "{byte:02x}");
    }
    note + handle.name()
}

fn handle_of(note: &str) -> Option<WindowHandle> {
    let (digits, name) = note.split_at_checked(HANDLE_DIGITS)?;
    let value = |digit: &u8| char::from(*digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(value(high)? << 4 | value(low)?));
    let bytes = bytes.chain(name.bytes().map(Some)).collect::<Option<Vec<u8>>>()?;
    WindowHandle::of_bytes(&bytes).ok()
}
