//! How an endpoint begins: opened, bound, enabled.

use core::ffi::c_void;

use corewire::{Domain, Endpoint, EndpointError};
use corewire_ofi::endpoint::FidEp;
use corewire_ofi::errors::{FI_EADDRINUSE, FI_ENOAV, FI_ENOCQ};
use corewire_ofi::flags::{FI_DIRECTED_RECV, FI_RECV, FI_RMA, FI_SEND, FI_SOURCE};
use corewire_ofi::info::{FI_EP_RDM, FI_EP_UNSPEC, Info};

use super::ends::Ends;
use super::{Ep, Setting, atomic, cm, msg, options, receive, rma, send, tagged};
use crate::address::{ADDRESS_BYTES, Address};
use crate::domain::DomainLink;
use crate::errors::{BAD_STATE, Errno, INVALID, NO_DATA, NOT_SUPPORTED, Outcome, of_endpoint};
use crate::limits::{FLUSH, MULTI_RECV_LEAST_BYTES};
use crate::member::{Bound, Member};
use crate::memory::{get, put};
use crate::object::{self, Link, fid_of};
use crate::{at_exit, directory, getinfo, host, names};

/// Peers of an endpoint at most: as many as corewire allows, since programs may insert addresses at any time.
const PEERS_MAX: usize = 1024;

/// `fi_endpoint`.
///
/// # Safety
/// The pointers are what the program passed: attributes that `fi_getinfo` returned, and room for a pointer.
pub(crate) unsafe fn open(
    domain: DomainLink,
    info: *mut Info,
    endpoint: *mut *mut FidEp,
    context: *mut c_void,
) -> Outcome {
    // SAFETY: the caller guarantees that.
    let info = unsafe { get(info.cast_const()) }?;
    if !info.ep_attr.is_null() {
        // SAFETY: as above.
        let attr = unsafe { get(info.ep_attr.cast_const()) }?;
        if !matches!(attr.kind, FI_EP_UNSPEC | FI_EP_RDM) {
            return Err(INVALID);
        }
        if attr.tx_ctx_cnt > 1 || attr.rx_ctx_cnt > 1 {
            return Err(NOT_SUPPORTED);
        }
    }
    if info.caps & !getinfo::CAPS != 0 {
        return Err(NO_DATA);
    }
    let caps = if info.caps == 0 { getinfo::CAPS } else { getinfo::complete(info.caps) };
    let mut op_flags = [0; 2];
    if !info.tx_attr.is_null() {
        // SAFETY: as above.
        op_flags[0] = unsafe { get(info.tx_attr.cast_const()) }?.op_flags;
    }
    if !info.rx_attr.is_null() {
        // SAFETY: as above.
        op_flags[1] = unsafe { get(info.rx_attr.cast_const()) }?.op_flags;
    }
    let [tx_op_flags, rx_op_flags] = op_flags;
    let mut address = Address::ANY;
    if !info.src_addr.is_null() {
        if info.src_addrlen != ADDRESS_BYTES {
            return Err(INVALID);
        }
        // SAFETY: the caller guarantees that the address has this length.
        address = Address::parse_source(&unsafe { get(info.src_addr.cast_const().cast()) }?)?;
    }
    let is_fixed = address != Address::ANY;
    address = if is_fixed { address.of_name() } else { Address::new(&names::next(), None)? };
    // SAFETY: the caller has entered the domain.
    unsafe { domain.share() }.add();
    let ends = Ends {
        me: None,
        tx: None,
        rx: None,
        tx_counter: None,
        rx_counter: None,
        read_counter: None,
        write_counter: None,
        posted: 0,
        has_sources: caps & FI_SOURCE != 0,
    };
    let av = None;
    let setting = Setting { domain, av, caps, address, is_fixed, tx_op_flags, rx_op_flags };
    let body = Ep {
        endpoint: None,
        peers: Vec::new(),
        ends,
        sending: send::Manner::new(false, tx_op_flags),
        receiving: receive::Manner::new(false, rx_op_flags),
        is_directed: caps & FI_DIRECTED_RECV != 0,
        min_multi_recv: MULTI_RECV_LEAST_BYTES,
        setting,
    };
    let head = FidEp {
        fid: fid_of::<Ep>(context),
        ops: &options::OPS,
        cm: &cm::OPS,
        msg: msg::table(domain.gate()),
        rma: rma::table(domain.gate()),
        tagged: tagged::table(domain.gate()),
        atomic: atomic::table(domain.gate()),
        collective: std::ptr::null(),
    };
    let opened = object::open(head, domain.gate(), body);
    // SAFETY: it was just opened. The gate of its domain is entered already, and the link is only kept.
    let link = unsafe { object::linked::<Ep>(opened.cast()) }?;
    // SAFETY: nobody else knows the endpoint yet.
    unsafe { link.get() }.ends.me = Some(Bound::member(link));
    // SAFETY: the caller guarantees that there is room.
    unsafe { put(endpoint, opened) }
}

impl Ep {
    /// `fi_enable`: the endpoint can be reached from now on.
    pub(super) fn enable(&mut self) -> Outcome {
        if self.endpoint.is_some() {
            return Err(BAD_STATE);
        }
        if self.setting.av.is_none() {
            return Err(Errno(FI_ENOAV));
        }
        let (sends, receives) =
            (self.setting.caps & FI_SEND != 0, self.setting.caps & FI_RECV != 0);
        if (sends && self.ends.tx.is_none()) || (receives && self.ends.rx.is_none()) {
            return Err(Errno(FI_ENOCQ));
        }
        let mut endpoint = self.create(&directory::domain()?)?;
        // Data that comes with what peers write.
        endpoint.take_signals(self.setting.caps & FI_RMA != 0);
        for cq in [self.ends.tx, self.ends.rx].into_iter().flatten() {
            // SAFETY: the gate of the domain is that of its queues.
            unsafe { cq.get() }.watch(&endpoint)?;
        }
        for cntr in self.counters() {
            // SAFETY: as above, for counters.
            unsafe { cntr.get() }.watch(&endpoint)?;
        }
        self.setting.address = Address::new(endpoint.name(), Some(endpoint.incarnation()))?;
        self.endpoint = Some(endpoint);
        if let Some(me) = self.ends.me {
            // SAFETY: the gate of the domain is that of its endpoints.
            for (key, region) in unsafe { self.setting.domain.share() }.add_endpoint(me) {
                self.expose(key, &region)?;
            }
        }
        if let Some(me) = self.ends.me {
            at_exit::add(me, self.setting.domain.gate());
        }
        Ok(())
    }

    /// Creates it under its name, or under another one if that is taken and nobody knows it.
    fn create(&self, domain: &Domain) -> Outcome<Endpoint> {
        let mut name = self.setting.address.name().to_owned();
        loop {
            let builder = domain.endpoint(&name).peers(PEERS_MAX);
            match builder.budget(host::memory_bytes()).create() {
                Err(EndpointError::AlreadyExists(_)) if !self.setting.is_fixed => {
                    // A process of another PID namespace has the same number.
                    name = names::next();
                }
                Err(error) => {
                    let errno = of_endpoint(&error);
                    if errno != Errno(FI_EADDRINUSE) {
                        host::warn(&error);
                    }
                    return Err(errno);
                }
                Ok(endpoint) => return Ok(endpoint),
            }
        }
    }

    /// Its counters.
    pub(super) fn counters(&self) -> impl Iterator<Item = Link<crate::cntr::Cntr>> {
        let Ends { tx_counter, rx_counter, read_counter, write_counter, .. } = self.ends;
        let all = [tx_counter, rx_counter, read_counter, write_counter];
        // One may count several kinds.
        let is_first = move |index: &usize| !all[..*index].contains(&all[*index]);
        (0..all.len()).filter(is_first).filter_map(move |index| all[index])
    }

    /// Takes it out of everything that it is bound to, and closes it.
    pub(super) fn leave(&mut self, me: Link<Self>) {
        for cq in [self.ends.tx, self.ends.rx].into_iter().flatten() {
            // SAFETY: the gate of the domain is that of its queues.
            let cq = unsafe { cq.get() };
            if let Some(endpoint) = &self.endpoint {
                cq.unwatch(endpoint);
            }
            cq.unbind(Bound::new(me.body()));
        }
        for cntr in self.counters() {
            // SAFETY: as above, for counters.
            let cntr = unsafe { cntr.get() };
            if let Some(endpoint) = &self.endpoint {
                cntr.unwatch(endpoint);
            }
            cntr.unbind(Bound::member(me));
        }
        if let Some((av, _)) = &self.setting.av {
            // SAFETY: as above, for address vectors.
            unsafe { av.share() }.unbind(Bound::member(me));
        }
        at_exit::remove(Bound::member(me));
        // SAFETY: the gate of the domain is that of its endpoints.
        unsafe { self.setting.domain.share() }.remove_endpoint(Bound::member(me));
        self.finish(FLUSH);
        // SAFETY: the gate of the domain is that of its endpoints.
        unsafe { self.setting.domain.share() }.remove();
    }
}
