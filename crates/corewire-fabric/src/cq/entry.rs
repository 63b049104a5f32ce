//! Entries: their formats, and those that wait.

use core::ffi::{c_int, c_void};

use corewire_ofi::cq::{
    DataEntry, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG, MsgEntry, TaggedEntry,
};

use super::errors::Failure;
use super::source::Source;
use crate::member::Bound;

/// An entry that waits.
pub(crate) enum Item {
    /// Of an operation that succeeded.
    Done { entry: TaggedEntry, source: Source },
    /// Of one that failed.
    Failed(Box<Failure>),
}

impl Item {
    /// An endpoint is being closed: its peers cannot be looked up any more.
    pub(crate) fn forget<T: ?Sized>(&mut self, endpoint: Bound<T>) {
        if let Self::Done { source, .. } = self
            && let Source::Unknown(_, of) = source
            && of.is(endpoint)
        {
            *source = Source::None;
        }
    }
}

/// How entries are written into the program's array.
pub(crate) trait Format {
    /// Length of an entry.
    fn bytes(format: c_int) -> usize;

    /// Whether it is the format with tags.
    const IS_TAGGED: bool;

    /// Writes an entry.
    ///
    /// # Safety
    /// There is room for one at `at`.
    unsafe fn write(format: c_int, at: *mut c_void, entry: &TaggedEntry);
}

/// The format with tags, which every MPI asks for.
pub(crate) struct Tagged;

impl Format for Tagged {
    const IS_TAGGED: bool = true;

    #[inline(always)]
    fn bytes(_: c_int) -> usize {
        size_of::<TaggedEntry>()
    }

    #[inline(always)]
    unsafe fn write(_: c_int, at: *mut c_void, entry: &TaggedEntry) {
        // SAFETY: the caller guarantees that.
        unsafe { at.cast::<TaggedEntry>().write(*entry) };
    }
}

/// The other formats.
pub(crate) struct Shorter;

impl Format for Shorter {
    const IS_TAGGED: bool = false;

    fn bytes(format: c_int) -> usize {
        match format {
            FI_CQ_FORMAT_CONTEXT => size_of::<*mut c_void>(),
            FI_CQ_FORMAT_MSG => size_of::<MsgEntry>(),
            FI_CQ_FORMAT_DATA => size_of::<DataEntry>(),
            _ => size_of::<TaggedEntry>(),
        }
    }

    unsafe fn write(format: c_int, at: *mut c_void, entry: &TaggedEntry) {
        // Each format is the beginning of the next one.
        let source = std::ptr::from_ref(entry).cast::<u8>();
        // SAFETY: the caller guarantees the room; an entry is at least as long.
        unsafe { source.copy_to(at.cast(), Self::bytes(format)) };
    }
}

#[cfg(test)]
mod tests {
    use corewire_ofi::cq::FI_CQ_FORMAT_TAGGED;

    use super::*;

    #[test]
    fn each_format_is_the_beginning_of_the_next() {
        let words = |count: usize| (count, vec![1u64, 2, 3, 4, 5, 6][..count].to_vec());
        let entry = TaggedEntry {
            op_context: std::ptr::without_provenance_mut(1),
            flags: 2,
            len: 3,
            buf: std::ptr::without_provenance_mut(4),
            data: 5,
            tag: 6,
        };
        let formats = [
            (FI_CQ_FORMAT_CONTEXT, 1),
            (FI_CQ_FORMAT_MSG, 3),
            (FI_CQ_FORMAT_DATA, 5),
            (FI_CQ_FORMAT_TAGGED, 6),
        ];
        for (format, count) in formats {
            let mut room = [0u64; 6];
            // SAFETY: there is room for the longest entry.
            unsafe { Shorter::write(format, room.as_mut_ptr().cast(), &entry) };
            assert_eq!((Shorter::bytes(format) / 8, room[..count].to_vec()), words(count));
            assert!(room[count..].iter().all(|&word| word == 0), "nothing beyond the entry");
        }
    }
}
