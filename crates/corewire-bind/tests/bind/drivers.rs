//! What holds over every driver.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use corewire_bind::{Binding, CallError, Capabilities, Driver, Identity, Message};

/// Those that need nothing special: `lmp` is `ump` on one core.
#[cfg(not(feature = "net"))]
const DRIVERS: [Driver; 3] = [Driver::Local, Driver::Ump, Driver::Sock];
#[cfg(feature = "net")]
const DRIVERS: [Driver; 4] = [Driver::Local, Driver::Ump, Driver::Sock, Driver::Net];

fn none() -> Capabilities<'static> {
    Capabilities::new()
}

fn each(test: impl Fn(Driver, &mut Binding)) {
    for driver in DRIVERS {
        let place = Place::new();
        let running = Running::start(&place.domain);
        let mut binding = place.bind(driver);
        assert_eq!(binding.driver(), driver);
        test(driver, &mut binding);
        drop(binding);
        running.end();
    }
}

fn echo(binding: &mut Binding, bytes: &[u8]) -> Vec<u8> {
    binding.call(ECHO, bytes, &none(), BYTES_MAX, None).unwrap().to_vec()
}

// Keeps P180.
#[test]
fn calls_of_every_length_return_what_was_sent() {
    each(|_, binding| {
        for length in [0, 1, 48, 49, 160, 161, 4096, 40_000, 70_000, 1 << 20] {
            let bytes = (0..length).map(|index: u32| index.to_le_bytes()[0]).collect::<Vec<_>>();
            assert_eq!(echo(binding, &bytes), bytes, "{length} bytes");
        }
        assert_eq!(binding.call_fixed::<4>("echo", ECHO, &[1, 2, 3, 4], None), Ok([1, 2, 3, 4]));
        assert_eq!(
            binding.call_fixed::<4>("echo", ECHO, &[1; 5], None).unwrap_err().to_string(),
            "echo: 5 bytes arrived where 4 were due"
        );
    });
}

// Keeps P183.
#[test]
fn the_service_knows_its_clients_by_the_kernels_word() {
    for driver in DRIVERS {
        let place = Place::new();
        let running = Running::start(&place.domain);
        let mut binding = place.bind(driver);
        if driver == Driver::Net {
            // The kernel knows nothing of another host.
            assert_eq!(binding.identity(), Identity::FAR);
            echo(&mut binding, b"here");
            assert_eq!(running.end().bound[0].1, Identity::FAR);
            continue;
        }
        assert_eq!(binding.identity().pid, std::process::id());
        echo(&mut binding, b"here");
        drop(binding);
        let mut last = place.bind(driver);
        echo(&mut last, b"so the first one's end has been seen, or will be");
        let echo = running.end();
        assert_eq!(echo.bound.len(), 2);
        assert_eq!(echo.bound[0].1.pid, std::process::id());
        assert_ne!(echo.bound[0].0, echo.bound[1].0);
    }
}

// Keeps P180.
#[test]
fn messages_keep_their_order_among_calls() {
    each(|_, binding| {
        for number in 0..1000_u32 {
            binding.send(NOTE, &number.to_le_bytes(), &none(), None).unwrap();
        }
        let log = binding.call(LOG, &[], &none(), BYTES_MAX, None).unwrap();
        let expected = (0..1000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        assert_eq!(*log, *expected);
    });
}

// Keeps P180.
#[test]
fn many_calls_are_under_way_and_end_in_any_order() {
    each(|_, binding| {
        let start = |binding: &mut Binding, length: usize| {
            let decode = |reply: Result<Message, CallError>| reply.map(|reply| reply[0]);
            binding.start(HELD, &vec![0; length], &none(), 8, decode).unwrap()
        };
        let pending = (1..=100).map(|length| start(binding, length)).collect::<Vec<_>>();
        let mut dropped = start(binding, 200);
        assert_eq!(dropped.try_wait(&mut Client(binding)), None);
        drop(dropped);
        binding.call(RELEASE, &[], &none(), 0, None).unwrap();
        for (pending, length) in pending.into_iter().zip(1..) {
            assert_eq!(pending.wait(&mut Client(binding)), Ok(length));
        }
        echo(binding, b"after the late reply");
        assert_eq!(binding.late_replies(), 1);
    });
}

struct Client<'a>(&'a mut Binding);

impl AsMut<Binding> for Client<'_> {
    fn as_mut(&mut self) -> &mut Binding {
        self.0
    }
}

#[test]
fn a_deadline_ends_a_call_and_its_late_reply_is_discarded() {
    each(|_, binding| {
        let after = Duration::from_millis(20);
        let late = binding.call(HELD, b"x", &none(), 8, Some(after));
        assert_eq!(late.unwrap_err(), CallError::Timeout { after });
        binding.call(RELEASE, &[], &none(), 0, None).unwrap();
        assert_eq!(echo(binding, b"next"), b"next");
        assert_eq!(binding.late_replies(), 1);
    });
}

#[test]
fn a_request_that_is_dropped_or_unknown_ends_with_an_error() {
    each(|_, binding| {
        let mut call = |ordinal| binding.call(ordinal, &[], &none(), 0, None).unwrap_err();
        assert_eq!(call(DROPPED), CallError::Dropped);
        assert_eq!(call(99), CallError::Unknown);
        echo(binding, b"and it goes on");
    });
}

// Keeps P181.
#[test]
fn events_that_nobody_takes_hold_up_no_call() {
    each(|driver, binding| {
        let count = 50_000_u64;
        // The reply of this one leaves the service behind all events.
        let behind = binding.start(HELD, b"x", &none(), 8, |reply| reply.map(drop)).unwrap();
        binding.call(BURST, &count.to_le_bytes(), &none(), 0, None).unwrap();
        for number in 0..100_u32 {
            assert_eq!(echo(binding, &number.to_le_bytes()), number.to_le_bytes());
        }
        binding.call(RELEASE, &[], &none(), 0, None).unwrap();
        assert_eq!(behind.wait(&mut Client(binding)), Ok(()));
        // Nothing is missing without a word.
        let (mut next, mut lost) = (0, 0);
        while next < count {
            match binding.event(None) {
                Ok((EVENT, event)) => {
                    assert_eq!(u64::from_le_bytes(*event.first_chunk().unwrap()), next);
                    next += 1;
                }
                Err(CallError::EventsLost { count }) => (next, lost) = (next + count, lost + count),
                other => panic!("{driver}: {other:?}"),
            }
        }
        assert!(lost > 0 && lost < count, "{driver}: {lost} lost");
        binding.call(BURST, &1_u64.to_le_bytes(), &none(), 0, None).unwrap();
        assert_eq!(binding.event(None).unwrap().0, EVENT);
    });
}

// Keeps P181.
#[test]
fn events_that_are_taken_are_all_there() {
    each(|driver, binding| {
        for _ in 0..20 {
            binding.call(BURST, &500_u64.to_le_bytes(), &none(), 0, None).unwrap();
            for number in 0..500_u64 {
                let (ordinal, event) = binding.event(None).unwrap();
                assert_eq!(
                    (ordinal, event[..8].to_vec()),
                    (EVENT, number.to_le_bytes().to_vec()),
                    "{driver}"
                );
            }
        }
        assert!(binding.try_event().unwrap().is_none());
    });
}

// Keeps P180, P264.
#[test]
fn descriptors_travel_with_their_messages() {
    each(|driver, binding| {
        let open = |text: &str| {
            let file = rustix::fs::memfd_create("right", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::io::write(&file, text.as_bytes()).unwrap();
            file
        };
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        if driver == Driver::Net {
            let file = open("here");
            let mut capabilities = Capabilities::new();
            capabilities.descriptor(file.as_fd());
            let refused = binding.call(RIGHTS, b"two", &capabilities, 100, None);
            assert_eq!(refused.unwrap_err(), CallError::NotTransferable);
            echo(binding, b"and it goes on");
            return;
        }
        for _ in 0..300 {
            let (first, second) = (open("first"), open("second"));
            let mut capabilities = Capabilities::new();
            capabilities.descriptor(first.as_fd());
            capabilities.descriptor(second.as_fd());
            let mut reply = binding.call(RIGHTS, b"two", &capabilities, 100, None).unwrap();
            let (bytes, mut arrived) = reply.parts("rights");
            assert_eq!(bytes, b"swapped");
            let found = [arrived.descriptor().unwrap(), arrived.descriptor().unwrap()];
            arrived.finish().unwrap();
            assert_eq!(found.each_ref().map(inode), [inode(&second), inode(&first)], "{driver}");
        }
        let missing = binding.call(RIGHTS, b"none", &none(), 100, None);
        assert_eq!(missing.unwrap_err(), CallError::Dropped, "{driver}");
    });
}

#[test]
fn one_message_is_kept_and_the_next_one_may_go_when_it_has_gone() {
    each(|driver, binding| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut sent = 0_u64;
        let kept = loop {
            let told = Arc::clone(&told);
            let then = move |result: Result<(), CallError>| {
                result.unwrap();
                told.lock().unwrap().push(sent);
            };
            match binding.send_then(NOTE, &[7; 160], &none(), then) {
                Ok(()) => sent += 1,
                Err(CallError::Busy) => break true,
                Err(error) => panic!("{driver}: {error}"),
            }
            if sent == 20_000 {
                // The service was faster all the time.
                break false;
            }
        };
        assert!(binding.flush(None).unwrap());
        assert_eq!(told.lock().unwrap().len() as u64, sent, "{driver}: kept {kept}");
        let log = binding.call(LOG, &[], &none(), u32::MAX, None);
        if let Ok(log) = log {
            assert_eq!(log.len() as u64, sent * 160, "{driver}");
        }
    });
}

#[test]
fn continuations_get_replies() {
    each(|driver, binding| {
        let sum = Arc::new(Mutex::new(0_usize));
        for length in 1..=50 {
            let sum = Arc::clone(&sum);
            let then = move |reply: Result<Message, CallError>| {
                *sum.lock().unwrap() += reply.unwrap().len()
            };
            binding.call_then(ECHO, &vec![1; length], &none(), 64, then).unwrap();
        }
        while *sum.lock().unwrap() < (1..=50).sum() {
            binding.wait(None).unwrap();
        }
        assert_eq!(*sum.lock().unwrap(), 1275, "{driver}");
    });
}

#[test]
fn the_end_of_the_service_ends_what_waits_for_it() {
    for driver in DRIVERS {
        let place = Place::new();
        let running = Running::start(&place.domain);
        let mut binding = place.bind(driver);
        let pending = binding.start(HELD, b"x", &none(), 8, |reply| reply.map(drop)).unwrap();
        let told = Arc::new(Mutex::new(None));
        let place_of = Arc::clone(&told);
        let then = move |reply: Result<Message, CallError>| {
            *place_of.lock().unwrap() = Some(reply.map(drop))
        };
        binding.call_then(HELD, b"y", &none(), 8, then).unwrap();
        drop(running.end());
        let end = pending.wait(&mut Client(&mut binding)).unwrap_err();
        assert!(
            matches!(end, CallError::PeerLeft { .. } | CallError::Dropped),
            "{driver}: {end:?}"
        );
        while binding.wait(None).is_ok() {}
        assert!(told.lock().unwrap().is_some(), "{driver}");
        let end = binding.call(ECHO, b"z", &none(), 8, None).unwrap_err();
        assert_eq!(end, CallError::PeerLeft { name: Place::name(driver).into() }, "{driver}");
    }
}
