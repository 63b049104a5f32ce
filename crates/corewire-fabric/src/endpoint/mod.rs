//! Endpoints.
//!
//! | file | holds |
//! |---|---|
//! | this one | the endpoint, and how it begins and ends |
//! | `send`, `receive`, `peek` | operations |
//! | `ends` | what becomes of an operation that has ended |
//! | `access` | access to a peer's memory |
//! | `msg`, `tagged`, `rma`, `atomic` | the calls of the data path |
//! | `bind`, `options`, `cm` | the other calls |

mod access;
mod atomic;
mod bind;
mod cm;
mod ends;
mod msg;
mod named;
mod open;
mod options;
mod peek;
mod receive;
mod rma;
mod send;
mod tagged;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use corewire::{Endpoint, MessageError, Peer};
use corewire_ofi::FiAddr;
use corewire_ofi::endpoint::FidEp;
use corewire_ofi::fid::{FI_CLASS_EP, Ops};

pub(crate) use self::atomic::query as query_atomic;
use self::ends::Ends;
pub(crate) use self::open::open;
pub(crate) use self::receive::FLAGS as RECEIVE_FLAGS;
pub(crate) use self::send::FLAGS as SEND_FLAGS;
use crate::address::Address;
use crate::av::{Addresses, Av};
use crate::cq::{Cq, Format, Queue, Reads, Shorter, Sink, Tagged};
use crate::domain::DomainLink;
use crate::errors::{BAD_STATE, NO_ADDRESS, Outcome, of_connect, of_message};
use crate::member::Member;
use crate::memory::Region;
use crate::names;
use crate::object::{Closed, Link, Object};

/// Ends that one call handles for queues that are not being read.
const ENDS_MAX: usize = 64;

/// An endpoint.
pub(crate) struct Ep {
    /// Once it is enabled.
    endpoint: Option<Endpoint>,
    /// The peers of the numbers that were used.
    peers: Vec<Option<Peer>>,
    /// Where the ends of its operations go.
    ends: Ends,
    /// How sends end whose calls have no flags.
    sending: send::Manner,
    /// How receives end whose calls have no flags.
    receiving: receive::Manner,
    /// A receive may name its source.
    is_directed: bool,
    min_multi_recv: usize,
    /// Everything that only rarer calls need.
    setting: Setting,
}

/// What an endpoint was made of.
struct Setting {
    domain: DomainLink,
    av: Option<(Link<Av>, Arc<Addresses>)>,
    caps: u64,
    address: Address,
    /// The program has seen or chosen the address.
    is_fixed: bool,
    tx_op_flags: u64,
    rx_op_flags: u64,
}

impl Object for Ep {
    type Head = FidEp;
    const CLASS: usize = FI_CLASS_EP;

    fn ops() -> &'static Ops {
        &bind::OPS
    }

    fn closed() -> &'static Closed<Self> {
        static CLOSED: Closed<Ep> = Closed::new();
        &CLOSED
    }
}

impl Ep {
    #[inline(always)]
    fn endpoint(&mut self) -> Outcome<&mut Endpoint> {
        self.endpoint.as_mut().ok_or(BAD_STATE)
    }

    /// The peer with this number.
    #[inline(always)]
    fn peer(&mut self, number: FiAddr) -> Outcome<Peer> {
        match usize::try_from(number).ok().and_then(|index| self.peers.get(index)) {
            Some(&Some(peer)) => Ok(peer),
            _ => self.find_peer(number),
        }
    }

    /// The peer with this number, which is named for the first time. Links with nobody.
    #[cold]
    #[inline(never)]
    fn find_peer(&mut self, number: FiAddr) -> Outcome<Peer> {
        let endpoint = self.endpoint.as_mut().ok_or(BAD_STATE)?;
        let (_, addresses) = self.setting.av.as_ref().ok_or(NO_ADDRESS)?;
        let address = addresses.get(number)?;
        let peer = endpoint
            .address(address.name(), address.incarnation())
            .map_err(|error| of_connect(&error))?;
        let first = addresses.number_of(address).unwrap_or(number);
        // One that has gone has none, but may have left messages.
        let _ = endpoint.set_label(peer, first + 1);
        let index = usize::try_from(number).map_err(|_| NO_ADDRESS)?;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
        Ok(peer)
    }

    /// Handles what has arrived, for a queue that is being read.
    #[inline(always)]
    fn poll<F: Format>(&mut self, queue: &mut Queue, me: Link<Cq>, sink: &mut Sink) -> Outcome {
        let Self { endpoint: Some(endpoint), ends, .. } = self else { return Ok(()) };
        match endpoint.poll(sink.left(), |end| ends.tell::<F>(end, queue, me, sink)) {
            Ok(_) => Ok(()),
            Err(error) => interrupted(&error),
        }
    }
}

impl Member for Ep {
    fn number_of(&mut self, peer: Peer) -> Option<FiAddr> {
        let endpoint = self.endpoint.as_mut()?;
        let (_, addresses) = self.setting.av.as_ref()?;
        let incarnation = endpoint.incarnation_of(peer);
        let address = Address::new(endpoint.name_of(peer)?, incarnation).ok()?;
        let number = addresses.number_of(address)?;
        // Not looked up again; if the peer has gone, there is nothing to look up.
        let _ = endpoint.set_label(peer, number + 1);
        Some(number)
    }

    fn expose(&mut self, key: u64, region: &Region) -> Outcome {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        let Region { memory, rights, origin } = region;
        let exposed = endpoint.expose_as(memory, *rights, Some(key), *origin);
        exposed.map(drop).map_err(|error| of_message(&error))
    }

    fn conceal(&mut self, key: u64) {
        if let Some(endpoint) = &mut self.endpoint {
            // In a forked child there is nothing to conceal.
            let _ = endpoint.conceal(key);
        }
    }

    fn forget(&mut self, number: FiAddr) {
        if let Some(row) = usize::try_from(number).ok().and_then(|at| self.peers.get_mut(at)) {
            *row = None;
        }
        let Some(endpoint) = &mut self.endpoint else { return };
        for peer in endpoint.peers().unwrap_or_default() {
            if endpoint.label_of(peer) == number + 1 {
                // Its next message is looked up again. A peer that has gone sends none.
                let _ = endpoint.set_label(peer, 0);
            }
        }
    }

    fn progress(&mut self) -> Outcome {
        let Self { endpoint: Some(endpoint), ends, .. } = self else { return Ok(()) };
        match endpoint.poll(ENDS_MAX, |end| ends.keep(&end)) {
            Ok(_) => Ok(()),
            Err(error) => interrupted(&error),
        }
    }

    fn arm(&mut self) -> Outcome<bool> {
        self.progress()?;
        let Some(endpoint) = &mut self.endpoint else { return Ok(true) };
        endpoint.arm().map_err(|error| of_message(&error))
    }

    fn has_posted(&self) -> bool {
        self.ends.posted > 0
    }

    fn add_processes(&mut self, processes: &mut HashSet<String>) {
        let Some(endpoint) = &mut self.endpoint else { return };
        processes.insert(names::process_of(endpoint.name()).to_owned());
        let peers = endpoint.peers().unwrap_or_default();
        let names = peers.iter().filter_map(|&peer| endpoint.name_of(peer));
        processes.extend(names.map(|name| names::process_of(name).to_owned()));
    }

    fn finish(&mut self, limit: Duration) {
        if let Some(mut endpoint) = self.endpoint.take() {
            let _ = endpoint.within(limit).flush();
        }
    }
}

impl Reads for Ep {
    fn poll_tagged(&mut self, queue: &mut Queue, me: Link<Cq>, sink: &mut Sink) -> Outcome {
        self.poll::<Tagged>(queue, me, sink)
    }

    fn poll_shorter(&mut self, queue: &mut Queue, me: Link<Cq>, sink: &mut Sink) -> Outcome {
        self.poll::<Shorter>(queue, me, sink)
    }
}

/// An interruption is nobody's here.
#[cold]
fn interrupted(error: &MessageError) -> Outcome {
    match error {
        MessageError::Interrupted => Ok(()),
        error => Err(of_message(error)),
    }
}
