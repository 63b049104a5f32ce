//! Endpoints whose operations continue while the program makes no call.

use std::thread;
use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{Endpoint, MessageError, Peer, ProgressingEndpoint, Rendezvous, Selector};

/// More than fits in cells.
const LARGE: usize = 5_000_001;
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

fn message(length: usize) -> Vec<u8> {
    (0u32..).take(length).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// An endpoint with a progress thread, and one without.
fn two(scratch: &Scratch, rendezvous: Rendezvous) -> (ProgressingEndpoint, Peer, Endpoint, Peer) {
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").rendezvous(rendezvous).create().unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let (to_b, to_a) = (a.peer("b").unwrap(), b.peer("a").unwrap());
    (a.with_progress_thread().unwrap(), to_b, b, to_a)
}

const WAYS: [Rendezvous; 3] = [Rendezvous::BothSides, Rendezvous::Pull, Rendezvous::Cells];

// Keeps P145.
#[test]
fn a_receive_goes_on_while_its_program_makes_no_call() {
    for rendezvous in WAYS {
        let scratch = Scratch::new("progress-receive");
        let (a, _, mut b, to_a) = two(&scratch, rendezvous);
        let operation = a.lock().unwrap().ireceive(Selector::any(), vec![0; LARGE]).unwrap();
        // Returns when the message has been received.
        b.send(to_a, 1, &message(LARGE)).unwrap();
        b.close().unwrap();
        let end = a.lock().unwrap().wait(operation).unwrap();
        assert!(end.memory.into_vec() == message(LARGE), "{rendezvous:?}");
    }
}

// Keeps P145.
#[test]
fn a_send_goes_on_while_its_program_makes_no_call() {
    for rendezvous in WAYS {
        let scratch = Scratch::new("progress-send");
        let (a, to_b, mut b, _) = two(&scratch, rendezvous);
        let operation = a.lock().unwrap().isend(to_b, 1, message(LARGE)).unwrap();
        // Through cells it needs the sender again and again.
        assert!(b.receive(Selector::any()).unwrap() == message(LARGE), "{rendezvous:?}");
        let end = a.lock().unwrap().wait(operation).unwrap();
        assert_eq!(end.result.unwrap().bytes, LARGE as u64);
    }
}

#[test]
fn what_was_begun_before_the_thread_goes_on() {
    let scratch = Scratch::new("progress-before");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").rendezvous(Rendezvous::Cells).create().unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let to_b = a.peer("b").unwrap();
    a.isend(to_b, 1, message(LARGE)).unwrap();
    let a = a.with_progress_thread().unwrap();
    assert!(b.receive(Selector::any()).unwrap() == message(LARGE));
    let mut a = a.into_endpoint().unwrap();
    a.send(to_b, 2, b"without the thread").unwrap();
    assert!(b.receive(Selector::any()).unwrap() == *b"without the thread");
}

// Keeps P145.
#[test]
fn threads_take_turns_with_the_one_that_makes_progress() {
    const EACH: u64 = 200;
    let scratch = Scratch::new("progress-turns");
    let (a, to_b, mut b, _) = two(&scratch, Rendezvous::BothSides);
    thread::scope(|scope| {
        // The thread always has something to do.
        scope.spawn(|| {
            (0..EACH).for_each(|number| {
                let large = a.lock().unwrap().isend(to_b, number, message(1 << 18)).unwrap();
                while a.lock().unwrap().test(large).unwrap().is_none() {
                    thread::yield_now();
                }
            })
        });
        scope.spawn(|| {
            (0..EACH).for_each(|number| {
                a.lock().unwrap().send(to_b, EACH + number, &number.to_le_bytes()).unwrap();
            })
        });
        for _ in 0..2 * EACH {
            let got = b.receive(Selector::any()).unwrap();
            let is_large = got.tag() < EACH;
            assert_eq!(got.len(), if is_large { 1 << 18 } else { 8 });
        }
    });
}

#[test]
fn an_interruption_is_for_the_next_call() {
    let scratch = Scratch::new("progress-interrupt");
    let (a, to_b, mut b, _) = two(&scratch, Rendezvous::BothSides);
    let interrupter = a.lock().unwrap().interrupter();
    let operation = a.lock().unwrap().ireceive(Selector::any(), vec![0; 8]).unwrap();
    // While the thread has something to wait for, it may learn of it first.
    a.lock().unwrap().isend(to_b, 1, message(LARGE)).unwrap();
    interrupter.interrupt();
    assert!(b.receive(Selector::any()).unwrap() == message(LARGE));
    let late = a.lock().unwrap().within(LONG).wait(operation);
    assert!(matches!(late, Err(MessageError::Interrupted)), "{late:?}");
    interrupter.interrupt();
    let mut a = a.into_endpoint().unwrap();
    let late = a.within(LONG).wait(operation);
    assert!(matches!(late, Err(MessageError::Interrupted)), "{late:?}");
}

#[test]
fn an_endpoint_that_is_dropped_leaves() {
    let scratch = Scratch::new("progress-drop");
    let (a, _, mut b, to_a) = two(&scratch, Rendezvous::BothSides);
    a.lock().unwrap().ireceive(Selector::any(), vec![0; 8]).unwrap();
    drop(a);
    let end = b.receive(Selector::any().from(to_a));
    assert!(matches!(end, Err(MessageError::PeerLeft { .. })), "{end:?}");
}

#[test]
fn a_sender_learns_that_its_message_was_received_once_there_is_room_to_say_so() {
    let scratch = Scratch::new("progress-notice");
    let domain = scratch.domain();
    let mut a = domain.endpoint("a").create().unwrap();
    let mut b = domain.endpoint("b").create().unwrap();
    let (to_b, to_a) = (a.peer("b").unwrap(), b.peer("a").unwrap());
    // Until nothing fits in the ring any more, not even that the message was received.
    while a.try_send(to_b, 2, b"short").is_ok() {}
    let a = a.with_progress_thread().unwrap();
    let receive = a.lock().unwrap().ireceive(Selector::any(), vec![0; LARGE]).unwrap();
    let send = b.isend(to_a, 1, message(LARGE)).unwrap();
    while a.lock().unwrap().counter("pulled").unwrap() == 0 {
        thread::yield_now();
    }
    // From now on `a` has no operation any more, and its program makes no call.
    let end = b.within(Duration::from_secs(60)).wait(send).unwrap();
    assert!(end.is_some_and(|end| end.result.is_ok()));
    let end = a.lock().unwrap().wait(receive).unwrap();
    assert!(end.memory.into_vec() == message(LARGE));
}

#[test]
fn a_panic_of_its_program_stops_nothing() {
    let scratch = Scratch::new("progress-panic");
    let (a, to_b, mut b, _) = two(&scratch, Rendezvous::Cells);
    let panicked = thread::scope(|scope| {
        let program = || {
            let mut guard = a.lock().unwrap();
            guard.isend(to_b, 1, message(LARGE)).unwrap();
            panic!("while it has the lock");
        };
        scope.spawn(program).join()
    });
    assert!(panicked.is_err());
    assert!(b.receive(Selector::any()).unwrap() == message(LARGE));
    a.lock().unwrap().send(to_b, 2, b"later").unwrap();
    assert!(b.receive(Selector::any()).unwrap() == *b"later");
}
