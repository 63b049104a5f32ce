//! corewire's endpoints, used like in any program.

use std::time::Duration;

use corewire::{Domain, Endpoint, Peer, Selector};

use super::{Seat, TAG, Wire};
use crate::study::failure::{Doing, Failure};

/// Time for the other process to join.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Wired {
    endpoint: Endpoint,
    next: Peer,
    selector: Selector,
}

pub(super) fn settings() -> String {
    "as made without options: 64 slots a pair, 64 cells of 16 KiB, adaptive wait, rendezvous beyond 128 KiB".to_owned()
}

impl Wire for Wired {
    fn open(seat: &Seat) -> Result<Self, Failure> {
        let domain = Domain::open_at(&seat.directory.join("domain")).doing("open a domain")?;
        let name = |index: u32| format!("peer-{index}");
        let endpoint = domain.endpoint(&name(seat.index)).create();
        let mut endpoint = endpoint.doing("make an endpoint")?;
        let mut peer = |index| {
            let peer = endpoint.peer_when_created(&name(index), Some(PATIENCE));
            peer.doing("find another endpoint")
        };
        let (next, previous) = (peer(seat.next())?, peer(seat.previous())?);
        Ok(Self { endpoint, next, selector: Selector::tag(TAG).from(previous) })
    }

    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        self.endpoint.send(self.next, TAG, message).doing("send")
    }

    #[inline(always)]
    fn receive(&mut self, target: &mut [u8]) -> Result<(), Failure> {
        self.endpoint.receive_into(self.selector, target).doing("receive").map(drop)
    }
}
