//! The behaviour that users of a channel rely on, within one process.
//!
//! More than 600 lines, because each file of tests is a program that is linked by itself.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::scratch::Scratch;
use corewire::{
    Access, CreateError, Domain, JoinError, OpenError, ReceiveError, Receiver, SendError, Sender,
    Wait,
};

fn pair_in(scratch: &Scratch, slots: usize) -> (Sender, Receiver) {
    let sender = scratch.domain().sender("c").slots(slots).create().unwrap();
    let receiver = scratch.domain().receiver("c").join().unwrap();
    (sender, receiver)
}

fn numbered(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (number * 31 + i).to_le_bytes()[0]).collect()
}

// Keeps P2.
#[test]
fn messages_of_every_kind_of_length_arrive_whole_and_in_order() {
    let scratch = Scratch::new("lengths");
    let mut sender = scratch.domain().sender("c").largest_message(3 << 20).create().unwrap();
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    let lengths = [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 4096, 100_000];
    let large = [262_144, 262_145, 1 << 20, 3 << 20, 0, 5];
    let all: Vec<usize> = lengths.iter().chain(&large).copied().cycle().take(300).collect();
    let expected = all.clone();
    let reader = thread::spawn(move || {
        for (i, bytes) in expected.into_iter().enumerate() {
            let message = receiver.receive().unwrap();
            assert_eq!(message.sequence(), i as u64);
            assert!(message[..] == numbered(i as u64, bytes)[..], "message {i} of {bytes} bytes");
        }
        assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
    });
    for (i, bytes) in all.into_iter().enumerate() {
        if i % 2 == 0 {
            sender.send(&numbered(i as u64, bytes)).unwrap();
        } else {
            let mut loan = sender.loan(bytes).unwrap();
            loan.copy_from_slice(&numbered(i as u64, bytes));
            loan.send();
        }
    }
    drop(sender);
    reader.join().unwrap();
}

// Keeps P1.
#[test]
fn every_receiver_gets_every_message_once() {
    let scratch = Scratch::new("everyone");
    let mut sender = scratch.domain().sender("c").slots(64).create().unwrap();
    let count = 20_000u64;
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let mut receiver = scratch.domain().receiver("c").join().unwrap();
            thread::spawn(move || {
                for i in 0..count {
                    assert_eq!(receiver.receive().unwrap()[..], i.to_le_bytes());
                }
            })
        })
        .collect();
    assert_eq!(sender.wait_for_receivers(5).unwrap(), 5);
    for i in 0..count {
        sender.send(&i.to_le_bytes()).unwrap();
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

// Keeps P3.
#[test]
fn a_full_ring_says_so_and_loses_nothing() {
    let scratch = Scratch::new("full");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    for i in 0..64u64 {
        sender.try_send(&i.to_le_bytes()).unwrap();
    }
    assert_eq!(sender.try_send(b"x"), Err(SendError::Full { lag: 64 }));
    let after = Duration::from_millis(5);
    assert_eq!(sender.send_timeout(b"x", after), Err(SendError::Timeout { after, lag: 64 }));
    for i in 0..64u64 {
        assert_eq!(receiver.receive().unwrap()[..], i.to_le_bytes());
    }
    assert!(receiver.try_receive().unwrap().is_none());
    sender.try_send(b"room again").unwrap();
    assert_eq!(&receiver.receive().unwrap()[..], b"room again");
}

// Keeps P3.
#[test]
fn a_full_window_says_so() {
    let scratch = Scratch::new("window");
    let mut sender = scratch.domain().sender("c").window_bytes(4096).create().unwrap();
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    for _ in 0..4 {
        sender.try_send(&[7; 1024]).unwrap();
    }
    assert!(matches!(sender.try_send(&[7; 1024]), Err(SendError::Full { lag: 4 })));
    sender.try_send(&[7; 48]).unwrap();
    drop(receiver.receive().unwrap());
    sender.send(&[8; 1024]).unwrap();
}

#[test]
fn too_large_names_the_limit_and_what_was_asked() {
    let scratch = Scratch::new("large");
    let (mut sender, _receiver) = pair_in(&scratch, 64);
    let max = sender.largest_message();
    let error = sender.send(&vec![0; max + 1]).unwrap_err();
    assert_eq!(error, SendError::TooLarge { max, asked: max + 1 });
}

#[test]
fn a_dropped_loan_sends_nothing() {
    let scratch = Scratch::new("loan");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    for (bytes, filler) in [(8, 1), (1000, 2), (sender.largest_message(), 3)] {
        drop(sender.loan(bytes).unwrap());
        let mut loan = sender.loan(bytes).unwrap();
        loan.fill(filler);
        loan.truncate(bytes - 1);
        loan.send();
        let message = receiver.receive().unwrap();
        assert_eq!(message.len(), bytes - 1);
        assert!(message.iter().all(|&byte| byte == filler));
    }
    assert!(receiver.try_receive().unwrap().is_none());
}

// Keeps P5.
#[test]
fn a_late_receiver_begins_now_or_at_the_oldest() {
    let scratch = Scratch::new("late");
    let mut sender = scratch.domain().sender("c").slots(64).create().unwrap();
    for i in 0..100u64 {
        sender.send(&i.to_le_bytes()).unwrap();
    }
    let mut now = scratch.domain().receiver("c").join().unwrap();
    let mut oldest = scratch.domain().receiver("c").from_oldest().join().unwrap();
    assert_eq!(now.next_sequence(), 100);
    assert_eq!(oldest.next_sequence(), 37);
    sender.send(&100u64.to_le_bytes()).unwrap();
    assert_eq!(now.receive().unwrap()[..], 100u64.to_le_bytes());
    for i in 37..=100u64 {
        assert_eq!(oldest.receive().unwrap()[..], i.to_le_bytes());
    }
}

// Keeps P5.
#[test]
fn payload_that_an_oldest_joiner_needs_is_held_for_it() {
    let scratch = Scratch::new("held");
    let mut sender = scratch.domain().sender("c").window_bytes(4096).create().unwrap();
    for i in 0..50u64 {
        sender.send(&numbered(i, 512)).unwrap();
    }
    let mut receiver = scratch.domain().receiver("c").from_oldest().join().unwrap();
    let first = receiver.next_sequence();
    assert!((45..50).contains(&first), "{first}");
    let mut next = 50;
    while sender.try_send(&numbered(next, 512)).is_ok() {
        next += 1;
    }
    for i in first..next {
        assert_eq!(receiver.receive().unwrap()[..], numbered(i, 512)[..]);
    }
}

/// A stream of short messages lies in lanes, so that the oldest message need not be the first one in memory.
#[test]
fn payload_in_lanes_is_held_for_an_oldest_joiner() {
    let scratch = Scratch::new("lanes");
    for count in (2000..2900u64).step_by(13) {
        // Fewer slots than fill the window: the oldest message is anywhere in its span.
        let sender = scratch
            .domain()
            .sender("c")
            .window_bytes(512 << 10)
            .slots(256)
            .largest_message(100_000);
        let mut sender = sender.create().unwrap();
        for i in 0..count {
            sender.send(&numbered(i, 600)).unwrap();
        }
        let mut receiver = scratch.domain().receiver("c").from_oldest().join().unwrap();
        let first = receiver.next_sequence();
        assert!((count - 256..count - 100).contains(&first), "{first} of {count}");
        // Some slots are free again; then what is left of the window is filled, down to the last bytes.
        for i in first..first + 64 {
            assert_eq!(receiver.receive().unwrap()[..], numbered(i, 600)[..]);
        }
        let mut more = Vec::new();
        for bytes in [100_000, 30_000, 8_000, 2_000, 600] {
            let next = |more: &[usize]| count + more.len() as u64;
            while sender.try_send(&numbered(next(&more), bytes)).is_ok() {
                more.push(bytes);
            }
        }
        let next = count + more.len() as u64;
        let bytes = |i: u64| match i.checked_sub(count) {
            None => 600,
            Some(later) => more[usize::try_from(later).unwrap()],
        };
        for i in first + 64..next {
            assert_eq!(receiver.receive().unwrap()[..], numbered(i, bytes(i))[..], "{count}");
        }
    }
}

// Keeps P4.
#[test]
fn a_waiting_receiver_gets_the_first_message() {
    let scratch = Scratch::new("waiter");
    let domain = scratch.domain().clone();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let domain = domain.clone();
            thread::spawn(move || {
                let mut receiver = domain.receiver("c").join_when_created().unwrap();
                receiver.receive().unwrap().to_vec()
            })
        })
        .collect();
    scratch.await_notes(3);
    let mut sender = domain.sender("c").create().unwrap();
    sender.send(b"first").unwrap();
    for waiter in waiting {
        assert_eq!(waiter.join().unwrap(), b"first");
    }
}

#[test]
fn a_channel_that_does_not_appear_is_reported() {
    let scratch = Scratch::new("absent");
    let error = scratch.domain().receiver("c").join().unwrap_err();
    assert!(matches!(error, JoinError::NotFound(_)), "{error}");
    let after = Duration::from_millis(5);
    let error = scratch.domain().receiver("c").join_timeout(after).unwrap_err();
    assert!(matches!(error, JoinError::NotCreated { .. }), "{error}");
}

// Keeps P32.
#[test]
fn a_name_has_one_owner_and_is_free_again_after_it() {
    let scratch = Scratch::new("name");
    let sender = scratch.domain().sender("c").create().unwrap();
    let error = scratch.domain().sender("c").create().unwrap_err();
    assert!(matches!(error, CreateError::AlreadyExists(_)), "{error}");
    let pid = std::process::id();
    assert_eq!(error.to_string(), format!("channel c already exists: process {pid} is its sender"));
    let error = scratch.domain().endpoint("c").create().unwrap_err();
    assert_eq!(error.to_string(), format!("channel c already exists: process {pid} is its sender"));
    assert_eq!(scratch.domain().channels().unwrap().len(), 1);
    drop(sender);
    assert!(scratch.domain().channels().unwrap().is_empty());
    drop(scratch.domain().sender("c").create().unwrap());
}

// Keeps P6.
#[test]
fn one_receiver_too_many_is_told_the_limit() {
    let scratch = Scratch::new("many");
    let _sender = scratch.domain().sender("c").receivers(2).create().unwrap();
    let first = scratch.domain().receiver("c").join().unwrap();
    let _second = scratch.domain().receiver("c").join().unwrap();
    let error = scratch.domain().receiver("c").join().unwrap_err();
    assert!(error.to_string().contains("its maximum of 2 receivers"), "{error}");
    drop(first);
    // The row is free once the control thread has seen the receiver leave.
    while scratch.domain().receiver("c").join().is_err() {
        thread::yield_now();
    }
}

// Keeps P10.
#[test]
fn a_receiver_that_leaves_stops_counting() {
    let scratch = Scratch::new("leave");
    let (mut sender, receiver) = pair_in(&scratch, 64);
    let mut other = scratch.domain().receiver("c").join().unwrap();
    for i in 0..64u64 {
        sender.try_send(&i.to_le_bytes()).unwrap();
    }
    let sending = thread::spawn(move || {
        sender.send(b"after").unwrap();
        sender
    });
    drop(receiver);
    for i in 0..64u64 {
        assert_eq!(other.receive().unwrap()[..], i.to_le_bytes());
    }
    assert_eq!(&other.receive().unwrap()[..], b"after");
    drop(sending.join().unwrap());
}

#[test]
fn batches_hold_several_messages_at_once() {
    let scratch = Scratch::new("batch");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    let mut batch = sender.batch();
    for i in 0..10u64 {
        batch.send(&i.to_le_bytes()).unwrap();
    }
    batch.send_with(100, |bytes| bytes.fill(9)).unwrap();
    drop(batch);
    let mut held = receiver.receive_batch(4).unwrap();
    assert_eq!(held.len(), 4);
    assert_eq!(held.receive(100).unwrap(), 7);
    held.release(2).unwrap();
    let all: Vec<_> = held.iter().map(<[u8]>::to_vec).collect();
    assert_eq!(all.len(), 9);
    assert_eq!(all[0], 2u64.to_le_bytes());
    assert_eq!(all[8], [9; 100]);
    drop(held);
    assert_eq!(receiver.next_sequence(), 11);
}

#[test]
fn a_buffer_that_is_too_small_leaves_the_message() {
    let scratch = Scratch::new("into");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    sender.send(b"0123456789").unwrap();
    let mut small = [0; 4];
    let error = receiver.receive_into(&mut small).unwrap_err();
    assert_eq!(error, ReceiveError::BufferTooSmall { needed: 10, given: 4 });
    let mut large = [0; 40];
    assert_eq!(receiver.receive_into(&mut large).unwrap(), 10);
    assert_eq!(&large[..10], b"0123456789");
}

// Keeps P7.
#[test]
fn copies_end_with_the_stream() {
    let scratch = Scratch::new("copies");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    for i in 0..5u8 {
        sender.send(&[i]).unwrap();
    }
    sender.close();
    let all: Result<Vec<_>, _> = receiver.copies().collect();
    assert_eq!(all.unwrap(), [[0], [1], [2], [3], [4]]);
    assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
}

// Keeps P33.
/// `typed.rs` has more of this.
#[test]
fn a_channel_of_another_type_is_refused() {
    let scratch = Scratch::new("type");
    let _sender = scratch.domain().sender("c").typed::<u64>().create().unwrap();
    let _receiver = scratch.domain().receiver("c").typed::<u64>().join().unwrap();
    let error = scratch.domain().receiver("c").typed::<f64>().join().unwrap_err();
    let expected = "channel c carries u64 of 8 bytes, but f64 of 8 bytes was expected";
    assert_eq!(error.to_string(), expected);
}

// Keeps P21.
#[test]
fn a_waiting_call_can_be_interrupted() {
    let scratch = Scratch::new("interrupt");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    let interrupter = receiver.interrupter();
    let waiting = thread::spawn(move || {
        let error = receiver.receive().map(|message| message.to_vec()).unwrap_err();
        (error, receiver)
    });
    interrupter.interrupt();
    let (error, receiver) = waiting.join().unwrap();
    assert_eq!(error, ReceiveError::Interrupted);
    for i in 0..64u64 {
        sender.send(&i.to_le_bytes()).unwrap();
    }
    let interrupter = sender.interrupter();
    let waiting = thread::spawn(move || (sender.send(b"x").unwrap_err(), sender));
    interrupter.interrupt();
    let (error, mut sender) = waiting.join().unwrap();
    assert_eq!(error, SendError::Interrupted);
    drop(receiver);
    sender.send(b"nobody minds").unwrap();
}

// Keeps P16.
/// If each receiver of a row began its epochs carelessly far from those of the previous one, the
/// third receiver would show the epochs that the first one showed, and the sender would consider
/// them served.
#[test]
fn a_sleeper_is_not_taken_for_one_that_had_its_row_before() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let scratch = Scratch::new("a-row-again");
    let domain = scratch.domain();
    let mut sender = domain.sender("c").receivers(16).create().unwrap();
    for count in 1..6 {
        // The sender serves only the last of its sleeps, since it sends nothing before.
        let sleep_and_be_served = |sender: &mut Sender| {
            let mut receiver = domain.receiver("c").join().unwrap();
            let readiness = receiver.readiness().unwrap();
            (0..count).for_each(|_| assert!(receiver.arm().unwrap()));
            sender.send(b"wake up").unwrap();
            let mut polled = [PollFd::new(&readiness, PollFlags::IN)];
            let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
            assert_eq!(poll(&mut polled, Some(&no_time)).unwrap(), 1, "after {count} sleeps");
        };
        let has_gone = |sender: &Sender| {
            while sender.receivers() > 0 {
                thread::yield_now();
            }
        };
        sleep_and_be_served(&mut sender);
        has_gone(&sender);
        drop(domain.receiver("c").join().unwrap());
        has_gone(&sender);
        sleep_and_be_served(&mut sender);
        has_gone(&sender);
    }
}

// Keeps P20.
#[test]
fn readiness_wakes_a_poll() {
    use rustix::event::{PollFd, PollFlags, poll};
    let scratch = Scratch::new("ready");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    let readiness = receiver.readiness().unwrap();
    for round in 0..200u64 {
        assert!(receiver.try_receive().unwrap().is_none());
        if !receiver.arm().unwrap() {
            continue;
        }
        sender.send(&round.to_le_bytes()).unwrap();
        let mut polled = [PollFd::new(&readiness, PollFlags::IN)];
        assert_eq!(poll(&mut polled, None).unwrap(), 1);
        assert_eq!(receiver.receive().unwrap()[..], round.to_le_bytes());
    }
    assert!(receiver.try_receive().unwrap().is_none());
    assert!(receiver.arm().unwrap());
    drop(sender);
    let mut polled = [PollFd::new(&readiness, PollFlags::IN)];
    poll(&mut polled, None).unwrap();
    assert_eq!(receiver.receive().unwrap_err(), ReceiveError::EndOfStream);
}

// Keeps P16.
#[test]
fn every_way_of_waiting_works_with_many_and_few_receivers() {
    for (i, wait) in [Wait::Adaptive, Wait::Park, Wait::Spin].into_iter().enumerate() {
        for receivers in [1, 8, 9] {
            let scratch = Scratch::new(&format!("wait-{i}-{receivers}"));
            let builder = scratch.domain().sender("c").slots(64).receivers(receivers).wait(wait);
            let mut sender = builder.create().unwrap();
            let mut receiver = scratch.domain().receiver("c").wait(wait).join().unwrap();
            let reader = thread::spawn(move || {
                let mut sum = 0;
                receiver.for_each(|message| sum += message.len()).unwrap();
                assert_eq!(receiver.counter("cap_finds"), Ok(0));
                sum
            });
            for i in 0..3_000 {
                sender.send(&vec![1; i % 100]).unwrap();
            }
            assert_eq!(sender.counter("cap_finds"), Ok(0));
            drop(sender);
            assert_eq!(reader.join().unwrap(), 3_000 / 100 * 4950);
        }
    }
}

// Keeps P31.
#[test]
fn an_observer_sees_without_joining() {
    let scratch = Scratch::new("observe");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    for _ in 0..10 {
        sender.send(b"12345678").unwrap();
    }
    for _ in 0..4 {
        drop(receiver.receive().unwrap());
    }
    let view = scratch.domain().observe("c").unwrap().look();
    assert_eq!((view.sent, view.receivers.len()), (10, 1));
    assert!(view.receivers[0].cursor <= 4 && view.receivers[0].lag >= 6);
    assert_eq!(sender.receivers(), 1);
    let newest_first: Vec<_> = (0..10).rev().map(|sequence| (sequence, 8)).collect();
    let lengths = |view: &corewire::ChannelView| {
        let sample = view.sample.iter().map(|message| (message.sequence, message.short_bytes));
        sample.collect::<Vec<_>>()
    };
    assert_eq!(lengths(&view), newest_first);
    sender.send(&[0; 49]).unwrap();
    let view = scratch.domain().observe("c").unwrap().look();
    assert_eq!(lengths(&view)[..2], [(10, 0), (9, 8)]);
    assert!(matches!(scratch.domain().observe("d"), Err(JoinError::NotFound(_))));
}

// Keeps P33.
#[test]
fn foreign_files_are_named() {
    let scratch = Scratch::new("foreign");
    std::fs::create_dir(scratch.path.join("n.c")).unwrap();
    let error = scratch.domain().sender("c").create().unwrap_err();
    assert!(error.to_string().contains("\"n.c\""), "{error}");
    std::fs::write(scratch.path.join("n.d"), "hello").unwrap();
    let error = scratch.domain().receiver("d").join().unwrap_err();
    assert!(error.to_string().contains("\"n.d\""), "{error}");
    std::fs::remove_dir(scratch.path.join("n.c")).unwrap();
}

// Keeps P36.
#[test]
fn a_directory_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("corewire-open-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let error = Domain::open_at(&path).unwrap_err();
    assert!(error.to_string().contains("mode 0755"), "{error}");
    std::fs::remove_dir(&path).unwrap();
}

#[test]
fn an_access_rule_sets_the_directorys_mode() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let path = std::env::temp_dir().join(format!("corewire-rules-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let found = || std::fs::metadata(&path).unwrap();
    let (user, group) = (found().uid(), found().gid());
    let builder = || Domain::builder().path(&path);
    let rules = [
        (Access::Users(vec![1]), 0o755),
        (Access::Group(group), 0o2750),
        (Access::Users(vec![]), 0o755),
    ];
    for (rule, mode) in rules {
        // Whatever the mode was before, it becomes what the rule requires.
        let domain = builder().access(rule.clone()).open().unwrap();
        assert_eq!((found().mode() & 0o7777, found().gid()), (mode, group));
        assert!(!domain.is_guest() && domain.owner() == user);
        // Openers of the same user follow the rule, whether they name the owner or not, and find the channels.
        let mut sender = domain.sender("c").create().unwrap();
        for other in [builder().open().unwrap(), builder().owner(user).open().unwrap()] {
            let mut receiver = other.receiver("c").join().unwrap();
            sender.send(b"x").unwrap();
            assert_eq!(&receiver.receive().unwrap()[..], b"x");
        }
        drop(sender);
        assert_eq!((found().mode() & 0o7777, found().gid()), (mode, group));
        assert_eq!(
            std::fs::read_to_string(path.join("rule")).unwrap(),
            format!("corewire1 {rule}\n")
        );
        let left = std::fs::read_dir(&path).unwrap().flatten().map(|file| file.file_name());
        let left: Vec<_> = left.filter(|name| name != "rule").collect();
        assert!(left.iter().all(|name| name.to_string_lossy().starts_with("p.")), "{left:?}");
        // With a mode that lets in more users than the rule, it does not count.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode | 0o055)).unwrap();
        match rule {
            Access::Group(_) => assert!(builder().open().is_err()),
            _ => drop(builder().open().unwrap()),
        }
    }
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o775)).unwrap();
    let error = builder().owner(user).open().unwrap_err();
    assert!(error.to_string().contains("mode 0775: only its owner may write it"), "{error}");
    drop(builder().access(Access::Owner).open().unwrap());
    assert!(!path.join("rule").exists());
    drop(builder().open().unwrap());
    assert_eq!(found().mode() & 0o7777, 0o700);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_guest_needs_a_directory_of_the_user_it_names() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new("guest");
    let user = std::fs::metadata(&scratch.path).unwrap().uid();
    let other = user + 1;
    let builder = || Domain::builder().path(&scratch.path).owner(other);
    let error = builder().open().unwrap_err().to_string();
    let expected =
        format!("belongs to user {user} and has mode 0700, not to user {other}: set COREWIRE");
    assert!(error.contains(&expected), "{error}");
    let error = builder().access(Access::Owner).open().unwrap_err();
    assert_eq!(error, OpenError::Guest { owner: other, user });
    // A guest creates no directory.
    let path = scratch.path.join("none");
    assert!(Domain::builder().path(&path).owner(other).open().is_err() && !path.exists());
}

#[test]
fn memory_options_work_or_say_why_not() {
    let scratch = Scratch::new("memory");
    let builder = scratch.domain().sender("c").prefault(true).huge_pages(true).numa_node(0);
    drop(builder.create().unwrap());
    let error = scratch.domain().sender("c").numa_node(999).create().unwrap_err();
    assert!(error.to_string().contains("NUMA node 999"), "{error}");
    let error = scratch.domain().sender("c").slots(1000).create().unwrap_err();
    assert!(error.to_string().contains("not 1000"), "{error}");
}

// Keeps P6.
#[test]
fn a_channel_takes_1024_receivers() {
    let scratch = Scratch::new("1024");
    let mut sender = scratch.domain().sender("c").receivers(1024).create().unwrap();
    let mut receivers: Vec<_> =
        (0..1024).map(|_| scratch.domain().receiver("c").join().unwrap()).collect();
    assert!(scratch.domain().receiver("c").join().is_err());
    // More than the ring holds, so that every cursor counts.
    for number in 0..5000u64 {
        if number % 2000 == 0 {
            for receiver in &mut receivers {
                while receiver.try_receive().unwrap().is_some() {}
            }
        }
        sender.try_send(&number.to_le_bytes()).unwrap();
    }
    for receiver in &mut receivers {
        let mut last = None;
        while let Some(message) = receiver.try_receive().unwrap() {
            last = Some(message.to_vec());
        }
        assert_eq!(last.unwrap(), 4999u64.to_le_bytes());
    }
    assert_eq!(sender.receivers(), 1024);
}

// Keeps P2.
#[test]
fn a_message_of_256_mib_arrives_in_place() {
    let scratch = Scratch::new("256");
    let bytes = 256 << 20;
    let mut sender = scratch.domain().sender("c").largest_message(bytes).create().unwrap();
    let mut receiver = scratch.domain().receiver("c").join().unwrap();
    let reading = thread::spawn(move || {
        for round in 1..=3u8 {
            let message = receiver.receive().unwrap();
            assert_eq!(message.len(), bytes);
            assert!(message.chunks(4096).all(|page| page[0] == round && page[4095] == round));
        }
    });
    for round in 1..=3u8 {
        let mut loan = sender.loan(bytes).unwrap();
        loan.fill(round);
        loan.send();
    }
    reading.join().unwrap();
}

#[test]
fn a_foreign_file_is_not_overwritten() {
    let scratch = Scratch::new("precious");
    std::fs::write(scratch.path.join("n.c"), "precious").unwrap();
    let error = scratch.domain().sender("c").create().unwrap_err();
    assert!(matches!(&error, CreateError::ForeignFile(file) if file == "n.c"), "{error}");
    assert_eq!(std::fs::read_to_string(scratch.path.join("n.c")).unwrap(), "precious");
}

#[test]
fn a_failed_creation_leaves_nothing() {
    let scratch = Scratch::new("failed");
    let before = std::fs::read_dir(&scratch.path).unwrap().count();
    assert!(scratch.domain().sender("c").numa_node(999).create().is_err());
    assert_eq!(std::fs::read_dir(&scratch.path).unwrap().count(), before);
}

#[test]
fn what_a_batch_releases_is_room_for_the_sender() {
    let scratch = Scratch::new("release");
    let (mut sender, mut receiver) = pair_in(&scratch, 64);
    while sender.try_send(b"x").is_ok() {}
    let mut batch = receiver.receive_batch(64).unwrap();
    batch.release(7).unwrap();
    assert_eq!(batch.receive(10).unwrap(), 0);
    for _ in 0..7 {
        sender.try_send(b"y").unwrap();
    }
    assert_eq!(batch.receive(10).unwrap(), 7);
}

#[test]
fn a_newcomer_does_not_lag() {
    let scratch = Scratch::new("newcomer");
    let mut sender = scratch.domain().sender("c").create().unwrap();
    for _ in 0..1000 {
        sender.send(b"x").unwrap();
    }
    let _receiver = scratch.domain().receiver("c").join().unwrap();
    let view = scratch.domain().observe("c").unwrap().look();
    assert_eq!((view.receivers[0].cursor, view.receivers[0].lag), (1000, 0));
}

#[test]
fn sending_waits_for_those_who_were_invited() {
    let scratch = Scratch::new("invited");
    let domain = scratch.domain().clone();
    let waiting = {
        let domain = domain.clone();
        thread::spawn(move || {
            let mut receiver = domain.receiver("c").join_when_created().unwrap();
            receiver.receive().unwrap().to_vec()
        })
    };
    scratch.await_notes(1);
    let mut sender = domain.sender("c").create().unwrap();
    loop {
        match sender.try_send(b"first") {
            Ok(()) => break,
            Err(error) => assert_eq!(error, SendError::Joining { count: 1 }),
        }
    }
    assert_eq!(waiting.join().unwrap(), b"first");
}

#[test]
fn a_waiter_that_gives_up_holds_nobody_up() {
    let scratch = Scratch::new("gives-up");
    let domain = scratch.domain().clone();
    let error = domain.receiver("c").join_timeout(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, JoinError::NotCreated { .. }), "{error}");
    let mut sender = domain.sender("c").create().unwrap();
    sender.send(b"nobody waits").unwrap();
}

#[test]
fn a_sleeper_finds_a_message_whose_wake_up_is_late() {
    let scratch = Scratch::new("late");
    let domain = scratch.domain().clone();
    let mut sender = domain.sender("c").create().unwrap();
    let mut receiver = domain.receiver("c").wait(Wait::Park).join().unwrap();
    let observer = domain.observe("c").unwrap();
    let sleeper = thread::spawn(move || {
        let message = receiver.receive().unwrap().to_vec();
        (message, receiver.counter("cap_finds"))
    });
    while observer.look().receivers[0].counters.iter().all(|&found| found != ("sleeps", 1)) {
        thread::yield_now();
    }
    // No receiver is woken before the batch ends, as if the sender were stopped between the message
    // and the wake-up.
    let mut batch = sender.batch();
    batch.send(b"unheard").unwrap();
    assert_eq!(sleeper.join().unwrap(), (b"unheard".to_vec(), Ok(1)));
}

#[test]
fn handles_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Sender>();
    is_send::<Receiver>();
    is_send::<Arc<Domain>>();
}
