//! A monitor, and programs that do to it what no program does.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corewire::{ConnectServiceError, Connection, Domain};
use corewire_circuit::link::socket::{ControlLane, LaneEnd, send_frame, wait};
use corewire_circuit::monitor::{Asking, Monitor, Options as MonitorOptions};
use corewire_circuit::node::{Act, Rule};
use corewire_circuit::wire::packet::{
    PACKET_BYTES_MAX, Packet, Question, Role, Setup, Shape, Table,
};
use corewire_circuit::wire::{Hop, Kind, Label, NodeId, NodeSet, PAYLOAD_BYTES_MAX};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::refuse::obey;
use crate::typed::description;
use crate::{Options, Outcome, guest};

type Failure = Box<dyn std::error::Error>;

/// Parses `bind:NAME:UID,UID` or `export:NAME:UID,UID`.
pub(crate) fn rule(text: &str) -> Result<Rule, Failure> {
    let mut parts = text.splitn(3, ':');
    let mut part = || parts.next().ok_or("rule=bind:NAME:UID,UID");
    let act = match part()? {
        "bind" => Act::Bind,
        "export" => Act::Export,
        other => return Err(format!("no act {other}").into()),
    };
    Ok(Rule { act, names: part()?.to_owned(), users: guest::numbers(part()?)?, groups: Vec::new() })
}

/// Runs the monitor of this number until its standard input ends.
pub(crate) fn monitor(domain: &Domain, options: &Options) -> Outcome {
    let node = NodeId::new(options.channel.parse()?).ok_or("no number of a monitor")?;
    let mut how = MonitorOptions::new(node);
    how.policy.rules.clone_from(&options.rules);
    let mut monitor = Monitor::start(domain.clone(), how)?;
    let handle = monitor.handle();
    obey(move || handle.stop());
    println!("ready");
    Ok(monitor.run()?)
}

/// Joins all monitors of the domain to a ring, and waits until they know it, and where the service is. For each line of its
/// input asks them, from the second to the first, how many circuits they have: what had come to a monitor before, it has
/// handled then.
pub(crate) fn ring(domain: &Domain, options: &Options) -> Outcome {
    let nodes = corewire_circuit::monitor::monitors(domain)?;
    let mut all = nodes
        .iter()
        .map(|node| Asking::connect(domain, *node, LONG))
        .collect::<Result<Vec<_>, _>>()?;
    let others = nodes.len() - 1;
    let (first, shape) = (all.first_mut().ok_or("no monitor runs")?, Shape::Ring(nodes));
    first.set_table(Table { version: 0, shape, vias: Vec::new() })?;
    for one in &mut all {
        loop {
            let routes = one.routes()?;
            let monitors = routes.links.iter().filter(|link| link.to.starts_with("monitor"));
            let knows = routes.names.iter().any(|name| name.service == options.channel);
            if knows && routes.version == 1 && monitors.count() == others {
                break;
            }
            std::thread::yield_now();
        }
    }
    println!("ready");
    all.rotate_left(1);
    for line in io::stdin().lines() {
        line?;
        let mut counts = Vec::new();
        for one in &mut all {
            // The first question may have overtaken what came at the same time.
            one.circuits()?;
            counts.push(one.circuits()?.circuits.len().to_string());
        }
        println!("circuits {}", counts.join(" "));
    }
    Ok(())
}

/// Does to the first monitor what the channel's name says, and says how that ended.
pub(crate) fn attack(domain: &Domain, options: &Options) -> Outcome {
    match options.channel.as_str() {
        "packets" => send_wrong_packets(domain),
        "frames" => send_wrong_frames(domain),
        "unread" => read_nothing(domain),
        "export" => export(domain, "typed"),
        "connections" => connect_too_often(domain, options.count),
        "calls" => flood_with_calls(domain),
        "descriptors" => flood_with_descriptors(domain),
        "circuits" => open_too_often(domain),
        "clients" => flood_a_client(domain),
        "leaves" => leave_without_a_word(domain),
        "closes" => send_what_takes_long_to_close(domain),
        "ends" => flood_while_a_lane_ends(domain),
        other => Err(format!("no attack {other}").into()),
    }
}

const LONG: Duration = Duration::from_secs(60);

fn connect(domain: &Domain) -> Result<Connection, Failure> {
    let name = domain.listeners()?;
    let monitor = name.iter().find(|name| name.as_str().starts_with("monitor."));
    let monitor = monitor.ok_or("no monitor runs")?;
    loop {
        match domain.connect(monitor.as_str(), LONG) {
            // The monitor has not accepted the ones before.
            Err(ConnectServiceError::Full { .. }) => std::thread::yield_now(),
            connected => return Ok(connected?),
        }
    }
}

/// A link that was made by hand.
struct Link {
    control: ControlLane<Connection>,
    data: Connection,
}

impl Link {
    fn new(domain: &Domain) -> Result<Self, Failure> {
        let mut control = ControlLane::new(connect(domain)?);
        control.send(&Packet::Attach { role: Role::Program, wants_ring: true }, Vec::new())?;
        let Packet::Attached { secret, endpoint, .. } = next(&mut control)? else {
            return Err("not attached".into());
        };
        if !endpoint.is_empty() {
            return Err("the monitor offers a ring".into());
        }
        let mut data = ControlLane::new(connect(domain)?);
        data.send(&Packet::Lane { secret }, Vec::new())?;
        match next(&mut control)? {
            Packet::Ready => Ok(Self { control, data: data.into_socket() }),
            other => Err(format!("{other:?} instead of Ready").into()),
        }
    }

    /// Opens a circuit to the service. Returns the monitor's label of it, and how many lines it has granted.
    fn open(&mut self, number: u64) -> Result<(Label, u32), Failure> {
        self.control.send(&setup("typed", number), Vec::new())?;
        loop {
            match next(&mut self.control)? {
                Packet::Accept { label, credit, .. } => return Ok((label, credit)),
                Packet::Reset(reset) => return Err(reset.reason.into()),
                _ => {}
            }
        }
    }

    /// Sends a frame, waiting for room. False if the monitor has closed the lane.
    fn frame(&self, label: Label, hop: Hop, payload: &[u8]) -> bool {
        loop {
            match send_frame(&self.data, label, hop, payload) {
                Ok(true) => return true,
                Ok(false) => _ = wait(&self.data, PollFlags::OUT, Instant::now() + LONG),
                Err(_) => return false,
            }
        }
    }
}

fn setup(service: &str, number: u64) -> Packet {
    Packet::Setup(Box::new(Setup {
        label: Label::new(number << 24, u32::try_from(number).unwrap_or(0)),
        credit: 64,
        service: service.to_owned(),
        node: None,
        origin: Default::default(),
        path: Vec::new(),
        visited: NodeSet::default(),
        offer: description(),
    }))
}

/// The next packet.
fn next(lane: &mut ControlLane<Connection>) -> Result<Packet, LaneEnd> {
    loop {
        match lane.receive()? {
            Some((packet, _)) => return Ok(packet),
            None => _ = wait(lane.socket(), PollFlags::IN, Instant::now() + LONG),
        }
    }
}

/// Why the monitor has ended the lane.
fn reason(lane: &mut ControlLane<Connection>) -> String {
    loop {
        match next(lane) {
            Ok(Packet::Refused { reason }) => return reason,
            Ok(_) => {}
            Err(_) => return "closed".to_owned(),
        }
    }
}

/// Sends bytes as a packet, waiting for room. False if the monitor has closed the lane.
fn write(socket: impl AsFd, bytes: &[u8]) -> bool {
    loop {
        match rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => return true,
            Err(Errno::AGAIN) => _ = wait(&socket, PollFlags::OUT, Instant::now() + LONG),
            Err(_) => return false,
        }
    }
}

/// Numbers without a pattern.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

fn send_wrong_packets(domain: &Domain) -> Outcome {
    let wrong = [
        ("nothing", b"no packet".to_vec()),
        ("long", vec![0; PACKET_BYTES_MAX + 1]),
        ("ask", Packet::Ask(Question::Circuits).to_bytes()),
        ("table", Packet::Table(Table::default()).to_bytes()),
        (
            "monitor",
            Packet::Attach {
                role: Role::Monitor(NodeId::new(7).ok_or("no node")?),
                wants_ring: true,
            }
            .to_bytes(),
        ),
        ("secret", Packet::Lane { secret: 7 }.to_bytes()),
        (
            "capabilities",
            Packet::Capabilities { to: Label::NONE, is_lost: false, notes: Vec::new() }.to_bytes(),
        ),
    ];
    for (name, bytes) in &wrong {
        let mut fresh = ControlLane::new(connect(domain)?);
        write(fresh.socket(), bytes);
        println!("new {name}: {}", reason(&mut fresh));
    }
    for (name, bytes) in &wrong {
        let mut link = Link::new(domain)?;
        write(link.control.socket(), bytes);
        // Of a circuit that has ended meanwhile there may be some.
        if *name != "capabilities" {
            println!("linked {name}: {}", reason(&mut link.control));
        }
    }
    // Descriptors that belong to nothing.
    let mut link = Link::new(domain)?;
    for _ in 0..20 {
        let stray = Packet::Capabilities { to: Label::NONE, is_lost: false, notes: vec![1, 0] };
        link.control.send(&stray, files(200)?)?;
    }
    write(link.control.socket(), b"no packet");
    println!("descriptors: {}", reason(&mut link.control));
    // Packets of which everything behind the version is noise.
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let beginning = Packet::Ready.to_bytes()[..8].to_vec();
    let mut count = 0;
    for _ in 0..50 {
        let mut link = Link::new(domain)?;
        loop {
            let length = usize::from(noise.next().to_le_bytes()[0] % 64);
            let mut bytes = beginning.clone();
            bytes.push(noise.next().to_le_bytes()[0] % 18);
            bytes.extend(noise.bytes(length));
            if !write(link.control.socket(), &bytes) {
                break;
            }
            count += 1;
        }
        reason(&mut link.control);
    }
    println!("noise: {}", count > 0);
    Ok(())
}

fn send_wrong_frames(domain: &Domain) -> Outcome {
    let mut noise = Noise(0x1234_5678_9abc_def1);
    let data = Hop::new(Kind::Data);

    let mut link = Link::new(domain)?;
    write(&link.data, b"short");
    println!("short: {}", reason(&mut link.control));

    let mut link = Link::new(domain)?;
    write(&link.data, &noise.bytes(16 + PAYLOAD_BYTES_MAX + 1));
    println!("long: {}", reason(&mut link.control));

    let mut link = Link::new(domain)?;
    while link.frame(Label::new(noise.next(), 5), data, &[]) {}
    println!("unknown: {}", reason(&mut link.control));

    let mut link = Link::new(domain)?;
    let (label, _) = link.open(1)?;
    link.frame(label, Hop { credit: 1 << 30, ..data }, &[]);
    println!("grant: {}", reason(&mut link.control));

    let mut link = Link::new(domain)?;
    let (label, _) = link.open(1)?;
    link.frame(label, Hop::new(Kind::Hello), &[]);
    println!("hello: {}", reason(&mut link.control));

    // More than was granted, whatever is granted meanwhile: it reads nothing.
    let mut link = Link::new(domain)?;
    let (label, _) = link.open(1)?;
    while link.frame(label, data, &[7; PAYLOAD_BYTES_MAX]) {}
    let reason = reason(&mut link.control);
    println!("overdrawn: {}", reason.trim_end_matches(|digit: char| digit.is_ascii_digit()));
    Ok(())
}

/// Makes the monitor answer, and never reads.
fn read_nothing(domain: &Domain) -> Outcome {
    let mut link = Link::new(domain)?;
    println!("begins");
    for number in 1_u64.. {
        if !write(link.control.socket(), &setup("nobody", number).to_bytes()) {
            break;
        }
    }
    println!("cut off");
    println!("ended: {}", reason(&mut link.control));
    Ok(())
}

/// Serves a name by hand.
fn export(domain: &Domain, name: &str) -> Outcome {
    let mut link = Link::new(domain)?;
    link.control.send(&Packet::Export { name: name.to_owned() }, Vec::new())?;
    match next(&mut link.control)? {
        Packet::Exported { reason, .. } => println!("exported: {reason}"),
        other => println!("{other:?}"),
    }
    Ok(())
}

/// Opens `count` connections that say nothing, and one more.
fn connect_too_often(domain: &Domain, count: u64) -> Outcome {
    let idle = (0..count).map(|_| connect(domain)).collect::<Result<Vec<_>, _>>()?;
    let mut last = ControlLane::new(connect(domain)?);
    println!("last: {}", reason(&mut last));
    let _ = io::stdin().read_to_end(&mut Vec::new());
    drop(idle);
    Ok(())
}

/// Fills every window that it is granted, on many circuits, with requests whose replies it does not read, until its
/// standard input ends.
fn flood_with_calls(domain: &Domain) -> Outcome {
    let mut link = Link::new(domain)?;
    let circuits = (1..=100).map(|number| link.open(number)).collect::<Result<Vec<_>, _>>()?;
    for (label, lines) in circuits {
        for token in 1..=lines {
            let hop = Hop { ordinal: 1, flags: 1, ..Hop::new(Kind::Data) };
            let prefix = [token.to_le_bytes(), [0; 4]].concat();
            if !link.frame(label, hop, &[prefix, vec![7; 32]].concat()) {
                return Err(reason(&mut link.control).into());
            }
        }
    }
    println!("flooded");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Sends capabilities of messages that do not come, and stays until its standard input ends.
fn flood_with_descriptors(domain: &Domain) -> Outcome {
    let mut link = Link::new(domain)?;
    let (to, _) = link.open(1)?;
    flood(&mut link, to)
}

/// Serves a name, and sends its first client capabilities of messages that do not come, once it is told to. Stays until its
/// standard input ends.
fn flood_a_client(domain: &Domain) -> Outcome {
    let (mut link, to) = serve_one(domain)?;
    io::stdin().read_line(&mut String::new())?;
    flood(&mut link, to)
}

/// Closes its connections without a word once it has a client, and lives on.
fn leave_without_a_word(domain: &Domain) -> Outcome {
    let (link, _) = serve_one(domain)?;
    // The client's request.
    wait(&link.data, PollFlags::IN, Instant::now() + LONG);
    drop(link);
    println!("left");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Serves a name by hand. Returns once there is a client, with the monitor's label of its circuit.
fn serve_one(domain: &Domain) -> Result<(Link, Label), Failure> {
    let mut link = Link::new(domain)?;
    link.control.send(&Packet::Export { name: "guests.typed".to_owned() }, Vec::new())?;
    next(&mut link.control)?;
    println!("serving");
    let Packet::Setup(setup) = next(&mut link.control)? else {
        return Err("no client".into());
    };
    // No number, no ring, any processor, messages of 64 KiB, no secret, no endpoint.
    let answer = [&[0; 3][..], &[255; 4], &(1_u32 << 16).to_le_bytes(), &[0; 9]].concat();
    let (to, label, origin) = (setup.label, Label::new(1 << 24, 1), Default::default());
    link.control.send(&Packet::Accept { to, label, credit: 64, origin, answer }, Vec::new())?;
    Ok((link, to))
}

fn flood(link: &mut Link, to: Label) -> Outcome {
    for _ in 0..20 {
        let notes = [1, 0].repeat(200);
        link.control.send(&Packet::Capabilities { to, is_lost: false, notes }, files(200)?)?;
        while !link.control.flush()? {
            wait(link.control.socket(), PollFlags::OUT, Instant::now() + LONG);
        }
    }
    println!("flooded");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Sends descriptors whose close takes as long as this process lives, in both lanes, in packets that are handled and in
/// some that end the link; and leaves some in sockets that are closed.
fn send_what_takes_long_to_close(domain: &Domain) -> Outcome {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut unread = Vec::new();
    let mut lingering = || -> io::Result<OwnedFd> {
        let socket = TcpStream::connect(listener.local_addr()?)?;
        unread.push(listener.accept()?);
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(60_000)))?;
        // More than the other side's buffer takes.
        socket.set_nonblocking(true)?;
        while (&socket).write(&[7; 4096]).is_ok() {}
        Ok(socket.into())
    };
    let mut link = Link::new(domain)?;
    let stray = || Packet::Capabilities { to: Label::NONE, is_lost: false, notes: vec![1, 0] };
    let (to, _) = link.open(1)?;
    let known = Packet::Capabilities { to, is_lost: false, notes: vec![1, 0] };
    for packet in [stray(), known] {
        give_away(link.control.socket(), packet.to_bytes(), lingering()?)?;
    }
    println!("packets");
    // A frame and a packet that are none.
    give_away(&link.data, b"short".to_vec(), lingering()?)?;
    println!("frame: {}", reason(&mut link.control));
    let mut link = Link::new(domain)?;
    give_away(link.control.socket(), b"no packet".to_vec(), lingering()?)?;
    println!("packet: {}", reason(&mut link.control));
    // Empty ones, which look like an end.
    let mut link = Link::new(domain)?;
    give_away(&link.data, Vec::new(), lingering()?)?;
    println!("empty frame: {}", reason(&mut link.control));
    let mut link = Link::new(domain)?;
    give_away(link.control.socket(), Vec::new(), lingering()?)?;
    println!("empty packet: {}", reason(&mut link.control));
    // Some that are closed before they are read.
    let control = connect(domain)?;
    for _ in 0..2 {
        give_away(&control, b"no packet".to_vec(), lingering()?)?;
    }
    drop(control);
    println!("closed");
    // More than may wait: it is read no more, and then the user's connections are refused.
    let mut link = Link::new(domain)?;
    while !link.control.has_unsent() {
        link.control.send(&stray(), files(50)?)?;
    }
    println!("many: {}", reason(&mut link.control));
    println!("refused: {}", reason(&mut ControlLane::new(connect(domain)?)));
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Sends bytes and a descriptor, which is closed here before the monitor closes it, if this thread's successor is fast
/// enough: the last process waits.
fn give_away(socket: impl AsFd, bytes: Vec<u8>, descriptor: OwnedFd) -> io::Result<()> {
    let (socket, has_sent) = (socket.as_fd().try_clone_to_owned()?, Arc::<AtomicBool>::default());
    let is_sent = Arc::clone(&has_sent);
    std::thread::spawn(move || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        // The monitor may have closed it.
        let _ = sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        drop(socket);
        is_sent.store(true, Ordering::Release);
        drop(descriptor);
    });
    while !has_sent.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    Ok(())
}

/// Closes one lane and sends in the other one as fast as it can, until it is closed, too.
fn flood_while_a_lane_ends(domain: &Domain) -> Outcome {
    let Link { control, data } = Link::new(domain)?;
    drop(data);
    let stray = Packet::Capabilities { to: Label::NONE, is_lost: false, notes: Vec::new() };
    flood_from_threads(control.socket(), &stray.to_bytes());
    println!("control closed");
    let Link { control, data } = Link::new(domain)?;
    rustix::net::shutdown(control.socket(), rustix::net::Shutdown::Write)?;
    let frame = corewire_circuit::wire::data_header(Label::new(1 << 24, 5), Hop::new(Kind::Data));
    flood_from_threads(&data, &frame);
    println!("data closed");
    Ok(())
}

fn flood_from_threads(socket: impl AsFd + Sync, bytes: &[u8]) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while write(&socket, bytes) {});
        }
    });
}

fn files(count: usize) -> io::Result<Vec<OwnedFd>> {
    Ok((0..count).map(|_| rustix::io::dup(io::stdin())).collect::<Result<_, _>>()?)
}

/// Opens circuits until it is refused, and keeps them until its standard input ends.
fn open_too_often(domain: &Domain) -> Outcome {
    let mut link = Link::new(domain)?;
    let refused = (1..).find_map(|number| link.open(number).err());
    println!("refused: {}", refused.map(|error| error.to_string()).unwrap_or_default());
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
