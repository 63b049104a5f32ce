//! Large messages between processes: whole or not at all, whatever the kernel refuses and whichever process dies or is stopped.
//!
//! `COREWIRE_TORTURE_KILLS` sets the number of deaths (default: 60), `COREWIRE_STOPS` how often a sender is stopped
//! (20), `COREWIRE_STOP_MS` for how long (20). `COREWIRE_SEED` repeats a run as far as the kernel allows.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use corewire::{Domain, Endpoint, Memory, MessageError, Peer, Selector};
use corewire_processes::talk::bytes_of;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::roles::{Directory, Random, Role};

/// Bytes before and behind a message that nobody may write.
const CANARY_BYTES: usize = 4096;
const CANARY: u8 = 0xa5;
const LONG: Duration = Duration::from_secs(60);

fn from_environment(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}

fn kills() -> u64 {
    from_environment("COREWIRE_TORTURE_KILLS", 60)
}

fn parent(directory: &Directory) -> (Domain, Endpoint) {
    let domain = Domain::open_at(directory.path()).unwrap();
    // Nothing goes in place: large messages are copied.
    let endpoint = domain.endpoint("parent").grants(0).create().unwrap();
    (domain, endpoint)
}

/// A buffer between canaries.
struct Guarded(Vec<u8>);

impl Guarded {
    fn new(bytes: usize) -> Self {
        Self(vec![CANARY; bytes + 2 * CANARY_BYTES])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let end = self.0.len() - CANARY_BYTES;
        &mut self.0[CANARY_BYTES..end]
    }

    /// Fills all of it with the canary.
    fn reset(&mut self) {
        self.0.fill(CANARY);
    }

    /// Whether nobody has written to it, except the first `bytes` bytes of its middle.
    fn is_untouched_beyond(&self, bytes: usize) -> bool {
        let is_canary = |part: &[u8]| part.iter().all(|byte| *byte == CANARY);
        is_canary(&self.0[..CANARY_BYTES]) && is_canary(&self.0[CANARY_BYTES + bytes..])
    }
}

const LENGTHS: [usize; 15] = [
    1,
    32 << 10,
    (32 << 10) + 1,
    64 << 10,
    128 << 10,
    (128 << 10) + 1,
    2_000_000,
    200_000,
    (2 << 20) + 1,
    (1 << 20) - 1,
    1 << 20,
    3_000_017,
    5 << 20,
    (16 << 20) + 4097,
    1000,
];

/// Half of an endpoint's cells. A longer message never goes through them, however long it waits for its receiver.
const HALF_OF_CELLS_BYTES: usize = 512 << 10;

/// Number of messages in each direction that are always copied by the kernel. (How many shorter ones are depends on how
/// busy the machine is: a sender that sleeps sends them through cells.)
fn copied_min() -> u64 {
    const WAYS: u64 = 4;
    let long = LENGTHS.iter().filter(|&&length| length > HALF_OF_CELLS_BYTES);
    WAYS * long.count() as u64
}

/// Sends messages of all lengths to an echo, and receives them again in every way. Returns what the echo says of its
/// counters, and this side's: pulled, refusals.
fn exchange(test: &str, options: &[&str]) -> [u64; 4] {
    let directory = Directory::new(test);
    let (domain, mut endpoint) = parent(&directory);
    let mut echo = Role::start("echo", &directory, "echo", options);
    let to_echo = endpoint.peer_when_created("echo", Some(LONG)).unwrap();
    let selector = Selector::any().from(to_echo);
    for (number, length) in (0u64..).zip(LENGTHS) {
        let message = bytes_of(number, length);
        let mut target = Guarded::new(length);
        // Blocking, into the caller's memory: the echo may write to it.
        endpoint.send(to_echo, number, &message).unwrap();
        let status = endpoint.receive_into(selector, target.bytes()).unwrap();
        assert_eq!((status.tag, status.bytes), (number, length as u64));
        assert!(target.bytes() == message, "{length} bytes are torn");
        assert!(target.is_untouched_beyond(length));
        // In parts, with a time limit.
        let (first, second) = message.split_at(length / 3);
        endpoint.within(LONG).send_gather(to_echo, number, &[first, &[], second]).unwrap();
        let (mut one, mut other) = (vec![0; length / 2], vec![0; length - length / 2]);
        let mut parts = [&mut one[..], &mut other[..]];
        endpoint.within(LONG).receive_scatter(selector, &mut parts).unwrap().unwrap();
        assert!([one, other].concat() == message, "{length} bytes in parts are torn");
        // In the background, into memory of the endpoint.
        let send = endpoint.isend(to_echo, number, message.clone()).unwrap();
        let received = endpoint.receive(selector).unwrap();
        assert!(received == message, "{length} bytes in the background are torn");
        assert_eq!(endpoint.wait(send).unwrap().result.unwrap().bytes, length as u64);
        // Truncated.
        let options = corewire::Options { truncates: true, ..corewire::Options::default() };
        let receive = endpoint.ireceive_with(selector, vec![0; length / 2], options).unwrap();
        endpoint.send(to_echo, number, &message).unwrap();
        let completion = endpoint.wait(receive).unwrap();
        assert!(matches!(completion.result, Err(MessageError::Truncated { .. })));
        assert!(completion.memory.into_vec() == message[..length / 2]);
    }
    let seen = domain.observe_endpoint("echo").unwrap().look();
    let count = seen.counters.iter().find(|(name, _)| *name == "refusals").unwrap().1;
    assert_eq!(seen.copy_refusal.is_some(), count > 0, "{seen:?}");
    let seen = domain.observe_endpoint("parent").unwrap().look();
    let count = seen.counters.iter().find(|(name, _)| *name == "refusals").unwrap().1;
    assert_eq!(seen.copy_refusal.is_some(), count > 0, "{seen:?}");
    let own = ["pulled", "refusals"].map(|name| endpoint.counter(name).unwrap());
    assert_eq!(endpoint.counter("violations"), Ok(0));
    endpoint.close().unwrap();
    let [pulled, refusals] = ["pulled ", "refusals "].map(|word| number(&mut echo, word));
    [pulled, refusals, own[0], own[1]]
}

/// The number in the line that begins with `word`.
fn number(role: &mut Role, word: &str) -> u64 {
    role.until(word).trim_start_matches(word).parse().unwrap()
}

// Keeps P110.
#[test]
fn large_messages_are_copied_once_by_the_kernel() {
    let [there, refusals_there, here, refusals_here] = exchange("large", &[]);
    assert!(there.min(here) >= copied_min(), "{there} and {here} were pulled");
    assert_eq!((refusals_there, refusals_here), (0, 0));
}

fn refuse(call: i64, errno: i32) -> String {
    format!("refuse={call}:{errno}")
}

// Keeps P111.
#[test]
fn they_arrive_where_one_side_may_not_read() {
    let readv = refuse(libc::SYS_process_vm_readv, libc::ENOSYS);
    let [there, refusals, here, _] = exchange("large-readv", &[&readv]);
    assert_eq!(refusals, 1, "it is refused once, and then not tried again");
    // Before that, the other side may have copied a message by itself: it may write here.
    assert!(there <= 1, "{there} were pulled where reading is refused");
    assert!(here >= copied_min(), "{here} were pulled");
}

// Keeps P111.
#[test]
fn they_arrive_where_one_side_may_neither_read_nor_write() {
    let readv = refuse(libc::SYS_process_vm_readv, libc::EPERM);
    let writev = refuse(libc::SYS_process_vm_writev, libc::EPERM);
    let [there, refusals, here, _] = exchange("large-neither", &[&readv, &writev]);
    assert_eq!(refusals, 1, "it is refused once, and then not tried again");
    // Before that, the other side, which is refused nothing, may have copied a message by itself.
    assert!(there <= 1, "{there} were pulled where reading and writing are refused");
    assert!(here >= copied_min(), "{here} were pulled");
}

// Keeps P111.
#[test]
fn they_arrive_where_permission_ends() {
    let [there, refusals, ..] = exchange("large-later", &["filter-later", "count=40"]);
    assert!(there > 0, "{there}");
    assert_eq!(refusals, 1);
}

/// Makes this thread one that may not look into a process that hides its memory.
fn give_up_tracing() {
    let mut sets = rustix::thread::capabilities(None).unwrap();
    let tracing = rustix::thread::CapabilitySet::SYS_PTRACE;
    sets.effective.remove(tracing);
    sets.permitted.remove(tracing);
    rustix::thread::set_capabilities(None, sets).unwrap();
}

// Keeps P111.
#[test]
fn they_arrive_where_one_side_hides_its_memory() {
    give_up_tracing();
    let [there, _, here, refusals] = exchange("large-hidden", &["not-dumpable"]);
    assert_eq!(refusals, 1, "it is refused once, and then not tried again");
    // Before that, the other side, which may look here, may have copied a message by itself.
    assert!(here <= 1, "{here} were pulled by a side that may not look there");
    assert!(there >= copied_min(), "{there} of this side's were pulled");
}

// Keeps P111.
#[test]
fn they_arrive_where_one_side_lives_in_a_user_namespace() {
    let has_namespaces = std::process::Command::new("unshare").args(["--user", "true"]).status();
    if !has_namespaces.is_ok_and(|status| status.success()) {
        println!("skipped: no user namespace can be made here");
        return;
    }
    let [there, refusals, ..] = exchange("large-namespace", &["user-namespace"]);
    assert_eq!(refusals, 1, "it is refused once, and then not tried again");
    // Before that, the other side, which may look into a namespace below its own, may have copied a message by itself.
    assert!(there <= 1, "{there} were pulled by a side that may not look into a process outside");
}

// Keeps P115.
#[test]
fn blocking_sends_of_two_endpoints_to_each_other_finish() {
    for bytes in [100_000, 3_000_000, 64 << 20] {
        let directory = Directory::new(&format!("large-collide-{bytes}"));
        let (_domain, mut endpoint) = parent(&directory);
        let count = format!("count={bytes}");
        let mut other = Role::start("collide", &directory, "other", &[&count]);
        let to_other = endpoint.peer_when_created("other", Some(LONG)).unwrap();
        let message = bytes_of(1, bytes);
        endpoint.send(to_other, 1, &message).unwrap();
        assert!(endpoint.receive(Selector::any()).unwrap() == message);
        assert_eq!(other.line().as_deref(), Some("same true"));
    }
}

/// Waits for a while without sleeping.
fn spin(microseconds: u64) {
    let end = Instant::now() + Duration::from_micros(microseconds);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[test]
fn memory_that_is_unmapped_under_a_send_is_an_error_and_the_receive_waits_on() {
    let directory = Directory::new("large-unmapped");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut sender = domain.endpoint("sender").create().unwrap();
    let mut receiver = domain.endpoint("receiver").create().unwrap();
    let peer = sender.peer("receiver").unwrap();
    receiver.peer("sender").unwrap();
    let bytes = 8 << 20;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping, of nothing else's memory.
    let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }.unwrap();
    let at = NonNull::new(memory.cast::<u8>()).unwrap();
    // SAFETY: nobody writes it; that a half is unmapped before the end is what is tested.
    let pinned = unsafe { Memory::pinned(at, bytes) };
    let send = sender.isend(peer, 1, pinned).unwrap();
    // SAFETY: the half of the mapping above, to which no reference exists.
    let half = unsafe { memory.byte_add(bytes / 2) };
    // SAFETY: as above.
    unsafe { munmap(half, bytes / 2) }.unwrap();
    let receive = receiver.ireceive(Selector::any(), Memory::pooled()).unwrap();
    let ended = loop {
        receiver.progress().unwrap();
        sender.progress().unwrap();
        if let Some(completion) = sender.test(send).unwrap() {
            break completion;
        }
    };
    assert_eq!(ended.result, Err(MessageError::Unmapped));
    sender.send(peer, 2, b"the next one").unwrap();
    let completion = receiver.wait(receive).unwrap();
    assert_eq!(
        (completion.result.unwrap().tag, &completion.memory.into_vec()[..]),
        (2, &b"the next one"[..])
    );
}

// Keeps P112.
#[test]
fn senders_die_in_transfers() {
    let directory = Directory::new("large-senders-die");
    let (_domain, mut endpoint) = parent(&directory);
    let mut random = Random::from_environment();
    let bytes = 4 << 20;
    let whole = [0, 1].map(|number| bytes_of(number, bytes));
    let mut target = Guarded::new(bytes);
    let count = format!("count={bytes}");
    let start = |number: u64| {
        let name = format!("push-{number}");
        (Role::start("push", &directory, &name, &[&count]), name)
    };
    let mut next = start(0);
    for number in 1..=kills() {
        let (mut role, name) = std::mem::replace(&mut next, start(number));
        let peer = endpoint.peer_when_created(&name, Some(LONG)).unwrap();
        let mut due = 0;
        let receive = |endpoint: &mut Endpoint, due: &mut u64, target: &mut Guarded| {
            let status = endpoint.receive_into(Selector::any().from(peer), target.bytes())?;
            assert_eq!(status.tag, *due);
            assert!(target.bytes() == whole[usize::try_from(*due % 2).unwrap()], "torn");
            assert!(target.is_untouched_beyond(bytes));
            *due += 1;
            Ok::<_, MessageError>(())
        };
        for _ in 0..random.below(4) {
            receive(&mut endpoint, &mut due, &mut target).unwrap();
        }
        let after = random.below(1500);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                spin(after);
                role.kill();
            });
            loop {
                if let Err(error) = receive(&mut endpoint, &mut due, &mut target) {
                    break error;
                }
            }
        });
        assert!(matches!(error, MessageError::PeerDied { .. }), "{error}");
        // Nobody writes there any more.
        target.reset();
        spin(10_000);
        assert!(target.is_untouched_beyond(0), "written after the death was reported");
    }
    assert_eq!(endpoint.counter("violations"), Ok(0));
}

// Keeps P112.
#[test]
fn receivers_die_in_transfers() {
    let directory = Directory::new("large-receivers-die");
    let (_domain, mut endpoint) = parent(&directory);
    let mut random = Random::from_environment();
    let bytes = 4 << 20;
    let whole = [0, 1].map(|number| bytes_of(number, bytes));
    let count = format!("count={bytes}");
    let start = |number: u64| {
        let name = format!("pull-{number}");
        (Role::start("pull", &directory, &name, &[&count]), name)
    };
    let mut next = start(0);
    for number in 1..=kills() {
        let (mut role, name) = std::mem::replace(&mut next, start(number));
        let peer = endpoint.peer_when_created(&name, Some(LONG)).unwrap();
        let after = random.below(4000);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                spin(after);
                role.kill();
            });
            (0u64..)
                .find_map(|number| {
                    let message = &whole[usize::try_from(number % 2).unwrap()];
                    endpoint.send(peer, number, message).err()
                })
                .unwrap()
        });
        assert!(matches!(error, MessageError::PeerDied { .. }), "{error}");
        assert!(role.line().is_none_or(|line| !line.starts_with("torn")));
    }
}

// Keeps P114.
#[test]
fn a_stopped_sender_holds_up_nobody_who_has_a_limit() {
    let directory = Directory::new("large-stopped");
    let (_domain, mut endpoint) = parent(&directory);
    let mut random = Random::from_environment();
    let bytes = 4 << 20;
    let count = format!("count={bytes}");
    let whole = [0, 1].map(|number| bytes_of(number, bytes));
    let mut role = Role::start("push", &directory, "push", &[&count]);
    let mut echo = Role::start("echo", &directory, "echo", &[]);
    let to_echo = endpoint.peer_when_created("echo", Some(LONG)).unwrap();
    let pushing = endpoint.peer_when_created("push", Some(LONG)).unwrap();
    let mut due = 0u64;
    for _ in 0..from_environment("COREWIRE_STOPS", 20) {
        let after = random.below(2000);
        let stopped = &mut role;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                spin(after);
                stopped.stop();
            });
            let limit = Duration::from_millis(from_environment("COREWIRE_STOP_MS", 20));
            loop {
                let began = Instant::now();
                // Into memory of the endpoint, which the sender may be writing to.
                match endpoint.receive_timeout(Selector::any().from(pushing), limit).unwrap() {
                    Some(message) => {
                        assert_eq!(message.tag(), due);
                        assert!(message == whole[usize::try_from(due % 2).unwrap()], "torn");
                        due += 1;
                    }
                    None => {
                        assert!(began.elapsed() < limit + LONG);
                        break;
                    }
                }
            }
        });
        // Others go on.
        endpoint.send(to_echo, 7, &whole[0]).unwrap();
        let reply = endpoint.receive_timeout(Selector::any().from(to_echo), LONG).unwrap();
        assert!(reply.unwrap() == whole[0]);
        role.go_on();
    }
    let message = endpoint.receive(Selector::any().from(pushing)).unwrap();
    assert_eq!(message.tag(), due);
    endpoint.close().unwrap();
    assert_eq!(number(&mut echo, "refusals "), 0);
}

// Keeps P113.
#[test]
fn a_send_that_runs_out_of_time_is_never_torn() {
    let directory = Directory::new("large-withdrawn");
    let (_domain, mut endpoint) = parent(&directory);
    let bytes = 4 << 20;
    let count = format!("count={bytes}");
    let mut role = Role::start("pull", &directory, "pull", &[&count]);
    let peer: Peer = endpoint.peer_when_created("pull", Some(LONG)).unwrap();
    let whole = [0, 1].map(|number| bytes_of(number, bytes));
    let mut message = whole[0].clone();
    let mut random = Random::from_environment();
    let (mut sent, mut late) = (0, 0);
    for _ in 0..400 {
        let number = random.below(2);
        message.copy_from_slice(&whole[usize::try_from(number).unwrap()]);
        let limit = Duration::from_micros(random.below(1500));
        match endpoint.send_timeout(peer, number, &message, limit) {
            Ok(()) => sent += 1,
            Err(MessageError::Timeout { .. }) => late += 1,
            Err(error) => panic!("{error}"),
        }
        // The memory is this side's again.
        message.fill(0xee);
    }
    endpoint.close().unwrap();
    assert!(role.child.wait().unwrap().success());
    assert_eq!(role.line(), None, "of {sent} sent and {late} late");
}
