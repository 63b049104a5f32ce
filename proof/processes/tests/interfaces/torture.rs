//! Torture of circuits: monitors in a ring, services and clients, all of them processes, are killed at any instruction and
//! started again, or are stopped for a while.
//!
//! No message may be lost, changed or out of order while its circuit lives; a circuit that ends says how much was
//! delivered; nobody hangs; in the end no monitor has a circuit left. `COREWIRE_TORTURE_KILLS` sets the number of kills
//! (default: 40), `COREWIRE_TORTURE_STOPS` the number of stops (default: 2), `COREWIRE_TORTURE_STOP_MS` their length
//! (default: 300), `COREWIRE_SEED` the seed.
//!
//! A process of this program is a party if `COREWIRE_TORTURE_PARTY` says which.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::time::{Duration, Instant};

use corewire_bind::{Bind, CallError, ClientId, Domain, Driver, MonitorAt, Serve};
use corewire_circuit::monitor::{Asking, Monitor, Options};
use corewire_circuit::node::table::ring;
use corewire_circuit::wire::NodeId;
use corewire_processes::interfaces::torture::{Client, EchoReply, Event, Server, Service};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes on a crowded machine; only a failure waits this long.
const LIMIT: Duration = Duration::from_secs(90);
const MONITORS: usize = 4;
const PARTY: &str = "COREWIRE_TORTURE_PARTY";
const DIRECTORY: &str = "COREWIRE_TORTURE_DIRECTORY";
const SEED: &str = "COREWIRE_TORTURE_SEED";

/// Monitors, then services with their monitors, then clients with theirs.
const PARTIES: [&str; 10] = [
    "monitor 0",
    "monitor 1",
    "monitor 2",
    "monitor 3",
    "service 2",
    "service 3",
    "client 0",
    "client 1",
    "client 0",
    "client 3",
];

fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Numbers that repeat with their seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % end
    }
}

/// Ends this process: something happened that must not.
fn bad(what: &str) -> ! {
    eprintln!("bad: {what}");
    exit(2)
}

// Keeps P199.
#[test]
fn circuits_survive_kills_and_stops() {
    if let Ok(party) = std::env::var(PARTY) {
        let domain = Domain::open_at(Path::new(&std::env::var(DIRECTORY).unwrap())).unwrap();
        let seed = given(SEED, 1);
        match party.split_once(' ') {
            Some(("monitor", number)) => be_monitor(domain, number.parse().unwrap()),
            Some(("service", at)) => be_service(&domain, at),
            Some((kind, at)) => {
                be_client(&domain, at.parse().unwrap(), kind == "calm", Random(seed))
            }
            None => bad(&party),
        }
    }
    let kills = given("COREWIRE_TORTURE_KILLS", 40);
    let stops = given("COREWIRE_TORTURE_STOPS", 2);
    let stop = Duration::from_millis(given("COREWIRE_TORTURE_STOP_MS", 300));
    let seed = given("COREWIRE_SEED", u64::from(std::process::id()) << 20 | 1);
    println!("COREWIRE_SEED={seed}");
    let mut random = Random(seed);
    Scene::start(&mut random, false).kill(kills, &mut random);
    Scene::start(&mut random, true).stop(stops, stop, &mut random);
}

fn be_monitor(domain: Domain, number: usize) -> ! {
    let monitor = Monitor::start(domain, Options::new(NodeId::new(number).unwrap()));
    match monitor.and_then(|mut monitor| monitor.run()) {
        Ok(()) => exit(0),
        Err(error) => bad(&format!("monitor {number}: {error}")),
    }
}

/// Messages of each client so far.
#[derive(Default)]
struct Counter {
    counts: HashMap<ClientId, u64>,
    outbox: Option<corewire_processes::interfaces::torture::Outbox>,
}

impl Counter {
    fn next(&mut self, client: ClientId, number: u64) -> u64 {
        let count = self.counts.entry(client).or_default();
        if *count != number {
            bad(&format!("message {number} of {client:?} came where {count} was due"));
        }
        *count += 1;
        *count
    }
}

impl Service for Counter {
    fn gone(&mut self, client: ClientId) {
        self.counts.remove(&client);
    }

    fn echo(&mut self, number: u64, bytes: &[u8], reply: EchoReply<'_>) {
        let client = reply.client();
        let count = self.next(client, number);
        if bytes.iter().any(|byte| *byte != number.to_le_bytes()[0]) {
            bad("bytes have changed");
        }
        reply.send(number, count, bytes);
        if let Some(outbox) = &self.outbox {
            let _ = outbox.told(client, number);
        }
    }

    fn count(&mut self, number: u64, client: ClientId) {
        self.next(client, number);
    }
}

fn be_service(domain: &Domain, at: &str) -> ! {
    let monitor = MonitorAt::default().number(at.parse().unwrap());
    let serve = Serve::default().monitor(Some(monitor));
    let mut server = loop {
        // The one before has been killed: its name may be in use for a moment.
        match Server::with(domain, &format!("torture.{at}"), Counter::default(), serve.clone()) {
            Ok(server) => break server,
            Err(_) => std::thread::yield_now(),
        }
    };
    server.service().outbox = Some(server.outbox());
    let error = server.serve();
    bad(&format!("service {at}: {error:?}"))
}

fn be_client(domain: &Domain, at: usize, is_calm: bool, mut random: Random) -> ! {
    loop {
        let service = format!("torture.{}", 2 + random.below(2));
        // A stopped process goes on some time.
        let timeout = if is_calm { LIMIT * 4 } else { Duration::from_secs(5) };
        let bind = Bind::default().drivers([Driver::Circuit]).timeout(timeout);
        match Client::bind(domain, &service, &bind.monitor(MonitorAt::default().number(at))) {
            Ok(client) => talk(client, is_calm, &mut random),
            Err(error) if is_calm => bad(&format!("bind: {error}")),
            Err(_) => {}
        }
    }
}

/// Talks until the circuit ends, or for some messages.
fn talk(mut client: Client, is_calm: bool, random: &mut Random) {
    let (mut sent, mut told, mut replies) = (0_u64, 0_u64, 0_u64);
    let ended = loop {
        let began = Instant::now();
        let number = sent;
        let done = match random.below(16) {
            0 => break None,
            1..8 => client.count(number).map(|()| sent += 1),
            _ => {
                let length =
                    [0, 8, 40, 100, 4000, 4090, 9000][usize::try_from(random.below(7)).unwrap()];
                let bytes = vec![number.to_le_bytes()[0]; length];
                sent += 1;
                client.echo(number, &bytes).map(|out| {
                    replies += 1;
                    if (out.same, out.count) != (number, sent) || out.back != bytes {
                        bad(&format!("reply {} with count {} to {number}", out.same, out.count));
                    }
                })
            }
        };
        if began.elapsed() > LIMIT {
            bad("a call took too long");
        }
        if let Err(error) = done {
            break Some(error);
        }
        told += events(&mut client);
    };
    told += events(&mut client);
    match ended {
        None => {}
        Some(error) if is_calm => bad(&format!("a circuit ended: {error}")),
        Some(CallError::PeerDied { .. } | CallError::PeerLeft { .. }) => {}
        Some(CallError::Lost { delivered, .. }) if delivered == replies + told => {}
        Some(CallError::Lost { delivered, reason, .. }) => {
            bad(&format!("{delivered} delivered, {replies} and {told} taken: {reason}"))
        }
        Some(error) => bad(&format!("{error}")),
    }
}

/// Takes the events that have come. How many messages they were.
fn events(client: &mut Client) -> u64 {
    let (mut count, mut last) = (0, None);
    // A call says why there are no more.
    while let Ok(Some(event)) = client.try_event() {
        count += 1;
        if let Event::Told { number } = event {
            if last.is_some_and(|last| last >= number) {
                bad("events out of order");
            }
            last = Some(number);
        }
    }
    count
}

struct Scene {
    directory: PathBuf,
    domain: Domain,
    children: Vec<Child>,
    is_calm: bool,
    seed: u64,
}

impl Scene {
    fn start(random: &mut Random, is_calm: bool) -> Self {
        let seed = random.below(1 << 40);
        let directory = std::env::temp_dir().join(format!("corewire-torture-{seed}-{is_calm}"));
        let _ = std::fs::remove_dir_all(&directory);
        let domain = Domain::open_at(&directory).unwrap();
        let mut scene = Self { directory, domain, children: Vec::new(), is_calm, seed };
        for party in 0..PARTIES.len() {
            let child = scene.party(party);
            scene.children.push(child);
            if party + 1 == MONITORS {
                scene.make_ring();
            }
        }
        scene
    }

    fn party(&mut self, index: usize) -> Child {
        self.seed += 1;
        let party = match self.is_calm {
            true => PARTIES[index].replace("client", "calm"),
            false => PARTIES[index].to_owned(),
        };
        Command::new(std::env::current_exe().unwrap())
            .args(["torture::circuits_survive_kills_and_stops", "--exact", "--nocapture"])
            .env(PARTY, party)
            .env(DIRECTORY, &self.directory)
            .env(SEED, (self.seed << 8 | 1).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn asking(&self, number: usize) -> Asking {
        let until = Instant::now() + LIMIT;
        loop {
            match Asking::connect(&self.domain, NodeId::new(number).unwrap(), LIMIT) {
                Ok(asking) => return asking,
                Err(error) if Instant::now() > until => panic!("monitor {number}: {error}"),
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    fn make_ring(&self) {
        (0..MONITORS).for_each(|number| drop(self.asking(number)));
        let nodes = (0..MONITORS).map(|number| NodeId::new(number).unwrap()).collect();
        self.asking(0).set_table(ring(nodes)).unwrap();
    }

    /// Fails if a party has ended by itself.
    fn check(&mut self) {
        for (child, party) in self.children.iter_mut().zip(PARTIES) {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{party} ended: {status}");
            }
        }
    }

    fn kill(mut self, kills: u64, random: &mut Random) {
        for kill in 0..kills {
            // Monitors less often: everything that they carry ends with them.
            let index = match random.below(8) {
                0 => random.below(MONITORS as u64),
                _ => MONITORS as u64 + random.below((PARTIES.len() - MONITORS) as u64),
            };
            let index = usize::try_from(index).unwrap();
            // A moment in which things happen, of any length.
            for _ in 0..random.below(40) {
                std::thread::park_timeout(Duration::from_micros(random.below(500)));
            }
            self.check();
            self.children[index].kill().unwrap();
            self.children[index].wait().unwrap();
            self.children[index] = self.party(index);
            if kill % 500 == 499 {
                println!("{} kills", kill + 1);
                self.wait_for_calls();
            }
        }
        self.wait_for_calls();
        self.check();
        self.end();
    }

    /// Waits until frames go through every monitor of a service.
    fn wait_for_calls(&mut self) {
        for number in [2, 3] {
            let before = self.asking(number).routes().unwrap().frames;
            let until = Instant::now() + LIMIT;
            while self.asking(number).routes().unwrap().frames < before + 1000 {
                assert!(Instant::now() < until, "nothing goes through monitor {number} any more");
                self.check();
                std::thread::yield_now();
            }
        }
    }

    fn stop(mut self, stops: u64, time: Duration, random: &mut Random) {
        self.wait_for_calls();
        for _ in 0..stops {
            let index = usize::try_from(random.below(PARTIES.len() as u64)).unwrap();
            let pid = Pid::from_child(&self.children[index]);
            kill_process(pid, Signal::STOP).unwrap();
            let until = Instant::now() + time;
            while Instant::now() < until {
                std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
            }
            kill_process(pid, Signal::CONT).unwrap();
            self.wait_for_calls();
            self.check();
        }
        self.end();
    }

    /// Kills all clients: no monitor may keep anything of them.
    fn end(mut self) {
        for child in &mut self.children[MONITORS + 2..] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        for number in 0..MONITORS {
            let until = Instant::now() + LIMIT;
            loop {
                let routes = self.asking(number).routes().unwrap();
                if (routes.circuits, routes.stored_lines) == (0, 0) {
                    break;
                }
                assert!(
                    Instant::now() < until,
                    "monitor {number} has {} circuits and {} lines left",
                    routes.circuits,
                    routes.stored_lines
                );
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
