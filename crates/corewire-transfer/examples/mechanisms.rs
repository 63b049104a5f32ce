//! Moves messages between two processes by every mechanism, and prints how long each takes:
//!
//! ```text
//! cargo run --release -p corewire-transfer --example mechanisms
//! ```
//!
//! Each round moves up to 64 MiB in messages of one length, each from and to memory of its own, so that few buffers are
//! in a cache of one core. (Mapped memory has 16 buffers, which is as many maps as a receiver keeps: short ones are in a
//! cache.) The buffers have been touched before; the receiver does not read what it gets. The time is that of
//! the receiver, and the median of 11 rounds. The processes are not pinned.

use std::error::Error;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use corewire_ring::Trusted;
use corewire_ring::message::{Memory, Sink};
use corewire_transfer::mechanisms::driver::{Courier, introduce};
use corewire_transfer::mechanisms::{
    BothSides, Description, KernelGet, KernelPut, MAPS_MAX, Mapped, Mechanism, MessageQueue,
    PairLink, Peer, Piece, Ptrace, Reason, Role, SharedBuffer, Step,
};
use corewire_transfer::thresholds::PIECES_MAX;

const ROUND_BYTES: usize = 64 << 20;
const ROUNDS: usize = 11;
const LENGTHS: [usize; 3] = [16 << 10, 64 << 10, 4 << 20];
const CELLS: u64 = 32;
const CELL_BYTES: u64 = 32 << 10;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    if std::env::args().nth(1).is_some() {
        return all(Role::Source, Courier::from(std::io::stdin().as_fd().try_clone_to_owned()?));
    }
    let (courier, far) = Courier::pair()?;
    let mut child = Command::new(std::env::current_exe()?).arg("source").stdin(far).spawn()?;
    println!("{:20} {:>12} {:>12} {:>8}", "mechanism", "bytes", "ns", "GB/s");
    all(Role::Target, courier)?;
    child.wait()?;
    Ok(())
}

fn all(role: Role, courier: Courier) -> Outcome<()> {
    // SAFETY: both processes are this program.
    let trusted = unsafe { Trusted::assume() };
    let (peer, link) = introduce(&courier, CELLS, CELL_BYTES, trusted)?;
    let side = Side { role, peer, link, courier };
    side.measure(SharedBuffer::initialise)?;
    side.measure(MessageQueue::initialise)?;
    side.measure(|peer, role, _| KernelGet::initialise(peer, role, ()))?;
    side.measure(KernelPut::initialise)?;
    side.measure(BothSides::initialise)?;
    side.measure(|peer, role, _| Ptrace::initialise(peer, role, ()))?;
    side.measure(|peer, role, _| Mapped::initialise(peer, role, ()))
}

struct Side {
    role: Role,
    peer: Peer,
    link: PairLink,
    courier: Courier,
}

impl Side {
    /// Waits for the other side. False if one of the two says no.
    fn agree(&self, yes: bool) -> Outcome<bool> {
        self.courier.give(&[u8::from(yes)], &[])?;
        Ok(self.courier.take()?.0 == [1] && yes)
    }

    fn measure<M>(
        &self,
        initialise: impl FnOnce(Peer, Role, PairLink) -> Result<M, Reason>,
    ) -> Outcome<()>
    where
        M: Mechanism,
        M::Memory: From<Memory>,
    {
        let mechanism = initialise(self.peer.clone(), self.role, self.link.clone());
        if !self.agree(mechanism.is_ok())? {
            if let Err(reason) = mechanism {
                println!("{:20} not possible: {reason}", M::NAME);
            }
            return Ok(());
        }
        let mut mechanism = mechanism?;
        let most = if M::NAME == "mapped memory" { MAPS_MAX } else { PIECES_MAX };
        for bytes in LENGTHS {
            let count = (ROUND_BYTES / bytes).min(most);
            let mut memories = Vec::new();
            for _ in 0..count {
                let mut memory = mechanism.allocate(&[bytes])?;
                memory.put(0, &vec![7; bytes]);
                memories.push(memory);
            }
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let took;
                (took, memories) = self.round(&mut mechanism, memories)?;
                rounds.push(took.as_nanos() / count as u128);
            }
            rounds.sort_unstable();
            let median = rounds[ROUNDS / 2];
            if self.role == Role::Target {
                let rate = bytes as f64 / median as f64;
                println!("{:20} {bytes:>12} {median:>12} {rate:>8.2}", M::NAME);
            }
        }
        mechanism.finalise();
        Ok(())
    }

    fn round<M: Mechanism>(
        &self,
        mechanism: &mut M,
        memories: Vec<M::Memory>,
    ) -> Outcome<(Duration, Vec<M::Memory>)> {
        let mut pairs: Vec<(Piece<M::Memory>, Description)> = Vec::new();
        for memory in memories {
            let piece = mechanism.register(memory).map_err(|error| error.to_string())?;
            let own = piece.description();
            match &own.descriptor {
                Some(descriptor) => self.courier.give(&own.bytes, &[descriptor])?,
                None => self.courier.give(&own.bytes, &[])?,
            }
            let (bytes, mut descriptors) = self.courier.take()?;
            let descriptor = descriptors.pop().map(|it| std::sync::Arc::new(it) as _);
            pairs.push((piece, Description { bytes, descriptor }));
        }
        self.agree(true)?;
        let began = Instant::now();
        for (piece, other) in &mut pairs {
            let mut waits = 0u32;
            loop {
                let step = if self.role == M::LOCAL {
                    mechanism.copy_local(piece, other)?
                } else {
                    mechanism.copy_remote(piece, other)?
                };
                match step {
                    Step::Done(_) => break,
                    Step::More => {}
                    Step::Wait => {
                        waits += 1;
                        // On a busy machine the other side may need this core.
                        if waits.is_multiple_of(64) {
                            std::thread::yield_now();
                        }
                    }
                }
                if waits % 4096 == 4095 && self.peer.has_ended() {
                    return Err("the other process has ended".into());
                }
            }
        }
        let took = began.elapsed();
        self.agree(true)?;
        let taken = pairs.into_iter().map(|(piece, _)| mechanism.deregister(piece));
        let memories: Result<Vec<_>, _> = taken.collect();
        Ok((took, memories.map_err(|error| error.to_string())?))
    }
}
