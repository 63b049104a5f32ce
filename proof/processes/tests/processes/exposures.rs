//! Exposed memory among processes that make no call, are stopped and are killed, and where the kernel copies nothing.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use corewire::{
    Domain, Endpoint, ExposedMemory, Memory, MessageError, NumberChange, NumberKind, Options, Peer,
    RemoteChange, RemotePart, WindowRights,
};
use corewire_os::event::wait_readable;

use crate::roles::{Directory, Role};

const KEY: u64 = 1;
/// Bytes that the role exposes.
const BYTES: usize = 400_000;

const fn part(offset: u64, bytes: usize) -> RemotePart {
    RemotePart { key: KEY, offset, bytes: bytes as u64 }
}

/// What is put is got, at once or in pieces.
fn copies(endpoint: &mut Endpoint, peer: Peer, seed: u8) {
    for length in [1, 8, 1000, 1024, 1025, 5000, 300_000] {
        let bytes: Vec<u8> = (0..241u8).cycle().map(|byte| byte ^ seed).take(length).collect();
        endpoint.put(peer, &[part(99, length)], &bytes).unwrap();
        let mut found = vec![0; length];
        endpoint.get(peer, &[part(99, length)], &mut found).unwrap();
        assert!(found == bytes, "{length} bytes");
    }
}

fn start_adding(endpoint: &mut Endpoint, peer: Peer) -> corewire::OperationHandle {
    let kind = RemoteChange::Fetch(NumberChange::Add, NumberKind::U64);
    let operands = (Memory::default(), 5u64.to_le_bytes().to_vec().into());
    let options = Options::default();
    endpoint.ichange(peer, kind, &[part(399_992, 8)], operands, vec![0; 8], options).unwrap()
}

// Keeps P255.
#[test]
fn copies_are_made_though_the_owner_makes_no_call_or_is_stopped() {
    let directory = Directory::new("exposed-silent");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut owner = Role::start("expose", &directory, "owner", &["keep"]);
    owner.until("exposed");
    let mut endpoint = domain.endpoint("me").create().unwrap();
    // The first ones begin before the two are linked.
    let peer = endpoint.address("owner", None).unwrap();
    copies(&mut endpoint, peer, 3);
    owner.stop();
    copies(&mut endpoint, peer, 5);
    // Wherever both sides begin in a page: some of these copies take a detour.
    let (bytes, mut found) = ((0..241u8).cycle().take(12_000).collect::<Vec<_>>(), vec![0; 12_000]);
    for at in (0..4096).step_by(16) {
        endpoint.put(peer, &[part(0, 5000)], &bytes[at..at + 5000]).unwrap();
        endpoint.get(peer, &[part(0, 5000)], &mut found[at..at + 5000]).unwrap();
        assert!(found[at..at + 5000] == bytes[at..at + 5000], "{at}");
    }
    // More than may be asked for at a time, and the owner finds all of it in the end.
    for round in 0..5 {
        let begin = |offset| {
            let bytes = vec![round; 8];
            endpoint.iput(peer, &[part(offset, 8)], bytes, Options::default()).unwrap()
        };
        let handles: Vec<_> = (0..100).map(|at| 8 * at).map(begin).collect();
        for handle in handles {
            endpoint.wait(handle).unwrap().result.unwrap();
        }
        let mut found = vec![9; 800];
        endpoint.get(peer, &[part(0, 800)], &mut found).unwrap();
        assert_eq!(found, vec![round; 800]);
    }
    // What is empty makes no request, and loses none.
    let begin = |bytes: usize| {
        endpoint.iput(peer, &[part(0, bytes)], vec![4; bytes], Options::default()).unwrap()
    };
    let handles = [8, 0, 8, 0, 0, 8, 2000, 8].map(begin);
    for handle in handles {
        endpoint.wait(handle).unwrap().result.unwrap();
    }
    // Numbers wait for the owner.
    let handle = start_adding(&mut endpoint, peer);
    let waited = endpoint.within(Duration::from_millis(250)).wait(handle);
    assert!(matches!(waited, Ok(None)), "{waited:?}");
    // What follows is done after it.
    let mut found = vec![0; 8];
    let get = endpoint.iget(peer, &[part(399_992, 8)], vec![0; 8], Options::default()).unwrap();
    owner.go_on();
    owner.say("serve");
    endpoint.wait(handle).unwrap().result.unwrap();
    found.copy_from_slice(&endpoint.wait(get).unwrap().memory.into_vec());
    assert_eq!(found, 5u64.to_le_bytes());
    copies(&mut endpoint, peer, 7);
    owner.hang_up();
    assert!(owner.is_success());
}

// A put that begins when the endpoint is armed makes the descriptor readable, though nobody polls.
#[test]
fn a_put_that_begins_while_its_end_is_waited_for_is_told() {
    let directory = Directory::new("exposed-armed");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut owner = Role::start("expose", &directory, "owner", &[]);
    owner.until("exposed");
    let mut endpoint = domain.endpoint("me").create().unwrap();
    let peer = endpoint.peer("owner").unwrap();
    let handle = start_adding(&mut endpoint, peer);
    endpoint.wait(handle).unwrap().result.unwrap();
    let readiness = endpoint.readiness();
    for round in 0..100u8 {
        while !endpoint.arm().unwrap() {
            endpoint.progress().unwrap();
        }
        let put = endpoint.iput(peer, &[part(0, 8)], vec![round; 8], Options::default()).unwrap();
        let end = Some(Instant::now() + Duration::from_secs(20));
        let is_readable = wait_readable(&[readiness.as_fd()], end).unwrap();
        assert_eq!(is_readable, [true], "round {round}");
        endpoint.wait(put).unwrap().result.unwrap();
    }
    owner.hang_up();
    assert!(owner.is_success());
}

// Keeps P254.
#[test]
fn programs_at_random_find_what_they_have_put() {
    let directory = Directory::new("exposed-random");
    let mut owner = Role::start("expose", &directory, "owner", &[]);
    owner.until("exposed");
    let mut visitor = Role::start("visit", &directory, "owner", &["count=3000"]);
    visitor.until("right");
    owner.hang_up();
    assert!(visitor.is_success() && owner.is_success());
}

// Keeps P255.
#[test]
fn the_owner_does_what_the_kernel_refuses() {
    let directory = Directory::new("exposed-refused");
    let mut owner = Role::start("expose", &directory, "owner", &[]);
    owner.until("exposed");
    let refuse = |call: libc::c_long| format!("refuse={call}:{}", libc::EPERM);
    for refused in [
        vec![refuse(libc::SYS_process_vm_readv)],
        vec![refuse(libc::SYS_process_vm_writev)],
        vec![refuse(libc::SYS_process_vm_readv), refuse(libc::SYS_process_vm_writev)],
    ] {
        // The memory is as the one before has left it.
        let mut fresh = Role::start("expose", &directory, "fresh", &[]);
        fresh.until("exposed");
        let options: Vec<&str> = refused.iter().map(String::as_str).chain(["count=500"]).collect();
        let mut visitor = Role::start("visit", &directory, "fresh", &options);
        visitor.until("right");
        fresh.hang_up();
        assert!(visitor.is_success() && fresh.is_success(), "{refused:?}");
    }
    owner.hang_up();
    assert!(owner.is_success());
}

#[test]
fn an_owner_that_dies_ends_what_waits_for_it() {
    let directory = Directory::new("exposed-dies");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut owner = Role::start("expose", &directory, "owner", &["keep"]);
    owner.until("exposed");
    let mut endpoint = domain.endpoint("me").create().unwrap();
    let peer = endpoint.peer("owner").unwrap();
    let handle = start_adding(&mut endpoint, peer);
    owner.kill();
    let completion = endpoint.wait(handle).unwrap();
    assert!(matches!(completion.result, Err(MessageError::PeerDied { .. })), "{completion:?}");
    assert_eq!(completion.memory.into_vec(), [0; 8], "the memory comes back");
    let error = endpoint.put(peer, &[part(0, 8)], &[0; 8]).unwrap_err();
    assert!(matches!(error, MessageError::PeerDied { .. }), "{error}");
}

/// Visitors are killed while the owner conceals memory and exposes other memory under the same key.
#[test]
fn killed_visitors_keep_no_entry() {
    let directory = Directory::new("exposed-kills");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut owner = domain.endpoint("owner").create().unwrap();
    let expose = |owner: &mut Endpoint| {
        let memory = ExposedMemory::new(BYTES).unwrap();
        owner.expose_as(&memory, WindowRights::ATOMIC, Some(KEY), 0).unwrap();
        memory
    };
    let mut memory = expose(&mut owner);
    for kill in 0..20u64 {
        let mut visitor = Role::start("visit", &directory, "owner", &[]);
        visitor.until("visiting");
        for _ in 0..200 + 37 * kill {
            owner.progress().unwrap();
        }
        visitor.kill();
        for _ in 0..100 {
            owner.conceal(KEY).unwrap();
            memory = expose(&mut owner);
        }
    }
    assert!(memory.put(0, &[7; 8]));
    // More than the table has entries were used; the peer finds this one by itself.
    let mut endpoint = domain.endpoint("me").create().unwrap();
    let peer = endpoint.peer("owner").unwrap();
    let mut found = vec![0; 2000];
    let target = &mut [&mut found[..]];
    assert_eq!(endpoint.try_get(peer, &[part(0, 2000)], target), Ok(true));
    assert_eq!(found[..9], [7, 7, 7, 7, 7, 7, 7, 7, 0]);
}
