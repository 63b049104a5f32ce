//! The mechanisms that carry messages: one file each, behind one trait.

mod barrelfish_mp;
mod barrelfish_ump;
mod corewire;
mod iceoryx2;
mod kernel;
mod named_pipe;
mod pipe;
mod posix_queue;
mod queue_limits;
mod shared_memory;
mod shared_memory_semaphores;
mod system_v_queue;
mod tcp;
mod udp;
mod unix_datagram;
mod zimp;

use std::any::Any;
use std::path::PathBuf;

use clap::ValueEnum;
use corewire_harness::board::Board;
use corewire_harness::crew::Crew;
use corewire_harness::places::relax;
use corewire_ring::sync::Ordering::{Acquire, Release};
use serde::{Deserialize, Serialize};

use crate::study::failure::Failure;

pub(crate) use queue_limits::raise as raise_queue_limits;

/// Name of a mechanism in results and on the command line, in the order of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Id {
    /// Unix datagram sockets
    UnixDatagram,
    /// TCP sockets
    Tcp,
    /// UDP sockets
    Udp,
    /// Pipes
    Pipe,
    /// Named pipes
    NamedPipe,
    /// Shared memory with semaphores
    SharedMemorySemaphores,
    /// System V message queues
    SystemVQueue,
    /// POSIX message queues
    PosixQueue,
    /// Barrelfish message passing, in the form that the authors of ZIMP ran
    BarrelfishMp,
    /// Barrelfish message passing, in the form that Barrelfish itself has
    BarrelfishUmp,
    /// ZIMP as published
    Zimp,
    /// corewire, receivers copying out
    CorewireCopy,
    /// corewire, read in place
    CorewireInPlace,
    /// iceoryx2, lossless
    Iceoryx2,
}

/// The kind of a mechanism. Mechanisms of one kind can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Messages go through the kernel, copied in and out.
    Kernel,
    /// Messages lie in shared memory; receivers copy them out.
    Copying,
    /// Messages lie in shared memory and are read there.
    InPlace,
}

/// How many processes send and receive, and how long the messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Length of each message.
    pub(crate) bytes: usize,
    pub(crate) receivers: u32,
    pub(crate) senders: u32,
}

/// Place of one channel: what its set-up created, for the processes that open its ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Site {
    pub(crate) shape: Shape,
    /// A directory of its own, removed after the run.
    pub(crate) directory: PathBuf,
    /// Distinguishes the two sites of a round trip.
    pub(crate) number: usize,
    /// The worker that is receiver 0; the other receivers follow it.
    pub(crate) first_receiver: u32,
    /// Anything that the mechanism needs: paths, ids of queues.
    pub(crate) ticket: Vec<String>,
}

impl Site {
    /// Entry `index` of the ticket.
    pub(crate) fn entry(&self, index: usize) -> Result<&str, Failure> {
        let entry = self.ticket.get(index).map(String::as_str);
        entry.ok_or_else(|| Failure::other(format!("the set-up has left no entry {index}")))
    }

    /// The indices of the receivers.
    pub(crate) fn receivers(&self) -> std::ops::Range<u32> {
        0..self.shape.receivers
    }
}

/// What a process needs to open its end, besides the site.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat<'a> {
    pub(crate) board: &'a Board,
    pub(crate) patience: Patience,
}

impl Seat<'_> {
    /// Publishes the port at which this receiver of `site` can be reached.
    fn tell_port(&self, site: &Site, receiver: u32, port: u16) {
        let worker = (site.first_receiver + receiver) as usize;
        self.board.word(worker, site.number).store(u64::from(port), Release);
    }

    /// Waits until that receiver has published its port.
    fn await_port(&self, site: &Site, receiver: u32) -> u16 {
        let worker = (site.first_receiver + receiver) as usize;
        loop {
            let port = self.board.word(worker, site.number).load(Acquire);
            if let Ok(port @ 1..) = u16::try_from(port) {
                return port;
            }
            std::thread::yield_now();
        }
    }
}

/// How polling code waits: the same for all mechanisms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Yields the processor while waiting, because there are too few cores.
    pub(crate) must_yield: bool,
}

impl Patience {
    /// Polls until there is a result: 64 times without a break, then pauses or yields after every 64
    /// polls.
    #[inline(always)]
    pub(crate) fn until<T>(self, mut look: impl FnMut() -> Option<T>) -> T {
        const BARE_LOOKS: u32 = 64;
        loop {
            for _ in 0..BARE_LOOKS {
                if let Some(found) = look() {
                    return found;
                }
            }
            relax(self.must_yield);
        }
    }
}

/// Resources of a set-up that are released after the run.
pub(crate) type Kept = Box<dyn Any>;

/// A way to send messages to several receivers, each of which gets all messages.
pub(crate) trait Mechanism {
    /// The end that sends to all receivers.
    type Sender: Sends;
    /// The end of one receiver.
    type Receiver: Receives;
    /// The name to display.
    const NAME: &'static str;
    const KIND: Kind;
    /// Whether several senders can share it.
    const HAS_MANY_SENDERS: bool;
    /// Whether it can lose messages.
    const IS_LOSSY: bool = false;

    /// Its settings, in one sentence.
    fn settings() -> String;

    /// Why it cannot carry messages of this shape here; `None` if it can.
    fn limit(shape: Shape) -> Option<String> {
        let _ = shape;
        None
    }

    /// Creates what the ends share.
    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        let _ = site;
        Ok(Box::new(()))
    }

    /// Opens the end of sender `index`. All ends are opened at the same time, so this may wait for the
    /// others.
    fn sender(site: &Site, index: u32, seat: Seat<'_>) -> Result<Self::Sender, Failure>;

    /// Opens the end of receiver `index`.
    fn receiver(site: &Site, index: u32, seat: Seat<'_>) -> Result<Self::Receiver, Failure>;
}

/// The sending end.
pub(crate) trait Sends {
    /// Lets `write` write a message in the place where this mechanism takes it, and sends it to all
    /// receivers.
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure>;

    /// Number of bytes that the mechanism itself has copied, without those that the kernel copied.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

/// The receiving end.
pub(crate) trait Receives {
    /// Waits for the next message and lets `read` read it in the place where this mechanism delivers
    /// it.
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure>;

    /// Number of bytes that the mechanism itself has copied, without those that the kernel copied.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

/// A generic operation on a mechanism.
pub(crate) trait Visit {
    /// Its result.
    type Out;
    /// Runs it for mechanism `M`.
    fn visit<M: Mechanism>(self) -> Self::Out;
}

/// Runs `visit` with the mechanism `id`.
pub(crate) fn with<V: Visit>(id: Id, visit: V) -> V::Out {
    match id {
        Id::UnixDatagram => visit.visit::<unix_datagram::UnixDatagrams>(),
        Id::Tcp => visit.visit::<tcp::Tcp>(),
        Id::Udp => visit.visit::<udp::Udp>(),
        Id::Pipe => visit.visit::<pipe::Pipes>(),
        Id::NamedPipe => visit.visit::<named_pipe::NamedPipes>(),
        Id::SharedMemorySemaphores => visit.visit::<shared_memory_semaphores::Semaphores>(),
        Id::SystemVQueue => visit.visit::<system_v_queue::SystemV>(),
        Id::PosixQueue => visit.visit::<posix_queue::PosixQueues>(),
        Id::BarrelfishMp => visit.visit::<barrelfish_mp::BarrelfishMps>(),
        Id::BarrelfishUmp => visit.visit::<barrelfish_ump::BarrelfishUmps>(),
        Id::Zimp => visit.visit::<zimp::Zimps>(),
        Id::CorewireCopy => visit.visit::<corewire::CopyingOut>(),
        Id::CorewireInPlace => visit.visit::<corewire::InPlace>(),
        Id::Iceoryx2 => visit.visit::<iceoryx2::Iceoryx2>(),
    }
}

/// Creates what the ends of channel `number` of a run share. The crew keeps it.
pub(crate) fn set_up(
    id: Id,
    shape: Shape,
    number: usize,
    first_receiver: u32,
    crew: &mut Crew,
) -> Result<Site, Failure> {
    struct SetUp<'a>(&'a mut Site);
    impl Visit for SetUp<'_> {
        type Out = Result<Kept, Failure>;
        fn visit<M: Mechanism>(self) -> Result<Kept, Failure> {
            M::set_up(self.0)
        }
    }
    let (directory, ticket) = (crew.directory().to_owned(), Vec::new());
    let mut site = Site { shape, directory, number, first_receiver, ticket };
    let kept = with(id, SetUp(&mut site))?;
    crew.keep(kept);
    Ok(site)
}

/// What `results.json` says of a mechanism.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Its name in this file and on the command line.
    pub(crate) id: String,
    /// Its name to display.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether several senders can send to the same receivers.
    pub(crate) has_many_senders: bool,
    /// Whether it can lose messages. Not in the file.
    #[serde(skip)]
    pub(crate) is_lossy: bool,
    /// Its settings, in one sentence.
    pub(crate) settings: String,
}

/// What there is to say of mechanism `id`.
pub(crate) fn mechanism(id: Id) -> About {
    struct Ask(Id);
    impl Visit for Ask {
        type Out = About;
        fn visit<M: Mechanism>(self) -> About {
            About {
                id: self.0.text(),
                name: M::NAME.to_owned(),
                kind: M::KIND,
                has_many_senders: M::HAS_MANY_SENDERS,
                is_lossy: M::IS_LOSSY,
                settings: M::settings(),
            }
        }
    }
    with(id, Ask(id))
}

impl Id {
    /// Its name in results and on the command line.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What there is to say of it.
    pub(crate) fn about(self) -> About {
        mechanism(self)
    }

    /// Why it cannot carry messages of this shape here; `None` if it can.
    pub(crate) fn limit(self, shape: Shape) -> Option<String> {
        struct Ask(Shape);
        impl Visit for Ask {
            type Out = Option<String>;
            fn visit<M: Mechanism>(self) -> Option<String> {
                if self.0.senders > 1 && !M::HAS_MANY_SENDERS {
                    return Some("one sender at a time: each pair has its own".to_owned());
                }
                if self.0.senders > 1 && self.0.bytes < 8 {
                    let reason = "messages of several senders need 8 bytes to say whose they are";
                    return Some(reason.to_owned());
                }
                M::limit(self.0)
            }
        }
        with(self, Ask(shape))
    }
}
