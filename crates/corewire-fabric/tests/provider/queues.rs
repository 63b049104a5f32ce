//! Formats, failures at the head, counters, waiting, event queues.

use core::ffi::{CStr, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use corewire_ofi::cntr::FidCntr;
use corewire_ofi::cq::*;
use corewire_ofi::eq::{EqAttr, EqEntry, FidEq};
use corewire_ofi::errors::*;
use corewire_ofi::fid::*;
use corewire_ofi::flags::*;
use corewire_ofi::info::FI_THREAD_SAFE;
use rustix::event::{PollFd, PollFlags, poll};

use crate::driver::*;

#[test]
fn entries_have_the_format_of_their_queue() {
    let words = [
        (FI_CQ_FORMAT_CONTEXT, 1),
        (FI_CQ_FORMAT_MSG, 3),
        (FI_CQ_FORMAT_DATA, 5),
        (FI_CQ_FORMAT_TAGGED, 6),
    ];
    for (format, count) in words {
        let options = || Options { format, ..Options::default() };
        let (first, second, to, _) = pair_with(options, options);
        let (ep, cq) = (first.ep, second.cq);
        let (mut got, mut contexts) = ([[0; 4]; 3], [context(), context(), context()]);
        for (buffer, context) in got.iter_mut().zip(&mut contexts) {
            second.receive(9, buffer, context);
        }
        for _ in 0..3 {
            let bytes = b"four".as_ptr().cast();
            until(&[&first], || call!(ep.tagged.injectdata(bytes, 4, 55, to, 9)) == 0);
        }
        let mut found = vec![0u64; 3 * count];
        let mut entries = 0;
        until(&[&first], || {
            let at = found[entries * count..].as_mut_ptr().cast();
            let read = call!(cq.ops.read(at, 3 - entries));
            assert!(read > 0 || read == -again());
            entries += usize::try_from(read).unwrap_or(0);
            entries == 3
        });
        for (entry, context) in found.chunks(count).zip(&mut contexts) {
            let flags = FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA;
            let whole = [(&raw mut **context).addr() as u64, flags, 4, 0, 55, 9];
            assert_eq!(entry, &whole[..count], "format {format}");
        }
        first.close();
        second.close();
    }
}

#[test]
fn a_failure_at_the_head_holds_up_what_follows() {
    let (first, second, to, _) = pair();
    let (mut small, mut large) = ([0; 1], [0; 8]);
    let (mut a, mut b) = (context(), context());
    second.receive(1, &mut small, &mut a);
    second.receive(1, &mut large, &mut b);
    first.inject(to, 1, b"too long");
    first.inject(to, 1, b"fits");
    let cq = second.cq;
    assert_eq!(read_any(&second, &[&first]).err(), Some(-available()));
    for _ in 0..3 {
        assert_eq!(second.try_read().err(), Some(-available()));
    }
    assert_eq!(call!(cq.ops.readerr(null_mut(), 0)), -(FI_EINVAL as isize));
    assert_eq!(second.read_error().err, FI_ETRUNC);
    let mut none = NO_ERROR;
    assert_eq!(call!(cq.ops.readerr(&raw mut none, 0)), -again());
    assert!(is_of(&read(&second, &[&first]), &mut b));
    first.close();
    second.close();
}

#[test]
fn the_text_of_a_failure_goes_where_the_program_wants_it() {
    let (first, second, to, _) = pair();
    let cq = second.cq;
    let text = |error: &ErrEntry, buffer: &mut [u8]| {
        let (at, room) = (buffer.as_mut_ptr().cast(), buffer.len());
        let at = if room == 0 { null_mut() } else { at };
        let text = call!(cq.ops.strerror(error.prov_errno, error.err_data, at, room));
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    };
    let fail = || {
        let (mut small, mut posted) = ([0; 1], context());
        second.receive(1, &mut small, &mut posted);
        first.inject(to, 1, b"too long");
        assert_eq!(read_any(&second, &[&first]).err(), Some(-available()));
    };
    fail();
    let error = second.read_error();
    assert_eq!(text(&error, &mut []), "message of 8 bytes truncated to 1");
    assert_eq!(text(&error, &mut [0; 8]), "message");
    fail();
    let (mut own, mut error) = ([1u8; 12], NO_ERROR);
    (error.err_data, error.err_data_size) = (own.as_mut_ptr().cast(), own.len());
    assert_eq!(call!(cq.ops.readerr(&raw mut error, 0)), 1);
    assert_eq!((&own, error.err_data_size), (b"message of \0", 12));
    // Without a text the number has one.
    let plain = ErrEntry { err_data: null_mut(), prov_errno: FI_EIO, ..NO_ERROR };
    assert_eq!(text(&plain, &mut []), "Input/output error");
    first.close();
    second.close();
}

#[test]
fn programs_of_older_interfaces_have_shorter_entries() {
    let old = || Options { version: corewire_ofi::version(1, 17), ..Options::default() };
    let (first, second, to, _) = pair_with(old, old);
    let (mut small, mut posted) = ([0; 1], context());
    second.receive(1, &mut small, &mut posted);
    first.inject(to, 1, b"too long");
    assert_eq!(read_any(&second, &[&first]).err(), Some(-available()));
    let (cq, mut error) = (second.cq, ErrEntry { src_addr: 1234, ..NO_ERROR });
    assert_eq!(call!(cq.ops.readerr(&raw mut error, 0)), 1);
    assert_eq!((error.err, error.src_addr), (FI_ETRUNC, 1234), "that is beyond the entry");
    first.close();
    second.close();
}

#[test]
fn counters_count_both_directions() {
    let (mut nodes, mut counters) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let node =
            Node::unbound(Options { binding: FI_SELECTIVE_COMPLETION, ..Options::default() });
        let cntrs = [FI_WAIT_UNSPEC, FI_WAIT_FD].map(|wait| open_cntr(node.domain, wait));
        let ep = node.ep;
        for (cntr, flags) in cntrs.into_iter().zip([FI_SEND, FI_RECV]) {
            assert_eq!(call!(ep.fid.bind(cntr.cast(), flags)), 0);
            assert_eq!(close(cntr.cast()), -FI_EBUSY);
        }
        node.enable();
        nodes.push(node);
        counters.push(cntrs);
    }
    let [first, second] = [&nodes[0], &nodes[1]];
    let to = first.insert(second.address());
    let ([sent, _], [_, received]) = (counters[0], counters[1]);
    let (mut got, mut lent) = (vec![0; 1 << 20], context());
    // Injected, at once, and with a rendezvous.
    for (length, number) in [(8, 1), (5000, 2), (1 << 20, 3)] {
        second.receive(1, &mut got, &mut lent);
        if length == 8 {
            first.inject(to, 1, &vec![1; length]);
        } else {
            let bytes = vec![1; length];
            first.send(to, 1, &bytes, &mut lent);
            until(&[first, second], || call!(sent.ops.read()) == number);
        }
        until(&[first], || call!(received.ops.read()) == number);
        assert_eq!(call!(sent.ops.read()), number);
    }
    // A failure is counted apart.
    second.receive(1, &mut got[..1], &mut lent);
    first.inject(to, 1, b"too long");
    until(&[first], || call!(received.ops.readerr()) == 1);
    assert_eq!(call!(received.ops.read()), 3);
    // A wait for a number that is reached, one that is not, and one that a failure ends.
    assert_eq!(call!(received.ops.wait(3, -1)), 0);
    assert_eq!(call!(received.ops.wait(4, 10)), -FI_ETIMEDOUT);
    second.receive(1, &mut got[..1], &mut lent);
    first.inject(to, 1, b"too long");
    assert_eq!(call!(received.ops.wait(4, -1)), -FI_EAVAIL);
    // The program's own numbers.
    assert_eq!((call!(received.ops.set(7)), call!(received.ops.add(3))), (0, 0));
    assert_eq!((call!(received.ops.seterr(1)), call!(received.ops.adderr(1))), (0, 0));
    assert_eq!((call!(received.ops.read()), call!(received.ops.readerr())), (10, 2));
    for (node, cntrs) in nodes.into_iter().zip(counters) {
        let Node { info, fabric, domain, av, cq, ep } = node;
        let objects = [ep.cast(), cq.cast(), av.cast(), cntrs[0].cast(), cntrs[1].cast()];
        for fid in objects.into_iter().chain([domain.cast(), fabric.cast()]) {
            assert_eq!(close(fid), 0);
        }
        free(info);
    }
}

#[test]
fn a_count_of_another_thread_ends_the_wait_for_a_counter() {
    let options = || Options { threading: FI_THREAD_SAFE, ..Options::default() };
    let (first, second) = (Node::unbound(options()), Node::with(options()));
    let (sent, ep) = (open_cntr(first.domain, FI_WAIT_FD), first.ep);
    assert_eq!(call!(ep.fid.bind(sent.cast(), FI_SEND)), 0);
    first.enable();
    let to = first.insert(second.address());
    let (mut got, mut posted) = ([0; 8], context());
    second.receive(1, &mut got, &mut posted);
    struct Counter(*mut FidCntr);
    unsafe impl Send for Counter {}
    let counter = Counter(sent);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let counter = counter;
            let cntr = counter.0;
            call!(cntr.ops.wait(200, -1))
        });
        // Sent while the other thread sleeps or not: it looks 200 times before it does.
        for _ in 0..200 {
            std::thread::yield_now();
            let (at, length) = (got.as_mut_ptr().cast(), 8);
            while call!(ep.tagged.inject(at, length, to, 2)) == -again() {
                let cq = second.cq;
                let _ = call!(cq.ops.read(null_mut(), 0));
            }
        }
        assert_eq!(waiting.join().unwrap(), 0);
    });
    let Node { info, fabric, domain, av, cq, ep } = first;
    for fid in [ep.cast(), cq.cast(), av.cast(), sent.cast(), domain.cast(), fabric.cast()] {
        assert_eq!(close(fid), 0);
    }
    free(info);
    second.close();
}

/// What `fi_control` says about waiting for an object.
fn get_wait(fid: *mut Fid) -> c_int {
    let mut descriptor: c_int = -1;
    let at: *mut c_void = (&raw mut descriptor).cast();
    assert_eq!(unsafe { ((*(*fid).ops).control)(fid, FI_GETWAIT, at) }, 0);
    descriptor
}

fn is_readable(descriptor: c_int, limit: Duration) -> bool {
    let limit = limit.try_into().unwrap();
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

#[test]
fn a_program_waits_for_the_descriptor_of_a_queue() {
    let waiting = || Options { wait: FI_WAIT_FD, ..Options::default() };
    let (first, second, to, _) = pair_with(Options::default, waiting);
    let (fabric, descriptor) = (second.fabric, get_wait(second.cq.cast()));
    let trywait = || {
        let mut fid: *mut Fid = second.cq.cast();
        call!(fabric.ops.trywait(&raw mut fid, 1))
    };
    let (mut got, mut posted) = ([0; 8], context());
    for round in 0..50 {
        second.receive(1, &mut got, &mut posted);
        // Until nothing happens any more: the peer comes in the first round.
        while trywait() != 0 {
            assert!(second.try_read().is_err());
        }
        assert!(round == 0 || !is_readable(descriptor, Duration::ZERO), "nothing was sent");
        first.inject(to, 1, b"wake up");
        let end = Instant::now() + Duration::from_secs(60);
        while second.try_read().is_err() {
            assert!(Instant::now() < end);
            first.progress();
            if trywait() == 0 {
                is_readable(descriptor, Duration::from_millis(100));
            }
        }
    }
    // What has ended already is not waited for.
    let (mut lent, ep) = (context(), second.ep);
    second.receive(2, &mut got, &mut lent);
    let at = (&raw mut *lent).cast();
    assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), at) }, 0);
    assert_eq!(trywait(), -FI_EAGAIN);
    assert_eq!(second.try_read().err(), Some(-available()));
    assert_eq!(second.read_error().err, FI_ECANCELED);
    first.close();
    second.close();
}

#[test]
fn a_thread_sleeps_until_a_message_or_a_signal_comes() {
    for wait in [FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD] {
        let options = || Options { wait, threading: FI_THREAD_SAFE, ..Options::default() };
        let (first, second, to, _) = pair_with(options, options);
        let cq = second.cq;
        let (mut got, mut posted, mut entry) = ([0; 8], context(), EMPTY);
        let at = (&raw mut entry).cast();
        assert_eq!(call!(cq.ops.sread(at, 1, null(), 0)), -again());
        assert_eq!(call!(cq.ops.sread(at, 1, null(), 5)), -again());
        second.receive(1, &mut got, &mut posted);
        struct Sender(Node);
        unsafe impl Send for Sender {}
        let sender = Sender(first);
        let first = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let sender = sender;
                sender.0.inject(to, 1, b"wake up");
                // What is pending goes on in the calls of its sender.
                until(&[&sender.0], || {
                    let (cq, ep) = (sender.0.cq, sender.0.ep);
                    let _ = (cq, ep);
                    true
                });
                sender
            });
            let sender = thread.join().unwrap().0;
            let mut status = -again();
            until(&[&sender], || {
                status = call!(cq.ops.sread(at, 1, null(), 100));
                status != -again()
            });
            assert_eq!(status, 1);
            sender
        });
        assert!(is_of(&entry, &mut posted));
        // A signal ends the wait of another thread, and is kept for the next one.
        struct Queue(*mut FidCq);
        unsafe impl Send for Queue {}
        let queue = Queue(cq);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let (queue, mut entry) = (queue, EMPTY);
                let cq = queue.0;
                call!(cq.ops.sread((&raw mut entry).cast(), 1, null(), -1))
            });
            assert_eq!(call!(cq.ops.signal()), 0);
            assert_eq!(waiting.join().unwrap(), -again());
        });
        first.close();
        second.close();
    }
}

#[test]
fn a_queue_that_nobody_waits_for_has_nothing_to_wait_for() {
    let node = Node::new();
    let (cq, mut entry) = (node.cq, EMPTY);
    let at = (&raw mut entry).cast();
    assert_eq!(call!(cq.ops.sread(at, 1, null(), 0)), -(FI_EINVAL as isize));
    assert_eq!(call!(cq.ops.signal()), -FI_ENOSYS);
    assert_eq!(control(cq.cast(), FI_GETWAIT), -FI_ENOSYS);
    let (fabric, mut fid): (_, *mut Fid) = (node.fabric, cq.cast());
    assert_eq!(call!(fabric.ops.trywait(&raw mut fid, 1)), -FI_EINVAL);
    node.close();
}

fn open_eq(
    fabric: *mut corewire_ofi::fabric::FidFabric,
    flags: u64,
    wait_obj: c_int,
) -> *mut FidEq {
    let mut attr = EqAttr { size: 0, flags, wait_obj, signaling_vector: 0, wait_set: null_mut() };
    let mut eq = null_mut();
    assert_eq!(call!(fabric.ops.eq_open(&raw mut attr, &raw mut eq, null_mut())), 0);
    eq
}

#[test]
fn an_event_queue_returns_what_was_written() {
    let node = Node::new();
    let eq = open_eq(node.fabric, FI_WRITE, FI_WAIT_FD);
    let (mut number, mut entry) = (0, EqEntry { fid: null_mut(), context: null_mut(), data: 0 });
    let (at, length) = ((&raw mut entry).cast(), size_of::<EqEntry>());
    assert_eq!(call!(eq.ops.read(&raw mut number, at, length, 0)), -again());
    assert_eq!(call!(eq.ops.sread(&raw mut number, at, length, 5, 0)), -again());
    let descriptor = get_wait(eq.cast());
    assert!(!is_readable(descriptor, Duration::ZERO));
    for data in 0..5 {
        let written = EqEntry { fid: eq.cast(), context: null_mut(), data };
        assert_eq!(call!(eq.ops.write(data as u32, (&raw const written).cast(), length, 0)), 24);
    }
    assert!(is_readable(descriptor, Duration::ZERO));
    assert_eq!(call!(eq.ops.read(&raw mut number, at, 8, 0)), -(FI_ETOOSMALL as isize));
    for data in 0..5 {
        assert_eq!(call!(eq.ops.read(&raw mut number, at, length, FI_PEEK)), 24);
        assert_eq!(call!(eq.ops.sread(&raw mut number, at, length, -1, 0)), 24);
        assert_eq!((number, entry.data), (data as u32, data));
    }
    assert_eq!(call!(eq.ops.read(&raw mut number, at, length, 0)), -again());
    let silent = open_eq(node.fabric, 0, FI_WAIT_NONE);
    assert_eq!(call!(silent.ops.write(1, at, length, 0)), -(FI_EINVAL as isize));
    assert_eq!(call!(silent.ops.sread(&raw mut number, at, length, 0, 0)), -(FI_EINVAL as isize));
    assert_eq!((close(eq.cast()), close(silent.cast())), (0, 0));
    node.close();
}

#[test]
fn an_insertion_is_reported_to_the_event_queue() {
    let node = Node::new();
    let (eq, av) = (open_eq(node.fabric, 0, FI_WAIT_NONE), open_av(node.domain));
    let mut good = [node.address(); 3];
    let mut numbers = [9u64; 3];
    let (from, to) = (good.as_ptr().cast(), numbers.as_mut_ptr());
    assert_eq!(call!(av.ops.insert(from, 3, to, FI_EVENT, null_mut())), -FI_ENOEQ);
    assert_eq!(call!(av.fid.bind(eq.cast(), 0)), 0);
    assert_eq!(close(eq.cast()), -FI_EBUSY);
    good[1] = [0; ADDRESS_BYTES];
    let mut mark = 0u8;
    let context: *mut c_void = (&raw mut mark).cast();
    assert_eq!(call!(av.ops.insert(good.as_ptr().cast(), 3, to, FI_EVENT, context)), 0);
    assert_eq!(numbers, [0, u64::MAX, 1]);
    let (mut number, mut entry) = (0, EqEntry { fid: null_mut(), context: null_mut(), data: 0 });
    let (at, length) = ((&raw mut entry).cast(), size_of::<EqEntry>());
    assert_eq!(call!(eq.ops.read(&raw mut number, at, length, 0)), -available());
    let mut error = unsafe { std::mem::zeroed::<corewire_ofi::eq::EqErrEntry>() };
    assert_eq!(call!(eq.ops.readerr(&raw mut error, 0)), 48);
    assert_eq!((error.err, error.data, error.context), (FI_EINVAL, 1, context));
    assert_eq!(call!(eq.ops.read(&raw mut number, at, length, 0)), 24);
    assert_eq!((number, entry.data, entry.context), (corewire_ofi::eq::FI_AV_COMPLETE, 2, context));
    assert_eq!((close(av.cast()), close(eq.cast())), (0, 0));
    node.close();
}

#[test]
fn a_set_polls_its_members() {
    let (first, second, to, _) = pair();
    let (domain, mut set) = (second.domain, null_mut());
    let mut attr = corewire_ofi::poll::PollAttr { flags: 0 };
    assert_eq!(call!(domain.ops.poll_open(&raw mut attr, &raw mut set)), 0);
    let mut contexts = [null_mut(); 4];
    let mut mark = 0u8;
    let context: *mut c_void = (&raw mut mark).cast();
    unsafe { (*second.cq).fid.context = context };
    assert_eq!(call!(set.ops.poll_add(second.cq.cast(), 0)), 0);
    assert_eq!(call!(set.ops.poll_add(second.cq.cast(), 0)), -FI_EALREADY);
    assert_eq!(call!(set.ops.poll_add(first.cq.cast(), 0)), -FI_EDOMAIN);
    assert_eq!(call!(set.ops.poll(contexts.as_mut_ptr(), 4)), 0);
    let (mut got, mut posted) = ([0; 8], crate::driver::context());
    second.receive(1, &mut got, &mut posted);
    first.inject(to, 1, b"found");
    until(&[&first], || call!(set.ops.poll(contexts.as_mut_ptr(), 4)) == 1);
    assert_eq!(contexts[0], context);
    assert!(is_of(&read(&second, &[&first]), &mut posted));
    assert_eq!(call!(set.ops.poll_del(second.cq.cast(), 0)), 0);
    assert_eq!(call!(set.ops.poll_del(second.cq.cast(), 0)), -FI_EINVAL);
    // Members stay open until they are taken out, or the set is closed.
    let members = [FI_WAIT_NONE; 2].map(|wait| open_cq(domain, FI_CQ_FORMAT_TAGGED, wait));
    let cntr = open_cntr(domain, FI_WAIT_NONE);
    for fid in members.map(|cq| cq.cast()).into_iter().chain([cntr.cast()]) {
        assert_eq!(call!(set.ops.poll_add(fid, 0)), 0);
        assert_eq!(close(fid), -FI_EBUSY);
    }
    assert_eq!(call!(set.ops.poll_del(members[0].cast(), 0)), 0);
    assert_eq!(close(members[0].cast()), 0);
    assert_eq!(close(set.cast()), 0);
    assert_eq!((close(members[1].cast()), close(cntr.cast())), (0, 0));
    first.close();
    second.close();
}
