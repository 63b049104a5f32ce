//! Errors of corewire as errors of libfabric.

use core::ffi::c_int;

use corewire::{AccessDenial, ConnectError, EndpointError, MessageError, OpenError};
use corewire_ofi::errors as fi;

/// A positive number of an error of libfabric. Calls return it negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

pub(crate) type Outcome<T = ()> = Result<T, Errno>;

pub(crate) const INVALID: Errno = Errno(fi::FI_EINVAL);
pub(crate) const NO_MEMORY: Errno = Errno(fi::FI_ENOMEM);
pub(crate) const NO_SYSTEM_CALL: Errno = Errno(fi::FI_ENOSYS);
pub(crate) const NOT_SUPPORTED: Errno = Errno(fi::FI_EOPNOTSUPP);
pub(crate) const BAD_FLAGS: Errno = Errno(fi::FI_EBADFLAGS);
pub(crate) const BAD_STATE: Errno = Errno(fi::FI_EOPBADSTATE);
pub(crate) const BUSY: Errno = Errno(fi::FI_EBUSY);
pub(crate) const AGAIN: Errno = Errno(fi::FI_EAGAIN);
pub(crate) const NO_DATA: Errno = Errno(fi::FI_ENODATA);
pub(crate) const IO: Errno = Errno(fi::FI_EIO);
pub(crate) const TOO_LONG: Errno = Errno(fi::FI_EMSGSIZE);
pub(crate) const NO_ADDRESS: Errno = Errno(fi::FI_EADDRNOTAVAIL);

impl Errno {
    /// What a call returns that returns a length.
    #[inline(always)]
    pub(crate) const fn negative(self) -> isize {
        -(self.0 as isize)
    }
}

/// What a call returns: 0, or the error.
#[inline(always)]
pub(crate) fn status(outcome: Outcome) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(error) => -error.0,
    }
}

/// What a call of the data path returns: 0, or the error.
#[inline(always)]
pub(crate) fn result(outcome: Outcome) -> isize {
    match outcome {
        Ok(()) => 0,
        Err(error) => error.negative(),
    }
}

/// How an operation of an endpoint failed.
pub(crate) fn of_message(error: &MessageError) -> Errno {
    Errno(match error {
        MessageError::PeerDied { .. }
        | MessageError::PeerLeft { .. }
        | MessageError::PeerLost { .. }
        | MessageError::PeerCutOff { .. }
        | MessageError::Forked
        | MessageError::Transport(_) => fi::FI_EIO,
        MessageError::UnknownPeer => fi::FI_EADDRNOTAVAIL,
        MessageError::UnknownOperation => fi::FI_ENOENT,
        MessageError::Full { .. }
        | MessageError::ReceiverFull { .. }
        | MessageError::Timeout { .. }
        | MessageError::Interrupted => fi::FI_EAGAIN,
        MessageError::BufferTooSmall { .. } | MessageError::Truncated { .. } => fi::FI_ETRUNC,
        MessageError::Cancelled => fi::FI_ECANCELED,
        MessageError::Unmapped => fi::FI_EFAULT,
        MessageError::Denied { denial, .. } => match denial {
            AccessDenial::Key => fi::FI_ENOKEY,
            AccessDenial::Rights => fi::FI_EACCES,
            AccessDenial::Bounds => fi::FI_EINVAL,
            _ => fi::FI_EFAULT,
        },
        MessageError::KeyInUse { .. } | MessageError::UnknownKey { .. } => fi::FI_ENOKEY,
        MessageError::PartsDiffer { .. } | MessageError::PartOfNumber { .. } => fi::FI_EINVAL,
        MessageError::NoMemory { .. } => fi::FI_ENOMEM,
        _ => fi::FI_EOTHER,
    })
}

/// Why an address cannot be used.
pub(crate) fn of_connect(error: &ConnectError) -> Errno {
    Errno(match error {
        ConnectError::Name(_) => fi::FI_EINVAL,
        ConnectError::Forked => fi::FI_EIO,
        ConnectError::NotFound(_) | ConnectError::NotCreated { .. } => fi::FI_EADDRNOTAVAIL,
        _ => fi::FI_EHOSTUNREACH,
    })
}

/// Why an endpoint was not created.
pub(crate) fn of_endpoint(error: &EndpointError) -> Errno {
    Errno(match error {
        EndpointError::AlreadyExists(_) => fi::FI_EADDRINUSE,
        EndpointError::Name(_) => fi::FI_EINVAL,
        EndpointError::Guest { .. } => fi::FI_EACCES,
        EndpointError::Os(error) => of_os(error.errno),
        EndpointError::Forked => fi::FI_EIO,
        _ => fi::FI_ENOMEM,
    })
}

/// Why the runtime directory was not opened.
pub(crate) fn of_open(error: &OpenError) -> Errno {
    Errno(match error {
        OpenError::Directory(_) | OpenError::Guest { .. } => fi::FI_EACCES,
        OpenError::Os(error) => of_os(error.errno),
        _ => fi::FI_EIO,
    })
}

/// An error of a system call, if libfabric has it under the same number.
fn of_os(errno: i32) -> i32 {
    if fi::text(errno).is_some() && errno > 0 { errno } else { fi::FI_EIO }
}
