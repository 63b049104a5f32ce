//! Access to a peer's memory: copies, atomic operations, data with them, and what is refused.

use core::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use corewire_ofi::atomic::*;
use corewire_ofi::errors::*;
use corewire_ofi::fid::FI_WAIT_NONE;
use corewire_ofi::flags::*;
use corewire_ofi::mr::FidMr;
use corewire_ofi::rma::{MsgRma, RmaIov};
use corewire_ofi::{FiAddr, IoVec};

use crate::driver::*;

/// Lengths of copies: also ones that take several requests.
const LENGTHS: [usize; 8] = [0, 1, 8, 100, 4000, 4001, 40_000, 300_000];

const EVERYTHING: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Registers memory under this key.
fn register(node: &Node, at: *mut c_void, bytes: usize, access: u64, key: u64) -> *mut FidMr {
    try_register(node, at, bytes, access, key).unwrap()
}

fn try_register(
    node: &Node,
    at: *mut c_void,
    bytes: usize,
    access: u64,
    key: u64,
) -> Result<*mut FidMr, c_int> {
    let (domain, mut mr) = (node.domain, null_mut());
    let (ops, fid) = (unsafe { &*(*domain).mr }, domain.cast());
    let context = null_mut();
    match unsafe { (ops.reg)(fid, at, bytes, access, 0, key, 0, &raw mut mr, context) } {
        0 => Ok(mr),
        status => Err(status),
    }
}

fn register_slice(node: &Node, memory: &mut [u8], access: u64, key: u64) -> *mut FidMr {
    register(node, memory.as_mut_ptr().cast(), memory.len(), access, key)
}

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at % 253) as u8 ^ seed).collect()
}

fn write(node: &Node, to: FiAddr, source: &[u8], at: (u64, u64), context: *mut c_void) {
    let (ep, (key, offset)) = (node.ep, at);
    let source = (source.as_ptr().cast_mut().cast(), source.len());
    let desc = null_mut();
    assert_eq!(call!(ep.rma.write(source.0, source.1, desc, to, offset, key, context)), 0);
}

#[test]
fn memory_is_written_and_read() {
    let (first, second, to_second, _) = pair();
    let mut memory = vec![0u8; 400_000];
    let mr = register_slice(&second, &mut memory, EVERYTHING, 77);
    let ep = first.ep;
    let cntr = open_cntr(first.domain, FI_WAIT_NONE);
    assert_eq!(call!(ep.fid.bind(cntr.cast(), FI_READ)), -FI_EOPBADSTATE, "after it was enabled");
    assert_eq!(close(cntr.cast()), 0);
    for (round, length) in LENGTHS.into_iter().enumerate() {
        let (source, mut context) = (bytes(length, round as u8), context());
        write(&first, to_second, &source, (77, 1000), (&raw mut *context).cast());
        let entry = read(&first, &[&second]);
        assert!(is_of(&entry, &mut context));
        assert_eq!(entry.flags, FI_WRITE | FI_RMA);
        assert!(memory[1000..1000 + length] == source, "{length} bytes written");
        let mut found = vec![0; length];
        let at = found.as_mut_ptr().cast();
        let to = (&raw mut *context).cast();
        let desc = null_mut();
        assert_eq!(call!(ep.rma.read(at, length, desc, to_second, 1000, 77, to)), 0);
        let entry = read(&first, &[&second]);
        assert!(is_of(&entry, &mut context) && entry.flags == FI_READ | FI_RMA);
        assert!(found == source, "{length} bytes read");
    }
    assert_eq!(close(mr.cast()), 0);
    first.close();
    second.close();
}

#[test]
fn a_program_that_begins_too_many_tries_again() {
    let (first, second, to_second, _) = pair();
    let mut memory = vec![0u64; 5000];
    let (at, length) = (memory.as_mut_ptr().cast(), 8 * memory.len());
    let mr = register(&second, at, length, EVERYTHING, 3);
    let (ep, mut refused) = (first.ep, 0);
    for number in 0..5000u64 {
        let put = || {
            let source = (&raw const number).cast();
            call!(ep.rma.inject(source, 8, to_second, 8 * number, 3))
        };
        let mut status = put();
        if status == -again() {
            refused += 1;
            until(&[&first, &second], || {
                status = put();
                status == 0
            });
        }
        assert_eq!(status, 0);
    }
    assert!(refused > 0, "as many as it likes are under way");
    until(&[&first, &second], || memory[4999] == 4999);
    assert!((0..).zip(&memory).all(|(number, found)| *found == number));
    assert_eq!(close(mr.cast()), 0);
    first.close();
    second.close();
}

#[test]
fn lists_are_copied_on_both_sides_and_count_once() {
    let (first, second) = (Node::unbound(Options::default()), Node::new());
    let (ep, cntr) = (first.ep, open_cntr(first.domain, FI_WAIT_NONE));
    assert_eq!(call!(ep.fid.bind(cntr.cast(), FI_READ | FI_WRITE)), 0);
    first.enable();
    let to_second = first.insert(second.address());
    let mut memory = vec![0u8; 10_000];
    let mr = register_slice(&second, &mut memory, EVERYTHING, 5);
    let (mut a, mut b) = (bytes(3000, 1), bytes(2001, 2));
    let iov = [part(&mut a), part(&mut b)];
    let rma = [
        RmaIov { addr: 10, len: 1, key: 5 },
        RmaIov { addr: 100, len: 4000, key: 5 },
        RmaIov { addr: 5000, len: 1000, key: 5 },
    ];
    let mut context = context();
    let message = |iov: &[IoVec; 2], context: *mut c_void| MsgRma {
        msg_iov: iov.as_ptr(),
        desc: null_mut(),
        iov_count: 2,
        addr: to_second,
        rma_iov: rma.as_ptr(),
        rma_iov_count: 3,
        context,
        data: 0,
    };
    let put = message(&iov, (&raw mut *context).cast());
    assert_eq!(call!(ep.rma.writemsg(&raw const put, FI_COMPLETION | FI_DELIVERY_COMPLETE)), 0);
    assert!(is_of(&read(&first, &[&second]), &mut context));
    let whole = [bytes(3000, 1), bytes(2001, 2)].concat();
    assert_eq!(memory[10], whole[0]);
    assert!(memory[100..4100] == whole[1..4001] && memory[5000..6000] == whole[4001..]);
    assert_eq!(memory[6000..].iter().max(), Some(&0));

    let (mut c, mut d) = (vec![0; 4999], vec![0; 2]);
    let iov = [part(&mut c), part(&mut d)];
    let get = message(&iov, (&raw mut *context).cast());
    assert_eq!(call!(ep.rma.readmsg(&raw const get, FI_COMPLETION)), 0);
    assert!(is_of(&read(&first, &[&second]), &mut context));
    assert!([c, d].concat() == whole);

    // Neither an entry nor a count too many.
    let short = [9u8; 16];
    let at = short.as_ptr().cast();
    assert_eq!(call!(ep.rma.inject(at, 16, to_second, 9000, 5)), 0);
    until(&[&first, &second], || call!(cntr.ops.read()) == 3);
    assert_eq!(memory[9000..9016], short);
    first.progress();
    assert_eq!(call!(cntr.ops.readerr()), 0);
    assert_eq!((call!(ep.rma.inject(null(), 4097, to_second, 0, 5)) as c_int), -FI_EINVAL);
    assert_eq!(close(mr.cast()), 0);
    let (info, fids) = (first.info, [first.ep.cast(), cntr.cast(), first.cq.cast()]);
    for fid in fids.into_iter().chain([first.av.cast(), first.domain.cast(), first.fabric.cast()]) {
        assert_eq!(close(fid), 0);
    }
    free(info);
    second.close();
}

#[test]
fn data_comes_with_what_was_written() {
    let (first, second, to_second, _) = pair();
    let mut memory = vec![0u8; 16 << 10];
    let mr = register_slice(&second, &mut memory, EVERYTHING, 1);
    let (ep, mut context) = (first.ep, context());
    for length in [0, 8, 10_000] {
        let mut source = bytes(length, 9);
        let (at, to) = (source.as_mut_ptr().cast(), (&raw mut *context).cast());
        let (data, desc) = (u64::MAX - length as u64, null_mut());
        let status = call!(ep.rma.writedata(at, length, desc, data, to_second, 0, 1, to));
        assert_eq!(status, 0);
        let entry = read(&second, &[&first]);
        assert_eq!(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        assert_eq!(entry.data, data);
        assert!(memory[..length] == source);
        assert!(is_of(&read(&first, &[&second]), &mut context));
    }
    assert_eq!(call!(ep.rma.injectdata(null(), 0, 3, to_second, 0, 1)), 0);
    assert_eq!(read(&second, &[&first]).data, 3);
    assert_eq!(close(mr.cast()), 0);
    first.close();
    second.close();
}

/// An operation on one `double`, one after the other.
#[test]
fn numbers_are_changed_and_told() {
    let (first, second, to_second, _) = pair();
    let mut memory = [2.5f64, 0.0];
    let at = (&raw mut memory).cast();
    let mr = register(&second, at, 16, EVERYTHING, 3);
    let number = || unsafe { at.cast::<f64>().read_volatile() };
    let (ep, mut context) = (first.ep, context());
    let to: *mut c_void = (&raw mut *context).cast();
    let desc = null_mut::<c_void>();
    let type_ = FI_DOUBLE;
    for (op, expected) in [
        (FI_SUM, 6.5),
        (FI_PROD, 26.0),
        (FI_MIN, 4.0),
        (FI_MAX, 4.0),
        (FI_LAND, 1.0),
        (FI_LXOR, 0.0),
        (FI_LOR, 1.0),
        (FI_ATOMIC_WRITE, 4.0),
    ] {
        let operand = 4f64;
        let from = (&raw const operand).cast();
        let status = call!(ep.atomic.write(from, 1, desc, to_second, 0, 3, type_, op, to));
        assert_eq!(status, 0);
        let entry = read(&first, &[&second]);
        assert!(is_of(&entry, &mut context) && entry.flags == FI_WRITE | FI_ATOMIC);
        assert_eq!(number(), expected, "operation {op}");
    }
    let (operand, mut found) = (1f64, 0f64);
    let (from, result) = ((&raw const operand).cast(), (&raw mut found).cast());
    let op = FI_SUM;
    let status =
        call!(ep.atomic.readwrite(from, 1, desc, result, desc, to_second, 0, 3, type_, op, to));
    assert_eq!(status, 0);
    assert_eq!(read(&first, &[&second]).flags, FI_READ | FI_ATOMIC);
    assert_eq!((found, number()), (4.0, 5.0));
    // What is read has no operand.
    let (none, op) = (null(), FI_ATOMIC_READ);
    let status =
        call!(ep.atomic.readwrite(none, 1, desc, result, desc, to_second, 0, 3, type_, op, to));
    assert_eq!(status, 0);
    read(&first, &[&second]);
    assert_eq!((found, number()), (5.0, 5.0));
    for (compared, op, expected) in
        [(4f64, FI_CSWAP, 5.0), (5.0, FI_CSWAP, 1.0), (9.0, FI_CSWAP_GT, 1.0)]
    {
        let compared = (&raw const compared).cast();
        let status = call!(ep.atomic.compwrite(
            from, 1, desc, compared, desc, result, desc, to_second, 0, 3, type_, op, to
        ));
        assert_eq!(status, 0);
        read(&first, &[&second]);
        assert_eq!(number(), expected);
    }
    assert_eq!(call!(ep.atomic.inject(from, 1, to_second, 0, 3, type_, FI_SUM)), 0);
    until(&[&first, &second], || number() == 2.0);
    assert_eq!(close(mr.cast()), 0);
    first.close();
    second.close();
}

#[test]
fn long_operations_and_lists_of_numbers_are_carried_out() {
    let (first, second, to_second, _) = pair();
    let mut memory = vec![1u32; 5000];
    let mr = register(&second, memory.as_mut_ptr().cast(), 20_000, EVERYTHING, 3);
    let (ep, mut context) = (first.ep, context());
    let (mut operands, mut found) = (vec![7u32; 4000], vec![0u32; 4000]);
    let ioc = |values: &mut [u32]| Ioc { addr: values.as_mut_ptr().cast(), count: values.len() };
    let (one, rest) = operands.split_at_mut(1);
    let iov = [ioc(one), ioc(rest)];
    let mut results = [ioc(&mut found)];
    let rma =
        [RmaIoc { addr: 0, count: 3000, key: 3 }, RmaIoc { addr: 16_000, count: 1000, key: 3 }];
    let message = MsgAtomic {
        msg_iov: iov.as_ptr(),
        desc: null_mut(),
        iov_count: 2,
        addr: to_second,
        rma_iov: rma.as_ptr(),
        rma_iov_count: 2,
        datatype: FI_UINT32,
        op: FI_SUM,
        context: (&raw mut *context).cast(),
        data: 0,
    };
    let (desc, flags) = (null_mut(), FI_COMPLETION);
    let at = results.as_mut_ptr();
    assert_eq!(call!(ep.atomic.readwritemsg(&raw const message, at, desc, 1, flags)), 0);
    assert!(is_of(&read(&first, &[&second]), &mut context));
    assert_eq!(found, vec![1; 4000]);
    assert_eq!(memory[..3000], [8; 3000]);
    assert_eq!(memory[3000..4000], [1; 1000]);
    assert_eq!(memory[4000..], [8; 1000]);
    assert_eq!(close(mr.cast()), 0);
    first.close();
    second.close();
}

#[test]
fn what_is_possible_with_numbers_is_said() {
    let node = Node::new();
    let (ep, domain) = (node.ep, node.domain);
    let counts = |type_, op| {
        let mut counts = [0usize; 3];
        let [write, fetch, compare] = counts.each_mut().map(|it| &raw mut *it);
        [
            call!(ep.atomic.writevalid(type_, op, write)),
            call!(ep.atomic.readwritevalid(type_, op, fetch)),
            call!(ep.atomic.compwritevalid(type_, op, compare)),
        ]
        .map(|status| status == 0)
    };
    for type_ in FI_INT8..=FI_DOUBLE {
        for op in FI_MIN..=FI_MSWAP {
            let is_bits = matches!(op, FI_BOR | FI_BAND | FI_BXOR | FI_MSWAP);
            let is_there = type_ < FI_FLOAT || !is_bits;
            let expected = match op {
                FI_ATOMIC_READ => [false, true, false],
                FI_CSWAP..=FI_MSWAP => [false, false, is_there],
                _ => [is_there, is_there, false],
            };
            assert_eq!(counts(type_, op), expected, "type {type_}, operation {op}");
        }
    }
    for (type_, op) in
        [(FI_LONG_DOUBLE, FI_SUM), (FI_INT32, FI_DIFF), (FI_INT128, FI_CSWAP), (-1, 0)]
    {
        assert_eq!(counts(type_, op), [false; 3]);
    }
    let mut attr = AtomicAttr { count: 0, size: 0 };
    let query = |attr: &mut AtomicAttr, flags| {
        call!(domain.ops.query_atomic(FI_INT16, FI_SUM, &raw mut *attr, flags))
    };
    assert_eq!(query(&mut attr, FI_FETCH_ATOMIC), 0);
    assert_eq!((attr.size, attr.count), (2, 32 << 10));
    assert_eq!(query(&mut attr, FI_COMPARE_ATOMIC), -FI_EOPNOTSUPP);
    assert_eq!(query(&mut attr, 1 << 60), -FI_EBADFLAGS);
    node.close();
}

/// The failure of a copy to this place.
fn failure(first: &Node, second: &Node, to: FiAddr, at: (u64, u64)) -> c_int {
    let mut context = context();
    write(first, to, &[1; 8], at, (&raw mut *context).cast());
    assert_eq!(read_any(first, &[second]).err(), Some(-available()));
    let error = first.read_error();
    assert!(std::ptr::eq(error.op_context, (&raw mut *context).cast()));
    assert_eq!(error.flags, FI_WRITE | FI_RMA);
    error.err
}

#[test]
fn what_is_not_registered_so_is_refused() {
    let (first, second, to_second, _) = pair();
    let mut memory = [0u8; 64];
    let all = register_slice(&second, &mut memory, EVERYTHING, 1);
    let again = try_register(&second, memory.as_mut_ptr().cast(), 64, EVERYTHING, 1);
    assert_eq!(again.err(), Some(-FI_ENOKEY), "the key is in use");
    assert_eq!(failure(&first, &second, to_second, (2, 0)), FI_ENOKEY);
    for offset in [57, 64, u64::MAX, u64::MAX - 7] {
        assert_eq!(failure(&first, &second, to_second, (1, offset)), FI_EINVAL, "{offset}");
    }
    assert_eq!(close(all.cast()), 0);
    assert_eq!(failure(&first, &second, to_second, (1, 0)), FI_ENOKEY, "after it was closed");
    let only_read = register_slice(&second, &mut memory, FI_REMOTE_READ, 1);
    assert_eq!(failure(&first, &second, to_second, (1, 0)), FI_EACCES);
    assert_eq!(close(only_read.cast()), 0);
    let own = register_slice(&second, &mut memory, FI_SEND | FI_RECV, 1);
    assert_eq!(failure(&first, &second, to_second, (1, 0)), FI_EACCES);
    assert_eq!(close(own.cast()), 0);
    assert_eq!(memory, [0; 64]);
    first.close();
    second.close();
}

#[test]
fn a_whole_address_space_is_registered() {
    let (first, second, to_second, _) = pair();
    let mr = register(&second, null_mut(), usize::MAX, EVERYTHING, 1);
    let mut memory = Box::new([0u8; 64]);
    let place = memory.as_mut_ptr().expose_provenance() as u64;
    let mut context = context();
    write(&first, to_second, &[7; 64], (1, place), (&raw mut *context).cast());
    assert!(is_of(&read(&first, &[&second]), &mut context));
    assert_eq!(*memory, [7; 64]);
    assert_eq!(failure(&first, &second, to_second, (1, 4096)), FI_EFAULT, "not mapped");
    static CONSTANT: [u64; 1024] = [7; 1024];
    let constant = (&raw const CONSTANT).expose_provenance() as u64;
    assert_eq!(failure(&first, &second, to_second, (1, constant)), FI_EFAULT, "only to be read");
    // An empty window has an address, and no byte.
    let empty = register(&second, memory.as_mut_ptr().cast(), 0, EVERYTHING, 2);
    assert_eq!(failure(&first, &second, to_second, (2, 0)), FI_EINVAL);
    assert_eq!((close(mr.cast()), close(empty.cast())), (0, 0));
    first.close();
    second.close();
}

#[test]
fn an_endpoint_accesses_its_own_memory() {
    let node = Node::new();
    let me = node.insert(node.address());
    let mut memory = [0u8; 64];
    let mr = register_slice(&node, &mut memory, EVERYTHING, 1);
    let mut context = context();
    write(&node, me, &[7; 64], (1, 0), (&raw mut *context).cast());
    assert!(is_of(&read(&node, &[]), &mut context));
    assert_eq!(memory, [7; 64]);
    assert_eq!(close(mr.cast()), 0);
    node.close();
}

#[test]
fn memory_that_was_registered_first_is_accessed_through_each_endpoint() {
    let (first, second) = (Node::new(), Node::unbound(Options::default()));
    let mut memory = [0u8; 8];
    let mr = register_slice(&second, &mut memory, EVERYTHING, 1 << 63 | 0x1f0);
    second.enable();
    let to_second = first.insert(second.address());
    let mut context = context();
    write(&first, to_second, &[7; 8], (1 << 63 | 0x1f0, 0), (&raw mut *context).cast());
    assert!(is_of(&read(&first, &[&second]), &mut context));
    assert_eq!(memory, [7; 8]);
    assert_eq!(close(mr.cast()), 0);
    first.close();
    second.close();
}
