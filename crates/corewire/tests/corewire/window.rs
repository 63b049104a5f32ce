//! Windows: what is put is there, rights and sizes are kept, and participants agree by locks, fences, epochs and counters.

use std::thread;
use std::time::Duration;

use corewire::{
    AttachError, ChannelName, CreateError, Domain, JoinError, NameUse, Observed, Reason, Wait,
    Window, WindowCreateError, WindowError, WindowHandle, WindowLocking, WindowRights,
};

use crate::scratch::Scratch;

const SHORT: Duration = Duration::from_millis(5);

fn domain(scratch: &Scratch) -> &Domain {
    scratch.domain()
}

/// A window of `bytes` bytes, of its owner and of another participant.
fn two(domain: &Domain, bytes: u64) -> (Window, Window) {
    let owner = domain.window("w", bytes).create().unwrap();
    let other = domain.attach_window("w", WindowRights::ATOMIC).unwrap();
    (owner, other)
}

fn bytes_of(window: &Window, offset: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    window.get(offset, &mut bytes).unwrap();
    bytes
}

// Keeps P246.
#[test]
fn what_one_puts_the_other_gets() {
    let scratch = Scratch::new("window-put");
    let domain = domain(&scratch);
    let (owner, other) = two(domain, 10_000);
    assert_eq!((owner.bytes(), other.bytes(), owner.name()), (10_000, 10_000, "w"));
    other.put(9_990, b"0123456789").unwrap();
    assert_eq!(bytes_of(&owner, 9_989, 11), b"\x000123456789");
    owner.put(0, &[]).unwrap();
    owner.put(10_000, &[]).unwrap();
    // An address of the owner is an offset everywhere.
    let address = owner.target_address() + 9_991;
    assert_eq!(other.offset_of(address), Ok(9_991));
    let error = other.offset_of(owner.target_address() + 10_000).unwrap_err();
    assert!(matches!(error, WindowError::Address { .. }), "{error}");
}

// Keeps P246.
#[test]
fn lists_are_copied_part_by_part() {
    let scratch = Scratch::new("window-parts");
    let domain = domain(&scratch);
    let (owner, other) = two(domain, 100);
    other.put_parts(&[b"abc", b"", b"defg"], &[(50, 1), (7, 0), (0, 4), (98, 2)]).unwrap();
    assert_eq!(bytes_of(&owner, 0, 4), b"bcde");
    assert_eq!((bytes_of(&owner, 50, 1), bytes_of(&owner, 98, 2)), (b"a".into(), b"fg".into()));
    let (mut one, mut two, mut none) = ([0; 5], [0; 2], [0; 0]);
    owner.get_parts(&[(98, 2), (0, 4), (50, 1)], &mut [&mut none, &mut one, &mut two]).unwrap();
    assert_eq!((&one, &two), (b"fgbcd", b"ea"));
    owner.put_parts(&[], &[]).unwrap();

    let error = owner.put_parts(&[b"abc"], &[(0, 2)]).unwrap_err();
    assert_eq!(error, WindowError::Lengths { source_bytes: 3, target_bytes: 2 });
    let error = owner.put_parts(&[b"abc"], &[(0, 2), (100, 1)]).unwrap_err();
    assert!(matches!(error, WindowError::Range { offset: 100, bytes: 1, .. }), "{error}");
    let error = owner.put_parts(&[b"abc"], &[(0, 3), (u64::MAX, 0)]).unwrap_err();
    assert!(matches!(error, WindowError::Range { offset: u64::MAX, .. }), "{error}");
    assert_eq!(bytes_of(&owner, 0, 4), b"bcde", "nothing was copied");
}

#[test]
fn numbers_are_changed_in_place() {
    let scratch = Scratch::new("window-numbers");
    let domain = domain(&scratch);
    let (owner, other) = two(domain, 64);
    let (mine, theirs) = (owner.at::<u64>(8).unwrap(), other.at::<u64>(8).unwrap());
    mine.store(5);
    assert_eq!((theirs.load(), theirs.fetch_add(2), mine.load()), (5, 5, 7));
    assert_eq!(mine.compare_exchange(6, 0), Err(7));
    assert_eq!(owner.load::<u64>(8), Ok(7));
    other.at::<f32>(4).unwrap().store(0.5);
    assert_eq!(owner.at::<f32>(4).unwrap().fetch_add(0.25).to_bits(), 0.5f32.to_bits());
    assert_eq!(other.load::<f32>(4).unwrap().to_bits(), 0.75f32.to_bits());
}

#[test]
fn many_threads_add_to_one_number() {
    let scratch = Scratch::new("window-add");
    let domain = domain(&scratch);
    let owner = domain.window("sum", 8).create().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            let other = domain.attach_window("sum", WindowRights::ATOMIC).unwrap();
            scope.spawn(move || {
                let sum = other.at::<f64>(0).unwrap();
                for _ in 0..1000 {
                    sum.fetch_add(0.5);
                }
            });
        }
    });
    assert_eq!(owner.load::<f64>(0).unwrap().to_bits(), 2000f64.to_bits());
}

// Keeps P246.
#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    let scratch = Scratch::new("window-range");
    let domain = domain(&scratch);
    let (owner, _other) = two(domain, 100);
    let error = owner.put(96, &[0; 5]).unwrap_err();
    assert_eq!(error.to_string(), "5 bytes at offset 96 of window w, which has 100 bytes");
    assert!(matches!(owner.get(u64::MAX, &mut [0; 2]), Err(WindowError::Range { .. })));
    assert!(matches!(owner.at::<u64>(96), Err(WindowError::Range { .. })));
    let error = owner.at::<u32>(6).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a number of 4 bytes at offset 6 of window w: use a multiple of 4"
    );
    assert!(owner.at::<u32>(96).is_ok());
    let error = owner.count(32, 1).unwrap_err();
    assert_eq!(error.to_string(), "counter 32: a window has counters 0 to 31");
}

// Keeps P246.
#[test]
fn a_participant_does_what_its_rights_allow() {
    let scratch = Scratch::new("window-rights");
    let domain = domain(&scratch);
    let owner = domain.window("w", 64).rights_of_others(WindowRights::WRITE).create().unwrap();
    let error = domain.attach_window("w", WindowRights::ATOMIC).unwrap_err();
    assert_eq!(error.to_string(), "window w gives this process the rights write, not atomic");
    let writer = domain.attach_window("w", WindowRights::WRITE).unwrap();
    let reader = domain.attach_window("w", WindowRights::READ).unwrap();
    writer.put(0, &7u64.to_le_bytes()).unwrap();
    assert_eq!(reader.load::<u64>(0), Ok(7));
    let error = writer.at::<u64>(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "this needs the rights atomic on window w; this participant has write"
    );
    let error = reader.put(0, b"x").unwrap_err();
    assert!(matches!(error, WindowError::Rights { .. }), "{error}");
    assert!(matches!(reader.count(0, 1), Err(WindowError::Rights { .. })));
    owner.at::<u64>(0).unwrap().store(8);
    assert_eq!(reader.load::<u64>(0), Ok(8));
}

#[test]
fn a_window_has_a_name_of_its_own() {
    let scratch = Scratch::new("window-names");
    let domain = domain(&scratch);
    let error = domain.attach_window("w", WindowRights::READ).unwrap_err();
    assert_eq!(error.to_string(), "window w does not exist");
    let error = domain.attach_window_when_created("w", WindowRights::READ, Some(SHORT));
    assert!(matches!(error, Err(AttachError::NotCreated { .. })), "{error:?}");
    let (owner, other) = two(domain, 100);
    assert_eq!(domain.windows().unwrap(), [ChannelName::new("w").unwrap()]);
    let error = domain.window("w", 1).create().unwrap_err();
    let text = format!("window w already exists: process {} has it", std::process::id());
    assert_eq!(error.to_string(), text);
    let error = domain.sender("w").create().unwrap_err();
    assert!(
        matches!(&error, CreateError::AlreadyExists(used) if used.kind == NameUse::Window),
        "{error}"
    );
    let error = domain.receiver("w").join().unwrap_err();
    assert_eq!(error.to_string(), "w is an endpoint, a listener or a window, not a channel");
    assert!(matches!(
        domain.observe("w"),
        Err(JoinError::NotAWindow(_) | JoinError::NotAChannel(_))
    ));

    let _channel = domain.sender("c").create().unwrap();
    let error = domain.attach_window("c", WindowRights::READ).unwrap_err();
    assert_eq!(error.to_string(), "c is a channel, an endpoint or a listener, not a window");
    assert!(matches!(domain.window("", 1).create(), Err(WindowCreateError::Name(_))));
    assert_eq!(
        domain.window("v", 0).create().unwrap_err().to_string(),
        "a window of 0 bytes: it needs at least one"
    );
    let error = domain.window("v", 1).participants_max(1025).create().unwrap_err();
    assert_eq!(error.to_string(), "a window of 1025 participants: 1 to 1024 are possible");

    drop((owner, other));
    assert!(domain.windows().unwrap().is_empty());
    assert!(domain.window("w", 1).create().is_ok());
}

#[test]
fn a_handle_names_one_window() {
    let scratch = Scratch::new("window-handles");
    let domain = domain(&scratch);
    let (owner, other) = two(domain, 100);
    assert_eq!(owner.handle(), other.handle());
    let handle = WindowHandle::of_bytes(&owner.handle().to_bytes()).unwrap();
    assert_eq!(handle, owner.handle());
    assert_eq!(domain.window_handle("w").unwrap(), handle);
    let third = domain.attach_window_of(&handle, WindowRights::READ).unwrap();
    assert_eq!(third.bytes(), 100);
    drop((owner, other, third));
    assert!(matches!(domain.window_handle("w").unwrap_err(), AttachError::NotFound(_)));
    let later = domain.window("w", 5).create().unwrap();
    assert_eq!(domain.window_handle("w").unwrap(), later.handle());
    let _endpoint = domain.endpoint("e").create().unwrap();
    assert!(matches!(domain.window_handle("e").unwrap_err(), AttachError::NotAWindow(_)));
    let error = domain.attach_window_of(&handle, WindowRights::READ).unwrap_err();
    assert!(matches!(error, AttachError::NotFound(_)), "{error}");
    for bytes in [&b""[..], &[0; 33], &[1; 32], &[1; 400], &[255; 40]] {
        let error = WindowHandle::of_bytes(bytes).unwrap_err();
        assert!(matches!(error, AttachError::NotAHandle { .. }), "{error}");
    }
}

#[test]
fn rows_are_given_again() {
    let scratch = Scratch::new("window-full");
    let domain = domain(&scratch);
    let owner = domain.window("w", 100).participants_max(2).create().unwrap();
    let first = domain.attach_window("w", WindowRights::READ).unwrap();
    let error = domain.attach_window("w", WindowRights::READ).unwrap_err();
    assert!(
        matches!(&error, AttachError::Refused { reason: Reason::WindowFull { max: 2 }, .. }),
        "{error}"
    );
    let rows: Vec<_> = owner.participants().iter().map(|(one, pid)| (one.row(), *pid)).collect();
    assert_eq!(rows, [(0, std::process::id()), (1, std::process::id())]);
    let before = first.participant();
    drop(first);
    // The owner's control thread takes the row back when it has heard of it.
    let second = loop {
        match domain.attach_window("w", WindowRights::READ) {
            Ok(second) => break second,
            Err(error) => assert!(matches!(error, AttachError::Refused { .. }), "{error}"),
        }
        thread::yield_now();
    };
    assert_ne!(second.participant(), before);
    assert_eq!(second.participant().unwrap().row(), 1);
}

// Keeps P248.
#[test]
fn the_lock_is_for_one_or_for_readers() {
    let scratch = Scratch::new("window-lock");
    let domain = domain(&scratch);
    let (mut owner, mut other) = two(domain, 8);
    let mut third = domain.attach_window("w", WindowRights::READ).unwrap();
    let held = owner.lock(WindowLocking::Exclusive).unwrap();
    assert!(other.try_lock(WindowLocking::Exclusive).unwrap().is_none());
    assert!(other.try_lock(WindowLocking::Shared).unwrap().is_none());
    assert!(other.lock_timeout(WindowLocking::Shared, SHORT).unwrap().is_none());
    held.put(0, b"held").unwrap();
    drop(held);
    let one = other.lock(WindowLocking::Shared).unwrap();
    let two = third.lock(WindowLocking::Shared).unwrap();
    assert_eq!(bytes_of(&one, 0, 4), b"held");
    assert!(owner.lock_timeout(WindowLocking::Exclusive, SHORT).unwrap().is_none());
    drop(one);
    assert!(owner.try_lock(WindowLocking::Exclusive).unwrap().is_none());
    drop(two);
    assert!(owner.try_lock(WindowLocking::Exclusive).unwrap().is_some());
}

// Keeps P248.
#[test]
fn sums_under_the_lock_are_exact() {
    let scratch = Scratch::new("window-sums");
    let domain = domain(&scratch);
    for wait in [Wait::Adaptive, Wait::Park] {
        let mut owner = domain.window("w", 8).create().unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                let mut other = domain.attach_window("w", WindowRights::ATOMIC).unwrap();
                other.set_wait(wait);
                scope.spawn(move || {
                    for _ in 0..300 {
                        let held = other.lock(WindowLocking::Exclusive).unwrap();
                        let sum = held.load::<u64>(0).unwrap();
                        held.put(0, &(sum + 1).to_le_bytes()).unwrap();
                        drop(held);
                        let held = other.lock(WindowLocking::Shared).unwrap();
                        assert!(held.load::<u64>(0).unwrap() > sum);
                    }
                });
            }
        });
        let held = owner.lock(WindowLocking::Exclusive).unwrap();
        assert_eq!(held.load::<u64>(0), Ok(900));
    }
}

#[test]
fn a_participant_that_leaves_with_the_lock_gives_it_back() {
    let scratch = Scratch::new("window-forgotten");
    let domain = domain(&scratch);
    let (mut owner, mut other) = two(domain, 8);
    std::mem::forget(other.lock(WindowLocking::Exclusive).unwrap());
    assert!(owner.try_lock(WindowLocking::Shared).unwrap().is_none());
    let error = other.lock(WindowLocking::Exclusive).unwrap_err();
    assert_eq!(error.to_string(), "this participant of window w has its lock already");
    drop(other);
    owner.lock(WindowLocking::Exclusive).unwrap().put(0, b"x").unwrap();
}

// Keeps P249.
#[test]
fn a_fence_waits_for_so_many() {
    let scratch = Scratch::new("window-fence");
    let domain = domain(&scratch);
    let (mut owner, mut other) = two(domain, 16);
    owner.put(0, &1u64.to_le_bytes()).unwrap();
    assert_eq!(owner.fence_timeout(2, SHORT), Ok(false));
    other.put(8, &2u64.to_le_bytes()).unwrap();
    other.fence(2).unwrap();
    assert_eq!(other.load::<u64>(0), Ok(1));
    owner.fence(2).unwrap();
    assert_eq!(owner.load::<u64>(8), Ok(2));

    let far = thread::spawn(move || {
        for step in 0..200u64 {
            other.put(0, &step.to_le_bytes()).unwrap();
            other.fence(2).unwrap();
            other.fence(2).unwrap();
        }
        other
    });
    for step in 0..200u64 {
        owner.fence(2).unwrap();
        assert_eq!(owner.load::<u64>(0), Ok(step));
        owner.fence(2).unwrap();
    }
    // One that comes while others wait has not entered their fence, and can do so.
    let mut other = far.join().unwrap();
    assert_eq!(owner.fence_timeout(3, SHORT), Ok(false));
    let mut late = domain.attach_window("w", WindowRights::READ).unwrap();
    assert_eq!(owner.fence_timeout(3, SHORT), Ok(false));
    assert_eq!(late.fence_timeout(3, SHORT), Ok(false));
    other.fence(3).unwrap();
    for window in [&mut owner, &mut late] {
        window.fence(3).unwrap();
    }
    // One that has gone is missed, though another one is there that has never taken part.
    let _idle = domain.attach_window("w", WindowRights::READ).unwrap();
    drop(late);
    let error = owner.fence(3).unwrap_err();
    assert_eq!(error.to_string(), "participant 2 of window w has gone");
    let error = other.fence(3).unwrap_err();
    assert!(matches!(error, WindowError::Gone { .. }), "{error}");
    thread::scope(|scope| {
        scope.spawn(|| other.fence(2).unwrap());
        owner.fence(2).unwrap();
    });
}

#[test]
fn an_epoch_is_opened_started_completed_and_waited_for() {
    let scratch = Scratch::new("window-epochs");
    let domain = domain(&scratch);
    let (mut owner, mut other) = two(domain, 16);
    let who = other.participant().unwrap();
    assert_eq!(other.start_timeout(SHORT), Ok(false));
    owner.wait().unwrap();
    let far = thread::spawn(move || {
        for epoch in 0..100u64 {
            other.start().unwrap();
            assert_eq!(other.load::<u64>(0), Ok(epoch));
            other.put(8, &(epoch + 1).to_le_bytes()).unwrap();
            other.complete().unwrap();
        }
        other
    });
    for epoch in 0..100u64 {
        owner.put(0, &epoch.to_le_bytes()).unwrap();
        owner.post(&[who]).unwrap();
        owner.wait().unwrap();
        assert_eq!(owner.load::<u64>(8), Ok(epoch + 1));
    }
    let mut other = far.join().unwrap();
    owner.post(&[who]).unwrap();
    assert_eq!(owner.wait_timeout(SHORT), Ok(false));
    other.complete().unwrap();
    assert_eq!(owner.wait_timeout(SHORT), Ok(false), "it has not started one");
    assert!(matches!(other.post(&[who]), Err(WindowError::NotOwner(_))));
    assert!(matches!(other.wait(), Err(WindowError::NotOwner(_))));
    assert!(matches!(owner.start(), Err(WindowError::Owner(_))));
    assert!(matches!(owner.complete(), Err(WindowError::Owner(_))));
    let own = owner.participant().unwrap();
    assert!(matches!(owner.post(&[own]), Err(WindowError::Owner(_))));
    drop(other);
    assert!(matches!(owner.wait(), Err(WindowError::Gone { row: 1, .. })));
    owner.wait().unwrap();
    assert!(matches!(owner.post(&[who]), Err(WindowError::Gone { row: 1, .. })));
}

// Keeps P249.
#[test]
fn counters_say_what_has_been_put() {
    let scratch = Scratch::new("window-counters");
    let domain = domain(&scratch);
    let (mut owner, other) = two(domain, 1 << 16);
    assert_eq!(owner.wait_counter_timeout(0, 1, SHORT), Ok(None));
    let far = thread::spawn(move || {
        for block in 0..64u64 {
            other.put_counted(1024 * block, &[block.to_le_bytes()[0]; 1024], 31).unwrap();
        }
        assert!(matches!(other.put_counted(1 << 16, b"x", 31), Err(WindowError::Range { .. })));
        assert!(matches!(other.put_counted(0, b"x", 32), Err(WindowError::Counter { asked: 32 })));
        other
    });
    for block in 0..64u64 {
        assert!(owner.wait_counter(31, block + 1).unwrap() > block);
        assert_eq!(bytes_of(&owner, 1024 * block, 1024), [block.to_le_bytes()[0]; 1024]);
    }
    far.join().unwrap();
    assert_eq!(owner.counter(31), Ok(64));
}

// Keeps P249.
#[test]
fn a_window_that_is_closed_ends_what_waits() {
    let scratch = Scratch::new("window-closed");
    let domain = domain(&scratch);
    let (owner, mut other) = two(domain, 100);
    let mut waits = domain.attach_window("w", WindowRights::READ).unwrap();
    let waiting = thread::spawn(move || waits.wait_counter(0, 1));
    drop(owner);
    let error = waiting.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "window w was closed by its owner");
    let closed = |error: WindowError| matches!(error, WindowError::Closed(_));
    assert!(closed(other.lock(WindowLocking::Exclusive).unwrap_err()));
    assert!(closed(other.fence(2).unwrap_err()));
    assert!(closed(other.start().unwrap_err()));
    assert!(closed(other.put(0, b"x").unwrap_err()));
}

#[test]
fn a_window_that_is_closed_gives_nobody_the_lock_of_another_one() {
    let scratch = Scratch::new("window-closed-locked");
    let domain = domain(&scratch);
    for _ in 0..20 {
        let (owner, mut other) = two(domain, 100);
        let mut waits = domain.attach_window("w", WindowRights::READ).unwrap();
        let held = other.lock(WindowLocking::Exclusive).unwrap();
        let waiting = thread::spawn(move || waits.lock(WindowLocking::Exclusive).map(drop));
        drop(owner);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, WindowError::Closed(_)), "{error}");
        drop(held);
    }
}

#[test]
fn nobody_attaches_without_a_right() {
    let scratch = Scratch::new("window-none");
    let domain = domain(&scratch);
    let _owner = domain.window("w", 64).rights_of_others(WindowRights::NONE).create().unwrap();
    for rights in [WindowRights::NONE, WindowRights::READ] {
        let error = domain.attach_window("w", rights).unwrap_err();
        assert!(matches!(error, AttachError::Rights { .. }), "{error}");
    }
    drop(_owner);
    let _owner = domain.window("w", 64).create().unwrap();
    let error = domain.attach_window("w", WindowRights::NONE).unwrap_err();
    assert!(matches!(error, AttachError::Rights { .. }), "{error}");
}

#[test]
fn more_than_there_is_is_refused() {
    let scratch = Scratch::new("window-large");
    let domain = domain(&scratch);
    for bytes in [1 << 46, u64::MAX] {
        let error = domain.window("w", bytes).create().unwrap_err();
        assert!(matches!(&error, WindowCreateError::Os(_)), "{error}");
        assert!(error.to_string().contains(&bytes.to_string()) || bytes == 1 << 46, "{error}");
    }
    // Its name is free.
    assert!(domain.window("w", 1).create().is_ok());
}

#[test]
fn another_thread_ends_a_wait() {
    let scratch = Scratch::new("window-interrupted");
    let domain = domain(&scratch);
    let (mut owner, mut other) = two(domain, 100);
    let held = other.lock(WindowLocking::Shared).unwrap();
    let interrupter = owner.interrupter();
    let waiting = thread::spawn(move || {
        let error = owner.lock(WindowLocking::Exclusive).unwrap_err();
        (owner, error)
    });
    interrupter.interrupt();
    let (mut owner, error) = waiting.join().unwrap();
    assert_eq!(error, WindowError::Interrupted);
    // What was claimed has been given back.
    drop(held);
    assert!(other.try_lock(WindowLocking::Exclusive).unwrap().is_some());
    assert!(owner.try_lock(WindowLocking::Exclusive).unwrap().is_some());
}

#[test]
fn an_observer_sees_who_takes_part() {
    let scratch = Scratch::new("window-observed");
    let domain = domain(&scratch);
    let (owner, mut other) = two(domain, 100);
    let observer = domain.observe_window("w").unwrap();
    let held = other.lock(WindowLocking::Exclusive).unwrap();
    owner.count(2, 5).unwrap();
    let view = observer.look();
    assert_eq!((&*view.name, view.pid, view.bytes), ("w", std::process::id(), 100));
    assert_eq!((view.locked_by, view.readers, view.counters[2]), (Some(1), 0, 5));
    assert_eq!(view.participants.iter().map(|one| one.row).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((view.rights_of_others, view.participants_max), (WindowRights::ATOMIC, 64));
    drop(held);
    let _held = other.lock(WindowLocking::Shared).unwrap();
    assert_eq!((observer.look().locked_by, observer.look().readers), (None, 1));
    let all = domain.observe_all(Duration::from_secs(1)).unwrap();
    assert!(
        matches!(&all[..], [one] if matches!(&one.observed, Ok(Observed::Window(_)))),
        "{all:?}"
    );
}
