//! The processes of a benchmark, with memory that they share in addition to the channels, a runtime
//! directory of their own, and a core for each process.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use corewire::Domain;
use corewire_os::memory::Segment;
use corewire_os::{processor, random_u128};
use corewire_ring::region::Region;
use corewire_ring::sync::{Ordering, pause};
use serde::{Deserialize, Serialize};

use super::{Options, WaitName};
use crate::failure::Failure;

/// Size of the rig's own words, at the start of the shared memory.
pub(super) const RIG_BYTES: usize = 1 << 16;

/// The benchmark that a peer takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    Latency,
    Zimp,
    RawLine,
    Stream,
    Endpoint,
    EndpointSameCore,
    EndpointSilent,
    EndpointStream,
    EndpointMany,
    Policy,
    Shared,
    Buffers,
    Wake,
    Mortal,
    Idle,
    Top,
}

/// Everything that a peer needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) bytes: usize,
    pub(super) slots: usize,
    pub(super) receivers: usize,
    pub(super) rounds: u64,
    /// Number of messages in a measured block; `baseline_count` is the number of steps in a block of
    /// the baseline.
    pub(super) count: u64,
    pub(super) baseline_count: u64,
    /// Numbers of buffers that the baseline tries.
    pub(super) buffers: Vec<usize>,
    pub(super) wait: WaitName,
    /// Idle times before a wake-up.
    pub(super) idle_us: Vec<u64>,
    /// From here on, fields that the rig sets.
    pub(super) index: usize,
    pub(super) memory: String,
    pub(super) memory_bytes: usize,
    pub(super) directory: PathBuf,
    pub(super) cpu: Option<usize>,
    pub(super) oversubscribed: bool,
}

impl Plan {
    pub(super) fn new(kind: Kind, options: &Options) -> Result<Self, Failure> {
        let bytes = usize::try_from(options.bytes).map_err(|_| Failure::usage("--bytes"))?;
        Ok(Self {
            kind,
            bytes,
            slots: usize::try_from(options.slots).unwrap_or(usize::MAX),
            receivers: usize::try_from(options.receivers).unwrap_or(usize::MAX),
            rounds: options.rounds,
            count: 0,
            baseline_count: 0,
            buffers: Vec::new(),
            wait: options.wait,
            idle_us: Vec::new(),
            index: 0,
            memory: String::new(),
            memory_bytes: 0,
            directory: PathBuf::new(),
            cpu: None,
            oversubscribed: false,
        })
    }
}

/// The parent's side of a benchmark.
pub(super) struct Rig {
    pub(super) domain: Option<Domain>,
    pub(super) memory: Region,
    pub(super) plan: Plan,
    pub(super) cores: usize,
    peers: Vec<Child>,
    _segment: Segment,
}

impl Rig {
    /// Allocates `memory_bytes` of shared memory, opens a domain, and starts `peers` other processes.
    /// Pins all processes, if each can have a core.
    pub(super) fn start(plan: Plan, memory_bytes: usize, peers: usize) -> Result<Self, Failure> {
        let cpus = processor::allowed()?;
        let is_pinned = cpus.len() > peers;
        Self::start_on(&cpus, is_pinned, plan, memory_bytes, peers)
    }

    /// The same, with all peers on processor `cpu`, if there is one, otherwise where the kernel puts
    /// them.
    pub(super) fn start_with(
        plan: Plan,
        memory_bytes: usize,
        peers: usize,
        cpu: Option<usize>,
    ) -> Result<Self, Failure> {
        let plan = Plan { cpu, ..plan };
        Self::start_on(&processor::allowed()?, false, plan, memory_bytes, peers)
    }

    /// The same, with no process pinned.
    pub(super) fn start_unpinned(
        plan: Plan,
        memory_bytes: usize,
        peers: usize,
    ) -> Result<Self, Failure> {
        Self::start_on(&processor::allowed()?, false, plan, memory_bytes, peers)
    }

    fn start_on(
        cpus: &[usize],
        is_pinned: bool,
        plan: Plan,
        memory_bytes: usize,
        peers: usize,
    ) -> Result<Self, Failure> {
        let memory_bytes = RIG_BYTES + memory_bytes;
        let (segment, memory) = Segment::create_writable_by_all(memory_bytes as u64)?;
        let directory =
            std::env::temp_dir().join(format!("corewire-bench-{:032x}", random_u128()?));
        let domain = Domain::open_at(&directory)?;
        let own = std::process::id();
        let plan = Plan {
            memory: format!("/proc/{own}/fd/{}", segment.as_fd().as_raw_fd()),
            memory_bytes,
            directory,
            oversubscribed: !is_pinned,
            ..plan
        };
        let cores = cpus.len();
        let mut rig = Self {
            domain: Some(domain),
            memory,
            plan,
            cores,
            peers: Vec::new(),
            _segment: segment,
        };
        for index in 0..peers {
            let cpu = if is_pinned { Some(cpus[index + 1]) } else { rig.plan.cpu };
            rig.spawn(&Plan { index, cpu, ..rig.plan.clone() })?;
        }
        if is_pinned {
            processor::pin_to(cpus[0])?;
        }
        Ok(rig)
    }

    fn spawn(&mut self, plan: &Plan) -> Result<(), Failure> {
        let text =
            serde_json::to_string(plan).map_err(|error| Failure::other(error.to_string()))?;
        let program = std::env::current_exe()
            .map_err(|error| Failure::other(format!("find this program: {error}")))?;
        let child = Command::new(program)
            .args(["bench", "peer", &text])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Failure::other(format!("start a peer: {error}")))?;
        self.peers.push(child);
        Ok(())
    }

    pub(super) fn domain(&self) -> Result<&Domain, Failure> {
        self.domain.as_ref().ok_or_else(|| Failure::other("the benchmark is over".to_owned()))
    }

    /// The shared memory after the rig's own words.
    pub(super) fn work_memory(&self) -> Result<Region, Failure> {
        part(&self.memory, RIG_BYTES, self.memory.bytes() - RIG_BYTES)
    }

    /// Waits until peer `index` has reached `step`.
    pub(super) fn await_peer(&mut self, index: usize, step: u64) -> Result<(), Failure> {
        let memory = self.memory.clone();
        let word = memory.word64(done_word(index));
        let mut polls = 0u64;
        while word.load(Ordering::Acquire) < step {
            pause();
            polls += 1;
            if self.plan.oversubscribed && polls.is_multiple_of(64) {
                std::thread::yield_now();
            }
            if polls.is_multiple_of(1 << 20) {
                self.check_peers()?;
            }
        }
        Ok(())
    }

    /// Takes a peer out of the rig, for a caller that kills it.
    pub(super) fn take_peer(&mut self) -> Option<Child> {
        self.peers.pop()
    }

    /// Processor time that all peers have used, in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64, Failure> {
        self.peers.iter().map(|peer| Ok(corewire_os::process::processor_seconds(peer.id())?)).sum()
    }

    /// For a loop that waits for a peer: yields if there are too few cores, and fails if a peer has
    /// ended.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        if self.plan.oversubscribed {
            std::thread::yield_now();
        }
        self.check_peers()
    }

    fn check_peers(&mut self) -> Result<(), Failure> {
        for peer in &mut self.peers {
            if let Ok(Some(status)) = peer.try_wait() {
                return Err(Failure::other(format!("a peer ended early: {status}")));
            }
        }
        Ok(())
    }

    /// Waits until the peers end. Fails if one of them failed.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        for peer in &mut self.peers {
            let status = peer.wait().map_err(|error| Failure::other(error.to_string()))?;
            if !status.success() {
                return Err(Failure::other(format!("a peer failed: {status}")));
            }
        }
        self.peers.clear();
        Ok(())
    }

    /// Reports the number of cores and of processes.
    pub(super) fn describe(&self, report: &mut super::Report) {
        let processes = self.plan.receivers + 1;
        report.value("cores", self.cores);
        report.value("processes", processes);
        report.value("oversubscribed", self.plan.oversubscribed);
        if self.plan.oversubscribed {
            report.note(format!("oversubscribed: {processes} processes on {} cores", self.cores));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for peer in &mut self.peers {
            // The peer may have ended by itself.
            let _ = peer.kill();
            let _ = peer.wait();
        }
        self.domain = None;
        let _ = std::fs::remove_dir_all(&self.plan.directory);
    }
}

/// Offset of the word in which peer `index` reports its progress.
pub(super) fn done_word(index: usize) -> usize {
    128 * (index + 1)
}

/// A part of a region.
pub(super) fn part(memory: &Region, offset: usize, bytes: usize) -> Result<Region, Failure> {
    let too_short = || Failure::other(format!("{bytes} bytes of benchmark memory are missing"));
    memory.part(offset, bytes).ok_or_else(too_short)
}
