//! Processes of different users: which ones may enter a domain, and what a guest can do there.
//! Changing the user requires root; without it, a run prints that and tests nothing. A process of its own: it starts children as other users.

mod roles;
#[path = "users/windows.rs"]
mod windows;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use corewire::{Access, Domain, JoinError, SendError};
use roles::users::{GUEST, OWNER, STRANGER, is_root};
use roles::{Directory, Role};

const CHANNEL: &str = "shared";
/// A group of the tests; it needs no entry.
const GROUP: u32 = 34_567;

/// Starts a process of user `uid` in the given role.
fn start(role: &str, directory: &Directory, uid: u32, options: &[&str]) -> Role {
    let uid = format!("uid={uid}");
    let groups: Vec<&str> =
        options.iter().copied().filter(|option| option.starts_with("groups=")).collect();
    let others = options.iter().copied().filter(|option| !option.starts_with("groups="));
    let all: Vec<&str> = groups.into_iter().chain([uid.as_str()]).chain(others).collect();
    Role::start(role, directory, CHANNEL, &all)
}

/// Starts a sender of user `OWNER` whose domain has this access rule.
fn sender(directory: &Directory, rule: &str) -> Role {
    let mut sender = start("sender", directory, OWNER, &[&format!("access={rule}")]);
    sender.until("created");
    sender
}

fn look(directory: &Directory, uid: u32, groups: &[&str]) -> Role {
    let owner = format!("owner={OWNER}");
    start("look", directory, uid, &[groups, &[&owner]].concat())
}

fn modes(path: &Path, prefix: &str) -> Vec<(u32, u32)> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.metadata().unwrap())
        .map(|found| (found.mode() & 0o7777, found.gid()))
        .collect()
}

const NEEDS_SNAPSHOTS: &str = "channel shared belongs to user 23456: its messages can only be copied out; join it with `snapshots()`";

/// The error of a user that is not admitted.
fn not_permitted(owner: u32, user: u32) -> String {
    format!("channel shared belongs to user {owner}, this process runs as user {user}")
}

/// Checks the output of a guest that is admitted.
fn expect_let_in(mut guest: Role, uid: u32) {
    assert_eq!(guest.until("channels"), CHANNEL);
    let observed = guest.until("observed");
    assert!(observed.starts_with("sent=") && observed.ends_with("receivers=0"), "{observed}");
    let joined = guest.until("joined");
    assert_eq!(joined, NEEDS_SNAPSHOTS);
    let created = guest.until("created");
    let runs_as = format!("this process runs as user {uid}");
    assert_eq!(
        created,
        format!("Err(only user {OWNER} can create channels in its domain; {runs_as})")
    );
    assert_eq!(guest.until("waited"), joined);
    assert!(guest.is_success());
}

#[test]
fn a_guest_on_the_list_finds_channels_and_creates_none() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-list");
    let rule = format!("users:{GUEST},5");
    // A receiver of the owner's user also receives; the guest must not see it.
    let mut sender = sender(&directory, &rule);
    let mut own = start("receiver", &directory, OWNER, &[&format!("owner={OWNER}")]);
    own.until("joined");
    expect_let_in(look(&directory, GUEST, &[]), GUEST);
    let files = directory.files();
    assert!(files.iter().all(|file| !file.starts_with("w.")), "{files:?}");
    assert_eq!(fs::metadata(directory.path()).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(modes(directory.path(), "g.")[0].0, 0o644);
    let mut sockets: Vec<_> = modes(directory.path(), "p.").iter().map(|found| found.0).collect();
    sockets.sort_unstable();
    assert_eq!(sockets, [0o600, 0o666], "the receiver's is for its own user");
    sender.hang_up();
    assert_eq!(sender.until("closed"), own.until("ended"));
    assert!(sender.is_success() && own.is_success());
    // Sockets may stay until the next process removes them, and the rule stays.
    let is_left = |file: &String| file.starts_with("p.") || file == "rule";
    assert!(directory.files().iter().all(is_left), "{:?}", directory.files());
}

// Keeps P36.
#[test]
fn who_is_not_on_the_list_is_refused_with_both_numbers() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-stranger");
    let _sender = sender(&directory, &format!("users:{GUEST}"));
    // Root is a user like any other.
    for uid in [STRANGER, 0] {
        let mut stranger = look(&directory, uid, &[]);
        let refused = stranger.until("observed");
        let expected = not_permitted(OWNER, uid);
        assert_eq!(refused, expected);
        assert_eq!(stranger.until("joined"), expected);
        assert_eq!(stranger.until("waited"), expected);
    }
    let domain = Domain::builder().path(directory.path()).owner(OWNER).open().unwrap();
    let error = domain.receiver(CHANNEL).join().unwrap_err();
    assert!(matches!(error, JoinError::NotPermitted { owner: OWNER, user: 0, .. }), "{error}");
    assert_eq!(directory.files().iter().filter(|file| file.starts_with("p.")).count(), 1);
}

// Keeps P36.
#[test]
fn a_group_lets_in_by_primary_and_supplementary_group() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-group");
    let rule = format!("access=group:{GROUP}");
    let own_groups = format!("groups={GROUP}");
    let mut sender = start("sender", &directory, OWNER, &[&own_groups, &rule]);
    sender.until("created");
    expect_let_in(look(&directory, GUEST, &[&format!("groups=7,{GROUP}")]), GUEST);
    expect_let_in(look(&directory, GROUP, &[]), GROUP);
    let found = fs::metadata(directory.path()).unwrap();
    assert_eq!((found.mode() & 0o7777, found.gid()), (0o2750, GROUP));
    assert_eq!(modes(directory.path(), "g."), [(0o640, GROUP)]);
    assert_eq!(modes(directory.path(), "p."), [(0o660, GROUP)]);
    // Other users cannot even enter the directory.
    let options = [format!("uid={STRANGER}"), format!("owner={OWNER}")];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_corewire-role"))
        .arg("look")
        .arg(directory.path())
        .arg(CHANNEL)
        .args(options)
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let path = directory.path().display().to_string();
    assert!(errors.contains(&path) && errors.contains("Permission denied"), "{errors}");
    // Root enters, but gets no answer.
    let mut root = look(&directory, 0, &[]);
    assert!(root.until("joined").contains("belongs to user"));
}

#[test]
fn more_groups_than_most_have_are_looked_through() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-groups");
    let own_groups = format!("groups={GROUP}");
    let rule = format!("access=group:{GROUP}");
    let mut sender = start("sender", &directory, OWNER, &[&own_groups, &rule]);
    sender.until("created");
    let many: Vec<String> = (1000..1200).chain([GROUP]).map(|gid| gid.to_string()).collect();
    expect_let_in(look(&directory, GUEST, &[&format!("groups={}", many.join(","))]), GUEST);
}

#[test]
fn a_guest_that_waits_is_told_when_the_channel_is_made() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-wait");
    // The domain exists, the channel does not.
    let rule = Access::Users(vec![GUEST]);
    let domain = Domain::builder().path(directory.path()).access(rule).open().unwrap();
    let mut guest = start("look", &directory, GUEST, &["owner=0"]);
    assert_eq!(guest.until("channels"), "");
    assert!(guest.until("joined").ends_with("does not exist"));
    guest.until("waiting");
    let mut sender = domain.sender(CHANNEL).create().unwrap();
    // No process was invited, so the sender waits for none.
    sender.try_send(b"first").unwrap();
    assert!(guest.until("waited").contains("can only be copied out"));
}

#[test]
fn idle_connections_of_a_guest_shut_nobody_out() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-idle");
    let mut sender = sender(&directory, &format!("users:{GUEST},{STRANGER}"));
    let mut idle = start("idle", &directory, GUEST, &["count=65"]);
    assert_eq!(idle.until("last"), "Refused(Resources { errno: 24 })");
    assert_eq!(idle.until("idle"), "64");
    // The same user cannot connect any more; other users can.
    let mut same = look(&directory, GUEST, &[]);
    assert!(same.until("observed").contains("out of descriptors or memory"));
    expect_let_in(look(&directory, STRANGER, &[]), STRANGER);
    let mut own = start("receiver", &directory, OWNER, &[&format!("owner={OWNER}")]);
    own.until("joined");
    // Once these connections are closed there is room again.
    idle.say("enough");
    assert!(idle.is_success());
    loop {
        let mut again = look(&directory, GUEST, &[]);
        if again.until("observed").starts_with("sent=") {
            break;
        }
    }
    sender.hang_up();
    assert_eq!(sender.until("closed"), own.until("ended"));
}

#[test]
fn a_directory_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-owner");
    let _sender = sender(&directory, &format!("users:{GUEST}"));
    let path = format!("{:?}", directory.path());
    let error = Domain::open_at(directory.path()).unwrap_err().to_string();
    let expected = format!(
        "runtime directory {path} belongs to user {OWNER} and has mode 0755, this process runs as user 0: set \
         COREWIRE_RUNTIME_DIR to a directory of user 0, or be a guest of user {OWNER} (--owner {OWNER})"
    );
    assert_eq!(error, expected);
    // A guest also refuses a directory that belongs to a third user.
    let error = Domain::builder().path(directory.path()).owner(STRANGER).open().unwrap_err();
    let expected = format!(
        "runtime directory {path} belongs to user {OWNER} and has mode 0755, not to user {STRANGER}: set \
         COREWIRE_RUNTIME_DIR to a directory of user {STRANGER}"
    );
    assert_eq!(error.to_string(), expected);
    // A directory that others may write is refused too.
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let error = Domain::builder().path(directory.path()).owner(OWNER).open().unwrap_err();
    assert!(error.to_string().contains("mode 0777: only its owner may write it"), "{error}");
}

// Keeps P36.
#[test]
fn a_domain_that_is_not_open_stays_closed() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-closed");
    let domain = Domain::open_at(directory.path()).unwrap();
    let _sender = domain.sender(CHANNEL).create().unwrap();
    assert_eq!(modes(directory.path(), "p.")[0].0, 0o600);
    assert!(modes(directory.path(), "g.").is_empty());
    // Another process opens the directory to others. The domain must still answer no other user.
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(directory.path()).unwrap() {
        fs::set_permissions(entry.unwrap().path(), PermissionsExt::from_mode(0o666)).unwrap();
    }
    let record = fs::read_to_string(directory.path().join("n.shared")).unwrap();
    fs::write(directory.path().join("g.shared"), record).unwrap();
    let mut guest = start("look", &directory, GUEST, &["owner=0"]);
    assert!(guest.until("observed").contains("belongs to user"));
    fs::remove_file(directory.path().join("g.shared")).unwrap();
}

#[test]
fn a_guest_cannot_hold_a_name_by_locking_it() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-lock");
    let rule = format!("users:{GUEST}");
    let mut first = sender(&directory, &rule);
    let mut locker = start("lock", &directory, GUEST, &[]);
    assert_eq!(locker.until("locked"), "[\"g.\"]");
    first.kill();
    // The name of the dead sender is free, whatever the guest holds.
    let _second = sender(&directory, &rule);
    expect_let_in(look(&directory, GUEST, &[]), GUEST);
}

// Keeps P14.
#[test]
fn the_dead_owners_files_are_swept_by_the_next_of_its_user() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-sweep");
    let mut dead = sender(&directory, &format!("users:{GUEST}"));
    dead.kill();
    // A guest sees that the sender is gone, and removes nothing. Root as a guest does not either.
    for uid in [GUEST, 0] {
        let mut guest = look(&directory, uid, &[]);
        assert_eq!(guest.until("channels"), "");
        assert!(guest.until("joined").ends_with("does not exist"));
    }
    let left: Vec<_> =
        ["n.", "g.", "p."].map(|prefix| modes(directory.path(), prefix).len()).into();
    assert_eq!(left, [1, 1, 1]);
    let mut own = start("look", &directory, OWNER, &[&format!("owner={OWNER}")]);
    own.until("waiting");
    let left = ["n.", "g."].map(|prefix| modes(directory.path(), prefix).len());
    assert_eq!(left, [0, 0]);
}

/// A sender of user `OWNER` that admits the guest, and a receiver of the same user that copies.
fn sender_and_copier(directory: &Directory, slow: &str) -> (Role, Role) {
    let access = format!("access=users:{GUEST}");
    let mut sender = start("sender", directory, OWNER, &[&access, slow]);
    sender.until("created");
    let mut own = start("copier", directory, OWNER, &[&format!("owner={OWNER}")]);
    own.until("joined");
    (sender, own)
}

#[test]
fn a_guest_copies_messages_out() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-copy");
    let mut sender = sender(&directory, &format!("users:{GUEST}"));
    let mut guest = start("copier", &directory, GUEST, &[&format!("owner={OWNER}")]);
    guest.until("joined");
    (0..4).for_each(|_| drop(guest.until("at ")));
    sender.hang_up();
    let sent = sender.until("closed");
    assert_eq!(guest.until("ended"), format!("{sent} missed=0"));
    assert!(sender.is_success() && guest.is_success());
}

// Keeps P36.
#[test]
fn a_guest_cannot_write_the_senders_memory_by_any_means() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-intruder");
    let mut sender = sender(&directory, &format!("users:{GUEST}"));
    let mut own = start("receiver", &directory, OWNER, &[&format!("owner={OWNER}")]);
    own.until("joined");
    let mut intruder = start("intruder", &directory, GUEST, &[]);
    intruder.until("joined");
    let mut refusals = 0;
    loop {
        let line = intruder.line().expect("it says that it has tried everything");
        if line == "tried" {
            break;
        }
        println!("{line}");
        assert!(line.starts_with("refused "), "{line}");
        refusals += 1;
    }
    assert!(intruder.is_success());
    // There are fewer only where the kernel does not let it open the memory again.
    assert!(refusals >= 27, "{refusals} attempts");
    // The stream continued and is complete.
    own.until("at ");
    sender.hang_up();
    assert_eq!(sender.until("closed"), own.until("ended"));
    assert!(sender.is_success() && own.is_success());
}

/// A guest joins and is stopped. The sender must continue for many times as many messages as its
/// ring has slots.
fn goes_on_beside_a_stopped_guest(directory: &Directory, sender: &mut Role) {
    let mut guest = start("holder", directory, GUEST, &[&format!("owner={OWNER}")]);
    let first: u64 = guest.until("joined").parse().unwrap();
    guest.stop();
    while sender.until("at ").parse::<u64>().unwrap() < first + 20 * 256 {}
}

#[test]
fn a_stopped_guest_does_not_hold_up_a_channel_that_overwrites() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-overwrite");
    let (mut sender, mut own) = sender_and_copier(&directory, "overwrite");
    goes_on_beside_a_stopped_guest(&directory, &mut sender);
    sender.hang_up();
    let sent = sender.until("closed");
    // Every message arrived or is counted as missed.
    let ended = own.until("ended");
    assert_eq!(ended.split(' ').next(), Some(sent.as_str()), "{ended}");
    assert!(sender.is_success() && own.is_success());
}

// Keeps P36.
#[test]
fn a_stopped_guest_does_not_hold_up_a_channel_that_evicts() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-evict");
    let (mut sender, mut own) = sender_and_copier(&directory, "evict-ms=1000");
    goes_on_beside_a_stopped_guest(&directory, &mut sender);
    sender.hang_up();
    let sent = sender.until("closed");
    assert_eq!(own.until("ended"), format!("{sent} missed=0"));
    assert!(sender.is_success() && own.is_success());
}

#[test]
fn a_guest_gets_nothing_that_would_hold_up_the_owner() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-by-hand");
    // For more receivers than a channel serves without a hint word, if all are of one user.
    let rule = format!("access=users:{GUEST}");
    let mut sender = start("sender", &directory, OWNER, &[&rule, "receivers=20", "overwrite"]);
    sender.until("created");
    let mut guest = start("by-hand", &directory, GUEST, &[]);
    assert_eq!(guest.until("invited"), "Refused(Malformed)");
    assert_eq!(guest.until("joined"), "hint=false fences=false descriptors=2");
    // The descriptor is not accepted; no process writes to it.
    assert_eq!(guest.until("readiness"), "Done");
    guest.until("asleep");
    // The sender's lines may be from before: who joins now says where it is.
    let mut other = start("holder", &directory, GUEST, &[&format!("owner={OWNER}")]);
    let first: u64 = other.until("joined").parse().unwrap();
    sender.until_past("at ", first + 20 * 256);
    guest.say("enough");
    let woken: u64 = guest.until("woken").parse().unwrap();
    assert!(woken > 0, "it was never woken");
    sender.hang_up();
    sender.until("closed");
    assert!(sender.is_success() && guest.is_success());
}

#[test]
fn a_guest_cannot_answer_for_who_was_invited() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("users-invited");
    let rule = Access::Users(vec![GUEST]);
    let domain = Domain::builder().path(directory.path()).access(rule).open().unwrap();
    let mut waiter = start("look", &directory, 0, &["owner=0"]);
    waiter.until("waiting");
    let number = directory.waiter(CHANNEL);
    waiter.stop();
    let mut channel = domain.sender(CHANNEL).create().unwrap();
    assert_eq!(channel.try_send(b"first"), Err(SendError::Joining { count: 1 }));
    let mut guest = start("by-hand", &directory, GUEST, &[&format!("waiter={number}")]);
    assert_eq!(guest.until("invited"), "Refused(Malformed)");
    guest.until("joined");
    assert_eq!(channel.receivers(), 1);
    assert_eq!(channel.try_send(b"first"), Err(SendError::Joining { count: 1 }));
    waiter.go_on();
    channel.send(b"first").unwrap();
    assert_eq!(waiter.until("waited"), "from 0");
}

#[test]
fn a_guest_is_not_deceived_about_whose_channel_it_is() {
    if !is_root() {
        return;
    }
    let [owners, strangers] = ["users-deceived", "users-deceiver"].map(Directory::new);
    let _sender = sender(&owners, &format!("users:{GUEST}"));
    let rule = format!("access=users:{GUEST}");
    let mut deceiver = start("sender", &strangers, STRANGER, &[&rule]);
    deceiver.until("created");
    // Move the stranger's socket and record to where the guest looks for the owner's.
    let socket = strangers.files().into_iter().find(|file| file.starts_with("p.")).unwrap();
    fs::rename(strangers.path().join(&socket), owners.path().join(&socket)).unwrap();
    fs::copy(strangers.path().join("g.shared"), owners.path().join("g.shared")).unwrap();
    let mut guest = look(&owners, GUEST, &[]);
    let expected = not_permitted(STRANGER, GUEST);
    assert_eq!(guest.until("observed"), expected);
    assert_eq!(guest.until("joined"), expected);
}

/// How long each part of the comparison takes, in milliseconds; a soak sets more.
fn part_ms() -> i64 {
    let set = std::env::var("COREWIRE_GUESTS_MS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(1500)
}

/// Messages a second of a sender that evicts after 100 ms, beside five guests.
fn rate_beside(test: &str, users: &[u32], role: &str, options: &[&str]) -> f64 {
    let directory = Directory::new(test);
    let list = users.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let rule = format!("access=users:{list}");
    let common = [&rule, "count=100", "receivers=5"];
    let mut sender = start("evicting-sender", &directory, OWNER, &common);
    sender.until("created");
    let mut guests: Vec<_> =
        (0..5).map(|index| start(role, &directory, users[index % users.len()], options)).collect();
    sender.until("sending");
    let start = std::time::Instant::now();
    let wait =
        rustix::time::Timespec { tv_sec: part_ms() / 1000, tv_nsec: part_ms() % 1000 * 1_000_000 };
    // The time of the measurement, not a wait for an event.
    let _ = rustix::event::poll(&mut [], Some(&wait));
    sender.hang_up();
    let sent: f64 = sender.until("sent").parse().unwrap();
    let rate = sent / start.elapsed().as_secs_f64();
    guests.iter_mut().for_each(Role::kill);
    rate
}

// Keeps P88.
#[test]
fn guests_at_their_worst_leave_a_sender_that_evicts_half_of_its_throughput() {
    if !is_root() {
        return;
    }
    let owner = format!("owner={OWNER}");
    let users: Vec<u32> = (0..5).map(|index| GUEST + index).collect();
    let honest = rate_beside("guests-honest", &users, "bad-guest", &[&owner, "count=100"]);
    for worst in ["trickle", "rejoin", "stop"] {
        for (whose, users) in [("one user", &users[..1]), ("five users", &users[..])] {
            let options = [owner.as_str(), "count=100", worst];
            let rate = rate_beside("guests-worst", users, "bad-guest", &options);
            println!("{worst}, {whose}: {:.2} of {honest:.0} messages/s", rate / honest);
            assert!(rate >= honest / 2.0, "{worst}, {whose}: {rate:.0} beside {honest:.0}");
        }
    }
}

// Keeps P89.
#[test]
fn guests_of_one_user_get_a_quarter_of_the_rows_and_nothing_old() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("guests-share");
    let owner = format!("owner={OWNER}");
    let rule = format!("access=users:{GUEST},{STRANGER}");
    let mut sender = start("sender", &directory, OWNER, &[&rule, "receivers=8", "overwrite"]);
    sender.until("created");
    let mut guest = start("rows", &directory, GUEST, &[&owner, "count=3"]);
    let full = format!(
        "the guests of user {GUEST}, or all guests, have the 2 places that they may have here"
    );
    assert_eq!(guest.until("refused"), full);
    assert_eq!(guest.until("oldest"), "a guest joins from now on only, not at the oldest message");
    // This does not ask for more than a guest may have, but there is no row.
    assert_eq!(guest.until("if-possible"), full);
    // Another user still gets in.
    let mut other = start("rows", &directory, STRANGER, &[&owner, "count=2"]);
    assert_eq!(other.until("joined"), "2");
    sender.hang_up();
}

// Keeps P89.
#[test]
fn guests_of_all_users_together_get_three_quarters_of_the_rows() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("guests-together");
    let users = [GUEST, STRANGER, STRANGER + 1, STRANGER + 2];
    let rule = format!("access=users:{}", users.map(|user| user.to_string()).join(","));
    let mut sender = start("sender", &directory, OWNER, &[&rule, "receivers=8", "overwrite"]);
    sender.until("created");
    let owner = format!("owner={OWNER}");
    let mut guests = users.map(|user| start("rows", &directory, user, &[&owner, "count=2"]));
    let joined = guests.each_mut().map(|guest| guest.until("joined").parse::<u32>().unwrap());
    assert_eq!(joined.iter().sum::<u32>(), 6, "{joined:?}");
    // The rows that are left are for the owner's own processes.
    let mut own = start("rows", &directory, OWNER, &[&rule, "count=2"]);
    assert_eq!(own.until("joined"), "2");
    sender.hang_up();
}
