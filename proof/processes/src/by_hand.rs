//! A guest that speaks with a channel's owner by hand, and requests what guests do not get.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use corewire_layout::frame::{Frame, Hello, Place, Start, Welcome};
use corewire_layout::message_type::TypeKey;
use corewire_layout::name::{ChannelName, NameRecord};
use corewire_layout::segment::{ReceiverHeader, SLEEP_MODE, SLEEPING, SleepMode};
use corewire_os::fork::Descriptor;
use corewire_os::memory::{MemoryOptions, Segment};
use corewire_os::process;
use corewire_os::socket::{ReceiveError, Socket};
use corewire_ring::region::Region;
use corewire_ring::sync::Ordering::Relaxed;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use zerocopy::IntoBytes;

use crate::{Options, Outcome};

/// What a joining receiver tells the owner, besides the channel's name.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wishes {
    pub(crate) waiter: u128,
    pub(crate) needs_fence: bool,
}

/// A receiver that has joined another user's channel.
pub(crate) struct Joined {
    pub(crate) socket: Socket,
    pub(crate) welcome: Welcome,
    pub(crate) descriptors: Vec<Descriptor>,
    /// Its own words, which the sender reads.
    pub(crate) page: Region,
}

type Failure = Box<dyn std::error::Error>;

/// How long a connection may take.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Connects to the process that has a channel.
pub(crate) fn connect(directory: &Path, channel: &str) -> Result<Socket, Failure> {
    let record = fs::read(directory.join(format!("g.{channel}")))?;
    let record = NameRecord::parse(&record).ok_or("no record of the channel")?;
    Ok(Socket::connect(&directory.join(record.socket.file()).to_string_lossy(), CONNECT_LIMIT)?)
}

/// Its next frame.
pub(crate) fn hear(socket: &Socket) -> Result<(Frame, Vec<Descriptor>), ReceiveError> {
    socket.receive_by(Instant::now().checked_add(Duration::from_secs(60)))
}

pub(crate) fn join(directory: &Path, channel: &str, wishes: Wishes) -> Result<Joined, Failure> {
    let socket = connect(directory, channel)?;
    let (segment, page) = Segment::create(4096, MemoryOptions::default())?;
    page.copy_in(0, ReceiverHeader { pid: process::pid() }.to_raw().as_bytes());
    let life = process::own_life()?;
    let Wishes { waiter, needs_fence } = wishes;
    let (name, type_key) = (ChannelName::new(channel)?, TypeKey::default());
    let (start, place) = (Start::Now, Place::Ring);
    let hello = Hello { socket: 0, name, start, waiter, place, needs_fence, type_key };
    socket.send(&Frame::Hello(hello), &[segment.as_fd(), life.as_fd()])?;
    match hear(&socket)? {
        (Frame::Welcome(welcome), descriptors) => Ok(Joined { socket, welcome, descriptors, page }),
        (frame, _) => Err(format!("answered {frame:?}").into()),
    }
}

/// Sends an invitation in the owner's name, answers for an invited process, and requests that the
/// sender fence and write to a descriptor. Then it announces a sleep again and again, so that every
/// message wakes it, and reads none of the wake-ups. It says when the first has come.
pub(crate) fn run(directory: &Path, options: &Options) -> Outcome {
    let Options { channel, waiter, .. } = options;
    let wishes = Wishes { waiter: *waiter, needs_fence: true };
    let socket = connect(directory, channel)?;
    socket.send(&Frame::Invite { name: ChannelName::new(channel)?, waiter: *waiter }, &[])?;
    println!("invited {:?}", hear(&socket)?.0);
    let Joined { socket, welcome, descriptors, page } = join(directory, channel, wishes)?;
    let Welcome { hint, settled, .. } = welcome;
    println!("joined hint={hint} fences={} descriptors={}", settled != u64::MAX, descriptors.len());
    // A full descriptor that makes a write to it block.
    let full = eventfd(0, EventfdFlags::empty())?;
    rustix::io::write(&full, &(u64::MAX - 1).to_le_bytes())?;
    socket.send(&Frame::Readiness, &[full.as_fd()])?;
    println!("readiness {:?}", hear(&socket)?.0);
    page.word32(SLEEP_MODE).store(SleepMode::Descriptor as u32, Relaxed);
    let stop = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()).map(drop));
    let sleeping = page.word32(SLEEPING);
    let mut is_woken = false;
    while !stop.is_finished() {
        // Odd, and new to the sender.
        sleeping.store(sleeping.load(Relaxed).wrapping_add(2) | 1, Relaxed);
        if !is_woken {
            let mut wakes = [PollFd::new(&socket, PollFlags::IN)];
            is_woken = poll(&mut wakes, Some(&Timespec::default()))? == 1;
            if is_woken {
                println!("asleep");
            }
        }
    }
    let mut rings = 0;
    while let Ok((Frame::Ring, _)) = socket.receive() {
        rings += 1;
    }
    println!("woken {rings}");
    Ok(())
}
