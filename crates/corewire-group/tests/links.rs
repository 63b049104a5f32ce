//! Links between members that end, while their processes live. A process of its own: it shuts down its sockets.

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_group::{Decision, Group};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// How long what must happen may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// The connected sockets of this process.
fn sockets() -> BTreeSet<i32> {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_connected = |number: &i32| socket(*number).is_some();
    descriptors
        .filter_map(|one| one.unwrap().file_name().to_str()?.parse().ok())
        .filter(is_connected)
        .collect()
}

/// Another descriptor of a connected socket.
fn socket(number: i32) -> Option<UnixStream> {
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let descriptor: OwnedFd = pidfd_getfd(this, number, PidfdGetfdFlags::empty()).ok()?;
    let socket = UnixStream::from(descriptor);
    socket.peer_addr().is_ok().then_some(socket)
}

// Keeps P222.
#[test]
fn a_group_goes_on_when_links_between_its_members_end() {
    const ROUNDS: u64 = 10;
    let path = std::env::temp_dir().join(format!("corewire-links-{}", std::process::id()));
    let domain = Domain::open_at(&path).unwrap();
    let join = || Group::builder(&domain, "links").join_timeout(PATIENCE).unwrap();
    let members: Vec<Group> = (0..3).map(|_| join()).collect();
    let first = members[0].view().unwrap().number;
    let (is_over, counts) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    std::thread::scope(|scope| {
        for (member, count) in members.iter().zip(&counts) {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    member.submit(b"one").unwrap();
                    if count.fetch_add(1, Relaxed) % 64 == 63 {
                        member.flush(PATIENCE).unwrap();
                    }
                }
                member.flush(PATIENCE).unwrap();
            });
        }
        for round in 0..ROUNDS {
            for number in sockets() {
                if let Some(socket) = socket(number) {
                    let _ = socket.shutdown(Shutdown::Both);
                }
            }
            // Each member gets on, with what it said before and what it says now.
            let before: Vec<u64> = counts.iter().map(|count| count.load(Relaxed)).collect();
            let began = Instant::now();
            let gets_on = |index: usize| counts[index].load(Relaxed) > before[index] + 128;
            while !(0..3).all(gets_on) {
                assert!(began.elapsed() < PATIENCE, "round {round}: {before:?} {counts:?}");
                std::thread::yield_now();
            }
        }
        is_over.store(true, Relaxed);
    });
    let total = counts.iter().map(|count| count.load(Relaxed)).sum();
    let logs = members.iter().map(|member| {
        let mut decided = member.decided(0);
        let mut log = Vec::new();
        while (log.len() as u64) < total {
            match decided.next_timeout(PATIENCE).unwrap() {
                Some(Decision::Entry(entry)) => log.push((entry.from, entry.number)),
                other => panic!("{other:?} behind {} entries", log.len()),
            }
        }
        log
    });
    let logs: Vec<_> = logs.collect();
    assert!(logs.iter().all(|log| *log == logs[0]), "all have the same log");
    let once: BTreeSet<_> = logs[0].iter().collect();
    assert_eq!(once.len() as u64, total, "each command once");
    assert!(members[0].view().unwrap().number > first, "the leader has begun again");
    drop(members);
    let _ = std::fs::remove_dir_all(path);
}
