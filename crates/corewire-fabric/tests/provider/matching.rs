//! Peek, claim, discard, cancel, truncation, and many messages into one buffer.

use core::ffi::c_void;
use std::ptr::{null, null_mut};

use corewire_ofi::cq::ErrEntry;
use corewire_ofi::endpoint::{FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, Msg};
use corewire_ofi::errors::*;
use corewire_ofi::fid::Context;
use corewire_ofi::flags::*;
use corewire_ofi::tagged::MsgTagged;
use corewire_ofi::{FI_ADDR_UNSPEC, FiAddr, IoVec};

use crate::driver::*;

/// Looks for a message with this tag, or does what else the flags say.
fn look(node: &Node, tag: u64, flags: u64, iov: &[IoVec], context: &mut Context) -> isize {
    let ep = node.ep;
    let msg = MsgTagged {
        msg_iov: if iov.is_empty() { null() } else { iov.as_ptr() },
        desc: null_mut(),
        iov_count: iov.len(),
        addr: FI_ADDR_UNSPEC,
        tag,
        ignore: 0,
        context: (&raw mut *context).cast(),
        data: 0,
    };
    call!(ep.tagged.recvmsg(&raw const msg, flags))
}

/// Looks until there is a message; what is not there yet is reported as a failure.
fn find(node: &Node, other: &Node, tag: u64, flags: u64, context: &mut Context) -> usize {
    let mut found = None;
    until(&[other], || {
        assert_eq!(look(node, tag, flags, &[], context), 0);
        match node.try_read() {
            Ok(entry) => {
                assert!(is_of(&entry, context) && entry.tag == tag);
                assert_eq!(entry.flags & (FI_RECV | FI_TAGGED), FI_RECV | FI_TAGGED);
                found = Some(entry.len);
            }
            Err(status) => {
                assert_eq!(status, -available());
                let error = node.read_error();
                assert_eq!(error.err, FI_ENOMSG);
                assert!(std::ptr::eq(error.op_context, (&raw mut *context).cast::<c_void>()));
            }
        }
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_peek_finds_a_message_and_leaves_it() {
    let (first, second, to, _) = pair();
    let (mut peek, mut posted, mut got) = (context(), context(), [0; 8]);
    first.inject(to, 5, b"found");
    assert_eq!(find(&second, &first, 5, FI_PEEK, &mut peek), 5);
    assert_eq!(find(&second, &first, 5, FI_PEEK, &mut peek), 5, "it is still there");
    second.receive(5, &mut got, &mut posted);
    assert_eq!((read(&second, &[&first]).len, &got[..5]), (5, &b"found"[..]));
    first.close();
    second.close();
}

#[test]
fn a_claimed_message_is_nobody_elses() {
    let (first, second, to, _) = pair();
    let (mut claim, mut posted, mut got) = (context(), context(), [0; 8]);
    first.inject(to, 5, b"one");
    first.inject(to, 5, b"other");
    assert_eq!(find(&second, &first, 5, FI_PEEK | FI_CLAIM, &mut claim), 3);
    second.receive(5, &mut got, &mut posted);
    assert_eq!((read(&second, &[&first]).len, &got[..5]), (5, &b"other"[..]));
    let iov = [part(&mut got)];
    assert_eq!(look(&second, 5, FI_CLAIM, &iov, &mut claim), 0);
    let entry = read(&second, &[&first]);
    assert!(is_of(&entry, &mut claim));
    assert_eq!((entry.len, &got[..3]), (3, &b"one"[..]));
    // The claim is spent.
    assert_eq!(look(&second, 5, FI_CLAIM, &iov, &mut claim), -(FI_ENOENT as isize));
    first.close();
    second.close();
}

#[test]
fn discarded_messages_are_gone() {
    let (first, second, to, _) = pair();
    let (mut claim, mut peek) = (context(), context());
    first.inject(to, 5, b"one");
    first.inject(to, 6, b"other");
    assert_eq!(find(&second, &first, 5, FI_PEEK | FI_DISCARD, &mut peek), 3);
    assert_eq!(find(&second, &first, 6, FI_PEEK | FI_CLAIM, &mut claim), 5);
    assert_eq!(look(&second, 6, FI_CLAIM | FI_DISCARD, &[], &mut claim), 0);
    assert!(is_of(&read(&second, &[&first]), &mut claim));
    for tag in [5, 6] {
        assert_eq!(look(&second, tag, FI_PEEK, &[], &mut peek), 0);
        assert_eq!(second.try_read().err(), Some(-available()));
        assert_eq!(second.read_error().err, FI_ENOMSG);
    }
    first.close();
    second.close();
}

#[test]
fn looks_that_make_no_sense_are_refused() {
    let node = Node::new();
    let mut lent = context();
    assert_eq!(look(&node, 1, FI_DISCARD, &[], &mut lent), -(FI_EBADFLAGS as isize));
    assert_eq!(look(&node, 1, FI_PEEK | 1 << 40, &[], &mut lent), -(FI_EBADFLAGS as isize));
    assert_eq!(look(&node, 1, FI_CLAIM, &[], &mut lent), -(FI_ENOENT as isize));
    node.close();
}

#[test]
fn a_cancelled_receive_is_reported_once() {
    let (first, second, to, _) = pair();
    let (mut kept, mut gone, mut got) = (context(), context(), [[0; 8]; 2]);
    let (ep, at): (_, *mut c_void) = (second.ep, (&raw mut *gone).cast());
    second.receive(1, &mut got[0], &mut gone);
    second.receive(1, &mut got[1], &mut kept);
    let cancel = || unsafe { ((*(*ep).ops).cancel)(ep.cast(), at) };
    // Contexts that no receive has: one that was never lent, and one with the bytes of another.
    let mut copied = context();
    copied.internal = gone.internal;
    for mut other in [context(), copied] {
        let other = (&raw mut *other).cast();
        let status = unsafe { ((*(*ep).ops).cancel)(ep.cast(), other) };
        assert_eq!(status, -(FI_ENOENT as isize));
    }
    assert_eq!(cancel(), 0);
    assert_eq!(read_any(&second, &[&first]).err(), Some(-available()));
    assert_eq!(second.try_read().err(), Some(-available()), "until it is read");
    // A program that cancels may leave open whether it has room for a text.
    let mut error = ErrEntry { err_data: 16 as *mut c_void, err_data_size: usize::MAX, ..NO_ERROR };
    let cq = second.cq;
    assert_eq!(call!(cq.ops.readerr(&raw mut error, 0)), 1);
    assert_eq!((error.err, error.op_context), (FI_ECANCELED, at));
    assert_eq!(error.flags, FI_RECV | FI_TAGGED);
    assert_eq!(cancel(), -(FI_ENOENT as isize), "it has ended");
    // The message goes to the receive that is left.
    first.inject(to, 1, b"message");
    assert!(is_of(&read(&second, &[&first]), &mut kept));
    assert_eq!(&got[1][..7], b"message");
    first.close();
    second.close();
}

#[test]
fn a_message_that_is_too_long_is_truncated() {
    let (first, second, to, number) = pair();
    for length in [9, 5000, 200_000] {
        let (mut got, mut posted, mut lent) = ([0; 8], context(), context());
        let sent: Vec<u8> = (0..length).map(|at| at as u8).collect();
        second.receive(1, &mut got, &mut posted);
        first.send(to, 1, &sent, &mut lent);
        assert_eq!(read_any(&second, &[&first]).err(), Some(-available()));
        let error = second.read_error();
        assert_eq!((error.err, error.len, error.olen, error.tag), (FI_ETRUNC, 8, length - 8, 1));
        assert!(std::ptr::eq(error.op_context, (&raw mut *posted).cast::<c_void>()));
        assert_eq!(got, sent[..8]);
        let _ = number;
        assert!(is_of(&read(&first, &[&second]), &mut lent));
    }
    first.close();
    second.close();
}

#[test]
fn nothing_is_looked_for_before_an_endpoint_is_enabled() {
    let node = Node::unbound(Options::default());
    let mut lent = context();
    assert_eq!(look(&node, 1, FI_PEEK, &[], &mut lent), -(FI_EOPBADSTATE as isize));
    node.close();
}

/// Posts a buffer for many messages.
fn post_many(node: &Node, buffer: &mut [u8], from: FiAddr, context: &mut Context) -> isize {
    let (ep, iov) = (node.ep, part(buffer));
    let msg = Msg {
        msg_iov: &raw const iov,
        desc: null_mut(),
        iov_count: 1,
        addr: from,
        context: (&raw mut *context).cast(),
        data: 0,
    };
    call!(ep.msg.recvmsg(&raw const msg, FI_MULTI_RECV | FI_COMPLETION))
}

#[test]
fn one_buffer_takes_many_messages() {
    let (first, second, to, _) = pair();
    let (ep, least) = (second.ep, 100usize);
    let at = (&raw const least).cast();
    let set =
        unsafe { ((*(*ep).ops).setopt)(ep.cast(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, at, 8) };
    assert_eq!(set, 0);
    let mut buffers = [vec![0u8; 1000], vec![0u8; 1000]];
    let mut contexts = [context(), context()];
    for (buffer, context) in buffers.iter_mut().zip(&mut contexts) {
        assert_eq!(post_many(&second, buffer, FI_ADDR_UNSPEC, context), 0);
    }
    // Nine messages of 110 bytes leave 10 free in the first buffer: it is released with the ninth. The rest goes into
    // the second one, which is released without a message when one comes that does not fit.
    let message = |number: u8| [number; 110];
    let ep = first.ep;
    for number in 0..13 {
        let bytes = message(number);
        let send = || call!(ep.msg.inject(bytes.as_ptr().cast(), 110, to));
        let mut status = send();
        until(&[&first], || {
            if status != 0 {
                status = send();
            }
            status == 0
        });
    }
    let mut released = false;
    for number in 0..13u8 {
        let entry = read(&second, &[&first]);
        let which = usize::from(number / 9);
        assert!(is_of(&entry, &mut contexts[which]), "message {number}");
        let offset = usize::from(number % 9) * 110;
        assert!(std::ptr::eq(entry.buf.cast(), buffers[which][offset..].as_ptr()));
        assert_eq!((entry.len, &buffers[which][offset..offset + 110]), (110, &message(number)[..]));
        released = entry.flags & FI_MULTI_RECV != 0;
        assert_eq!(released, number == 8, "message {number}");
    }
    assert!(!released);
    // Cancelled, the second buffer is the program's again.
    let (ep, at): (_, *mut c_void) = (second.ep, (&raw mut *contexts[1]).cast());
    assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), at) }, 0);
    assert_eq!(read_any(&second, &[&first]).err(), Some(-available()));
    let error = second.read_error();
    assert_eq!((error.err, error.op_context), (FI_ECANCELED, at));
    assert_ne!(error.flags & FI_MULTI_RECV, 0);
    first.close();
    second.close();
}

#[test]
fn a_buffer_is_released_before_a_message_that_does_not_fit() {
    let (first, second, to, _) = pair();
    let mut buffers = [vec![0u8; 1000], vec![0u8; 1000]];
    let mut contexts = [context(), context()];
    for (buffer, context) in buffers.iter_mut().zip(&mut contexts) {
        assert_eq!(post_many(&second, buffer, FI_ADDR_UNSPEC, context), 0);
    }
    let (ep, bytes, mut lent) = (first.ep, [1u8; 900], context());
    for length in [800usize, 900] {
        let (at, context) = (bytes.as_ptr().cast(), (&raw mut *lent).cast());
        assert_eq!(call!(ep.msg.send(at, length, null_mut(), to, context)), 0);
    }
    let entry = read(&second, &[&first]);
    assert!(is_of(&entry, &mut contexts[0]) && entry.len == 800);
    let mut flags = entry.flags;
    let mut entry = read(&second, &[&first]);
    if is_of(&entry, &mut contexts[0]) {
        assert_eq!((entry.len, entry.flags), (0, FI_MULTI_RECV));
        flags |= entry.flags;
        entry = read(&second, &[&first]);
    }
    assert_ne!(flags & FI_MULTI_RECV, 0, "the first buffer is released");
    assert!(is_of(&entry, &mut contexts[1]) && entry.len == 900);
    first.close();
    second.close();
}

#[test]
fn buffers_for_many_messages_have_rules() {
    let node = Node::new();
    let (ep, mut lent) = (node.ep, context());
    assert_eq!(post_many(&node, &mut [], FI_ADDR_UNSPEC, &mut lent), -(FI_EINVAL as isize));
    let mut buffer = [0; 8];
    let iov = part(&mut buffer);
    let msg = Msg {
        msg_iov: &raw const iov,
        desc: null_mut(),
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        context: null_mut(),
        data: 0,
    };
    let status = call!(ep.msg.recvmsg(&raw const msg, FI_MULTI_RECV));
    assert_eq!(status, -(FI_EINVAL as isize), "its end is told by the context");
    node.close();
}

#[test]
fn a_directed_receive_takes_its_source_only() {
    let (first, second, to, from_first) = pair();
    let third = Node::new();
    let (to_from_third, from_third) =
        (third.insert(second.address()), second.insert(third.address()));
    let ep = second.ep;
    let mut got = [[0u8; 8]; 2];
    let mut contexts = [context(), context()];
    for (index, from) in [from_third, from_first].into_iter().enumerate() {
        let at = got[index].as_mut_ptr().cast();
        let context = (&raw mut *contexts[index]).cast();
        let status = call!(ep.tagged.recv(at, 8, null_mut(), from, 0, u64::MAX, context));
        assert_eq!(status, 0);
    }
    first.inject(to, 1, b"first");
    assert!(is_of(&read(&second, &[&first, &third]), &mut contexts[1]));
    third.inject(to_from_third, 2, b"third");
    assert!(is_of(&read(&second, &[&first, &third]), &mut contexts[0]));
    assert_eq!((&got[0][..5], &got[1][..5]), (&b"third"[..], &b"first"[..]));
    for node in [first, second, third] {
        node.close();
    }
}
