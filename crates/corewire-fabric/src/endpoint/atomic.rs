//! The calls of atomic operations in a peer's memory.

use core::ffi::{c_int, c_void};

use corewire::{NumberChange, NumberKind, NumberRelation, RemoteChange, RemotePart};
use corewire_ofi::FiAddr;
use corewire_ofi::atomic::{self as fi, AtomicAttr, Ioc, MsgAtomic, OpsAtomic, RmaIoc};
use corewire_ofi::endpoint::FidEp;
use corewire_ofi::flags::{FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC};

use super::Ep;
use super::access::{Access, Operands, Parts};
use super::ends::Kind;
use super::named::{named, with};
use crate::errors::{BAD_FLAGS, INVALID, NOT_SUPPORTED, Outcome, TOO_LONG, status};
use crate::gate::Gate;
use crate::limits::{ATOMIC_BYTES_MAX, IOV_MAX};
use crate::memory::{Buffer, Buffers, get, put};

/// The calls of endpoints with this gate.
pub(super) fn table(gate: &Gate) -> &'static OpsAtomic<FidEp> {
    static OPEN: OpsAtomic<FidEp> = table_of::<false>();
    static LOCKED: OpsAtomic<FidEp> = table_of::<true>();
    if gate.is_locked() { &LOCKED } else { &OPEN }
}

const fn table_of<const LOCKED: bool>() -> OpsAtomic<FidEp> {
    OpsAtomic {
        size: size_of::<OpsAtomic<FidEp>>(),
        write: write::<LOCKED>,
        writev: writev::<LOCKED>,
        writemsg: writemsg::<LOCKED>,
        inject: inject::<LOCKED>,
        readwrite: readwrite::<LOCKED>,
        readwritev: readwritev::<LOCKED>,
        readwritemsg: readwritemsg::<LOCKED>,
        compwrite: compwrite::<LOCKED>,
        compwritev: compwritev::<LOCKED>,
        compwritemsg: compwritemsg::<LOCKED>,
        writevalid,
        readwritevalid,
        compwritevalid,
    }
}

/// Which calls there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Write,
    Fetch,
    Compare,
}

fn number_of(datatype: c_int) -> Option<NumberKind> {
    Some(match datatype {
        fi::FI_INT8 => NumberKind::I8,
        fi::FI_UINT8 => NumberKind::U8,
        fi::FI_INT16 => NumberKind::I16,
        fi::FI_UINT16 => NumberKind::U16,
        fi::FI_INT32 => NumberKind::I32,
        fi::FI_UINT32 => NumberKind::U32,
        fi::FI_INT64 => NumberKind::I64,
        fi::FI_UINT64 => NumberKind::U64,
        fi::FI_FLOAT => NumberKind::F32,
        fi::FI_DOUBLE => NumberKind::F64,
        _ => return None,
    })
}

/// What an operation is, if it is possible with this type and call.
fn change_of(call: Call, datatype: c_int, op: c_int) -> Option<RemoteChange> {
    let number = number_of(datatype)?;
    if call == Call::Compare {
        let relation = match op {
            fi::FI_CSWAP => NumberRelation::Equal,
            fi::FI_CSWAP_NE => NumberRelation::Unequal,
            fi::FI_CSWAP_LE => NumberRelation::AtMost,
            fi::FI_CSWAP_LT => NumberRelation::Less,
            fi::FI_CSWAP_GE => NumberRelation::AtLeast,
            fi::FI_CSWAP_GT => NumberRelation::Greater,
            fi::FI_MSWAP if !number.is_float() => return Some(RemoteChange::Mask(number)),
            _ => return None,
        };
        return Some(RemoteChange::Compare(relation, number));
    }
    let change = match op {
        fi::FI_MIN => NumberChange::Min,
        fi::FI_MAX => NumberChange::Max,
        fi::FI_SUM => NumberChange::Add,
        fi::FI_PROD => NumberChange::Multiply,
        fi::FI_LOR => NumberChange::LogicalOr,
        fi::FI_LAND => NumberChange::LogicalAnd,
        fi::FI_LXOR => NumberChange::LogicalXor,
        fi::FI_BOR => NumberChange::Or,
        fi::FI_BAND => NumberChange::And,
        fi::FI_BXOR => NumberChange::Xor,
        fi::FI_ATOMIC_WRITE => NumberChange::Replace,
        fi::FI_ATOMIC_READ if call == Call::Fetch => NumberChange::Keep,
        _ => return None,
    };
    change.is_of(number).then_some(match call {
        Call::Write => RemoteChange::Update(change, number),
        _ => RemoteChange::Fetch(change, number),
    })
}

/// How many values a call may have, and their size, if the operation is possible.
fn limits_of(call: Call, datatype: c_int, op: c_int) -> Outcome<AtomicAttr> {
    let number = change_of(call, datatype, op).and(number_of(datatype)).ok_or(NOT_SUPPORTED)?;
    Ok(AtomicAttr { count: ATOMIC_BYTES_MAX / number.bytes(), size: number.bytes() })
}

/// `fi_query_atomic`.
///
/// # Safety
/// `attr` is null or has room for attributes.
pub(crate) unsafe fn query(
    datatype: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> Outcome {
    let call = match flags {
        0 => Call::Write,
        FI_FETCH_ATOMIC => Call::Fetch,
        FI_COMPARE_ATOMIC => Call::Compare,
        _ => return Err(BAD_FLAGS),
    };
    // SAFETY: the caller guarantees that.
    unsafe { put(attr, limits_of(call, datatype, op)?) }
}

fn valid(call: Call, endpoint: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    let valid = || {
        // SAFETY: the program passes one of its objects.
        unsafe { named(endpoint) }?;
        let limits = limits_of(call, datatype, op)?;
        // SAFETY: the program passes room for a number.
        unsafe { put(count, limits.count) }
    };
    status(valid())
}

unsafe extern "C" fn writevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    valid(Call::Write, endpoint, datatype, op, count)
}

unsafe extern "C" fn readwritevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    valid(Call::Fetch, endpoint, datatype, op, count)
}

unsafe extern "C" fn compwritevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    valid(Call::Compare, endpoint, datatype, op, count)
}

/// What a call does, with which numbers.
#[derive(Clone, Copy)]
struct Operation {
    change: RemoteChange,
    width: usize,
}

impl Operation {
    fn new(call: Call, datatype: c_int, op: c_int) -> Outcome<Self> {
        let change = change_of(call, datatype, op).ok_or(NOT_SUPPORTED)?;
        let width = number_of(datatype).map_or(1, NumberKind::bytes);
        Ok(Self { change, width })
    }

    fn bytes(self, count: usize) -> Outcome<usize> {
        count.checked_mul(self.width).ok_or(TOO_LONG)
    }

    fn kind(self) -> Kind {
        if self.change.tells() { Kind::AtomicRead } else { Kind::AtomicWrite }
    }

    /// `count` values at one place. Not looked at if they are no operands of this operation.
    fn buffer(self, at: *const c_void, count: usize) -> Outcome<Buffers> {
        Ok(Buffers::one(Buffer::new(at, self.bytes(count)?)?))
    }

    /// Values that a program listed.
    ///
    /// # Safety
    /// `iov` is null or has `count` entries.
    unsafe fn buffers(self, iov: *const Ioc, count: usize) -> Outcome<Buffers> {
        if count > IOV_MAX || (iov.is_null() && count > 0) {
            return Err(INVALID);
        }
        let buffer = |index| {
            // SAFETY: the caller guarantees that there are `count` entries.
            let at = unsafe { iov.add(index) };
            // SAFETY: as above.
            let Ioc { addr, count } = unsafe { at.read() };
            Buffer::new(addr, self.bytes(count)?)
        };
        Buffers::listed((0..count).map(buffer))
    }

    /// The operands: none if the operation has none, whatever the program passes.
    ///
    /// # Safety
    /// As for [`buffers`](Self::buffers).
    unsafe fn operands(self, iov: *const Ioc, count: usize) -> Outcome<Buffers> {
        if self.change.operand_bytes(1) == 0 {
            return Ok(Buffers::one(Buffer::EMPTY));
        }
        // SAFETY: the caller guarantees that.
        unsafe { self.buffers(iov, count) }
    }

    /// The peer's values that a program listed.
    ///
    /// # Safety
    /// `iov` is null or has `count` entries.
    unsafe fn parts(self, iov: *const RmaIoc, count: usize) -> Outcome<Parts> {
        if count > IOV_MAX || (iov.is_null() && count > 0) {
            return Err(INVALID);
        }
        let mut parts = [RemotePart { key: 0, offset: 0, bytes: 0 }; IOV_MAX];
        for (index, part) in parts.iter_mut().enumerate().take(count) {
            // SAFETY: the caller guarantees that there are `count` entries.
            let at = unsafe { iov.add(index) };
            // SAFETY: as above.
            let RmaIoc { addr: offset, count, key } = unsafe { at.read() };
            *part = RemotePart { key, offset, bytes: self.bytes(count)? as u64 };
        }
        Parts::listed(parts[..count].iter().copied())
    }
}

const NONE: fn() -> Buffers = || Buffers::one(Buffer::EMPTY);

impl Ep {
    /// Carries out an operation whose values at the peer are in one place.
    fn change_at(
        &mut self,
        operation: Operation,
        (operands, compared, results): (Buffers, Buffers, Buffers),
        (key, offset): (u64, u64),
        bytes: usize,
        access: &Access,
    ) -> Outcome {
        let (operands, compared, results) = (&operands, &compared, &results);
        let buffers = Operands { operands, compared, results };
        self.change(operation.change, &buffers, &Parts::one(key, offset, bytes), access)
    }

    /// Carries out an operation as a message describes it.
    ///
    /// # Safety
    /// The message has as many entries as it says.
    unsafe fn change_listed(
        &mut self,
        (call, message, flags): (Call, MsgAtomic, u64),
        (compared, compared_count): (*const Ioc, usize),
        (results, results_count): (*const Ioc, usize),
    ) -> Outcome {
        let operation = Operation::new(call, message.datatype, message.op)?;
        // SAFETY: the caller guarantees that.
        let operands = unsafe { operation.operands(message.msg_iov, message.iov_count) }?;
        // SAFETY: as above.
        let compared = unsafe { operation.buffers(compared, compared_count) }?;
        // SAFETY: as above.
        let results = unsafe { operation.buffers(results, results_count) }?;
        // SAFETY: as above.
        let parts = unsafe { operation.parts(message.rma_iov, message.rma_iov_count) }?;
        let kind = operation.kind();
        let access = self.access_with(message.addr, message.context, kind, flags)?;
        let (operands, compared, results) = (&operands, &compared, &results);
        let buffers = Operands { operands, compared, results };
        self.change(operation.change, &buffers, &parts, &access)
    }
}

unsafe extern "C" fn write<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    count: usize,
    _: *mut c_void,
    to: FiAddr,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let operation = Operation::new(Call::Write, datatype, op)?;
        let operands = operation.buffer(buffer, count)?;
        let access = endpoint.access(to, context, operation.kind());
        let (bytes, buffers) = (operands.bytes, (operands, NONE(), NONE()));
        endpoint.change_at(operation, buffers, (key, offset), bytes, &access)
    })
}

unsafe extern "C" fn writev<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const Ioc,
    _: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let operation = Operation::new(Call::Write, datatype, op)?;
        // SAFETY: the program passes `count` entries.
        let operands = unsafe { operation.buffers(iov, count) }?;
        let access = endpoint.access(to, context, operation.kind());
        let (bytes, buffers) = (operands.bytes, (operands, NONE(), NONE()));
        endpoint.change_at(operation, buffers, (key, offset), bytes, &access)
    })
}

unsafe extern "C" fn writemsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const MsgAtomic,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let message = unsafe { get(message) }?;
        let none = (std::ptr::null(), 0);
        // SAFETY: the program passes as many entries as it says.
        unsafe { endpoint.change_listed((Call::Write, message, flags), none, none) }
    })
}

unsafe extern "C" fn inject<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    count: usize,
    to: FiAddr,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let operation = Operation::new(Call::Write, datatype, op)?;
        let operands = operation.buffer(buffer, count)?;
        let access = Access::silent(to, operation.kind());
        let (bytes, buffers) = (operands.bytes, (operands, NONE(), NONE()));
        endpoint.change_at(operation, buffers, (key, offset), bytes, &access)
    })
}

unsafe extern "C" fn readwrite<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    from: FiAddr,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let operation = Operation::new(Call::Fetch, datatype, op)?;
        let has_operands = operation.change.operand_bytes(1) > 0;
        let operands = if has_operands { operation.buffer(buffer, count)? } else { NONE() };
        let results = operation.buffer(result, count)?;
        let access = endpoint.access(from, context, operation.kind());
        let (bytes, buffers) = (results.bytes, (operands, NONE(), results));
        endpoint.change_at(operation, buffers, (key, offset), bytes, &access)
    })
}

unsafe extern "C" fn readwritev<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const Ioc,
    _: *mut *mut c_void,
    count: usize,
    results: *mut Ioc,
    _: *mut *mut c_void,
    results_count: usize,
    from: FiAddr,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let operation = Operation::new(Call::Fetch, datatype, op)?;
        // SAFETY: the program passes `count` entries.
        let operands = unsafe { operation.operands(iov, count) }?;
        // SAFETY: as above, for results.
        let results = unsafe { operation.buffers(results, results_count) }?;
        let access = endpoint.access(from, context, operation.kind());
        let (bytes, buffers) = (results.bytes, (operands, NONE(), results));
        endpoint.change_at(operation, buffers, (key, offset), bytes, &access)
    })
}

unsafe extern "C" fn readwritemsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const MsgAtomic,
    results: *mut Ioc,
    _: *mut *mut c_void,
    results_count: usize,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let message = unsafe { get(message) }?;
        let (none, results) = ((std::ptr::null(), 0), (results.cast_const(), results_count));
        // SAFETY: the program passes as many entries as it says.
        unsafe { endpoint.change_listed((Call::Fetch, message, flags), none, results) }
    })
}

unsafe extern "C" fn compwrite<const LOCKED: bool>(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    count: usize,
    _: *mut c_void,
    compared: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: FiAddr,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let operation = Operation::new(Call::Compare, datatype, op)?;
        let operands = operation.buffer(buffer, count)?;
        let compared = operation.buffer(compared, count)?;
        let results = operation.buffer(result, count)?;
        let access = endpoint.access(to, context, operation.kind());
        let (bytes, buffers) = (results.bytes, (operands, compared, results));
        endpoint.change_at(operation, buffers, (key, offset), bytes, &access)
    })
}

unsafe extern "C" fn compwritev<const LOCKED: bool>(
    endpoint: *mut FidEp,
    iov: *const Ioc,
    _: *mut *mut c_void,
    count: usize,
    compared: *const Ioc,
    _: *mut *mut c_void,
    compared_count: usize,
    results: *mut Ioc,
    _: *mut *mut c_void,
    results_count: usize,
    to: FiAddr,
    offset: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        let operation = Operation::new(Call::Compare, datatype, op)?;
        // SAFETY: the program passes `count` entries.
        let operands = unsafe { operation.buffers(iov, count) }?;
        // SAFETY: as above, for what is compared.
        let compared = unsafe { operation.buffers(compared, compared_count) }?;
        // SAFETY: as above, for results.
        let results = unsafe { operation.buffers(results, results_count) }?;
        let access = endpoint.access(to, context, operation.kind());
        let (bytes, buffers) = (results.bytes, (operands, compared, results));
        endpoint.change_at(operation, buffers, (key, offset), bytes, &access)
    })
}

unsafe extern "C" fn compwritemsg<const LOCKED: bool>(
    endpoint: *mut FidEp,
    message: *const MsgAtomic,
    compared: *const Ioc,
    _: *mut *mut c_void,
    compared_count: usize,
    results: *mut Ioc,
    _: *mut *mut c_void,
    results_count: usize,
    flags: u64,
) -> isize {
    with::<LOCKED>(endpoint, |endpoint| {
        // SAFETY: the program passes a message.
        let message = unsafe { get(message) }?;
        let compared = (compared, compared_count);
        let results = (results.cast_const(), results_count);
        // SAFETY: the program passes as many entries as it says.
        unsafe { endpoint.change_listed((Call::Compare, message, flags), compared, results) }
    })
}
