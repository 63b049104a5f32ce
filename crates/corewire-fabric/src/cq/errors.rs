//! Operations that failed.

use core::ffi::c_void;
use std::ffi::CString;

use corewire::{MessageError, Status};
use corewire_ofi::FI_ADDR_NOTAVAIL;
use corewire_ofi::cq::ErrEntry;

use super::source::Source;
use crate::errors::{Errno, of_message};

/// An operation that failed.
pub(crate) struct Failure {
    pub(super) entry: ErrEntry,
    /// What has happened, for `fi_cq_strerror`: it names the peer.
    pub(super) text: CString,
}

impl Failure {
    /// The operation with this context and of this kind has failed.
    pub(crate) fn new(context: *mut c_void, flags: u64, error: &MessageError) -> Box<Self> {
        let mut failure = Self::plain(context, flags, of_message(error));
        failure.text = CString::new(error.to_string()).unwrap_or_default();
        if let MessageError::Truncated { status, given } = error {
            let Status { tag, bytes, immediate, .. } = *status;
            failure.entry.len = *given;
            failure.entry.olen =
                usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(*given);
            failure.entry.tag = tag;
            failure.entry.data = immediate.unwrap_or(0);
            if immediate.is_some() {
                failure.entry.flags |= corewire_ofi::flags::FI_REMOTE_CQ_DATA;
            }
        }
        failure
    }

    /// The same, without more to say about it than its number.
    pub(crate) fn plain(context: *mut c_void, flags: u64, error: Errno) -> Box<Self> {
        let entry = ErrEntry {
            op_context: context,
            flags,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: error.0,
            prov_errno: error.0,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
            src_addr: FI_ADDR_NOTAVAIL,
        };
        Box::new(Self { entry, text: CString::default() })
    }

    /// Sets where the memory is that was released.
    pub(crate) fn at(mut self: Box<Self>, buffer: *mut c_void) -> Box<Self> {
        self.entry.buf = buffer;
        self
    }

    /// Sets whose message it was.
    pub(crate) fn from(mut self: Box<Self>, source: Source) -> Box<Self> {
        if let Source::Known(number) = source {
            self.entry.src_addr = number;
        }
        self
    }
}
