//! One long message to all receivers: from a window, of which each receiver makes one copy or which it reads in place; by the
//! kernel, once for each receiver; and through corewire's channel. ZIMP says of KNEM, a module that copies by the kernel,
//! that it sends large data to all other cores (its section V).
//!
//! In each transfer the sender writes the message, and every receiver reads all of it.

use std::time::Duration;

use corewire::{Receiver, SendError, Sender, Wait};
use corewire_harness::board::part;
use corewire_harness::role::Worker;
use corewire_harness::rounds::nanoseconds;
use corewire_harness::statistics::median;
use corewire_os::process::life_of;
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::{Acquire, Release};
use corewire_transfer::mechanisms::{Description, KernelGet, Mechanism, Peer, Role, Step};

use super::arena::{Arena, Contents, Place};
use super::clock::clock;
use super::plan::{LINE_ROUNDS, Plan, Report};
use super::results::{Key, Measure, State};
use super::transfers::in_turn;
use crate::study::failure::{Doing, Failure};
use crate::study::mechanisms::Patience;
use crate::study::touch::Mark;

/// The messages.
pub(super) const SIZES: [usize; 2] = [64 << 10, 1 << 20];
/// Transfers of a block.
const TIMES: u64 = 8;
/// Words of a worker: the number of the transfer that it has sent or has done with, its place, and its process.
const DONE: usize = 0;
const PLACE: usize = 1;
const PROCESS: usize = 2;
const MAY_COPY: usize = 3;
/// The first bytes of the crew's memory are a description; then the window follows.
const NOTE_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(10);

/// How the message goes to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    Window,
    WindowInPlace,
    KernelGet,
    Channel,
    ChannelInPlace,
}

impl Road {
    pub(super) const ALL: [Self; 5] =
        [Self::Window, Self::WindowInPlace, Self::KernelGet, Self::Channel, Self::ChannelInPlace];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::WindowInPlace => "window_in_place",
            Self::KernelGet => "kernel_get",
            Self::Channel => "channel",
            Self::ChannelInPlace => "channel_in_place",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Window => "window, one copy by each receiver",
            Self::WindowInPlace => "window, read in place",
            Self::KernelGet => "kernel get, one copy by each receiver",
            Self::Channel => "corewire\u{2019}s channel, copied out",
            Self::ChannelInPlace => "corewire\u{2019}s channel, read in place",
        }
    }
}

/// Memory that a crew needs.
pub(super) const fn crew_bytes(window_bytes: usize) -> usize {
    NOTE_BYTES + window_bytes
}

/// A process: the first worker sends, the others receive.
struct Process<'a> {
    worker: &'a Worker,
    patience: Patience,
    receivers: usize,
    memory: Region,
    private: Arena,
    window: Arena,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    kernel: Option<KernelGet>,
    transfers: u64,
}

pub(super) fn run(worker: &Worker, plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::default();
    let receivers = plan.receivers;
    let mut process = Process::open(worker, plan)?;
    let mut lines = worker.line_around(LINE_ROUNDS)?;
    let mut roads = Road::ALL.to_vec();
    if !process.find_kernel(&mut report)? {
        roads.retain(|road| *road != Road::KernelGet);
    }
    for bytes in SIZES {
        let from = report.measured.len();
        for round in 0..=plan.rounds {
            for road in in_turn(&mut roads, round) {
                let mut times = Vec::new();
                for number in 0..TIMES {
                    times.push(process.transfer(*road, bytes, Mark::of(number))?);
                }
                if round > 0 {
                    let key =
                        Key::new(Measure::OneToAll, road.text(), bytes as u64, State::Touched);
                    report.add(&key.of_parts(receivers as u64, 0), median(times));
                }
            }
        }
        report.close(from, lines());
    }
    Ok(report)
}

impl<'a> Process<'a> {
    fn open(worker: &'a Worker, plan: &Plan) -> Result<Self, Failure> {
        let (bytes, longest) = (plan.arena_bytes(), SIZES[1]);
        let memory = worker.board().work()?;
        let window = part(&memory, NOTE_BYTES, bytes)?;
        let (domain, receivers) = (worker.domain()?, plan.receivers);
        let (mut sender, mut receiver) = (None, None);
        if worker.index() == 0 {
            let builder = domain.sender("all").receivers(receivers).largest_message(longest);
            let made = builder.wait(Wait::Spin).prefault(true).create();
            let mut made = made.doing("create a channel")?;
            made.wait_for_receivers_timeout(receivers, PATIENCE).doing("wait for receivers")?;
            sender = Some(made);
        } else {
            let joined = domain.receiver("all").wait(Wait::Spin).join_when_created();
            receiver = Some(joined.doing("join a channel")?);
        }
        let patience = Patience { must_yield: worker.must_yield() };
        let (private, window) = (Arena::private(bytes)?, Arena::new(window));
        let process = Self {
            worker,
            patience,
            receivers,
            memory,
            private,
            window,
            sender,
            receiver,
            kernel: None,
            transfers: 0,
        };
        let pid = u64::from(std::process::id());
        worker.board().word(worker.index(), PROCESS).store(pid, Release);
        Ok(process)
    }

    fn is_sender(&self) -> bool {
        self.worker.index() == 0
    }

    /// Waits for a word of another worker.
    fn await_word(&self, worker: usize, index: usize, least: u64) -> u64 {
        let word = self.worker.board().word(worker, index);
        self.patience.until(|| Some(word.load(Acquire)).filter(|found| *found >= least))
    }

    /// Prepares copies by the kernel. False if a receiver may not make them.
    fn find_kernel(&mut self, report: &mut Report) -> Result<bool, Failure> {
        let (role, other) = if self.is_sender() { (Role::Source, 1) } else { (Role::Target, 0) };
        let pid = u32::try_from(self.await_word(other, PROCESS, 1)).unwrap_or_default();
        let peer = Peer::new(pid, std::sync::Arc::new(life_of(pid).doing("watch a process")?));
        let opened = KernelGet::initialise(peer, role, ());
        self.transfers += 1;
        let board = self.worker.board();
        let (yes, number) = (u64::from(opened.is_ok()), self.transfers);
        board.word(self.worker.index(), MAY_COPY).store(yes, Release);
        board.word(self.worker.index(), DONE).store(number, Release);
        let mut is_possible = true;
        for worker in 0..=self.receivers {
            self.await_word(worker, DONE, number);
            is_possible &= board.word(worker, MAY_COPY).load(Acquire) == 1;
        }
        match opened {
            Ok(kernel) => self.kernel = Some(kernel),
            Err(why) => report.lacks(Road::KernelGet.text(), why.to_string()),
        }
        Ok(is_possible)
    }

    /// One message. Returns the time at the sender until every receiver has read it, in nanoseconds; 0 at a receiver.
    fn transfer(&mut self, road: Road, bytes: usize, mark: Mark) -> Result<f64, Failure> {
        let contents = Contents::Marked(mark);
        self.transfers += 1;
        if self.is_sender() {
            self.send(road, bytes, contents).map(nanoseconds)
        } else {
            self.receive(road, bytes, contents)?;
            let board = self.worker.board();
            board.word(self.worker.index(), DONE).store(self.transfers, Release);
            Ok(0.0)
        }
    }

    /// Writes a message, and waits until all have it. Returns how many ticks both took.
    fn send(&mut self, road: Road, bytes: usize, contents: Contents) -> Result<u64, Failure> {
        let mut start = clock();
        let (mut written, mut piece) = (0, None);
        match road {
            Road::Channel | Road::ChannelInPlace => self.send_by_channel(bytes, contents)?,
            Road::Window | Road::WindowInPlace => {
                let place = self.window.next(bytes);
                contents.write(0, self.window.slice_mut(place));
                self.publish(place.at);
            }
            Road::KernelGet => {
                let place = self.private.next(bytes);
                contents.write(0, self.private.slice_mut(place));
                written = clock() - start;
                let memory = self.private.lend(place);
                let registered = self.kernel()?.register(memory).doing("register memory")?;
                let note = registered.description().bytes;
                self.memory.copy_in(0, &note);
                piece = Some(registered);
                // Registration is a part of the set-up.
                start = clock();
                self.publish(note.len());
            }
        }
        for worker in 1..=self.receivers {
            self.await_word(worker, DONE, self.transfers);
        }
        let took = written + clock() - start;
        if let Some(piece) = piece {
            self.kernel()?.deregister(piece).doing("deregister memory")?;
        }
        Ok(took)
    }

    fn kernel(&mut self) -> Result<&mut KernelGet, Failure> {
        self.kernel.as_mut().ok_or_else(|| Failure::other("the kernel copies nothing"))
    }

    /// Tells the receivers that the message is there, and where, or how long its description is.
    fn publish(&self, place: usize) {
        let board = self.worker.board();
        board.word(self.worker.index(), PLACE).store(place as u64, Release);
        board.word(self.worker.index(), DONE).store(self.transfers, Release);
    }

    fn send_by_channel(&mut self, bytes: usize, contents: Contents) -> Result<(), Failure> {
        let sender = self.sender.as_mut().ok_or_else(|| Failure::other("there is no channel"))?;
        let mut write = Some(contents);
        self.patience.until(|| match sender.try_loan(bytes) {
            Ok(mut loan) => {
                write.take()?.write(0, &mut loan);
                loan.send();
                Some(Ok(()))
            }
            Err(SendError::Full { .. }) => None,
            Err(error) => Some(Err(Failure::other(error))),
        })
    }

    /// Receives a message, and reads all of it.
    fn receive(&mut self, road: Road, bytes: usize, contents: Contents) -> Result<(), Failure> {
        let own = self.private.next(bytes);
        if matches!(road, Road::Channel | Road::ChannelInPlace) {
            return self.receive_by_channel(road, own, contents);
        }
        self.await_word(0, DONE, self.transfers);
        let at = self.worker.board().word(0, PLACE).load(Acquire);
        let at = usize::try_from(at).unwrap_or_default();
        let there = Place { at, bytes };
        match road {
            Road::WindowInPlace => return contents.read(self.window.slice(there)),
            Road::KernelGet => {
                let mut note = vec![0; at.min(NOTE_BYTES)];
                self.memory.copy_out(0, &mut note);
                let memory = self.private.lend(own);
                let from = Description { bytes: note, descriptor: None };
                let kernel = self.kernel()?;
                let mut piece = kernel.register(memory).doing("register memory")?;
                while kernel.copy_local(&mut piece, &from).doing("copy")? == Step::More {}
                kernel.deregister(piece).doing("deregister memory")?;
            }
            _ => self.private.copy_from(own, &self.window, there),
        }
        contents.read(self.private.slice(own))
    }

    fn receive_by_channel(
        &mut self,
        road: Road,
        own: Place,
        contents: Contents,
    ) -> Result<(), Failure> {
        let Self { receiver, private, patience, .. } = self;
        let receiver = receiver.as_mut().ok_or_else(|| Failure::other("there is no channel"))?;
        patience.until(|| match receiver.try_receive() {
            Ok(None) => None,
            Ok(Some(message)) if road == Road::ChannelInPlace => Some(contents.read(&message)),
            Ok(Some(message)) => {
                private.slice_mut(own).copy_from_slice(&message);
                drop(message);
                Some(contents.read(private.slice(own)))
            }
            Err(error) => Some(Err(Failure::other(error))),
        })
    }
}
