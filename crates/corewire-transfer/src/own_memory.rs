//! What this process may do with its own memory, where only the kernel knows.

use std::io;

use corewire_layout::PAGE_BYTES;
use corewire_layout::rendezvous::Stretch;
use libc::{c_ulong, iovec};

use crate::walks::vector_of;

/// Whether all these stretches of this process's memory can be read now, page by page. True if the kernel does not say.
///
/// A copy of memory that its owner has unmapped would end the process; this call says so before.
#[must_use]
pub fn is_readable(stretches: &[Stretch]) -> bool {
    let page = PAGE_BYTES as u64;
    let pages = stretches.iter().filter(|stretch| stretch.bytes > 0).flat_map(|stretch| {
        let last = stretch.address.saturating_add(stretch.bytes - 1);
        let others = (stretch.address / page + 1..=last / page).map(move |number| number * page);
        std::iter::once(stretch.address).chain(others)
    });
    let mut pages = pages.map(|address| vector_of(Stretch { address, bytes: 1 }));
    let mut found = [0u8; PROBED_AT_A_TIME];
    loop {
        let remote: Vec<iovec> = pages.by_ref().take(PROBED_AT_A_TIME).collect();
        if remote.is_empty() {
            return true;
        }
        let local = iovec { iov_base: found.as_mut_ptr().cast(), iov_len: remote.len() };
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        // SAFETY: the local stretch is an array that is long enough; the kernel checks the remote ones.
        let read = unsafe {
            libc::process_vm_readv(
                pid,
                &raw const local,
                1,
                remote.as_ptr(),
                remote.len() as c_ulong,
                0,
            )
        };
        match usize::try_from(read) {
            Ok(read) if read < remote.len() => return false,
            Ok(_) => {}
            Err(_) => return io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT),
        }
    }
}

/// Whether a stretch of this process's memory can be written now. True if the kernel does not say (before Linux 5.14).
///
/// A store to memory that is not mapped, or only to be read, would end the process; this call says so before. Nothing is
/// changed.
#[must_use]
pub fn is_writable(stretch: Stretch) -> bool {
    let populate = |stretch: Stretch| {
        let begin = stretch.address & !(PAGE_BYTES as u64 - 1);
        let bytes = stretch.address.saturating_add(stretch.bytes).saturating_sub(begin);
        let at = vector_of(Stretch { address: begin, bytes });
        // SAFETY: the call changes no byte: it makes the kernel map pages as a store would.
        unsafe { libc::madvise(at.iov_base, at.iov_len, libc::MADV_POPULATE_WRITE) == 0 }
    };
    let own = 0u8;
    let is_known =
        || populate(Stretch { address: (&raw const own).expose_provenance() as u64, bytes: 1 });
    stretch.bytes == 0 || populate(stretch) || !is_known()
}

/// Pages that one call asks for.
const PROBED_AT_A_TIME: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_known() {
        static CONSTANT: [u64; 1024] = [7; 1024];
        let mut own = vec![1u8; 10_000];
        let written =
            Stretch { address: own.as_mut_ptr().expose_provenance() as u64, bytes: 10_000 };
        assert!(is_writable(written));
        assert_eq!(own, [1; 10_000]);
        let address = (&raw const CONSTANT).expose_provenance() as u64;
        assert!(!is_writable(Stretch { address, bytes: 8192 }), "only to be read");
        assert!(is_readable(&[Stretch { address, bytes: 8192 }]));
        assert!(!is_writable(Stretch { address: 4096, bytes: 1 }), "not mapped");
    }
}
