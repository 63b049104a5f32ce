//! Programs that are wrong in one thing each: what `main` prints when it returns the error is one line that names the thing,
//! the limit and what was given.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use corewire::{Domain, Selector};
use corewire_group::{Communicator, Group, GroupClient};

type Outcome = Result<(), Box<dyn Error>>;

/// What the call returned, in a program that returns its error.
fn fails<T, E: Error + 'static>(outcome: Result<T, E>) -> Outcome {
    outcome?;
    Ok(())
}

/// A domain of its own, which goes with it.
struct Scratch(PathBuf, Domain);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a program waits for that waits in vain.
const SHORT: Duration = Duration::from_millis(20);
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

/// A name of 200 bytes.
fn long_name() -> String {
    "n".repeat(200)
}

/// What is wrong, and what is printed.
type Mistake = (fn(&Domain) -> Outcome, &'static str);

const CHANNELS: &[Mistake] = &[
    (|d| fails(d.sender("").create()), "channel name without a character: at least one is needed"),
    (
        |d| fails(d.sender("my channel").create()),
        "channel name \"my channel\": character ' ' is not allowed (letters, digits, '_', '-' and '.' are, and '.' not first)",
    ),
    (
        |d| fails(d.sender("a/b").create()),
        "channel name \"a/b\": character '/' is not allowed (letters, digits, '_', '-' and '.' are, and '.' not first)",
    ),
    (
        |d| fails(d.sender(&long_name()).create()),
        "channel name of 200 bytes: at most 100 are possible",
    ),
    (
        |d| fails(d.sender("c").slots(1000).create()),
        "slots: a power of two from 2 to 16777216 is needed, not 1000",
    ),
    (
        |d| fails(d.sender("c").window_bytes(3).create()),
        "window bytes: a power of two from 256 to 1099511627776 is needed, not 3",
    ),
    (
        |d| fails(d.sender("c").largest_message(0).create()),
        "largest message: 1 to 1099511627776 bytes are possible, not 0",
    ),
    (|d| fails(d.sender("c").receivers(0).create()), "receivers: 1 to 1024 are possible, not 0"),
    (
        |d| fails(d.sender("c").receivers(5000).create()),
        "receivers: 1 to 1024 are possible, not 5000",
    ),
    (|d| fails(d.sender("c").open_shared(1000)), "senders: 1 to 128 are possible, not 1000"),
    (
        |d| {
            let _first = d.endpoint("c").create()?;
            fails(d.receiver("c").join())
        },
        "c is an endpoint, a listener or a window, not a channel",
    ),
    (|d| fails(d.receiver("nobody").join()), "channel nobody does not exist"),
    (
        |d| fails(d.receiver("nobody").join_timeout(SHORT)),
        "channel nobody was not created within 20ms",
    ),
    (
        |d| {
            let mut sender = d.sender("c").largest_message(100).create()?;
            fails(sender.send(&[0; 101]))
        },
        "message of 101 bytes: at most 100 are possible on this channel",
    ),
    (
        |d| {
            let mut sender = d.sender("c").create()?;
            let mut receiver = d.receiver("c").join()?;
            sender.send(&[0; 10])?;
            receiver.receive_into(&mut [0; 5])?;
            Ok(())
        },
        "message of 10 bytes, but the buffer has 5",
    ),
    (
        |d| {
            let _sender = d.sender("c").receivers(1).create()?;
            let _receiver = d.receiver("c").join()?;
            fails(d.receiver("c").join())
        },
        "channel c: the channel has its maximum of 1 receivers",
    ),
    (
        |d| {
            let _sender = d.sender("c").typed::<u64>().create()?;
            fails(d.receiver("c").typed::<[u32; 2]>().join())
        },
        "channel c carries u64 of 8 bytes, but [u32; 2] of 8 bytes was expected",
    ),
    (
        |d| {
            let mut sender = d.sender("c").slots(1024).create()?;
            let mut receiver = d.receiver("c").join()?;
            while sender.try_send(&[1]).is_ok() {}
            sender.send_timeout(&[1], SHORT)?;
            receiver.receive()?;
            Ok(())
        },
        "no room within 20ms: a receiver is 1024 messages behind",
    ),
    (|d| fails(d.observe("nobody")), "channel nobody does not exist"),
    (|d| fails(d.latest("config").open()), "channel config does not exist"),
    (
        |d| fails(d.latest("config").largest(0).create()),
        "largest message: 1 to 1099511627776 bytes are possible, not 0",
    ),
    (
        |d| fails(d.latest("config").values(1 << 40).create()),
        "slots: a power of two from 2 to 16777216 is needed, not 1099511627776",
    ),
    (
        |d| fails(d.latest("config").largest(10).create()?.set(&[0; 11])),
        "message of 11 bytes: at most 10 are possible on this channel",
    ),
    (
        |d| {
            let _sender = d.sender("c").create()?;
            fails(d.latest("c").open())
        },
        "channel c is no last value: its sender does not overwrite",
    ),
];

const ENDPOINTS: &[Mistake] = &[
    (
        |d| fails(d.endpoint("two words").create()),
        "endpoint name \"two words\": character ' ' is not allowed (letters, digits, '_', '-' and '.' are, and '.' not first)",
    ),
    (|d| fails(d.endpoint("e").peers(0).create()), "peers: 1 to 1024 are possible, not 0"),
    (
        |d| fails(d.endpoint("e").ring_slots(5).create()),
        "slots of a ring: a power of two from 8 to 65536 is needed, not 5",
    ),
    (|d| fails(d.endpoint("e").cells(1, 100).create()), "cells: 2 to 4096 are possible, not 1"),
    (
        |d| fails(d.endpoint("e").heap(5).create()),
        "bytes of the heap: a multiple of 65536 up to 68719476736 is needed, not 5",
    ),
    (
        |d| {
            d.endpoint("e").create()?.peer("nobody")?;
            Ok(())
        },
        "endpoint nobody does not exist",
    ),
    (
        |d| {
            d.endpoint("e").create()?.peer_when_created("nobody", Some(SHORT))?;
            Ok(())
        },
        "endpoint nobody was not created within 20ms",
    ),
    (
        |d| {
            let _sender = d.sender("c").create()?;
            d.endpoint("e").create()?.peer("c")?;
            Ok(())
        },
        "c is a channel, a listener or a window, not an endpoint",
    ),
    (
        |d| {
            let (mut one, mut two) = (d.endpoint("one").create()?, d.endpoint("two").create()?);
            let to = one.peer("two")?;
            one.send(to, 1, &[0; 10])?;
            two.receive_into(Selector::any(), &mut [0; 5])?;
            Ok(())
        },
        "message of 10 bytes, but the buffer has 5",
    ),
    (
        |d| {
            let (mut one, two) = (d.endpoint("one").create()?, d.endpoint("two").create()?);
            let to = one.peer("two")?;
            drop(two);
            while one.receive_timeout(Selector::any().from(to), LONG).is_ok() {}
            fails(one.send(to, 1, b"hello"))
        },
        "endpoint two was closed",
    ),
    (
        |d| {
            let mut one = d.endpoint("one").create()?;
            let two = d.endpoint("two").create()?;
            let to = one.peer("two")?;
            drop(two);
            one.call(to, b"hello")?;
            Ok(())
        },
        "endpoint two was closed",
    ),
    (|d| fails(d.connect("nobody", LONG)), "listener nobody does not exist"),
    (
        |d| fails(d.connect_when_created("nobody", Some(SHORT))),
        "listener nobody was not created within 20ms",
    ),
    (
        |d| {
            let _first = d.listener("l")?;
            fails(d.listener("l"))
        },
        "listener l already exists: process PID has it",
    ),
    (|d| fails(d.queue("jobs").worker()), "queue jobs does not exist"),
    (|d| fails(d.queue("jobs").producer_timeout(SHORT)), "queue jobs was not created within 20ms"),
    (
        |d| fails(d.queue("jobs").largest(10).create()?.push(&[0; 11])),
        "job of 11 bytes: at most 10 are possible in this queue",
    ),
    (
        |d| {
            let queue = d.queue("jobs").capacity(1).create()?;
            queue.push(b"one")?;
            fails(queue.try_push(b"two"))
        },
        "the queue has 1 jobs, as many as it can have",
    ),
    (
        |d| {
            let queue = d.queue("jobs").create()?;
            queue.finish();
            fails(queue.push(b"late"))
        },
        "the queue is being finished: it accepts no more jobs",
    ),
];

const GROUPS: &[Mistake] = &[
    (
        |d| fails(Group::builder(d, "two words").join_timeout(LONG)),
        "group name \"two words\": character ' ' is not allowed (letters, digits, '_', '-' and '.' are, and '.' not first)",
    ),
    (
        |d| fails(Group::builder(d, &long_name()).join_timeout(LONG)),
        "group name of 200 bytes: at most 64 are possible",
    ),
    (
        |d| fails(Group::builder(d, "g").largest_command(0).join_timeout(LONG)),
        "longest command of 0 bytes: 1 to 268435456 are possible",
    ),
    (
        |d| {
            let group = Group::builder(d, "g").largest_command(10).join_timeout(LONG)?;
            group.propose(&[0; 11])?;
            Ok(())
        },
        "command of 11 bytes: group g permits at most 10",
    ),
    (
        |d| fails(GroupClient::connect(d, "g", SHORT)),
        "no member of group g has answered within 20ms",
    ),
    (
        |d| {
            let _group = Group::builder(d, "g").largest_command(10).join_timeout(LONG)?;
            GroupClient::connect(d, "g", LONG)?.propose(&[0; 11])?;
            Ok(())
        },
        "command of 11 bytes: group g permits at most 10",
    ),
    (
        |d| {
            let group = Group::builder(d, "g").join_timeout(LONG)?;
            let mut all = Communicator::builder(d, &group, &group.view()?).connect()?;
            fails(all.broadcast(3, &mut [0_u8; 4]))
        },
        "no rank 3: the communicator has 1",
    ),
    (
        |d| {
            let group = Group::builder(d, "g").join_timeout(LONG)?;
            let mut all = Communicator::builder(d, &group, &group.view()?).connect()?;
            fails(all.gather(0, &[1_u64; 3], &mut [0; 2]))
        },
        "a buffer of 2 values where 3 are needed",
    ),
    (
        |d| {
            let group = Group::builder(d, "g").file(d.runtime_directory().join("no/dir/log"));
            fails(group.join_timeout(LONG))
        },
        "cannot find the directory of \"DIR/no/dir/log\": No such file or directory (os error 2)",
    ),
];

fn check(kind: &str, mistakes: &[Mistake]) {
    for (number, (program, expected)) in mistakes.iter().enumerate() {
        let name = format!("corewire-mistakes-{kind}-{number}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let scratch = Scratch(path.clone(), Domain::open_at(&path).unwrap());
        let error = program(&scratch.1).unwrap_err();
        // As `main` prints it.
        let printed = format!("{error:?}").replace(&path.display().to_string(), "DIR");
        let printed = printed.replace(&std::process::id().to_string(), "PID");
        assert_eq!(printed, *expected, "{kind} {number}");
        assert!(!printed.contains('\n'));
    }
}

#[test]
fn channels() {
    check("channels", CHANNELS);
}

#[test]
fn endpoints() {
    check("endpoints", ENDPOINTS);
}

#[test]
fn groups() {
    check("groups", GROUPS);
}
