//! The program that uses the provider: which MPI it is, and where it is told of errors.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;

use crate::limits::KEPT_BYTES;

/// The longest text with which an MPI says what it is. MPICH's is the longest limit.
const VERSION_BYTES_MAX: usize = 8192;

/// An MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mpi {
    /// None, or an unknown one.
    None,
    /// MPICH, and its version.
    Mpich(u32),
    /// Open MPI.
    Open,
}

impl Mpi {
    /// Whether it yields after each look for messages, or when there are more ranks than processors.
    pub(crate) fn yields_itself(self) -> bool {
        match self {
            Self::None => false,
            Self::Mpich(major) => major >= 5,
            Self::Open => true,
        }
    }

    /// Whether it looks once and then yields, so that a look should last a little.
    pub(crate) fn looks_once(self) -> bool {
        matches!(self, Self::Mpich(major) if major >= 5)
    }

    /// Whether one read may end only one receive of a message without a tag: MPICH 5 handles such a message within the
    /// list of entries that it has read, and reads that list again then.
    pub(crate) fn takes_one_untagged(self) -> bool {
        matches!(self, Self::Mpich(major) if major >= 5)
    }

    fn of_text(text: &str) -> Self {
        if text.starts_with("Open MPI") {
            return Self::Open;
        }
        let version = text.strip_prefix("MPICH Version:").map(str::trim_start);
        let major = version.and_then(|it| it.split(|c: char| !c.is_ascii_digit()).next());
        major.and_then(|major| major.parse().ok()).map_or(Self::None, Self::Mpich)
    }
}

/// The MPI in this process.
pub(crate) fn mpi() -> Mpi {
    static MPI: OnceLock<Mpi> = OnceLock::new();
    *MPI.get_or_init(|| match find() {
        None => Mpi::None,
        Some(function) => {
            let mut text = [0; VERSION_BYTES_MAX];
            let mut length: c_int = 0;
            // SAFETY: MPI's own function, which may be called at any time; the text has the length that MPI demands.
            unsafe { function(text.as_mut_ptr(), &raw mut length) };
            text[VERSION_BYTES_MAX - 1] = 0;
            // SAFETY: it ends with a zero.
            let text = unsafe { CStr::from_ptr(text.as_ptr()) };
            Mpi::of_text(text.to_str().unwrap_or_default())
        }
    })
}

type GetLibraryVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

const SYMBOL: &CStr = c"MPI_Get_library_version";

/// The function with which an MPI says what it is: of the whole program, or of a library that was loaded for one module
/// only, as Python does.
fn find() -> Option<GetLibraryVersion> {
    let of_all = symbol_of(libc::RTLD_DEFAULT);
    of_all.or_else(|| libraries().iter().find_map(|name| in_library(name)))
}

/// Loaded libraries that may be an MPI's.
fn libraries() -> Vec<CString> {
    let mut found = Vec::<CString>::new();
    let at = (&raw mut found).cast::<c_void>();
    // SAFETY: the callback gets the vector, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(note), at) };
    found
}

/// Notes a loaded library that may be an MPI's. Nothing can be opened here: the loader's lists are locked.
unsafe extern "C" fn note(library: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a library.
    let name = unsafe { &raw const (*library).dlpi_name };
    // SAFETY: as above.
    let name = unsafe { name.read() };
    if name.is_null() {
        return 0;
    }
    // SAFETY: the loader's names end with a zero.
    let path = unsafe { CStr::from_ptr(name) };
    let file = path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if file.starts_with(b"libmpi") {
        // SAFETY: the vector of `libraries`.
        unsafe { &mut *found.cast::<Vec<CString>>() }.push(path.to_owned());
    }
    0
}

/// The function in a library, if that is loaded still.
fn in_library(name: &CStr) -> Option<GetLibraryVersion> {
    // SAFETY: loads nothing, and runs nothing.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    let symbol = symbol_of(library);
    // SAFETY: it was opened above.
    unsafe { libc::dlclose(library) };
    symbol
}

fn symbol_of(library: *mut c_void) -> Option<GetLibraryVersion> {
    // SAFETY: a name that ends with a zero.
    let symbol = unsafe { libc::dlsym(library, SYMBOL.as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: the function has these arguments in every MPI.
    Some(unsafe { std::mem::transmute::<*mut c_void, GetLibraryVersion>(symbol) })
}

/// Number of processors of this machine. The process itself may be bound to one of them, as its peers to others.
pub(crate) fn processors() -> usize {
    // SAFETY: asks for a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// What an endpoint keeps of messages that no receive asks for: as much as this machine's memory. MPI programs rely on
/// it that they find a later message of the same sender.
pub(crate) fn memory_bytes() -> usize {
    // SAFETY: asks for numbers.
    let [pages, page] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    let [pages, page] = [pages, page].map(|number| usize::try_from(number).unwrap_or(0));
    pages.saturating_mul(page).max(KEPT_BYTES)
}

/// Tells of an error that ends the program's use of the provider, if it chose this provider or asks for messages.
pub(crate) fn warn(error: &dyn Display) {
    let is_chosen = std::env::var("FI_PROVIDER").is_ok_and(|names| names.contains("corewire"));
    if is_chosen || std::env::var_os("FI_LOG_LEVEL").is_some() {
        let _ = writeln!(std::io::stderr(), "corewire: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpis_are_known_by_their_texts() {
        let of = Mpi::of_text;
        assert_eq!(of("MPICH Version:      5.0.2\nMPICH Release date: ..."), Mpi::Mpich(5));
        assert_eq!(of("MPICH Version:\t4.2.3"), Mpi::Mpich(4));
        assert_eq!(of("Open MPI v4.1.4, package: Debian OpenMPI"), Mpi::Open);
        assert_eq!(of("Intel(R) MPI Library 2021.18 for Linux* OS"), Mpi::None);
        assert_eq!(of(""), Mpi::None);
        assert!(
            of("MPICH Version: 5.0").yields_itself() && !of("MPICH Version: 4.2").yields_itself()
        );
    }

    #[test]
    fn a_program_without_mpi_has_none() {
        assert_eq!(mpi(), Mpi::None);
    }
}
