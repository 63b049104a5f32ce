//! Clients of a group: they propose and follow, and are no members.
//!
//! In the torture processes are members and clients; clients are killed, members killed and stopped. `COREWIRE_TORTURE_CLIENTS`
//! sets the number of clients (default: 20), `COREWIRE_TORTURE_KILLS` that of kills (default: 40), `COREWIRE_SEED` the seed. A
//! process of this program is a member or a client if `COREWIRE_CLIENTS_ROLE` says so.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_group::{ClientError, DecidedEntry, Decision, Group, GroupClient};
use rustix::process::{Pid, Signal, kill_process};

use crate::given::{Random, given};

/// How long what must happen may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct Scratch(PathBuf, Domain);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-{test}-{}", std::process::id()));
        let domain = Domain::open_at(&path).unwrap();
        Self(path, domain)
    }

    fn join(&self) -> Group {
        Group::builder(&self.1, "log").join_timeout(PATIENCE).unwrap()
    }

    fn client(&self) -> GroupClient {
        GroupClient::connect(&self.1, "log", PATIENCE).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn entry(decision: Option<Decision>) -> DecidedEntry {
    match decision {
        Some(Decision::Entry(entry)) => entry,
        other => panic!("{other:?}"),
    }
}

/// All entries from the first one on, up to the one with this text.
fn texts(client: &mut GroupClient, last: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut next = 0;
    while texts.last().is_none_or(|text| text != last) {
        let entry = entry(client.next_decision(next, PATIENCE).unwrap());
        next = entry.index + 1;
        texts.push(String::from_utf8(entry.command.to_vec()).unwrap());
    }
    texts
}

// Keeps P245.
#[test]
fn clients_propose_and_follow_and_found_no_group() {
    let scratch = Scratch::new("clients");
    let none = GroupClient::connect(&scratch.1, "log", Duration::from_millis(20)).unwrap_err();
    assert_eq!(none.to_string(), "no member of group log has answered within 20ms");
    let first = scratch.join();
    let second = scratch.join();
    let mut client = scratch.client();
    assert!(client.id().is_client());
    let members = first.view().unwrap().members;
    assert_eq!(client.propose(b"one").unwrap(), 0);
    assert_eq!(second.propose(b"two").unwrap(), 1);
    assert_eq!(client.propose(b"three").unwrap(), 2);
    let mut follower = scratch.client();
    assert_eq!(texts(&mut follower, "three"), ["one", "two", "three"]);
    // Back, and forth.
    let from = entry(follower.next_decision(0, PATIENCE).unwrap());
    assert_eq!((from.from, from.number), (client.id(), 1));
    assert_eq!(entry(follower.next_decision(2, PATIENCE).unwrap()).from, client.id());
    assert_eq!(follower.next_decision(3, Duration::ZERO).unwrap(), None);
    for number in 0..5000 {
        client.submit(format!("{number}").as_bytes()).unwrap();
    }
    client.flush(PATIENCE).unwrap();
    assert_eq!(client.own_commands(), (5002, 5002));
    let all = texts(&mut follower, "4999");
    assert_eq!(all.len(), 5003);
    assert!(all[3..].iter().zip(0..).all(|(text, number)| *text == number.to_string()));
    let too_large = vec![0; client.largest_command() + 1];
    assert!(matches!(client.propose(&too_large), Err(ClientError::TooLarge { asked: 65537, .. })));
    assert_eq!(first.view().unwrap().members, members, "it has become a member");
}

// Keeps P245.
#[test]
fn commands_outlive_the_home_of_their_client_and_count_once() {
    let scratch = Scratch::new("homes");
    let mut groups = vec![scratch.join(), scratch.join(), scratch.join()];
    let mut client = scratch.client();
    for round in 0..6 {
        for number in 0..200 {
            client.submit(format!("{}", round * 200 + number).as_bytes()).unwrap();
        }
        // One of them leaves, and another one comes.
        groups.remove(0).leave(PATIENCE).unwrap();
        groups.push(scratch.join());
    }
    client.flush(PATIENCE).unwrap();
    let mut follower = scratch.client();
    let all = texts(&mut follower, "1199");
    assert!(all.iter().zip(0..).all(|(text, number)| *text == number.to_string()), "{all:?}");
    // Members do without the entries that end sessions.
    let id = client.id();
    drop(client);
    groups[0].propose(b"last").unwrap();
    let start = Instant::now();
    let mut decided = groups[0].decided(1200);
    while groups[0].seen().unwrap().decided < 1202 {
        assert!(start.elapsed() < PATIENCE, "the session of {id} has not ended");
        std::thread::yield_now();
    }
    assert_eq!(&entry(decided.next_timeout(PATIENCE).unwrap()).command[..], b"last");
    assert_eq!(decided.next_timeout(Duration::ZERO).unwrap(), None);
}

#[test]
fn a_group_that_was_founded_anew_is_no_group_of_its_clients() {
    let scratch = Scratch::new("anew");
    let first = scratch.join();
    let mut client = scratch.client();
    client.propose(b"one").unwrap();
    drop(first);
    let _second = scratch.join();
    let end = client.propose_timeout(b"two", PATIENCE).unwrap_err();
    assert_eq!(
        end.to_string(),
        "group log has ended, and was founded anew without what this client has proposed"
    );
}

#[test]
fn sessions_are_in_the_file_of_the_log() {
    let scratch = Scratch::new("session-file");
    let file = scratch.0.join("log.file");
    let join = || Group::builder(&scratch.1, "log").file(&file).join_timeout(PATIENCE).unwrap();
    let first = join();
    let mut client = scratch.client();
    assert_eq!(client.propose(b"one").unwrap(), 0);
    first.truncate(1, b"state").unwrap();
    assert_eq!(client.propose(b"two").unwrap(), 1);
    drop(first);
    let second = join();
    assert_eq!(client.propose_timeout(b"three", PATIENCE).unwrap(), 2);
    assert_eq!(second.seen().unwrap().decided, 3);
}

const ROLE: &str = "COREWIRE_CLIENTS_ROLE";
const DIRECTORY: &str = "COREWIRE_CLIENTS_DIRECTORY";

/// A member stays until it is killed. A client writes `A index command` for each command that was decided.
fn be(role: &str) -> ! {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let domain = Domain::open_at(&directory).unwrap();
    if role == "member" {
        let group = Group::builder(&domain, "log").join_timeout(PATIENCE).unwrap();
        println!("A {} member", u64::from(group.member().place));
        let _ = std::io::stdin().read_line(&mut String::new());
        exit(0);
    }
    let mut client = GroupClient::connect(&domain, "log", PATIENCE).unwrap();
    for number in 0_u64.. {
        let command = format!("{role}-{number}");
        match client.propose_timeout(command.as_bytes(), PATIENCE) {
            Ok(index) => println!("A {index} {command}"),
            Err(error) => {
                eprintln!("bad: {command}: {error}");
                exit(1);
            }
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    exit(0)
}

// Keeps P245.
#[test]
fn a_client_finds_members_that_came_after_its_home_was_stopped() {
    let scratch = Scratch::new("client-latecomers");
    let answers = channel();
    let first = scratch.join();
    let mut home = spawn(&scratch.0, "member", &answers);
    first.wait_for_members(2, PATIENCE).unwrap();
    let of_home = first.view().unwrap().members.pop().unwrap();
    // It is linked with both, has proposed nothing, and looks for nobody else.
    let mut client = scratch.client();
    let others = [scratch.join(), scratch.join()];
    first.leave(PATIENCE).unwrap();
    let start = Instant::now();
    while others[0].view().unwrap().members.len() > 3 {
        assert!(start.elapsed() < PATIENCE, "the first one is still a member");
        std::thread::yield_now();
    }
    let view = others[0].view().unwrap();
    assert!(view.has(of_home) && view.acceptor != of_home, "{view:?}");
    kill_process(Pid::from_child(&home), Signal::STOP).unwrap();
    let index = client.propose_timeout(b"two", PATIENCE).unwrap();
    let mut decided = others[0].decided(index);
    assert_eq!(&entry(decided.next_timeout(PATIENCE).unwrap()).command[..], b"two");
    home.kill().unwrap();
    home.wait().unwrap();
}

type Answers = (Sender<(u64, String)>, Receiver<(u64, String)>);

fn spawn(directory: &Path, role: &str, answers: &Answers) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "clients::commands_that_were_answered_are_in_the_log_once_whatever_is_killed";
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role).env(DIRECTORY, directory);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let answers = answers.0.clone();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            if words.next() == Some("A")
                && let (Some(Ok(index)), Some(command)) =
                    (words.next().map(str::parse), words.next())
            {
                let _ = answers.send((index, command.to_owned()));
            }
        }
    });
    child
}

// Keeps P245.
#[test]
fn commands_that_were_answered_are_in_the_log_once_whatever_is_killed() {
    if let Ok(role) = std::env::var(ROLE) {
        be(&role);
    }
    let scratch = Scratch::new("client-kills");
    let (count, kills) =
        (given("COREWIRE_TORTURE_CLIENTS", 20), given("COREWIRE_TORTURE_KILLS", 40));
    let seed = given("COREWIRE_SEED", 0x9a3c_17d5);
    println!("{count} clients, {kills} kills, seed {seed}");
    let mut random = Random(seed);
    let answers = channel();
    let mut is_answered: BTreeMap<u64, String> = BTreeMap::new();
    let keeper = scratch.join();
    let mut members: Vec<Child> = Vec::new();
    let mut started = 0;
    let mut next_role = || {
        started += 1;
        format!("client{started}")
    };
    for _ in 0..2 {
        members.push(spawn(&scratch.0, "member", &answers));
    }
    keeper.wait_for_members(3, PATIENCE).unwrap();
    let mut clients: Vec<Child> =
        (0..count).map(|_| spawn(&scratch.0, &next_role(), &answers)).collect();
    let take = |is_answered: &mut BTreeMap<u64, String>, (index, command): (u64, String)| {
        if command != "member" {
            let before = is_answered.insert(index, command.clone());
            assert_eq!(before, None, "two commands at {index}: {command}");
        }
    };
    for kill in 0..kills {
        // Work goes on between the kills.
        for _ in 0..count {
            take(&mut is_answered, answers.1.recv_timeout(PATIENCE).unwrap());
        }
        match kill % 8 {
            // A member: the others go on.
            3 => {
                let mut member = members.remove(0);
                member.kill().unwrap();
                member.wait().unwrap();
                members.push(spawn(&scratch.0, "member", &answers));
                keeper.wait_for_members(3, PATIENCE).unwrap();
            }
            // A member is stopped for longer than clients wait for it.
            5 => {
                let pid = Pid::from_child(&members[0]);
                kill_process(pid, Signal::STOP).unwrap();
                let until = Instant::now() + Duration::from_millis(2500);
                while let Some(left) = until.checked_duration_since(Instant::now()) {
                    if let Ok(one) = answers.1.recv_timeout(left) {
                        take(&mut is_answered, one);
                    }
                }
                kill_process(pid, Signal::CONT).unwrap();
            }
            _ => {
                let index = usize::try_from(random.below(count)).unwrap();
                let mut client = std::mem::replace(
                    &mut clients[index],
                    spawn(&scratch.0, &next_role(), &answers),
                );
                client.kill().unwrap();
                client.wait().unwrap();
            }
        }
    }
    for mut client in clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    drop(answers.0);
    while let Ok(one) = answers.1.recv_timeout(Duration::from_millis(200)) {
        take(&mut is_answered, one);
    }
    // Every entry once, each client's in order, and what was answered at its index.
    let last = keeper.propose(b"last").unwrap();
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    let mut decided = 0;
    let mut follower = scratch.client();
    let mut next = 0;
    while next <= last {
        let one = entry(follower.next_decision(next, PATIENCE).unwrap());
        next = one.index + 1;
        let text = str::from_utf8(&one.command).unwrap();
        if let Some((client, number)) = text.split_once('-') {
            decided += 1;
            let due = numbers.entry(client.to_owned()).or_default();
            assert_eq!(number.parse(), Ok(*due), "{text} at {}", one.index);
            *due += 1;
        }
        if let Some(command) = is_answered.remove(&one.index) {
            assert_eq!(command, text, "at {}", one.index);
        }
    }
    assert_eq!(is_answered, BTreeMap::new(), "answered, and not in the log");
    println!("{decided} commands of {} clients", numbers.len());
    for mut member in members {
        member.kill().unwrap();
        member.wait().unwrap();
    }
}
