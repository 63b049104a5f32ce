//! Binding, enabling and closing an endpoint.

use core::ffi::{c_int, c_void};

use corewire_ofi::errors::FI_EDOMAIN;
use corewire_ofi::fid::{
    FI_CLASS_AV, FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_ENABLE, FI_GETOPSFLAG, FI_SETOPSFLAG,
    Fid, Ops,
};
use corewire_ofi::flags::{
    FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SELECTIVE_COMPLETION, FI_SEND, FI_WRITE,
};

use super::{Ep, receive, send};
use crate::av::Av;
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::eq::Eq;
use crate::errors::{
    BAD_FLAGS, BAD_STATE, Errno, INVALID, NO_SYSTEM_CALL, NOT_SUPPORTED, Outcome, status,
};
use crate::member::Bound;
use crate::memory::{get, put};
use crate::object::{self, Link, class_of, enter, linked};
use crate::refusals::ops;

pub(super) static OPS: Ops = ops(close, bind, control);

/// Which counters an endpoint may have.
const COUNTED: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
/// Peers access memory without this endpoint, so that nothing counts that.
const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let close = || {
        // SAFETY: the program passes one of its objects.
        let mut endpoint = unsafe { enter::<Ep>(fid.cast()) }?;
        let me = endpoint.link();
        endpoint.leave(me);
        object::close(endpoint);
        Ok(())
    };
    status(close())
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    let bind = || {
        // SAFETY: the program passes one of its objects.
        let mut endpoint = unsafe { enter::<Ep>(fid.cast()) }?;
        let me = endpoint.link();
        // SAFETY: as above.
        let class = unsafe { class_of(other) };
        if endpoint.endpoint.is_some() && class != FI_CLASS_EQ {
            return Err(BAD_STATE);
        }
        match class {
            // SAFETY: as above.
            FI_CLASS_CQ => endpoint.bind_cq(me, unsafe { linked(other) }?, flags),
            // SAFETY: as above.
            FI_CLASS_CNTR => endpoint.bind_cntr(me, unsafe { linked(other) }?, flags),
            // SAFETY: as above.
            FI_CLASS_AV => endpoint.bind_av(me, unsafe { linked(other) }?, flags),
            FI_CLASS_EQ => {
                // SAFETY: as above. Nothing happens that an endpoint would report there.
                unsafe { linked::<Eq>(other) }?;
                if flags == 0 { Ok(()) } else { Err(BAD_FLAGS) }
            }
            _ => Err(INVALID),
        }
    };
    status(bind())
}

impl Ep {
    fn bind_cq(&mut self, me: Link<Self>, cq: Link<Cq>, flags: u64) -> Outcome {
        let (sends, receives) = (flags & FI_SEND != 0, flags & FI_RECV != 0);
        if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 {
            return Err(BAD_FLAGS);
        }
        if (sends && self.ends.tx.is_some())
            || (receives && self.ends.rx.is_some())
            || !(sends || receives)
        {
            return Err(INVALID);
        }
        // SAFETY: the domain of an open object does not change.
        if unsafe { cq.get() }.domain != self.setting.domain {
            return Err(Errno(FI_EDOMAIN));
        }
        let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
        if sends {
            self.ends.tx = Some(cq);
            self.sending = send::Manner::new(is_selective, self.setting.tx_op_flags);
        }
        if receives {
            self.ends.rx = Some(cq);
            self.receiving = receive::Manner::new(is_selective, self.setting.rx_op_flags);
        }
        // SAFETY: the gate of the domain is that of its queues.
        unsafe { cq.get() }.bind(Bound::new(me.body()));
        Ok(())
    }

    fn bind_cntr(&mut self, me: Link<Self>, cntr: Link<Cntr>, flags: u64) -> Outcome {
        let (sends, receives) = (flags & FI_SEND != 0, flags & FI_RECV != 0);
        if flags & !(COUNTED | REMOTE) != 0 {
            return Err(BAD_FLAGS);
        }
        if flags & REMOTE != 0 {
            return Err(NOT_SUPPORTED);
        }
        let (reads, writes) = (flags & FI_READ != 0, flags & FI_WRITE != 0);
        if (sends && self.ends.tx_counter.is_some())
            || (receives && self.ends.rx_counter.is_some())
            || (reads && self.ends.read_counter.is_some())
            || (writes && self.ends.write_counter.is_some())
            || flags == 0
        {
            return Err(INVALID);
        }
        // SAFETY: the domain of an open object does not change.
        if unsafe { cntr.get() }.domain != self.setting.domain {
            return Err(Errno(FI_EDOMAIN));
        }
        if sends {
            self.ends.tx_counter = Some(cntr);
        }
        if receives {
            self.ends.rx_counter = Some(cntr);
        }
        if reads {
            self.ends.read_counter = Some(cntr);
        }
        if writes {
            self.ends.write_counter = Some(cntr);
        }
        // SAFETY: the gate of the domain is that of its counters.
        unsafe { cntr.get() }.bind(Bound::member(me));
        Ok(())
    }

    fn bind_av(&mut self, me: Link<Self>, av: Link<Av>, flags: u64) -> Outcome {
        if flags != 0 {
            return Err(BAD_FLAGS);
        }
        if self.setting.av.is_some() {
            return Err(INVALID);
        }
        // SAFETY: the domain of an open object does not change.
        if unsafe { av.share() }.domain != self.setting.domain {
            return Err(Errno(FI_EDOMAIN));
        }
        // SAFETY: the gate of the domain is that of its address vectors.
        let addresses = unsafe { av.share() }.bind(Bound::member(me));
        self.setting.av = Some((av, addresses));
        Ok(())
    }

    /// The flags of calls without flags, of one direction.
    fn op_flags(&mut self, flags: u64) -> Outcome<&mut u64> {
        match flags & (FI_SEND | FI_RECV) {
            FI_SEND => Ok(&mut self.setting.tx_op_flags),
            FI_RECV => Ok(&mut self.setting.rx_op_flags),
            _ => Err(INVALID),
        }
    }

    fn get_op_flags(&mut self, argument: *mut u64) -> Outcome {
        // SAFETY: the program passes a number, in which it says the direction.
        let direction = unsafe { get(argument.cast_const()) }?;
        let flags = *self.op_flags(direction)?;
        // SAFETY: as above.
        unsafe { put(argument, flags) }
    }

    fn set_op_flags(&mut self, argument: *mut u64) -> Outcome {
        // SAFETY: the program passes a number.
        let given = unsafe { get(argument.cast_const()) }?;
        let flags = given & !(FI_SEND | FI_RECV);
        let known = if given & FI_SEND != 0 { send::FLAGS } else { receive::FLAGS };
        if flags & !known != 0 {
            return Err(BAD_FLAGS);
        }
        *self.op_flags(given)? = flags;
        if given & FI_SEND != 0 {
            self.sending = send::Manner::new(self.sending.is_selective, flags);
        } else {
            self.receiving = receive::Manner::new(self.receiving.is_selective, flags);
        }
        Ok(())
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    let control = || {
        // SAFETY: the program passes one of its objects.
        let mut endpoint = unsafe { enter::<Ep>(fid.cast()) }?;
        match command {
            FI_ENABLE => endpoint.enable(),
            FI_GETOPSFLAG => endpoint.get_op_flags(argument.cast()),
            FI_SETOPSFLAG => endpoint.set_op_flags(argument.cast()),
            _ => Err(NO_SYSTEM_CALL),
        }
    };
    status(control())
}
