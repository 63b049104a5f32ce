//! ZeroMQ over `ipc://`: a ROUTER that hands out jobs to workers that ask by REQ, and a PUSH that hands them to PULLs.

use std::ops::Range;
use std::path::{Path, PathBuf};

use corewire_ring::sync::Ordering::Relaxed;

use super::super::latency::put_number;
use super::super::prelude::*;
use super::requests::{self, Asks, Replies};
use super::{Gives, Next, PATIENCE, Takes, Way, count_word};
use crate::rivals::zeromq::{Kind, Socket};

/// Bytes of the identity that a ROUTER gives a peer.
const IDENTITY_BYTES: usize = 5;
/// How often the workers' counts are read.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);

fn router_path(directory: &Path) -> PathBuf {
    directory.join("zeromq-router")
}

struct Router {
    socket: Socket,
}

pub(super) fn requests_giver(
    options: &Options,
    crew: &Crew,
    cpus: &[usize],
) -> Result<Box<dyn Gives>, Failure> {
    let socket = Socket::open(cpus, Kind::Router)?;
    socket.bind(&router_path(crew.directory()))?;
    Ok(Box::new(requests::Giver::new(Router { socket }, options)))
}

impl Replies for Router {
    type Asker = [u8; IDENTITY_BYTES];

    fn await_request(&mut self, _: &mut Crew) -> Result<(Self::Asker, u64), Failure> {
        let (mut asker, mut said) = ([0; IDENTITY_BYTES], [0; 8]);
        self.socket.receive(&mut asker)?;
        self.socket.receive(&mut [])?;
        self.socket.receive(&mut said)?;
        Ok((asker, u64::from_le_bytes(said)))
    }

    fn reply(&mut self, to: Self::Asker, job: &[u8]) -> Result<(), Failure> {
        self.socket.send(&to, true)?;
        self.socket.send(&[], true)?;
        self.socket.send(job, false)
    }
}

struct Req {
    socket: Socket,
    job: Vec<u8>,
}

pub(super) fn requests_taker(
    options: &Options,
    worker: &Worker,
    cpus: &[usize],
) -> Result<Box<dyn Takes>, Failure> {
    let socket = Socket::open(cpus, Kind::Req)?;
    socket.connect(&router_path(worker.directory()))?;
    Ok(Box::new(requests::Taker(Req { socket, job: vec![0; options.bytes] })))
}

impl Asks for Req {
    fn ask(
        &mut self,
        say: u64,
        _: &Worker,
        read: &mut dyn FnMut(&[u8]) -> Result<Next, Failure>,
    ) -> Result<Next, Failure> {
        self.socket.send(&say.to_le_bytes(), false)?;
        let length = self.socket.receive(&mut self.job)?;
        read(&self.job[..length])
    }
}

fn pull_path(directory: &Path, worker: usize) -> PathBuf {
    directory.join(format!("zeromq-pull-{worker}"))
}

pub(super) struct PushGiver {
    socket: Socket,
    workers: usize,
    /// Number of the block, in what ends it.
    block: u64,
}

impl PushGiver {
    pub(super) fn new(options: &Options, crew: &Crew, cpus: &[usize]) -> Result<Self, Failure> {
        let socket = Socket::open(cpus, Kind::Push)?;
        // It hands jobs to all in turn from the first one on, because each has its own address.
        for worker in 0..options.receivers {
            socket.connect(&pull_path(crew.directory(), worker))?;
        }
        Ok(Self { socket, workers: options.receivers, block: 0 })
    }

    /// What ends a block has its number behind it: a worker may get it twice.
    fn send_ends(&self, job: &[u8]) -> Result<(), Failure> {
        let end = [job, &self.block.to_le_bytes()].concat();
        (0..self.workers).try_for_each(|_| self.socket.send(&end, false))
    }
}

impl Gives for PushGiver {
    fn give(&mut self, jobs: Range<u64>, job: &mut [u8], crew: &mut Crew) -> Result<(), Failure> {
        let (start, due) = (Instant::now(), jobs.end - jobs.start);
        for number in jobs {
            put_number(job, number);
            self.socket.send(job, false)?;
        }
        // Nothing comes back: the workers' own counts say when all are done.
        let counts = |crew: &Crew| -> u64 {
            let count =
                |worker| crew.board().word(worker, count_word(Way::ZeromqPush)).load(Relaxed);
            (0..self.workers).map(count).sum()
        };
        while counts(crew) != due {
            if start.elapsed() > PATIENCE {
                return Err(Failure::other("ZeroMQ's PUSH has lost jobs"));
            }
            // Not all the time: each look takes a line from a worker.
            let look = Instant::now();
            while look.elapsed() < BETWEEN_LOOKS {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn end(&mut self, job: &mut [u8], _: &mut Crew) -> Result<(), Failure> {
        self.block += 1;
        self.send_ends(job)
    }

    fn end_again(&mut self, job: &mut [u8]) -> Result<(), Failure> {
        self.send_ends(job)
    }
}

pub(super) struct PushTaker {
    socket: Socket,
    job: Vec<u8>,
    job_bytes: usize,
    block: u64,
}

impl PushTaker {
    pub(super) fn new(options: &Options, worker: &Worker, cpus: &[usize]) -> Result<Self, Failure> {
        let socket = Socket::open(cpus, Kind::Pull)?;
        socket.bind(&pull_path(worker.directory(), worker.index()))?;
        let job_bytes = options.bytes;
        Ok(Self { socket, job: vec![0; job_bytes + 8], job_bytes, block: 0 })
    }
}

impl Takes for PushTaker {
    fn take(
        &mut self,
        _: &Worker,
        act: &mut dyn FnMut(&[u8]) -> Result<Next, Failure>,
    ) -> Result<(), Failure> {
        self.block += 1;
        loop {
            let length = self.socket.receive(&mut self.job)?;
            match self.job.get(self.job_bytes..length).and_then(|end| end.first_chunk()) {
                Some(&block) if u64::from_le_bytes(block) == self.block => return Ok(()),
                Some(_) => {}
                None => {
                    act(&self.job[..length])?;
                }
            }
        }
    }
}
