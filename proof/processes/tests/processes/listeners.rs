//! Listeners whose clients are other processes, of this user and of others. Changing the user requires root; without
//! it, a run prints that and skips these tests.

use std::time::Duration;

use crate::roles::users::{GUEST, OWNER, STRANGER, is_root};
use crate::roles::{Directory, Role};
use corewire::{Access, ConnectServiceError, Connection, Domain};
use rustix::event::{PollFd, PollFlags, poll};

const NAME: &str = "service";
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

/// Starts a process of user `uid`.
fn start(role: &str, directory: &Directory, uid: u32, options: &[&str]) -> Role {
    let uid = format!("uid={uid}");
    Role::start(role, directory, NAME, &[&[uid.as_str()], options].concat())
}

/// Waits until a role watches the directory: a listener that is created from then on wakes it.
fn await_watch(role: &Role) {
    let path = format!("/proc/{}/fd", role.id());
    let is_watch = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = entry.and_then(|entry| std::fs::read_link(entry.path()));
        target.is_ok_and(|target| target.to_string_lossy().contains("inotify"))
    };
    while !std::fs::read_dir(&path).unwrap().any(is_watch) {
        std::thread::yield_now();
    }
}

/// Reads a client's packet, and answers. A packet that nobody has read would end the connection with an error.
fn answer(connection: &Connection) {
    poll(&mut [PollFd::new(connection, PollFlags::IN)], None).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::read(connection, &mut bytes), Ok(5));
    assert_eq!(bytes[..5], *b"hello");
    rustix::io::write(connection, b"welcome").unwrap();
}

fn wait_for_end(connection: &Connection) {
    poll(&mut [PollFd::new(connection, PollFlags::IN)], None).unwrap();
    assert_eq!(rustix::io::read(connection, &mut [0; 8]), Ok(0));
}

#[test]
fn two_processes_are_connected_when_the_name_is_there() {
    let directory = Directory::new("listeners");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut client = Role::start("connect", &directory, NAME, &[]);
    assert_eq!(client.until("listeners"), "");
    assert_eq!(client.until("now"), "Err(listener service does not exist)");
    await_watch(&client);
    let listener = domain.listener(NAME).unwrap();
    let connection = listener.accept().unwrap();
    assert_eq!(connection.pid(), client.id());
    let [uid, gid] = [connection.uid(), connection.gid()];
    let expected = format!("uid={uid} gid={gid} pid={}", std::process::id());
    assert_eq!(client.until("connected"), expected);
    answer(&connection);
    assert_eq!(client.until("heard"), "welcome");
    drop(connection);
    assert_eq!(client.until("ended"), "0");
    assert!(client.is_success());
}

// Keeps P150.
#[test]
fn a_killed_process_is_not_found_and_its_name_is_free() {
    let directory = Directory::new("listeners-killed");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut service = Role::start("listen", &directory, NAME, &[]);
    service.until("listening");
    let used = domain.sender(NAME).create().unwrap_err().to_string();
    let expected = format!("listener {NAME} already exists: process {} has it", service.id());
    assert_eq!(used, expected);
    let connection = domain.connect(NAME, LONG).unwrap();
    assert_eq!(connection.pid(), service.id());
    service.kill();
    wait_for_end(&connection);
    let error = domain.connect(NAME, LONG).unwrap_err();
    assert!(matches!(error, ConnectServiceError::NotFound(_)), "{error}");
    assert!(domain.listeners().unwrap().is_empty());
    // What the dead process left does not stand in the way of the next one, which wakes a client that waits.
    let mut client = Role::start("connect", &directory, NAME, &[]);
    client.until("now");
    await_watch(&client);
    let listener = domain.listener(NAME).unwrap();
    assert_eq!(listener.accept().unwrap().pid(), client.id());
}

#[test]
fn a_stopped_process_does_not_answer_and_does_once_it_runs() {
    let directory = Directory::new("listeners-stopped");
    let domain = Domain::open_at(directory.path()).unwrap();
    let mut service = Role::start("listen", &directory, NAME, &[]);
    service.until("listening");
    service.stop();
    let short = Duration::from_millis(50);
    let error = domain.connect(NAME, short).unwrap_err();
    let ConnectServiceError::NoAnswer { after, pid, .. } = error else { panic!("{error}") };
    assert_eq!((after, pid), (short, service.id()));
    service.go_on();
    domain.connect(NAME, LONG).unwrap();
}

#[test]
fn a_client_that_is_killed_leaves_a_connection_that_has_ended() {
    let directory = Directory::new("listeners-client");
    let domain = Domain::open_at(directory.path()).unwrap();
    let listener = domain.listener(NAME).unwrap();
    let mut client = Role::start("crowd", &directory, NAME, &["count=1"]);
    client.until("connections");
    client.kill();
    let connection = listener.accept().unwrap();
    assert_eq!(connection.pid(), client.id());
    wait_for_end(&connection);
}

// Keeps P150.
#[test]
fn a_forked_child_has_no_listener_and_no_connection() {
    let directory = Directory::new("listeners-fork");
    let mut role = Role::start("fork-listener", &directory, NAME, &[]);
    role.until("forked well");
    assert!(role.is_success());
}

// Keeps P151.
#[test]
fn a_guest_finds_waits_for_and_connects_to_a_listener() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("listeners-guest");
    let rule = Access::Users(vec![GUEST]);
    let domain = Domain::builder().path(directory.path()).access(rule).open().unwrap();
    // A guest that waits, and one that finds the name.
    for is_waiting in [true, false] {
        let make = || domain.listener(NAME).unwrap();
        let early = (!is_waiting).then(make);
        let mut guest = start("connect", &directory, GUEST, &["owner=0"]);
        assert_eq!(guest.until("listeners"), if is_waiting { "" } else { NAME });
        let created = guest.until("created");
        assert_eq!(
            created,
            "Err(only user 0 can create listeners in its domain; this process runs as user 65534)"
        );
        let now = guest.until("now");
        let listener = early.unwrap_or_else(|| {
            assert!(now.ends_with("does not exist)"), "{now}");
            await_watch(&guest);
            make()
        });
        if !is_waiting {
            assert_eq!(now, "Ok(())");
            wait_for_end(&listener.accept().unwrap());
        }
        let connection = listener.accept().unwrap();
        let found = (connection.uid(), connection.gid(), connection.pid());
        assert_eq!(found, (GUEST, GUEST, guest.id()));
        assert_eq!(guest.until("connected"), format!("uid=0 gid=0 pid={}", std::process::id()));
        answer(&connection);
        assert_eq!(guest.until("heard"), "welcome");
        drop(connection);
        assert_eq!(guest.until("ended"), "0");
        assert!(guest.is_success());
    }
    // Its socket and its rule.
    assert_eq!(directory.files().len(), 2, "the guests left nothing: {:?}", directory.files());
}

// Keeps P151.
#[test]
fn a_user_who_is_not_admitted_is_refused_with_both_numbers() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("listeners-stranger");
    let access = format!("access=users:{GUEST}");
    let mut service = start("listen", &directory, OWNER, &[&access]);
    service.until("listening");
    for uid in [STRANGER, 0] {
        let mut stranger = start("connect", &directory, uid, &[&format!("owner={OWNER}")]);
        let refused =
            format!("listener service belongs to user {OWNER}, this process runs as user {uid}");
        assert_eq!(stranger.until("now"), format!("Err({refused})"));
        assert_eq!(stranger.until("connected"), refused);
    }
}

#[test]
fn a_process_that_admits_nobody_shows_guests_no_listener() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("listeners-closed");
    let access = format!("access=users:{GUEST}");
    let mut open = start("listen", &directory, OWNER, &[&access]);
    open.until("listening");
    let owner = format!("owner={OWNER}");
    let mut closed =
        Role::start("listen", &directory, "closed", &[&format!("uid={OWNER}"), &owner]);
    closed.until("listening");
    let mut guest = start("connect", &directory, GUEST, &[&owner]);
    assert_eq!(guest.until("listeners"), NAME);
    let domain = Domain::builder().path(directory.path()).owner(OWNER).open().unwrap();
    let error = domain.connect("closed", LONG).unwrap_err();
    assert!(matches!(error, ConnectServiceError::NotFound(_)), "{error}");
}

// Keeps P151.
#[test]
fn guests_who_are_not_accepted_shut_nobody_out() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("listeners-crowd");
    let users: Vec<u32> = (0..4).map(|index| GUEST - index).collect();
    let list: Vec<_> = users.iter().map(ToString::to_string).collect();
    let access = format!("access=users:{}", list.join(","));
    let mut service = start("listen", &directory, OWNER, &[&access]);
    service.until("listening");
    let owner = format!("owner={OWNER}");
    let mut crowds = Vec::new();
    for (index, &uid) in users.iter().enumerate() {
        let mut crowd = start("crowd", &directory, uid, &[&owner, "count=100"]);
        let refused = crowd.until("refused");
        // Three users have their share; then all guests have theirs.
        let (max, count) = if index < 3 { (64, "64") } else { (192, "0") };
        let expected = format!(
            "listener {NAME}: guests have the {max} places among the listener's waiting connections that \
             those of user {uid}, or all guests, may have"
        );
        assert_eq!(refused, expected);
        assert_eq!(crowd.until("connections"), count);
        crowds.push(crowd);
    }
    let mut own = start("crowd", &directory, OWNER, &[&owner, "count=100"]);
    let expected = "listener service: the listener has its maximum of 256 connections that it has not accepted yet";
    assert_eq!(own.until("refused"), expected);
    assert_eq!(own.until("connections"), "64");
}
