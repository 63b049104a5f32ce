//! Sends and receives of every kind and length.

use core::ffi::c_void;
use std::ptr::null_mut;

use corewire_ofi::endpoint::Msg;
use corewire_ofi::errors::FI_EIO;
use corewire_ofi::flags::*;
use corewire_ofi::info::{FI_THREAD_COMPLETION, FI_THREAD_SAFE};
use corewire_ofi::tagged::MsgTagged;
use corewire_ofi::{FI_ADDR_UNSPEC, IoVec};

use crate::driver::*;

/// Lengths at which a message travels in another way.
const LENGTHS: [usize; 14] =
    [0, 1, 8, 40, 48, 160, 161, 4096, 4097, 16 << 10, 32 << 10, (128 << 10) + 1, 1 << 20, 3 << 20];

fn message(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ seed).collect()
}

fn ping_pong(options: fn() -> Options) {
    let (first, second, to_second, to_first) = pair_with(options, options);
    for (round, length) in LENGTHS.into_iter().chain(LENGTHS).enumerate() {
        let seed = round as u8;
        let (sent, mut got) = (message(length, seed), vec![0; length]);
        let (mut a, mut b) = (context(), context());
        // The first time round the receive is there first, then the message.
        if round < LENGTHS.len() {
            second.receive(7, &mut got, &mut a);
        }
        first.send(to_second, 7, &sent, &mut b);
        if round >= LENGTHS.len() {
            second.receive(7, &mut got, &mut a);
        }
        let entry = read(&second, &[&first]);
        assert!(is_of(&entry, &mut a));
        assert_eq!((entry.flags, entry.len, entry.tag), (FI_RECV | FI_TAGGED, length, 7));
        assert!(got == sent, "{length} bytes");
        let entry = read(&first, &[&second]);
        assert!(is_of(&entry, &mut b) && entry.flags == FI_SEND | FI_TAGGED);
        second.inject(to_first, 8, &sent[..length.min(4096)]);
        let mut back = vec![0; 4096];
        first.receive(8, &mut back, &mut a);
        assert_eq!(read(&first, &[&second]).len, length.min(4096));
    }
    first.close();
    second.close();
}

#[test]
fn messages_of_every_length_go_both_ways() {
    ping_pong(Options::default);
}

#[test]
fn messages_go_both_ways_with_a_lock() {
    ping_pong(|| Options { threading: FI_THREAD_SAFE, ..Options::default() });
}

#[test]
fn messages_go_both_ways_by_completion() {
    ping_pong(|| Options { threading: FI_THREAD_COMPLETION, ..Options::default() });
}

#[test]
fn every_call_with_a_tag_carries_its_message() {
    let (first, second, to, _) = pair();
    let ep = first.ep;
    let data = FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA;
    let mut bytes = *b"twelve bytes";
    let mut halves = bytes;
    let (left, right) = halves.split_at_mut(5);
    let iov = [part(left), part(right)];
    let (at, mut lent) = (bytes.as_mut_ptr().cast::<c_void>(), context());
    let ctx: *mut c_void = (&raw mut *lent).cast();
    let desc = null_mut();
    let msg = MsgTagged {
        msg_iov: iov.as_ptr(),
        desc: null_mut(),
        iov_count: 2,
        addr: to,
        tag: 3,
        ignore: 0,
        context: ctx,
        data: 99,
    };
    let sends: [(&str, &dyn Fn() -> isize, bool, u64); 9] = [
        ("send", &|| call!(ep.tagged.send(at, 12, desc, to, 3, ctx)), true, 0),
        ("sendv", &|| call!(ep.tagged.sendv(iov.as_ptr(), null_mut(), 2, to, 3, ctx)), true, 0),
        ("sendmsg", &|| call!(ep.tagged.sendmsg(&raw const msg, 0)), true, 0),
        (
            "sendmsg with data",
            &|| call!(ep.tagged.sendmsg(&raw const msg, FI_REMOTE_CQ_DATA)),
            true,
            99,
        ),
        ("sendmsg injected", &|| call!(ep.tagged.sendmsg(&raw const msg, FI_INJECT)), true, 0),
        ("inject", &|| call!(ep.tagged.inject(at, 12, to, 3)), false, 0),
        ("senddata", &|| call!(ep.tagged.senddata(at, 12, desc, 98, to, 3, ctx)), true, 98),
        ("injectdata", &|| call!(ep.tagged.injectdata(at, 12, u64::MAX, to, 3)), false, u64::MAX),
        (
            "sendmsg matched",
            &|| call!(ep.tagged.sendmsg(&raw const msg, FI_MATCH_COMPLETE)),
            true,
            0,
        ),
    ];
    for (what, send, is_told, expected) in sends {
        let (mut got, mut posted) = ([0; 16], context());
        second.receive(3, &mut got, &mut posted);
        assert_eq!(send(), 0, "{what}");
        let entry = read(&second, &[&first]);
        assert_eq!((entry.len, entry.data, &got[..12]), (12, expected, &bytes[..]), "{what}");
        assert_eq!(entry.flags == data, expected != 0, "{what}");
        if is_told {
            let entry = read(&first, &[&second]);
            assert!(is_of(&entry, &mut lent) && entry.flags == FI_SEND | FI_TAGGED, "{what}");
        } else {
            first.progress();
        }
    }
    first.close();
    second.close();
}

#[test]
fn every_call_without_a_tag_carries_its_message() {
    let (first, second, to, from) = pair();
    let (ep, receiver) = (first.ep, second.ep);
    let mut bytes = *b"twelve bytes";
    let mut halves = bytes;
    let (left, right) = halves.split_at_mut(5);
    let iov = [part(left), part(right)];
    let (at, mut lent) = (bytes.as_mut_ptr().cast::<c_void>(), context());
    let ctx: *mut c_void = (&raw mut *lent).cast();
    let desc = null_mut();
    let msg = Msg {
        msg_iov: iov.as_ptr(),
        desc: null_mut(),
        iov_count: 2,
        addr: to,
        context: ctx,
        data: 99,
    };
    let sends: [(&str, &dyn Fn() -> isize, bool, u64); 8] = [
        ("send", &|| call!(ep.msg.send(at, 12, desc, to, ctx)), true, 0),
        ("sendv", &|| call!(ep.msg.sendv(iov.as_ptr(), null_mut(), 2, to, ctx)), true, 0),
        ("sendmsg", &|| call!(ep.msg.sendmsg(&raw const msg, FI_TRANSMIT_COMPLETE)), true, 0),
        (
            "sendmsg with data",
            &|| call!(ep.msg.sendmsg(&raw const msg, FI_REMOTE_CQ_DATA)),
            true,
            99,
        ),
        (
            "sendmsg delivered",
            &|| call!(ep.msg.sendmsg(&raw const msg, FI_DELIVERY_COMPLETE)),
            true,
            0,
        ),
        ("inject", &|| call!(ep.msg.inject(at, 12, to)), false, 0),
        ("senddata", &|| call!(ep.msg.senddata(at, 12, desc, 98, to, ctx)), true, 98),
        ("injectdata", &|| call!(ep.msg.injectdata(at, 12, 97, to)), false, 97),
    ];
    let (mut got, mut parts, mut posted) = ([0u8; 16], [[0u8; 4]; 4], context());
    let posted_at: *mut c_void = (&raw mut *posted).cast();
    for (round, (what, send, is_told, expected)) in sends.into_iter().enumerate() {
        let into = got.as_mut_ptr().cast();
        let mut pieces: Vec<IoVec> = parts.iter_mut().map(|piece| part(piece)).collect();
        let posted_msg = Msg {
            msg_iov: pieces.as_mut_ptr(),
            desc: null_mut(),
            iov_count: 4,
            addr: from,
            context: posted_at,
            data: 0,
        };
        let is_whole = round % 3 == 0;
        let status = match round % 3 {
            0 => call!(receiver.msg.recv(into, 16, desc, FI_ADDR_UNSPEC, posted_at)),
            1 => call!(receiver.msg.recvv(pieces.as_ptr(), null_mut(), 4, from, posted_at)),
            _ => call!(receiver.msg.recvmsg(&raw const posted_msg, FI_COMPLETION)),
        };
        assert_eq!((status, send()), (0, 0), "{what}");
        let entry = read(&second, &[&first]);
        assert_eq!((entry.len, entry.data), (12, expected), "{what}");
        assert_eq!(entry.flags & (FI_RECV | FI_MSG | FI_TAGGED), FI_RECV | FI_MSG, "{what}");
        let found = if is_whole { got } else { parts.concat().try_into().unwrap() };
        assert_eq!(&found[..12], &bytes, "{what}");
        if is_told {
            assert_eq!(read(&first, &[&second]).flags, FI_SEND | FI_MSG, "{what}");
        } else {
            first.progress();
        }
    }
    first.close();
    second.close();
}

#[test]
fn a_selective_queue_has_entries_of_those_that_ask() {
    let options = || Options { binding: FI_SELECTIVE_COMPLETION, ..Options::default() };
    let (first, second, to, _) = pair_with(options, options);
    let (mut got, mut lent) = ([0; 8], context());
    let ep = first.ep;
    // Neither asks.
    second.receive(1, &mut got, &mut lent);
    first.send(to, 1, b"silently", &mut lent);
    until(
        &[&first, &second],
        || unsafe { std::ptr::read_volatile(&raw const got) } == *b"silently",
    );
    first.progress();
    second.progress();
    // The send asks.
    let bytes = *b"aloud";
    let iov = IoVec { base: bytes.as_ptr().cast_mut().cast(), len: 5 };
    let msg = MsgTagged {
        msg_iov: &raw const iov,
        desc: null_mut(),
        iov_count: 1,
        addr: to,
        tag: 2,
        ignore: 0,
        context: (&raw mut *lent).cast(),
        data: 0,
    };
    assert_eq!(call!(ep.tagged.sendmsg(&raw const msg, FI_COMPLETION)), 0);
    assert!(is_of(&read(&first, &[&second]), &mut lent));
    first.close();
    second.close();
}

#[test]
fn flags_of_the_attributes_hold_for_calls_without_flags() {
    let options = || Options {
        binding: FI_SELECTIVE_COMPLETION,
        tx_op_flags: FI_COMPLETION | FI_DELIVERY_COMPLETE,
        rx_op_flags: FI_COMPLETION,
        ..Options::default()
    };
    let (first, second, to, _) = pair_with(options, options);
    for length in [8, 64 << 10] {
        let (sent, mut got) = (message(length, 1), vec![0; length]);
        let (mut a, mut b) = (context(), context());
        first.send(to, 1, &sent, &mut a);
        first.progress();
        second.receive(1, &mut got, &mut b);
        assert!(is_of(&read(&second, &[&first]), &mut b) && got == sent);
        assert!(is_of(&read(&first, &[&second]), &mut a));
    }
    first.close();
    second.close();
}

#[test]
fn what_is_sent_before_the_receive_arrives_in_order() {
    let (first, second, to, _) = pair();
    for number in 0..2000u32 {
        let (ep, bytes) = (first.ep, number.to_le_bytes());
        let inject =
            || call!(ep.tagged.inject(bytes.as_ptr().cast(), 4, to, u64::from(number % 7)));
        until(&[&first, &second], || inject() == 0);
    }
    let mut next = [0u32; 7];
    (0..7).for_each(|tag| next[tag as usize] = tag);
    for number in 0..2000u32 {
        let tag = u64::from(number % 7);
        let (mut got, mut posted) = ([0; 4], context());
        second.receive(tag, &mut got, &mut posted);
        read(&second, &[&first]);
        assert_eq!(u32::from_le_bytes(got), next[tag as usize]);
        next[tag as usize] += 7;
    }
    first.close();
    second.close();
}

#[test]
fn an_endpoint_sends_to_itself() {
    let node = Node::new();
    let own = node.insert(node.address());
    let (mut got, mut posted) = ([0; 5], context());
    node.receive(4, &mut got, &mut posted);
    node.inject(own, 4, b"hello");
    assert!(is_of(&read(&node, &[]), &mut posted));
    assert_eq!(&got, b"hello");
    node.close();
}

// Keeps P233.
#[test]
fn a_later_message_is_found_behind_any_number_of_others() {
    // More than corewire keeps of one peer by default, and more long ones than can be offered.
    for (count, length) in [(10_000, 1024), (1100, 100_000)] {
        let (first, second, to, _) = pair();
        let bytes = vec![1; length];
        let mut lent = context();
        let mut sent = 0;
        for number in 0..=count {
            let tag = if number == count { 2 } else { 1 };
            let (ep, at, ctx) = (first.ep, bytes.as_ptr().cast(), (&raw mut *lent).cast());
            while call!(ep.tagged.send(at, length, null_mut(), to, tag, ctx)) != 0 {
                sent += usize::from(first.try_read().is_ok());
                second.progress();
            }
        }
        let (mut got, mut posted) = (vec![0; length], context());
        second.receive(2, &mut got, &mut posted);
        until(&[], || {
            sent += usize::from(first.try_read().is_ok());
            second.try_read().is_ok()
        });
        for _ in 0..count {
            second.receive(1, &mut got, &mut posted);
            until(&[], || {
                sent += usize::from(first.try_read().is_ok());
                second.try_read().is_ok()
            });
        }
        until(&[&second], || {
            sent += usize::from(first.try_read().is_ok());
            sent == count + 1
        });
        first.close();
        second.close();
    }
}

// Keeps P233.
#[test]
fn a_send_has_not_ended_before_its_peer_is_there() {
    let (first, second) = (Node::new(), Node::new());
    let mut lent = context();
    // To an endpoint that has ended: not a success.
    let to = first.insert(second.address());
    second.close();
    first.send(to, 1, b"too late", &mut lent);
    assert_eq!(read_any(&first, &[]).err(), Some(-available()));
    let error = first.read_error();
    assert_eq!((error.err, error.op_context), (FI_EIO, (&raw mut *lent).cast()));
    first.close();
}

// Keeps P233.
#[test]
fn messages_that_a_peer_has_left_are_received_from_it() {
    for is_named_before in [true, false] {
        let (first, second) = (Node::new(), Node::new());
        let (to, number) = (first.insert(second.address()), second.insert(first.address()));
        let (mut got, mut posted) = ([0; 8], context());
        let (ep, at, ctx) = (second.ep, got.as_mut_ptr().cast(), (&raw mut *posted).cast());
        let receive = |tag| call!(ep.tagged.recv(at, 8, null_mut(), number, tag, 0, ctx));
        if is_named_before {
            assert_eq!(receive(9), 0);
            assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), ctx) }, 0);
            assert_eq!(read_any(&second, &[]).err(), Some(-available()));
            second.read_error();
        }
        // The first message waits for the link, the others do not.
        let mut lent = context();
        for _ in 0..3 {
            first.send(to, 1, b"left", &mut lent);
            read(&first, &[&second]);
        }
        first.close();
        second.progress();
        for _ in 0..3 {
            assert_eq!(receive(1), 0);
            assert_eq!(read(&second, &[]).len, 4);
        }
        // There are no more.
        assert_eq!(receive(1), 0);
        assert_eq!(read_any(&second, &[]).err(), Some(-available()));
        assert_eq!(second.read_error().err, FI_EIO);
        second.close();
    }
}
