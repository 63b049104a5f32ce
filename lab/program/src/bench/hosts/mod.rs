//! Endpoints of two hosts: round trips and streams over TCP, compared with bare sockets. Two processes in network namespaces of
//! their own, if this user may make them; else over the loopback.

mod behind;
mod many;
mod namespace;
mod near;
mod raw;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use corewire::{Domain, Endpoint, EndpointBuilder, Peer as Other, Selector, Wait};
use corewire_harness::board::Board;
use corewire_harness::statistics::median;
use corewire_ring::sync::Ordering::Relaxed;

use self::raw::{FRAMED, Raw, TOGETHER};
use super::prelude::*;

pub(super) const ROLE: Role<Options> = Role { name: "hosts", work: peer };

/// What one round has of each.
const TRIPS: usize = 300;
const WAITING_TRIPS: usize = 200;
const STREAMS: [(&str, usize, usize); 2] = [("64k", 64 << 10, 2048), ("1m", 1 << 20, 192)];
const SHORT: usize = 200_000;
const TAG: u64 = 1;
const DONE: u64 = 2;

/// Words of the worker: its ports, whether it has a network of its own, and its processor time in nanoseconds.
const RAW: usize = 0;
const GATEWAY: usize = 1;
const IS_APART: usize = 2;
const USED: usize = 3;
/// What its memory has grown by with many idle peers, the processor time that these took, and how many there are.
const GROWN: usize = 4;
const IDLE_USED: usize = 5;
const PEERS: usize = 6;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let is_apart = namespace::has_left();
    let mut crew = setup(1).start(&ROLE, |_| options.clone())?;
    crew.await_step(0, 1)?;
    let is_apart = is_apart && crew.board().word(0, IS_APART).load(Relaxed) == 1;
    if is_apart {
        let pid = crew.pids().next().unwrap_or_default();
        namespace::connect(pid)?;
    }
    tls::certify(crew.directory())?;
    crew.go();
    crew.await_step(0, 2)?;
    let address = |word: usize| {
        let port = u16::try_from(crew.board().word(0, word).load(Relaxed)).unwrap_or(0);
        SocketAddr::new(host(1, is_apart), port)
    };
    let at = [SocketAddr::new(host(0, is_apart), 1), address(GATEWAY)];
    write_hosts(crew.directory(), "a", at)?;
    let mut raw = Raw::dial(address(RAW))?;
    let mut spinning = End::dial(crew.directory(), "a", "spin", Wait::Spin)?;
    let mut parking = End::dial(crew.directory(), "a", "park", Wait::Park)?;
    report.value("rounds", options.rounds);
    report.value("namespaces", is_apart);
    report.note(if is_apart { "two network namespaces" } else { "over the loopback" });

    let blocks = alternate(options.rounds, |_| {
        let mut figures = vec![];
        figures.push(trips(TRIPS, || raw.send(&[7; 8], true).and_then(|()| raw.receive(8, true)))?);
        figures.push(trips(TRIPS, || spinning.ask(8))?);
        figures.push(trips(WAITING_TRIPS, || {
            raw.send(&[7; 8], false).and_then(|()| raw.receive(8, false))
        })?);
        figures.push(trips(WAITING_TRIPS, || parking.ask(8))?);
        raw.block(true)?;
        for (_, bytes, count) in STREAMS {
            let message = vec![7; bytes];
            let used = || processor_ns(crew.board());
            let (start, before) = (Instant::now(), used());
            for _ in 0..count {
                raw.send(&message, false)?;
            }
            raw.receive(8, false)?;
            figures.extend(rate(bytes * count, start, used() - before));
            let (start, before) = (Instant::now(), used());
            parking.stream(&message, count)?;
            figures.extend(rate(bytes * count, start, used() - before));
        }
        let batch: Vec<u8> = (0..TOGETHER * FRAMED).map(|at| at.to_le_bytes()[0]).collect();
        let start = Instant::now();
        for _ in 0..SHORT / TOGETHER {
            raw.send(&batch, false)?;
        }
        raw.receive(8, false)?;
        figures.push(per_second((SHORT / TOGETHER * TOGETHER) as u64, start));
        for corks in [true, false] {
            let start = Instant::now();
            parking.stream_short(SHORT, corks)?;
            figures.push(per_second(SHORT as u64, start));
        }
        let start = Instant::now();
        for number in 0..SHORT as u64 / 4 {
            let mut framed = [0; FRAMED];
            framed[FRAMED - 8..].copy_from_slice(&number.to_le_bytes());
            raw.send(&framed, false)?;
        }
        raw.receive(8, false)?;
        figures.push(per_second(SHORT as u64 / 4, start));
        raw.block(false)?;
        Ok::<_, Failure>(figures)
    })?;
    report.figure(
        "raw_polling_us",
        "8 B there and back, a bare socket that polls",
        blocks.median(0),
        "us",
    );
    report.figure("polling_us", "endpoints that poll", blocks.median(1), "us");
    report.ratios("polling_ratio", "ratio to the bare socket", &blocks.ratios(1, 0));
    report.figure(
        "raw_waiting_us",
        "8 B there and back, a bare socket in epoll",
        blocks.median(2),
        "us",
    );
    report.figure("waiting_us", "endpoints that sleep", blocks.median(3), "us");
    report.ratios("waiting_ratio", "ratio to the bare socket", &blocks.ratios(3, 2));
    for (index, (name, _, _)) in STREAMS.into_iter().enumerate() {
        let keys = (format!("raw_{name}"), format!("stream_{name}"));
        stream_figures(report, keys, name, "a bare socket", &blocks, 4 + 4 * index);
    }
    report.rate(
        "raw_gathered_per_s",
        "8 B with a header of 16, 512 in each write",
        blocks.median(12),
    );
    report.rate("gathered_per_s", "messages of 8 B, corked", blocks.median(13));
    report.ratios("gathered_ratio", "ratio to the bare socket", &blocks.ratios(13, 12));
    report.rate("raw_single_per_s", "8 B with a header, one in each write", blocks.median(15));
    report.rate("single_per_s", "messages of 8 B, not corked", blocks.median(14));
    report.ratios("single_ratio", "ratio to the bare socket", &blocks.ratios(14, 15));
    near::lead(crew.directory(), options.rounds, report)?;
    behind::lead(crew.directory(), options.rounds, report)?;
    tls::lead(crew.directory(), address(RAW), &mut raw, crew.board(), (options.rounds, report))?;
    drop(raw);
    many::lead(crew.directory(), crew.board(), report)?;
    crew.finish_with(report)
}

/// The figures of a stream: of the bare way from block `at` on, and of endpoints.
fn stream_figures(
    report: &mut Report,
    (bare, own): (String, String),
    what: &str,
    bare_name: &str,
    blocks: &Blocks,
    at: usize,
) {
    let words = |whose: &str| format!("a stream of {what}, {whose}");
    report.figure(&format!("{bare}_gb_per_s"), &words(bare_name), blocks.median(at), "GB/s");
    report.figure(&format!("{own}_gb_per_s"), &words("endpoints"), blocks.median(at + 2), "GB/s");
    let ratio = format!("ratio to {bare_name}");
    report.ratios(&format!("{own}_ratio"), &ratio, &blocks.ratios(at + 2, at));
    let used = "processor time of both sides, bare";
    report.figure(&format!("{bare}_cpu_s_per_gb"), used, blocks.median(at + 1), "s/GB");
    report.figure(&format!("{own}_cpu_s_per_gb"), "of endpoints", blocks.median(at + 3), "s/GB");
    report.ratios(&format!("{own}_cpu_ratio"), &ratio, &blocks.ratios(at + 3, at + 1));
}

fn peer(worker: &Worker, options: Options) -> Result<(), Failure> {
    let is_apart = namespace::has_left();
    let board = worker.board();
    board.word(0, IS_APART).store(u64::from(is_apart), Relaxed);
    worker.reach(1);
    board.await_go();
    let own = host(1, is_apart && has_device());
    let listener = Raw::listen(own)?;
    let directory = worker.directory();
    write_hosts(
        directory,
        "b",
        [host(0, !own.is_loopback()), own].map(|it| SocketAddr::new(it, 1)),
    )?;
    let mut spinning = End::create(directory, "b", "spin", Wait::Spin)?;
    let mut parking = End::create(directory, "b", "park", Wait::Park)?;
    let near = near::Follower::create(directory)?;
    let behind = behind::Follower::create(directory)?;
    let tls = tls::Follower::create(directory)?;
    let many = many::Follower::create(directory)?;
    let domain = Domain::open_at(&directory.join("b"))?;
    let gateway = domain.gateway(&SocketAddr::new(own, 0).to_string())?;
    for (word, at) in [(RAW, listener.local_addr()?), (GATEWAY, gateway.address())] {
        board.word(0, word).store(at.port().into(), Relaxed);
    }
    worker.reach(2);
    let mut raw = Raw::accept(&listener)?;
    for _ in all(options.rounds) {
        for _ in 0..TRIPS {
            raw.receive(8, true)?;
            raw.send(&[7; 8], true)?;
        }
        (0..TRIPS).try_for_each(|_| spinning.answer(8))?;
        for _ in 0..WAITING_TRIPS {
            raw.receive(8, false)?;
            raw.send(&[7; 8], false)?;
        }
        (0..WAITING_TRIPS).try_for_each(|_| parking.answer(8))?;
        raw.block(true)?;
        for (_, bytes, count) in STREAMS {
            (0..count).try_for_each(|_| raw.receive(bytes, false))?;
            note_used(board);
            raw.send(&[7; 8], false)?;
            parking.take(bytes, count, board)?;
        }
        black_box(raw.receive_many(SHORT / TOGETHER * TOGETHER)?);
        raw.send(&[7; 8], false)?;
        for _ in 0..2 {
            parking.take(8, SHORT, board)?;
        }
        black_box(raw.receive_many(SHORT / 4)?);
        raw.send(&[7; 8], false)?;
        raw.block(false)?;
    }
    near.follow(options.rounds)?;
    behind.follow(options.rounds)?;
    tls.follow(directory, &listener, &mut raw, (board, options.rounds))?;
    many.follow(board)
}

/// Whether this process's network has a device besides the loopback.
fn has_device() -> bool {
    std::fs::read_to_string("/proc/net/dev").is_ok_and(|text| text.contains("corewire1"))
}

fn host(index: usize, is_apart: bool) -> IpAddr {
    let address = if is_apart { namespace::ADDRESSES[index] } else { Ipv4Addr::LOCALHOST };
    address.into()
}

/// Writes the files of hosts of one side, without TLS and with it.
fn write_hosts(directory: &Path, own: &str, at: [SocketAddr; 2]) -> Result<(), Failure> {
    for (file, files, insecure) in
        [(own.to_owned(), String::new(), true), (format!("{own}-tls"), tls::files_of(own), false)]
    {
        let mut text = format!("own = {own:?}\n{files}");
        for (name, at) in ["a", "b"].into_iter().zip(at) {
            text += &format!("[hosts.{name}]\naddresses = [\"{at}\"]\ninsecure = {insecure}\n");
        }
        text += "[[allow]]\nhosts = [\"*\"]\nendpoints = [\"*\"]\n";
        std::fs::write(directory.join(format!("{file}.toml")), text)?;
    }
    Ok(())
}

fn trips(count: usize, mut trip: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        trip()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

/// 10^9 bytes a second, and processor seconds for so many.
fn rate(bytes: usize, start: Instant, used_ns: u64) -> [f64; 2] {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (gb, used) = (bytes as f64 / 1e9, used_ns as f64 / 1e9);
    [gb / start.elapsed().as_secs_f64(), used / gb]
}

fn own_ns() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(used.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(used.tv_nsec).unwrap_or(0)
}

/// The processor time that both sides have used by now, as far as the worker has said so.
fn processor_ns(board: &Board) -> u64 {
    own_ns() + board.word(0, USED).load(Relaxed)
}

fn note_used(board: &Board) {
    board.word(0, USED).store(own_ns(), Relaxed);
}

/// An endpoint, and its peer, once that is known.
struct End {
    endpoint: Endpoint,
    other: Option<Other>,
    buffer: Vec<u8>,
}

impl End {
    /// One of the host that the file of hosts is about: `b`, or `b-tls`.
    fn create(directory: &Path, file: &str, name: &str, wait: Wait) -> Result<Self, Failure> {
        Self::create_with(directory, file, name, |builder| builder.wait(wait))
    }

    fn create_with(
        directory: &Path,
        file: &str,
        name: &str,
        options: impl Fn(EndpointBuilder) -> EndpointBuilder,
    ) -> Result<Self, Failure> {
        let own = file.split('-').next().unwrap_or(file);
        let domain = Domain::open_at(&directory.join(own))?;
        let file = directory.join(format!("{file}.toml"));
        let endpoint = options(domain.endpoint(name)).hosts(&file).create()?;
        Ok(Self { endpoint, other: None, buffer: vec![0; 1 << 20] })
    }

    fn dial(directory: &Path, file: &str, name: &str, wait: Wait) -> Result<Self, Failure> {
        let mut end = Self::create(directory, file, name, wait)?;
        end.other = Some(end.endpoint.peer(&format!("{name}@b"))?);
        Ok(end)
    }

    fn send(&mut self, tag: u64, message: &[u8]) -> Result<(), Failure> {
        let other = self.other.ok_or_else(|| Failure::other("nobody has sent anything"))?;
        Ok(self.endpoint.send(other, tag, message)?)
    }

    fn receive(&mut self, tag: u64, bytes: usize) -> Result<(), Failure> {
        let target = &mut self.buffer[..bytes];
        let status = self.endpoint.receive_into(Selector::tag(tag), target)?;
        self.other = Some(status.source);
        Ok(())
    }

    /// A message there and one back.
    fn ask(&mut self, bytes: usize) -> Result<(), Failure> {
        self.send(TAG, &[7; 8][..bytes])?;
        self.receive(TAG, bytes)
    }

    fn answer(&mut self, bytes: usize) -> Result<(), Failure> {
        self.receive(TAG, bytes)?;
        self.send(TAG, &[7; 8][..bytes])
    }

    /// Messages back to back, until the other side has all.
    fn stream(&mut self, message: &[u8], count: usize) -> Result<(), Failure> {
        (0..count).try_for_each(|_| self.send(TAG, message))?;
        self.receive(DONE, 8)
    }

    fn stream_short(&mut self, count: usize, corks: bool) -> Result<(), Failure> {
        for number in 0..count {
            if corks && number.is_multiple_of(TOGETHER) {
                self.endpoint.progress()?;
                self.endpoint.cork();
            }
            self.send(TAG, &number.to_le_bytes())?;
        }
        self.receive(DONE, 8)
    }

    /// The other side of a stream.
    fn take(&mut self, bytes: usize, count: usize, board: &Board) -> Result<(), Failure> {
        (0..count).try_for_each(|_| self.receive(TAG, bytes))?;
        note_used(board);
        self.send(DONE, &[7; 8])
    }
}
