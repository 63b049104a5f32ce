//! Processes of two hosts, which two domains of this machine are here: one is stopped, or killed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::roles::{Directory, Random, Role};
use corewire::{Domain, Endpoint, Event, MessageError, Peer, Selector};
use corewire_processes::talk::{bytes_of, length_of};

/// A host that acknowledges nothing for so long is lost.
const SILENCE: Duration = Duration::from_secs(2);

/// The files of both hosts, and a process of host `b`.
struct Hosts {
    own: Directory,
    other: Directory,
    sink: Role,
}

impl Hosts {
    fn new(test: &str) -> Self {
        let [own, other] = ["a", "b"].map(|host| Directory::new(&format!("hosts-{test}-{host}")));
        for directory in [&own, &other] {
            Domain::open_at(directory.path()).unwrap();
        }
        let sink = sink(&other);
        Self { own, other, sink }
    }

    /// Kills the process of host `b`, and starts another one.
    fn replace(&mut self) {
        self.sink.kill();
        self.sink = sink(&self.other);
    }

    /// An endpoint of host `a`.
    fn endpoint(&self) -> Endpoint {
        let domain = Domain::open_at(self.own.path()).unwrap();
        domain.endpoint("source").hosts(&file_of(&self.own)).create().unwrap()
    }

    /// Connects it to the process of host `b`.
    fn connect(&mut self, endpoint: &mut Endpoint) -> Peer {
        write_hosts(&self.own, "a", &self.sink.until("at"));
        endpoint.peer("sink@b").unwrap()
    }
}

fn file_of(directory: &Directory) -> PathBuf {
    directory.path().with_extension("toml")
}

fn write_hosts(directory: &Directory, own: &str, other_at: &str) {
    let silence = SILENCE.as_millis();
    let mut text = format!("own = {own:?}\nsilence_ms = {silence}\n");
    for host in ["a", "b"] {
        text += &format!("[hosts.{host}]\naddresses = [\"{other_at}\"]\n");
    }
    text += "[[allow]]\nhosts = [\"a\"]\nendpoints = [\"sink\"]\n";
    std::fs::write(file_of(directory), text).unwrap();
}

fn sink(directory: &Directory) -> Role {
    write_hosts(directory, "b", "127.0.0.1:1");
    let file = file_of(directory);
    Role::start("far-sink", directory, file.to_str().unwrap(), &[])
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for directory in [&self.own, &self.other] {
            let _ = std::fs::remove_file(file_of(directory));
        }
    }
}

fn send(endpoint: &mut Endpoint, to: Peer, number: u64) -> Result<(), MessageError> {
    let message = bytes_of(number, length_of(number));
    endpoint.send_timeout(to, number, &message, Duration::from_millis(200))
}

// Keeps P260.
#[test]
fn a_process_of_another_host_that_is_stopped_for_long_is_not_lost_and_gets_all() {
    let mut hosts = Hosts::new("stopped");
    let mut endpoint = hosts.endpoint();
    let to = hosts.connect(&mut endpoint);
    let mut number = 0;
    for _ in 0..2 {
        for _ in 0..1000 {
            send(&mut endpoint, to, number).unwrap();
            number += 1;
        }
        hosts.sink.stop();
        // Until the connection is full, and for three times as long as a silent host may take.
        while send(&mut endpoint, to, number).is_ok() {
            number += 1;
        }
        let until = Instant::now() + 3 * SILENCE;
        while Instant::now() < until {
            let event = endpoint.within(SILENCE).receive_event(Selector::any()).unwrap();
            assert!(!matches!(event, Some(Event::Gone { .. })), "{event:?}");
        }
        hosts.sink.go_on();
    }
    for _ in 0..1000 {
        endpoint.send(to, number, &bytes_of(number, length_of(number))).unwrap();
        number += 1;
    }
    endpoint.close().unwrap();
    assert_eq!(hosts.sink.until("left"), number.to_string());
}

// Keeps P259.
#[test]
fn a_process_of_another_host_that_is_killed_is_lost_and_its_successor_found() {
    let mut random = Random::from_environment();
    let mut hosts = Hosts::new("killed");
    let mut endpoint = hosts.endpoint();
    for _ in 0..20 {
        let to = hosts.connect(&mut endpoint);
        let kill_at = random.below(2000);
        let mut killed = false;
        let (mut sent, mut why) = (0, None);
        while why.is_none() {
            match send(&mut endpoint, to, sent) {
                Ok(()) => sent += 1,
                Err(MessageError::Timeout { .. }) => {}
                Err(error) => why = Some(error),
            }
            if sent >= kill_at && !std::mem::replace(&mut killed, true) {
                hosts.replace();
            }
        }
        match why {
            // Of the last one a part may have left.
            Some(MessageError::PeerLost { name, delivered, .. }) => {
                assert_eq!(name.as_str(), "sink@b");
                assert!(delivered <= sent + 1, "{delivered} of {sent}");
            }
            other => panic!("{other:?}"),
        }
    }
}
