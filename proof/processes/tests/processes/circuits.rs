//! Circuits through monitors in processes of their own: descriptors, other users, containers, hostile neighbours.
//!
//! More than 600 lines, because each file of tests is a program that is linked by itself.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::roles::users::{GUEST, OWNER, is_root};
use crate::roles::{Directory, Role};

const NAME: &str = "typed";
/// No core has these numbers: programs use the first one unless they say otherwise.
const MONITORS: [usize; 3] = [200, 201, 202];

fn monitor(directory: &Directory, number: usize, options: &[&str]) -> Role {
    let mut monitor = Role::start("monitor", directory, &number.to_string(), options);
    monitor.until("ready");
    monitor
}

fn serving(directory: &Directory, options: &[&str]) -> Role {
    let mut service = Role::start("serve-calls", directory, NAME, options);
    service.until("serving");
    service
}

/// A client at the second monitor, its service at the first one, and a way that leads through all three.
struct Ring {
    monitors: [Role; 3],
    service: Role,
    /// Asks the monitors.
    asking: Role,
    client: Role,
    /// The open descriptors of each process before any were passed.
    before: Vec<BTreeSet<u64>>,
}

impl Ring {
    fn new(directory: &Directory, options: &[&str]) -> Self {
        let monitors = MONITORS.map(|number| monitor(directory, number, options));
        let service = serving(directory, &[options, &["monitor=200"]].concat());
        let mut asking = Role::start("ring", directory, NAME, options);
        asking.until("ready");
        let options = [options, &["driver=circuit", "monitor=201"]].concat();
        let client = Role::start("pass-descriptors", directory, NAME, &options);
        let mut ring = Self { monitors, service, asking, client, before: Vec::new() };
        assert_eq!(ring.client.until("bound"), "circuit");
        assert_eq!(ring.circuits(), "1 1 1");
        ring.before = ring.descriptors();
        ring.passes();
        ring
    }

    fn descriptors(&self) -> Vec<BTreeSet<u64>> {
        let all = self.monitors.iter().chain([&self.service, &self.client]);
        all.map(Role::descriptors).collect()
    }

    /// How many circuits lead through each monitor. They have handled everything that had come before.
    fn circuits(&mut self) -> String {
        self.asking.say("");
        self.asking.until("circuits")
    }

    /// What becomes of a message with so many descriptors.
    fn pass(&mut self, count: &str) -> String {
        self.client.say(count);
        self.client.until("passed")
    }

    /// Monitors close what they have passed on in threads of their own.
    fn settle(&self) {
        while self.descriptors() != self.before {
            std::thread::yield_now();
        }
    }

    /// Messages with descriptors arrive, in both directions, and none is left open.
    #[track_caller]
    fn passes(&mut self) {
        for count in ["1", "20", "253"] {
            let passed = self.pass(count);
            let (file, rest) = passed.split_once(", ").unwrap_or_else(|| panic!("{passed}"));
            assert!(file.starts_with("file "), "{passed}");
            assert_eq!(rest, format!("answer to {file}; answer to {file}"));
        }
        self.settle();
    }
}

const NOT_TAKEN: &str = "the other side could not take the capabilities";

// Keeps P202.
#[test]
fn descriptors_that_a_process_on_the_way_cannot_take_are_reported_and_none_stays_open() {
    let directory = Directory::new("circuit-descriptors");
    let mut ring = Ring::new(&directory, &[]);
    for more in [0, 2] {
        for index in 0..4 {
            let limit = |ring: &mut Ring, more| match index {
                3 => ring.service.limit_descriptors(more),
                index => ring.monitors[index].limit_descriptors(more),
            };
            limit(&mut ring, Some(more));
            assert_eq!(ring.pass("3"), format!("{NOT_TAKEN};"), "{index}");
            ring.settle();
            // A message that needs none.
            assert_eq!(ring.pass("0"), "the service dropped the request;", "{index}");
            limit(&mut ring, None);
            ring.passes();
        }
    }
    // One for the file, one for the copy that is sent: too few for the three of the reply, and for those of the event.
    ring.client.limit_descriptors(Some(2));
    let crowded = "too many descriptors are open here to take those of the message";
    assert_eq!(ring.pass("1!"), format!("{crowded}; {crowded}"));
    ring.client.limit_descriptors(None);
    assert_eq!(ring.service.until("not taken"), "3");
    assert_eq!(ring.service.until("not taken"), "4");
    ring.passes();
}

// Keeps P202.
#[test]
fn too_many_descriptors_on_their_way_are_reported_and_hold_up_nothing() {
    // The kernel does not limit root.
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-in-flight");
    let mut ring = Ring::new(&directory, &[&format!("uid={OWNER}")]);
    ring.client.say("hoard 253");
    ring.client.until("hoarding");
    ring.before = ring.descriptors();
    ring.passes();
    // Fewer than are on their way already: the kernel takes no more from the process.
    let few = Some(50);

    ring.client.limit_descriptors(few);
    let not_sent = "the capabilities could not be sent";
    assert_eq!(ring.pass("3"), format!("{not_sent};"));
    ring.client.limit_descriptors(None);
    ring.passes();

    ring.service.limit_descriptors(few);
    let lost = "1 events are missing here: this client received too slowly";
    assert_eq!(ring.pass("3!"), format!("{not_sent}; {lost}"));
    ring.service.limit_descriptors(None);
    ring.passes();

    for index in 0..3 {
        ring.monitors[index].limit_descriptors(few);
        assert_eq!(ring.pass("3"), format!("{NOT_TAKEN};"), "{index}");
        ring.monitors[index].limit_descriptors(None);
        ring.passes();
    }
    assert_eq!(ring.circuits(), "1 1 1");
}

/// What a process shares with others: memory that it has mapped.
fn shared(role: &Role) -> BTreeSet<String> {
    shared_by(&role.id().to_string())
}

fn shared_by(pid: &str) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let shared = maps.lines().filter_map(|line| {
        let words = line.split_whitespace().collect::<Vec<_>>();
        let &[_, mode, _, device, inode, ..] = &words[..] else { return None };
        mode.ends_with('s').then(|| format!("{device} {inode}"))
    });
    shared.collect()
}

#[track_caller]
fn share_nothing(one: &Role, others: &[&Role]) {
    for other in others {
        assert!(shared(one).is_disjoint(&shared(other)));
    }
}

/// Options of processes of `OWNER`: of the monitor, which lets other users in, and of others.
const OPEN: [&str; 2] = ["uid=23456", "access=users:65534,12345"];
const OWNERS: [&str; 2] = ["uid=23456", "owner=23456"];
const GUESTS: [&str; 2] = ["uid=65534", "owner=23456"];
const STRANGERS: [&str; 2] = ["uid=12345", "owner=23456"];
const BY_CIRCUIT: &str = "driver=circuit";

fn circuit_client(directory: &Directory, name: &str, who: [&str; 2], options: &[&str]) -> Role {
    let options = [&who[..], &[BY_CIRCUIT, "count=100"], options].concat();
    Role::start("make-calls", directory, name, &options)
}

// Keeps P203.
#[test]
fn another_user_calls_by_circuit_as_far_as_a_rule_allows_and_shares_no_memory() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-users");
    let rule = format!("rule=bind:{NAME}:{OWNER},{GUEST}");
    let monitor = monitor(&directory, 200, &[&OPEN[..], &[&rule]].concat());
    let mut service = serving(&directory, &OWNERS);

    let mut guest = circuit_client(&directory, NAME, GUESTS, &[]);
    assert_eq!(guest.until("bound"), format!("circuit uid={OWNER}"));
    let pid = guest.id();
    assert_eq!(service.until("bound"), format!("uid={GUEST} gid={GUEST} pid={pid}"));
    guest.until("called");
    let mut own = circuit_client(&directory, NAME, OWNERS, &[]);
    own.until("called");
    assert_eq!(service.until("bound"), format!("uid={OWNER} gid={OWNER} pid={}", own.id()));
    share_nothing(&guest, &[&monitor, &service, &own]);
    // The owner's own processes do.
    assert!(!shared(&own).is_disjoint(&shared(&monitor)));
    assert!(!shared(&service).is_disjoint(&shared(&monitor)));

    let mut stranger = circuit_client(&directory, NAME, STRANGERS, &[]);
    let reason = "the monitor's rules do not let user 12345, group 12345, reach typed";
    let refused =
        |name: &str, reason: &str| format!("no binding to {name}: circuit: no circuit: {reason}");
    assert_eq!(stranger.until("refused"), refused(NAME, reason));
    let mut other = circuit_client(&directory, "other", GUESTS, &[]);
    let reason = "no rule of the monitor lets user 65534 reach other";
    assert_eq!(other.until("refused"), refused("other", reason));
    guest.kill();
    service.until("gone");
}

// Keeps P203.
#[test]
fn another_user_serves_by_circuit_as_far_as_a_rule_allows_and_shares_no_memory() {
    if !is_root() {
        return;
    }
    let [directory, guests] = ["circuit-exports", "circuit-exporter"].map(Directory::new);
    let rule = format!("rule=export:guests.*:{GUEST}");
    let monitor = monitor(&directory, 200, &[&OPEN[..], &[&rule]].concat());
    let own = format!("monitors-of={OWNER}:{}", directory.path().display());
    let serve = |name: &str| {
        let mut service = Role::start("serve-calls", &guests, name, &["uid=65534", &own]);
        service.until("serving");
        service
    };
    // It serves in a domain of its own.
    let mut service = serve("guests.typed");
    let mut client = circuit_client(&directory, "guests.typed", OWNERS, &[]);
    assert_eq!(client.until("bound"), format!("circuit uid={GUEST}"));
    client.until("called");
    let pid = client.id();
    assert_eq!(service.until("bound"), format!("uid={OWNER} gid={OWNER} pid={pid}"));
    share_nothing(&service, &[&monitor, &client]);

    // A name that is not its own to serve.
    let _refused = serve(NAME);
    let mut by_hand = Role::start("attack-monitor", &directory, "export", &GUESTS);
    let reason = by_hand.until("exported:");
    assert_eq!(reason, "no rule of the monitor lets user 65534 serve typed");
    let mut client = circuit_client(&directory, NAME, OWNERS, &["within-ms=500"]);
    let refused = client.until("refused");
    assert_eq!(refused, "no binding to typed: circuit: no circuit: nobody serves typed");
    // A service that dies tells its clients.
    let mut client = circuit_client(&directory, "guests.typed", OWNERS, &[]);
    client.until("called");
    service.kill();
    assert!(client.until("ended").starts_with("service guests.typed died"));
}

/// Whether containers can be made here; otherwise says that the test is skipped.
fn has_containers() -> bool {
    let made = Command::new("unshare").args(CONTAINER).arg("true").output();
    let is_made = made.is_ok_and(|made| made.status.success());
    if !is_made {
        println!("SKIPPED: no container can be made here");
    }
    is_made
}

/// Processes, mounts, network and shared memory of System V of its own.
const CONTAINER: [&str; 8] =
    ["--pid", "--mount", "--net", "--ipc", "--fork", "--mount-proc", "--propagation", "private"];

/// A role in a container that has nothing in common with the other processes but the runtime directory, which is
/// elsewhere there.
fn contained(role: &str, directory: &Directory, options: &[&str]) -> Role {
    let script = "mount --bind \"$1\" /mnt; mount -t tmpfs tmpfs \"$1\"; shift; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(CONTAINER).args(["sh", "-euc", script, "sh"]).arg(directory.path());
    command.args([env!("CARGO_BIN_EXE_corewire-role"), role, "/mnt", NAME]).args(options);
    Role::of(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
}

// Keeps P203.
#[test]
fn a_client_in_a_container_calls_by_circuit_as_far_as_a_rule_allows() {
    if !is_root() || !has_containers() {
        return;
    }
    let directory = Directory::new("circuit-container");
    let rule = format!("rule=bind:{NAME}:{GUEST}");
    let monitor = monitor(&directory, 200, &[&OPEN[..], &[&rule]].concat());
    let mut service = serving(&directory, &OWNERS);

    let options = [&GUESTS[..], &[BY_CIRCUIT, "count=100"]].concat();
    let mut client = contained("make-calls", &directory, &options);
    assert_eq!(client.until("bound"), format!("circuit uid={OWNER}"));
    client.until("called");
    // The monitor knows the process by the number that it has outside.
    let bound = service.until("bound");
    let (user, pid) = bound.split_once(" pid=").unwrap();
    assert_eq!(user, format!("uid={GUEST} gid={GUEST}"));
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
    assert_ne!(space(pid), space("self"));
    for other in [&monitor, &service] {
        assert!(shared_by(pid).is_disjoint(&shared(other)));
    }

    let options = [&STRANGERS[..], &[BY_CIRCUIT]].concat();
    let reason = "the monitor's rules do not let user 12345, group 12345, reach typed";
    let refused = contained("make-calls", &directory, &options).until("refused");
    assert!(refused.ends_with(reason), "{refused}");
    // Not the one that has made the container, with which it does not end: it has changed its user.
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    service.until("gone");
    assert!(!client.is_success());
}

/// A monitor and a service of `OWNER`, which `GUEST` may reach, and a client of `OWNER` that calls all the time.
struct Peace {
    monitor: Role,
    service: Role,
    client: Role,
    before: BTreeSet<u64>,
}

impl Peace {
    fn new(directory: &Directory) -> Self {
        let rule = format!("rule=bind:{NAME}:{OWNER},{GUEST}");
        let monitor = monitor(directory, 200, &[&OPEN[..], &[&rule]].concat());
        let service = serving(directory, &OWNERS);
        let options = [&OWNERS[..], &[BY_CIRCUIT]].concat();
        let mut client = Role::start("keep-calling", directory, NAME, &options);
        client.until("at 1000");
        let before = monitor.descriptors();
        Self { monitor, service, client, before }
    }

    /// The client goes on.
    fn goes_on(&mut self) {
        let last = self.client.latest("at ", 0);
        self.client.until_past("at ", last + 1000);
    }

    /// The client has been served all the time, and the monitor has forgotten the others.
    fn ends(mut self) {
        self.goes_on();
        while self.monitor.descriptors() != self.before {
            std::thread::yield_now();
        }
        self.client.hang_up();
        self.client.until("ended");
        self.monitor.hang_up();
        assert!(self.monitor.is_success());
    }
}

fn attack(directory: &Directory, what: &str, options: &[&str]) -> Role {
    Role::start("attack-monitor", directory, what, &[&GUESTS, options].concat())
}

// Keeps P201.
#[test]
fn another_user_that_sends_wrong_packets_is_cut_off_with_the_reason() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-packets");
    let mut peace = Peace::new(&directory);
    let mut attack = attack(&directory, "packets", &[]);
    let order = "it sent a packet out of order";
    let not_its_user = "only the monitor's own user may ask it";
    let may_not = "it sent a packet that it may not send";
    for (what, reason) in [
        ("new nothing:", "closed"),
        ("new long:", "closed"),
        ("new ask:", not_its_user),
        ("new table:", not_its_user),
        ("new monitor:", "it is no monitor of this one's user"),
        ("new secret:", "there is no link with this secret"),
        ("new capabilities:", order),
        ("linked nothing:", "it sent not a packet of a circuit's control lane"),
        ("linked long:", "it sent a packet of 49153 bytes: at most 49152 are possible"),
        ("linked ask:", may_not),
        ("linked table:", may_not),
        ("linked monitor:", may_not),
        ("linked secret:", may_not),
        ("descriptors:", "it sent not a packet of a circuit's control lane"),
    ] {
        assert_eq!(attack.until(what), reason, "{what}");
        peace.goes_on();
    }
    assert_eq!(attack.until("noise:"), "true");
    assert!(attack.is_success());
    peace.ends();
}

// Keeps P201.
#[test]
fn another_user_that_sends_wrong_frames_is_cut_off_with_the_reason() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-frames");
    let mut peace = Peace::new(&directory);
    let mut attack = attack(&directory, "frames", &[]);
    for (what, reason) in [
        ("short:", "it sent a frame that is none"),
        ("long:", "it sent a packet of 4097 bytes: at most 49152 are possible"),
        ("unknown:", "it sent 17 frames of circuits that it does not have"),
        ("grant:", "it sent a grant of more lines than there can be"),
        ("hello:", "it sent it said hello twice"),
        ("overdrawn:", "it sent a frame of 64 lines, where"),
    ] {
        let found = attack.until(what);
        assert!(found.starts_with(reason), "{what} {found}");
        peace.goes_on();
    }
    assert!(attack.is_success());
    peace.ends();
}

// Keeps P201.
#[test]
fn another_user_that_reads_nothing_is_cut_off() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-unread");
    let mut peace = Peace::new(&directory);
    let mut attack = attack(&directory, "unread", &[]);
    attack.until("begins");
    peace.goes_on();
    attack.until("cut off");
    peace.goes_on();
    attack.until("ended:");
    peace.ends();
}

// Keeps P201.
#[test]
fn connections_circuits_and_calls_of_another_user_hold_up_nobody() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-flood");
    let mut peace = Peace::new(&directory);
    let mut idle = attack(&directory, "connections", &["count=64"]);
    let reason = "user 65534 has 64 connections, as many as it can have";
    assert_eq!(idle.until("last:"), reason);
    peace.goes_on();
    idle.hang_up();
    assert!(idle.is_success());
    let mut open = attack(&directory, "circuits", &[]);
    let reason = "user 65534 has 256 circuits to the service, as many as it can have";
    assert_eq!(open.until("refused:"), reason);
    // Others can bind.
    let mut own = circuit_client(&directory, NAME, OWNERS, &[]);
    own.until("called");
    own.kill();
    open.hang_up();
    assert!(open.is_success());
    let mut flood = attack(&directory, "calls", &[]);
    flood.until("flooded");
    peace.goes_on();
    // The same user's other programs, too.
    let mut other = circuit_client(&directory, NAME, GUESTS, &[]);
    other.until("called");
    other.kill();
    flood.kill();
    peace.ends();
}

// Keeps P201.
#[test]
fn what_takes_long_to_close_holds_up_nobody() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-closes");
    let mut peace = Peace::new(&directory);
    let mut hostile = attack(&directory, "closes", &[]);
    hostile.until("packets");
    peace.goes_on();
    assert_eq!(hostile.until("frame:"), "it sent a descriptor with a frame");
    peace.goes_on();
    let no_packet = "it sent not a packet of a circuit's control lane";
    assert_eq!(hostile.until("packet:"), no_packet);
    peace.goes_on();
    assert_eq!(hostile.until("empty frame:"), "it sent a descriptor with a frame");
    peace.goes_on();
    assert_eq!(hostile.until("empty packet:"), no_packet);
    peace.goes_on();
    hostile.until("closed");
    peace.goes_on();
    assert_eq!(hostile.until("many:"), "what it has sent takes too long to close");
    let refused = format!("what user {GUEST} has sent takes too long to close");
    assert_eq!(hostile.until("refused:"), refused);
    peace.goes_on();
    hostile.kill();
    peace.ends();
}

// Keeps P201.
#[test]
fn a_flood_while_a_lane_ends_holds_up_nobody() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-ends");
    let mut peace = Peace::new(&directory);
    let mut flood = attack(&directory, "ends", &[]);
    flood.until("control closed");
    peace.goes_on();
    flood.until("data closed");
    assert!(flood.is_success());
    peace.ends();
}

// Keeps P201.
#[test]
fn descriptors_of_a_service_of_another_user_leave_some_to_its_client() {
    const LIMIT: usize = 2000;
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-client-hoard");
    let rule = format!("rule=export:guests.*:{GUEST}");
    let mut monitor = monitor(&directory, 200, &[&OPEN[..], &[&rule]].concat());
    let mut hostile = attack(&directory, "clients", &[]);
    hostile.until("serving");
    let options = [&OWNERS[..], &[BY_CIRCUIT]].concat();
    let mut client = Role::start("pass-descriptors", &directory, "guests.typed", &options);
    client.until("bound");
    let before = client.descriptors().len();
    // Half as many as come.
    client.limit_descriptors(Some(LIMIT));
    // It waits for a reply, and takes what comes meanwhile.
    client.say("1");
    hostile.say("flood");
    hostile.until("flooded");
    // A quarter stays for messages that may still come; half is on its way for a moment.
    let (mut last, mut looks_alike, mut looks) = (0, 0, 0);
    while !(200..=LIMIT / 4).contains(&last) || looks_alike < 1000 {
        let count = client.descriptors().len() - before;
        assert!(count <= 3 * LIMIT / 4 + 253, "{count}");
        looks_alike = if count == last { looks_alike + 1 } else { 0 };
        last = count;
        // A client that gets no processor has as many for a while.
        looks += 1;
        assert!(looks < 500_000, "{last} stay");
    }
    hostile.kill();
    assert!(!client.is_success());
    monitor.hang_up();
    assert!(monitor.is_success());
}

// Keeps P218.
#[test]
fn connections_that_a_living_service_closes_are_no_death() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-client-left");
    let rule = format!("rule=export:guests.*:{GUEST}");
    let mut monitor = monitor(&directory, 200, &[&OPEN[..], &[&rule]].concat());
    let mut service = attack(&directory, "leaves", &[]);
    service.until("serving");
    let options = [&OWNERS[..], &[BY_CIRCUIT]].concat();
    let options = [&options[..], &["count=0"]].concat();
    let mut client = Role::start("make-calls", &directory, "guests.typed", &options);
    service.until("left");
    assert_eq!(client.until("ended"), "service guests.typed was closed");
    service.kill();
    monitor.hang_up();
    assert!(monitor.is_success());
}

// Keeps P201.
#[test]
fn descriptors_of_another_user_leave_some_to_the_service() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("circuit-hoard");
    let mut peace = Peace::new(&directory);
    let before = peace.service.descriptors();
    // Half as many as come.
    peace.service.limit_descriptors(Some(2000));
    let mut flood = attack(&directory, "descriptors", &[]);
    flood.until("flooded");
    let options = [&OWNERS[..], &[BY_CIRCUIT]].concat();
    let mut client = Role::start("pass-descriptors", &directory, NAME, &options);
    client.until("bound");
    client.say("253");
    assert_eq!(client.until("passed"), "file 1, answer to file 1; answer to file 1");
    client.kill();
    flood.kill();
    while peace.service.descriptors() != before {
        std::thread::yield_now();
    }
    peace.ends();
}
