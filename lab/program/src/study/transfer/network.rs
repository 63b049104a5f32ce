//! A network interface: libfabric over TCP through the loopback interface stands for it, where libfabric is installed. There
//! is no card that moves the bytes: the kernel copies them into and out of sockets, and an access makes progress only
//! while the process whose memory it is calls libfabric (II-E is about a card that needs neither).

use corewire_transfer::mechanisms::Role;

use super::arena::Place;
use super::fabric::{Fabric, Registered};
use super::operations::Operations;
use super::pair::Pair;
use crate::study::failure::Failure;

/// One side. The registration is declared first, to end before what it belongs to.
pub(super) struct Network {
    registered: Registered,
    fabric: Fabric,
    local: Role,
    /// The other side's memory: its address, or 0, and its key.
    other: (u64, u64),
    /// The buffers of this side and of the other one.
    now: Option<(Place, u64)>,
    has_begun: bool,
    transfers: u64,
}

impl Network {
    /// Opens an endpoint, registers all buffers, and tells the other side. A put is begun by the source, a get by the
    /// target.
    pub(super) fn open(pair: &mut Pair<'_>, local: Role) -> Result<Result<Self, String>, Failure> {
        let opened = Fabric::open().and_then(|(mut fabric, address)| {
            let whole = pair.private.whole();
            let registered = fabric.register(pair.private.start(whole), whole.bytes);
            Ok((registered.map_err(|failure| failure.message)?, fabric, address))
        });
        let is_open = pair.agree(opened.is_ok())?;
        let (registered, mut fabric, address) = match opened {
            Ok(opened) if is_open => opened,
            Ok(_) => return Ok(Err("the other process has no network".to_owned())),
            Err(why) => return Ok(Err(why)),
        };
        let base = match fabric.has_addresses {
            true => pair.private.start(pair.private.whole()).as_ptr().expose_provenance() as u64,
            false => 0,
        };
        let mut note = [base.to_le_bytes(), registered.key.to_le_bytes()].concat();
        note.extend(address);
        let note = pair.swap_notes(&note)?;
        let word = |at: usize| note.get(at..).and_then(|rest| rest.first_chunk::<8>().copied());
        let other = (word(0).map(u64::from_le_bytes), word(8).map(u64::from_le_bytes));
        let (Some(base), Some(key)) = other else {
            return Err(Failure::other("the other process told no address"));
        };
        if let Err(failure) = fabric.connect(&note[16..]) {
            return Ok(Err(failure.message));
        }
        let (other, now, has_begun, transfers) = ((base, key), None, false, 0);
        Ok(Ok(Self { registered, fabric, local, other, now, has_begun, transfers }))
    }
}

impl Operations for Network {
    fn local(&self) -> Role {
        self.local
    }

    fn register(&mut self, pair: &mut Pair<'_>, place: Place) -> Result<(), Failure> {
        self.now = Some((place, pair.swap_numbers(place.at as u64)?));
        self.transfers = pair.count_transfer();
        Ok(())
    }

    fn deregister(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        self.now = None;
        Ok(())
    }

    #[inline(always)]
    fn copy_local(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        if !self.has_begun {
            self.begin(pair)?;
        }
        self.has_begun = false;
        let mut looks = 0u32;
        while !self.fabric.progress()? {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 12) && pair.peer.has_ended() {
                return Err(Failure::other("the other process has ended"));
            }
        }
        pair.say_done(self.transfers);
        Ok(())
    }

    #[inline(always)]
    fn copy_remote(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        let mut looks = 0u32;
        while !pair.has_done(self.transfers) {
            self.fabric.progress()?;
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 12) && pair.peer.has_ended() {
                return Err(Failure::other("the other process has ended"));
            }
        }
        Ok(())
    }

    fn begin(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        let Some((place, there)) = self.now.filter(|_| self.local == pair.role) else {
            return Ok(());
        };
        let start = pair.private.start(place);
        let (base, key) = self.other;
        let is_put = self.local == Role::Source;
        let Self { fabric, registered, .. } = self;
        fabric.begin(is_put, (start, place.bytes), registered, (base + there, key))?;
        self.has_begun = true;
        Ok(())
    }
}
