//! `fi_cq_readerr`.

use corewire_ofi::cq::{ERR_ENTRY_BYTES_BEFORE_1_20, ErrEntry};
use corewire_ofi::errors::FI_ECANCELED;

use super::{Cq, Item};
use crate::errors::{AGAIN, INVALID, Outcome};
use crate::limits::ERROR_BYTES_MAX;
use crate::memory::copy_text;

impl Cq {
    /// `fi_cq_readerr`: the failure at the head of the queue.
    ///
    /// # Safety
    /// `target` is null or an error entry of the version for which the program was compiled.
    pub(super) unsafe fn read_error(&mut self, target: *mut ErrEntry) -> Outcome<isize> {
        if target.is_null() {
            return Err(INVALID);
        }
        let Some(Item::Failed(failure)) = self.queue.items.front() else { return Err(AGAIN) };
        let (mut entry, text) = (failure.entry, failure.text.clone());
        self.queue.items.pop_front();
        self.text = text;
        let bytes = self.text.as_bytes_with_nul().len();
        // SAFETY: the caller guarantees that it is an entry.
        let given = unsafe { (*target).err_data };
        // SAFETY: as above.
        let room = unsafe { (*target).err_data_size };
        // A program knows why an operation was cancelled, and may have said nothing about room.
        if bytes > 1 && entry.err != FI_ECANCELED {
            let is_room = self.api_version >= corewire_ofi::version(1, 5) && room > 0;
            if is_room && !given.is_null() {
                // SAFETY: the program says so many bytes of room there.
                unsafe { copy_text(&self.text, given.cast(), room) };
                (entry.err_data, entry.err_data_size) = (given, bytes.min(room));
            } else {
                // Until the next read.
                entry.err_data = self.text.as_ptr().cast_mut().cast();
                entry.err_data_size = bytes.min(ERROR_BYTES_MAX);
            }
        }
        let has_source = self.api_version >= corewire_ofi::version(1, 20);
        let length = if has_source { size_of::<ErrEntry>() } else { ERR_ENTRY_BYTES_BEFORE_1_20 };
        let source = (&raw const entry).cast::<u8>();
        // SAFETY: the program's entry has this length.
        unsafe { source.copy_to(target.cast(), length) };
        Ok(1)
    }
}
