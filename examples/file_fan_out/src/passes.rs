//! The passes, on the sender's side.

use std::collections::HashMap;
use std::hint::spin_loop;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use corewire::{Observer, Sender};
use sha2::{Digest, Sha256};

use crate::Cores;
use crate::baseline::Copies;
use crate::children::Receivers;
use crate::clock::now_ns;
use crate::failure::Failure;
use crate::protocol::{LATENCY_END, LATENCY_WARM_UP, Order, Report, SMALL_BYTES, hex, small};
use crate::sum::checksum_of_chunks;

/// Number of rounds of the timed pass: odd, so that there is a middle one.
const ROUNDS: usize = 5;
/// No new round begins after this time.
const ROUNDS_TIME: Duration = Duration::from_secs(10);
/// Number of chunks between two reads of the receivers' lag.
const LOOK_CHUNKS: usize = 64;
/// Number of timed messages that count.
const LATENCY_MESSAGES: u64 = 20_000;
/// No more of them are sent after this time: with very many receivers each message takes long.
const LATENCY_TIME: Duration = Duration::from_secs(3);

/// Everything that a pass needs.
pub(crate) struct Passes<'a> {
    content: &'a [u8],
    chunk_bytes: usize,
    sender: &'a mut Sender,
    receivers: &'a mut Receivers,
    observer: &'a Observer,
    pids: Vec<u32>,
    index_of_pid: HashMap<u32, usize>,
    lags_max: Vec<u64>,
}

/// The results of all passes.
pub(crate) struct Measured {
    pub(crate) pids: Vec<u32>,
    pub(crate) rounds: usize,
    /// The round with the median time.
    pub(crate) round: Round,
    pub(crate) copy_gb_per_s: f64,
    pub(crate) lags_max: Vec<u64>,
    pub(crate) sha256: String,
    /// For each receiver, whether it computed the same SHA-256.
    pub(crate) sha256_is_right: Vec<bool>,
    pub(crate) latency_pace_ns: u64,
    pub(crate) latencies: Vec<Latency>,
}

/// One round of the timed pass.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    /// For each receiver, the time from the first byte sent until it had read the last byte.
    pub(crate) elapsed_ns: Vec<u64>,
    pub(crate) messages: u64,
    /// For each receiver, whether bytes, messages and sum match what was sent.
    pub(crate) is_right: Vec<bool>,
}

impl Round {
    /// The time until the last receiver had read everything.
    pub(crate) fn whole_ns(&self) -> u64 {
        self.elapsed_ns.iter().copied().max().unwrap_or(0).max(1)
    }
}

/// One receiver's latency, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

impl<'a> Passes<'a> {
    pub(crate) fn new(
        content: &'a [u8],
        chunk_bytes: usize,
        sender: &'a mut Sender,
        receivers: &'a mut Receivers,
        observer: &'a Observer,
    ) -> Self {
        let pids = receivers.pids();
        let index_of_pid = pids.iter().enumerate().map(|(index, &pid)| (pid, index)).collect();
        let lags_max = vec![0; pids.len()];
        Self { content, chunk_bytes, sender, receivers, observer, pids, index_of_pid, lags_max }
    }

    /// Runs all passes.
    pub(crate) fn run(mut self, cores: Cores) -> Result<Measured, Failure> {
        let expected = checksum_of_chunks(self.content, self.chunk_bytes);
        let mut copies = Copies::new(self.chunk_bytes);
        let (mut rounds, mut copy_gb_per_s) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while rounds.is_empty() || rounds.len() < ROUNDS && start.elapsed() < ROUNDS_TIME {
            copy_gb_per_s.push(copies.gb_per_s());
            rounds.push(self.sum(expected)?);
        }
        drop(copies);
        let (sha256, sha256_is_right) = self.hash()?;
        let latency_pace_ns = pace_ns(cores);
        let latencies = self.time(latency_pace_ns, cores)?;
        let rounds_count = rounds.len();
        rounds.sort_by_key(Round::whole_ns);
        copy_gb_per_s.sort_by(f64::total_cmp);
        let is_right = |at: usize| rounds.iter().all(|round| round.is_right[at]);
        let is_right: Vec<_> = (0..self.pids.len()).map(is_right).collect();
        let mut round = rounds.swap_remove(rounds_count / 2);
        round.is_right = is_right;
        Ok(Measured {
            pids: self.pids,
            rounds: rounds_count,
            round,
            copy_gb_per_s: copy_gb_per_s[rounds_count / 2],
            lags_max: self.lags_max,
            sha256,
            sha256_is_right,
            latency_pace_ns,
            latencies,
        })
    }

    fn messages(&self) -> u64 {
        self.content.len().div_ceil(self.chunk_bytes) as u64
    }

    /// Sends the file, chunk by chunk. Each chunk is copied once, into the channel.
    fn send_content(&mut self, mut with: impl FnMut(&[u8])) -> Result<(), Failure> {
        for (index, chunk) in self.content.chunks(self.chunk_bytes).enumerate() {
            let mut loan = self.sender.loan(chunk.len())?;
            loan.copy_from_slice(chunk);
            loan.send();
            with(chunk);
            if index % LOOK_CHUNKS == LOOK_CHUNKS - 1 {
                self.look();
            }
        }
        self.look();
        Ok(())
    }

    fn look(&mut self) {
        for receiver in self.observer.look().receivers {
            if let Some(&index) = self.index_of_pid.get(&receiver.pid) {
                self.lags_max[index] = self.lags_max[index].max(receiver.lag);
            }
        }
    }

    /// One round of the timed pass.
    fn sum(&mut self, expected: u64) -> Result<Round, Failure> {
        self.sender.send(&Order::Sum(self.messages()).to_bytes())?;
        let start_ns = now_ns();
        self.send_content(|_| ())?;
        let sent = (self.content.len() as u64, self.messages(), expected);
        let mut round =
            Round { elapsed_ns: Vec::new(), messages: self.messages(), is_right: Vec::new() };
        for report in self.receivers.next_reports()? {
            let Report::Summed { bytes, messages, checksum, ended_ns } = report else {
                return Err(out_of_turn(&report));
            };
            round.elapsed_ns.push(ended_ns.saturating_sub(start_ns).max(1));
            round.is_right.push((bytes, messages, checksum) == sent);
        }
        Ok(round)
    }

    /// The verification pass: the file's SHA-256, and whether each receiver found the same.
    fn hash(&mut self) -> Result<(String, Vec<bool>), Failure> {
        self.sender.send(&Order::Hash(self.messages()).to_bytes())?;
        let mut hash = Sha256::new();
        self.send_content(|chunk| hash.update(chunk))?;
        let own = hex(&hash.finalize());
        let own_bytes = self.content.len() as u64;
        let mut is_right = Vec::new();
        for report in self.receivers.next_reports()? {
            match report {
                Report::Hashed { bytes, sha256 } => {
                    is_right.push(bytes == own_bytes && sha256 == own);
                }
                other => return Err(out_of_turn(&other)),
            }
        }
        Ok((own, is_right))
    }

    /// The latency pass.
    fn time(&mut self, pace_ns: u64, cores: Cores) -> Result<Vec<Latency>, Failure> {
        self.sender.send(&Order::Time.to_bytes())?;
        let start = Instant::now();
        let mut due_ns = now_ns();
        for number in 0..LATENCY_WARM_UP + LATENCY_MESSAGES {
            while now_ns() < due_ns {
                // If the sender kept its core while it has nothing to send, that would dominate the
                // times.
                if cores.is_oversubscribed() { yield_now() } else { spin_loop() }
            }
            // The time is taken before the loan, because waiting for room counts.
            let sent_ns = now_ns();
            let mut loan = self.sender.loan(SMALL_BYTES)?;
            loan.copy_from_slice(&small([sent_ns, number]));
            loan.send();
            // Messages are never sent in a burst, even after a delay.
            due_ns = sent_ns + pace_ns;
            if number >= 2 * LATENCY_WARM_UP && start.elapsed() >= LATENCY_TIME {
                break;
            }
        }
        self.sender.send(&small([0, LATENCY_END]))?;
        let latency = |report: Report| match report {
            Report::Timed { p50_ns, p99_ns, .. } => Ok(Latency { p50_ns, p99_ns }),
            other => Err(out_of_turn(&other)),
        };
        self.receivers.next_reports()?.into_iter().map(latency).collect()
    }
}

/// Oversubscribed processes need a pace slow enough for the receivers to take turns; otherwise it is
/// fast enough to keep the receivers awake.
const fn pace_ns(cores: Cores) -> u64 {
    if cores.is_oversubscribed() { 20_000 } else { 2_000 }
}

fn out_of_turn(report: &Report) -> Failure {
    Failure::other(format!("a receiver reported out of turn: {report:?}"))
}
