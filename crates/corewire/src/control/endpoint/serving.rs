//! What peers ask an endpoint for.

use std::os::fd::AsFd;

use corewire_layout::frame::{Frame, Reason};
use corewire_os::fork::Descriptor;
use corewire_os::memory::text_for_peer;

use super::EndpointControl;
#[cfg(feature = "net")]
use crate::control::frames::EAGAIN;
use crate::control::reachable::{Reachable, Visitor};
use crate::halves::EndpointHalf;

impl Reachable for EndpointControl {
    fn serve(&self, at: &dyn Visitor, request: Frame, descriptors: Vec<Descriptor>) -> bool {
        match request {
            Frame::Pair { row, reservation, incarnation, target, .. }
                if target == self.incarnation() =>
            {
                // From here on the endpoint watches the socket.
                at.unwatch();
                let requester = (row, reservation, incarnation);
                match self.accept_link(requester, at.socket(), at.peer(), descriptors) {
                    Ok(()) => false,
                    Err(reason) => at.refuse(reason),
                }
            }
            Frame::Pair { .. } => at.refuse(Reason::NotFound),
            #[cfg(feature = "net")]
            Frame::Dialled { name, is_tls } if !at.is_foreign() => {
                let preface = corewire_layout::net::Preface { is_tls, wanted: name };
                let mut descriptors = descriptors.into_iter();
                match descriptors.next().map(|stream| self.network().has_taken(stream, preface)) {
                    Some(true) => at.answered(at.socket().send(&Frame::Done, &[])),
                    Some(false) => at.refuse(Reason::Resources { errno: EAGAIN.unsigned_abs() }),
                    None => at.refuse(Reason::Malformed),
                }
            }
            _ if at.is_foreign() => at.refuse(Reason::NotForGuests),
            // It is observed.
            _ => at.answered(text_for_peer(&self.list_peers()).and_then(|peers| {
                let descriptors = [self.segment().as_fd(), peers.as_fd()];
                at.socket().send(&Frame::ObservedEndpoint, &descriptors)
            })),
        }
    }
}
