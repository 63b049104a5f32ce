//! The thesis' placement: a client and its monitor on one core, a service and its monitor on another, each a process of
//! its own that sleeps when it has nothing to do. Beside it the parts of the way, a relay by sockets, and D-Bus.

use std::path::Path;
use std::time::Duration;

use corewire::Domain;
use corewire_bind::{Bind, Driver, MonitorAt, Serve};
use corewire_circuit::monitor::{Monitor, Options};
use corewire_circuit::wire::NodeId;
use corewire_harness::board::READY;
use corewire_harness::calls::{Block, Client, Echo, Server, check};
use corewire_harness::places::Places;
use corewire_harness::role::{Role, Worker};
use corewire_harness::rounds::alternate;
use corewire_harness::setup::Setup;
use corewire_os::processor;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
use serde::{Deserialize, Serialize};

use crate::study::distances::Lines;
use crate::study::failure::{Doing, Failure};
use crate::study::interfaces::Id;
use crate::study::interfaces::bus::{self, Bus};
use crate::study::program::PROGRAM;

/// The services of the two cores.
const NEAR: &str = "near";
const FAR: &str = "far";
/// How long a client waits for its service.
const PATIENCE: Duration = Duration::from_secs(60);
/// The client has measured, and written it to this file.
const DONE: u64 = READY + 1;
const FOUND: &str = "placed.json";
/// How long the measurement may take.
const TIME: Duration = Duration::from_secs(120);

/// What a process does, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    part: Part,
    cpu: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Part {
    /// A monitor of this number, which polls for so long.
    Monitor(usize, u64),
    /// A service of this name, at a monitor.
    Service(String, Option<usize>),
    /// The service of D-Bus.
    Dbus,
    /// Passes packets on: from its own socket to the next one, or back at the end.
    Relay(usize, bool),
    /// The client, of everything or of the circuit and its parts alone.
    Client { rounds: u64, with_others: bool, has_dbus: bool },
}

/// The processes of the placement.
pub(crate) const ROLE: Role<Order> = Role { name: "placed circuits", work };

/// Round trips, block by block, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) circuit_ns: Vec<f64>,
    pub(crate) lmp_ns: Vec<f64>,
    pub(crate) ump_ns: Vec<f64>,
    pub(crate) relay_ns: Vec<f64>,
    /// Empty without D-Bus.
    pub(crate) dbus_ns: Vec<f64>,
    /// Time of a bare line one way, before and after.
    #[serde(default)]
    pub(crate) line_ns: Lines,
}

impl Placed {
    /// The parts of the way, block by block: two times the way on one core, and one between cores.
    pub(crate) fn parts_ns(&self) -> Vec<f64> {
        self.lmp_ns.iter().zip(&self.ump_ns).map(|(lmp, ump)| 2.0 * lmp + ump).collect()
    }
}

fn work(worker: &Worker, order: Order) -> Result<(), Failure> {
    let Order { part, cpu } = order;
    processor::pin_to(cpu).doing(format_args!("keep to processor {cpu}"))?;
    let domain = worker.domain()?;
    match part {
        Part::Monitor(number, poll_ns) => {
            let node = NodeId::new(number).ok_or_else(|| Failure::other("no such monitor"))?;
            let mut options = Options::new(node);
            options.poll = Duration::from_nanos(poll_ns);
            let mut monitor = Monitor::start(domain, options).doing("start a monitor")?;
            worker.reach(READY);
            monitor.run().doing("run a monitor")
        }
        Part::Service(name, monitor) => {
            let monitor = monitor.map(|number| MonitorAt::default().number(number));
            let serve = Serve::default().monitor(monitor);
            let server = Server::with(&domain, &name, Echo::default(), serve);
            let mut server = server.doing("create a service")?;
            worker.reach(READY);
            loop {
                server.serve_one().doing("serve")?;
            }
        }
        Part::Dbus => {
            Id::Dbus.serve(worker.directory())?;
            worker.reach(READY);
            loop {
                std::thread::park();
            }
        }
        Part::Relay(at, is_last) => relay(worker, at, is_last),
        Part::Client { rounds, with_others, has_dbus } => {
            worker.reach(READY);
            worker.board().await_go();
            let placed = call(&domain, worker.directory(), (with_others, has_dbus), rounds)?;
            let json = serde_json::to_vec(&placed).doing("write what was measured")?;
            std::fs::write(worker.directory().join(FOUND), json)
                .doing("write what was measured")?;
            worker.reach(DONE);
            Ok(())
        }
    }
}

fn socket() -> Result<rustix::fd::OwnedFd, Failure> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None);
    let socket = socket.doing("make a socket")?;
    set_socket_passcred(&socket, false).doing("set up a socket")?;
    Ok(socket)
}

fn address(directory: &Path, at: usize) -> Result<SocketAddrUnix, Failure> {
    SocketAddrUnix::new(directory.join(format!("relay{at}"))).doing("name a socket")
}

fn connect(directory: &Path, at: usize) -> Result<rustix::fd::OwnedFd, Failure> {
    let (socket, address) = (socket()?, address(directory, at)?);
    let mut tries = 0_u32;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(error) if tries > 100_000 => return Err(error).doing("connect a socket"),
            Err(_) => {
                tries += 1;
                std::thread::yield_now();
            }
        }
    }
}

fn relay(worker: &Worker, at: usize, is_last: bool) -> Result<(), Failure> {
    let listener = socket()?;
    rustix::net::bind(&listener, &address(worker.directory(), at)?).doing("name a socket")?;
    rustix::net::listen(&listener, 1).doing("listen")?;
    let next = if is_last { None } else { Some(connect(worker.directory(), at + 1)?) };
    worker.reach(READY);
    let before = rustix::net::accept(&listener).doing("accept a connection")?;
    let mut buffer = [0; 64];
    let receive = |from, buffer: &mut [u8; 64]| {
        rustix::net::recv(from, &mut buffer[..], RecvFlags::empty()).doing("receive")
    };
    loop {
        let (mut length, _) = receive(&before, &mut buffer)?;
        if length == 0 {
            // The client has ended, and the controller ends everybody.
            loop {
                std::thread::park();
            }
        }
        if let Some(next) = &next {
            rustix::net::send(next, &buffer[..length], SendFlags::empty()).doing("send")?;
            (length, _) = receive(next, &mut buffer)?;
        }
        rustix::net::send(&before, &buffer[..length], SendFlags::empty()).doing("send")?;
    }
}

/// Measures round trips of 8 bytes.
pub(super) fn measure(
    cpus: [usize; 2],
    poll_ns: u64,
    rounds: u64,
    with_others: bool,
) -> Result<Placed, Failure> {
    let [near, far] = cpus;
    let has_dbus = with_others && Id::Dbus.absence().is_none();
    let mut parts = vec![
        (Part::Client { rounds, with_others, has_dbus }, near),
        (Part::Monitor(0, poll_ns), near),
        (Part::Monitor(1, poll_ns), far),
        (Part::Service(FAR.to_owned(), Some(1)), far),
        (Part::Service(NEAR.to_owned(), None), near),
    ];
    if with_others {
        parts.extend([
            (Part::Relay(2, true), far),
            (Part::Relay(1, false), far),
            (Part::Relay(0, false), near),
        ]);
    }
    parts.extend(has_dbus.then_some((Part::Dbus, far)));
    let setup = Setup::new(PROGRAM, parts.len()).places(Places::Anywhere).time(TIME);
    let mut crew = setup.crew()?;
    let bus = match has_dbus {
        true => Some(Bus::start(crew.directory(), Some(near))?),
        false => None,
    };
    for (index, (part, cpu)) in parts.into_iter().enumerate() {
        bus::add_worker(&mut crew, bus.as_ref(), index, (&ROLE, &Order { part, cpu }))?;
    }
    crew.await_ready()?;
    crew.go();
    crew.await_step_asleep(0, DONE)?;
    let found = std::fs::read(crew.directory().join(FOUND)).doing("read what was measured")?;
    serde_json::from_slice(&found).doing("read what was measured")
}

fn bind(domain: &Domain, service: &str, driver: Driver) -> Result<Client, Failure> {
    let bind = Bind::default().drivers([driver]).timeout(PATIENCE);
    Client::bind(domain, service, &bind.monitor(MonitorAt::default().number(0))).doing("bind")
}

fn call(
    domain: &Domain,
    directory: &Path,
    (with_others, has_dbus): (bool, bool),
    rounds: u64,
) -> Result<Placed, Failure> {
    let mut circuit = bind(domain, FAR, Driver::Circuit)?;
    let mut lmp = bind(domain, NEAR, Driver::Lmp)?;
    let mut ump = bind(domain, FAR, Driver::Ump)?;
    let relay = if with_others { Some(connect(directory, 0)?) } else { None };
    let mut dbus = if has_dbus { Some(Id::Dbus.connect(directory)?) } else { None };
    let mut sizes = [const { Block::new() }; 5];
    let blocks = alternate(rounds, |_| {
        let [of_circuit, of_lmp, of_ump, of_relay, of_dbus] = &mut sizes;
        let mut times = vec![
            of_circuit.time_ns(|number| check(circuit.payload64_1(number), &number))?,
            of_lmp.time_ns(|number| check(lmp.payload64_1(number), &number))?,
            of_ump.time_ns(|number| check(ump.payload64_1(number), &number))?,
        ];
        if let Some(relay) = &relay {
            times.push(of_relay.time_ns(|number| exchange(relay, number))?);
        }
        if let Some(dbus) = &mut dbus {
            times.push(of_dbus.time_ns(|number| check(dbus.call(number), &number))?);
        }
        Ok::<_, Failure>(times)
    })?;
    let of = |block: usize| blocks.of(block).to_vec();
    let [circuit_ns, lmp_ns, ump_ns, relay_ns, dbus_ns] = [0, 1, 2, 3, 4].map(of);
    Ok(Placed { circuit_ns, lmp_ns, ump_ns, relay_ns, dbus_ns, line_ns: None })
}

fn exchange(socket: &rustix::fd::OwnedFd, number: u64) -> Result<(), Failure> {
    rustix::net::send(socket, &number.to_le_bytes(), SendFlags::empty()).doing("send")?;
    let mut reply = [0; 8];
    let received = rustix::net::recv(socket, &mut reply[..], RecvFlags::empty());
    let (length, _) = received.doing("receive")?;
    match length == 8 && u64::from_le_bytes(reply) == number {
        true => Ok(()),
        false => Err(Failure::other("a relay returned something else than it was given")),
    }
}
