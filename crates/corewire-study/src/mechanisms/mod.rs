//! What carries messages: one file each, behind one trait.

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
use corewire_ring::sync::pause;
use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::failure::Failure;
use crate::results::Kind;

pub(crate) use queue_limits::raise as raise_queue_limits;

/// A mechanism's name in results and on the command line; in the order of the paper.
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
    /// Barrelfish message passing, as the authors of ZIMP ran it
    BarrelfishMp,
    /// Barrelfish message passing, as Barrelfish itself has it
    BarrelfishUmp,
    /// ZIMP as it is printed
    Zimp,
    /// corewire, receivers copying out
    CorewireCopy,
    /// corewire, read in place
    CorewireInPlace,
    /// iceoryx2, lossless
    Iceoryx2,
}

/// How many processes send and receive, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Of each message.
    pub(crate) bytes: usize,
    pub(crate) receivers: u32,
    pub(crate) senders: u32,
}

/// Where one channel is: what its set-up has made, for the processes that open its ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Site {
    pub(crate) shape: Shape,
    /// Its own, removed after the run.
    pub(crate) directory: PathBuf,
    /// Tells the two sites of a round trip apart.
    pub(crate) number: usize,
    /// The worker that is receiver 0; the others follow.
    pub(crate) first_receiver: u32,
    /// Whatever the mechanism needs: paths, numbers of queues.
    pub(crate) ticket: Vec<String>,
}

impl Site {
    /// The ticket's entry `index`.
    pub(crate) fn entry(&self, index: usize) -> Result<&str, Failure> {
        let entry = self.ticket.get(index).map(String::as_str);
        entry.ok_or_else(|| Failure::other(format!("the set-up has left no entry {index}")))
    }

    /// The receivers' numbers.
    pub(crate) fn receivers(&self) -> std::ops::Range<u32> {
        0..self.shape.receivers
    }
}

/// What a process needs to open its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat<'a> {
    pub(crate) board: &'a Board,
    pub(crate) patience: Patience,
}

/// How everything that polls waits: the same for all mechanisms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// There are too few cores.
    pub(crate) gives_way: bool,
}

impl Patience {
    /// Looks until there is something: 64 times, then after a pause each, or after having let others run.
    #[inline(always)]
    pub(crate) fn until<T>(self, mut look: impl FnMut() -> Option<T>) -> T {
        const BARE_LOOKS: u32 = 64;
        loop {
            for _ in 0..BARE_LOOKS {
                if let Some(found) = look() {
                    return found;
                }
            }
            if self.gives_way { std::thread::yield_now() } else { pause() }
        }
    }
}

/// What a set-up has made that goes with the run.
pub(crate) type Kept = Box<dyn Any>;

/// A way to bring messages from senders to receivers, each of which gets all of them.
pub(crate) trait Mechanism {
    /// The end that sends to all receivers.
    type Sender: Sends;
    /// The end of one receiver.
    type Receiver: Receives;
    /// For people.
    const NAME: &'static str;
    const KIND: Kind;
    /// May several senders share it?
    const HAS_MANY_SENDERS: bool;
    /// May messages get lost on the way?
    const IS_LOSSY: bool = false;

    /// How it is set up, in a sentence.
    fn settings() -> String;

    /// Why it cannot carry this here, if it cannot.
    fn limit(shape: Shape) -> Option<String> {
        let _ = shape;
        None
    }

    /// Makes what the ends have in common.
    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        let _ = site;
        Ok(Box::new(()))
    }

    /// Opens the end of a sender. All ends are opened at the same time, so it may wait for others.
    fn sender(site: &Site, index: u32, seat: Seat<'_>) -> Result<Self::Sender, Failure>;

    /// Opens the end of receiver `index`.
    fn receiver(site: &Site, index: u32, seat: Seat<'_>) -> Result<Self::Receiver, Failure>;
}

/// The end that sends.
pub(crate) trait Sends {
    /// Has `write` write a message, wherever this mechanism has messages written, and sends it to all.
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure>;

    /// Bytes that it has copied itself, not the kernel.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

/// The end that receives.
pub(crate) trait Receives {
    /// Waits for the next message and has `read` read it, wherever this mechanism has messages read.
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure>;

    /// Bytes that it has copied itself, not the kernel.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

/// Something to be done with a mechanism.
pub(crate) trait Visit {
    /// What comes of it.
    type Out;
    /// Does it.
    fn visit<M: Mechanism>(self) -> Self::Out;
}

/// Does `visit` with the mechanism of that name.
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

/// What is known of a mechanism before it runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct About {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) has_many_senders: bool,
    pub(crate) is_lossy: bool,
    pub(crate) settings: String,
}

impl Id {
    /// As in results and on the command line.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What is known of it.
    pub(crate) fn about(self) -> About {
        struct Ask;
        impl Visit for Ask {
            type Out = About;
            fn visit<M: Mechanism>(self) -> About {
                About {
                    name: M::NAME,
                    kind: M::KIND,
                    has_many_senders: M::HAS_MANY_SENDERS,
                    is_lossy: M::IS_LOSSY,
                    settings: M::settings(),
                }
            }
        }
        with(self, Ask)
    }

    /// Why it cannot carry this here, if it cannot.
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
