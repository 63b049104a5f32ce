//! What several parts do with frames and the errors of sockets.

use corewire_layout::frame::{Frame, Reason};
use corewire_layout::name::ChannelName;
use corewire_os::OsError;
use corewire_os::fork::Descriptor;
use corewire_os::socket::Socket;

/// Maximum number of requests of one socket per event, so that the control thread also handles other events.
pub(crate) const REQUESTS_PER_TURN: usize = 16;

/// EMFILE: this process has no free descriptor.
pub(crate) const EMFILE: u32 = 24;

/// EAGAIN: no connection waits to be accepted, or the peer's queue of connections is full.
pub(crate) const EAGAIN: i32 = 11;

pub(crate) fn is_out_of_descriptors(error: &OsError) -> bool {
    // EMFILE, ENFILE.
    matches!(error.errno, 24 | 23)
}

/// The refusal for a call that failed.
pub(crate) fn resources(error: &OsError) -> Reason {
    Reason::Resources { errno: error.errno.unsigned_abs() }
}

/// Sends an invitation to a waiter. False if the waiter has just died.
pub(crate) fn invite(socket: &Socket, name: &ChannelName, waiter: u128) -> Result<bool, OsError> {
    match socket.send(&Frame::Invite { name: name.clone(), waiter }, &[]) {
        Err(error) if error.is_hang_up() => Ok(false),
        sent => sent.map(|()| true),
    }
}

/// Removes the first descriptor of a request.
pub(crate) fn next_descriptor(descriptors: &mut Vec<Descriptor>) -> Option<Descriptor> {
    (!descriptors.is_empty()).then(|| descriptors.remove(0))
}
