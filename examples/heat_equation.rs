//! Heat spreads over a plate, which three processes compute together: each has a third of its rows, and sends the outer ones
//! to its neighbours in each step. Each process is killed once; all go on from checkpoints that belong together, and the
//! answer is the same, to the last bit.
//!
//! `heat_equation` starts three ranks of itself, kills them, and computes the same alone; `heat_equation RANK` is one.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use corewire::Domain;
use corewire_group::{Computation, ComputationError};

const RANKS: usize = 3;
const COLUMNS: usize = 96;
/// Rows of each rank.
const ROWS: usize = 32;
const STEPS: u64 = 20_000;

type Row = [f64; COLUMNS];

/// Where a rank is. It must be able to go on from any of these states.
#[derive(Default)]
struct Part {
    step: u64,
    rows: Vec<Row>,
    /// In this step: whether its outer rows are sent, and what has come from its neighbours.
    has_sent: bool,
    above: Option<Row>,
    below: Option<Row>,
}

impl Part {
    /// The beginning: one corner of the plate is hot.
    fn new(rows: std::ops::Range<usize>) -> Self {
        let heat = |row: usize, column: usize| if row + column < 20 { 100.0 } else { 0.0 };
        let row = |row| std::array::from_fn(|column| heat(row, column));
        Self { rows: rows.map(row).collect(), ..Self::default() }
    }

    fn encode(&self) -> Vec<u8> {
        let has = |row: &Option<Row>| u8::from(row.is_some());
        let mut bytes = self.step.to_le_bytes().to_vec();
        bytes.extend([u8::from(self.has_sent), has(&self.above), has(&self.below)]);
        let rows = self.rows.iter().chain(&self.above).chain(&self.below);
        bytes.extend(rows.flat_map(to_bytes));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (step, bytes) = bytes.split_first_chunk()?;
        let ([has_sent, has_above, has_below], bytes) = bytes.split_first_chunk()?;
        let mut rows = bytes.chunks(size_of::<Row>()).map(from_bytes);
        let own = rows.by_ref().take(ROWS).collect::<Option<Vec<Row>>>()?;
        let mut next = |has: u8| if has == 1 { rows.next()?.map(Some) } else { Some(None) };
        let (above, below) = (next(*has_above)?, next(*has_below)?);
        let step = u64::from_le_bytes(*step);
        Some(Self { step, rows: own, has_sent: *has_sent == 1, above, below })
    }

    /// A step, once the rows of the neighbours are there. Outside the plate it is cold.
    fn compute(&mut self) {
        let cold = [0.0; COLUMNS];
        let mut before = self.above.take().unwrap_or(cold);
        let after = self.below.take().unwrap_or(cold);
        for row in 0..self.rows.len() {
            let here = self.rows[row];
            let next = *self.rows.get(row + 1).unwrap_or(&after);
            for column in 0..COLUMNS {
                let left = if column > 0 { here[column - 1] } else { 0.0 };
                let right = here.get(column + 1).copied().unwrap_or(0.0);
                let around = before[column] + next[column] + left + right;
                self.rows[row][column] += 0.2 * (around - 4.0 * here[column]);
            }
            before = here;
        }
        self.step += 1;
        self.has_sent = false;
    }

    /// All that heat is, to the last bit.
    fn sum(&self) -> u64 {
        self.rows.iter().flatten().fold(0, |sum, heat| sum.rotate_left(5) ^ heat.to_bits())
    }
}

fn to_bytes(row: &Row) -> Vec<u8> {
    row.iter().flat_map(|heat| heat.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Option<Row> {
    let mut row = [0.0; COLUMNS];
    for (heat, bytes) in row.iter_mut().zip(bytes.chunks(8)) {
        *heat = f64::from_le_bytes(bytes.try_into().ok()?);
    }
    (bytes.len() == size_of::<Row>()).then_some(row)
}

/// Where the checkpoints are.
fn directory() -> PathBuf {
    let runtime = std::env::var_os("COREWIRE_RUNTIME_DIR").map(PathBuf::from);
    runtime.unwrap_or_else(std::env::temp_dir).join("heat-equation-checkpoints")
}

/// Computes as a rank until it is done, or another rank's process has ended.
fn compute(domain: &Domain, rank: usize) -> Result<u64, ComputationError> {
    let builder = Computation::builder(domain, "heat", directory(), rank, RANKS);
    let (mut all, restored) = builder.every(Duration::from_millis(20)).join()?;
    let restored = restored.and_then(|bytes| Part::decode(&bytes));
    let mut part = restored.unwrap_or_else(|| Part::new(rank * ROWS..(rank + 1) * ROWS));
    println!("at {}", part.step);
    let (above, below) = (rank.checked_sub(1), Some(rank + 1).filter(|rank| *rank < RANKS));
    while part.step < STEPS {
        if !part.has_sent {
            if let Some(rank) = above {
                all.send(rank, &to_bytes(&part.rows[0]))?;
            }
            if let Some(rank) = below {
                all.send(rank, &to_bytes(&part.rows[ROWS - 1]))?;
            }
            part.has_sent = true;
        }
        // A checkpoint may be due before what comes is used: so it holds what has come before.
        if let Some(rank) = above.filter(|_| part.above.is_none()) {
            part.above = from_bytes(&all.receive(rank, || part.encode())?);
        }
        if let Some(rank) = below.filter(|_| part.below.is_none()) {
            part.below = from_bytes(&all.receive(rank, || part.encode())?);
        }
        part.compute();
        all.checkpoint_if_due(|| part.encode())?;
        if part.step.is_multiple_of(100) {
            println!("at {}", part.step);
        }
    }
    all.finish(|| part.encode())?;
    Ok(part.sum())
}

fn be_rank(rank: usize) -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    loop {
        match compute(&domain, rank) {
            // The others go on as soon as there is a new process.
            Err(ComputationError::Ended { .. }) => {}
            sum => {
                println!("sum {}", sum?);
                return Ok(());
            }
        }
    }
}

/// A rank, and what it writes.
struct Rank {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Rank {
    fn start(rank: usize) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(rank.to_string()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        Ok(Self { child, lines })
    }

    /// The number behind the next line that begins with this word.
    fn next(&mut self, word: &str) -> Result<u64, Box<dyn Error>> {
        for line in self.lines.by_ref() {
            if let Some(number) = line?.strip_prefix(word) {
                return Ok(number.trim().parse()?);
            }
        }
        Err("a rank has ended".into())
    }

    fn wait_for_step(&mut self, step: u64) -> Result<(), Box<dyn Error>> {
        while self.next("at")? < step {}
        Ok(())
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(rank) = std::env::args().nth(1) {
        return be_rank(rank.parse()?);
    }
    let _ = std::fs::remove_dir_all(directory());
    let mut ranks = (0..RANKS).map(Rank::start).collect::<Result<Vec<_>, _>>()?;
    for (rank, process) in ranks.iter_mut().enumerate() {
        process.wait_for_step(STEPS / 8 * (1 + rank as u64))?;
        // Kills it with SIGKILL.
        process.child.kill()?;
        process.child.wait()?;
        *process = Rank::start(rank)?;
        let from = match process.next("at")? {
            0 => "the beginning",
            _ => "a checkpoint",
        };
        println!("rank {rank} was killed; a new process goes on from {from}");
    }
    let mut alone = Part::new(0..RANKS * ROWS);
    while alone.step < STEPS {
        alone.compute();
    }
    for (rank, process) in ranks.iter_mut().enumerate() {
        let third = alone.rows[rank * ROWS..(rank + 1) * ROWS].to_vec();
        let expected = Part { rows: third, ..Part::default() }.sum();
        let is_same = process.next("sum")? == expected;
        println!("rank {rank}: {}", if is_same { "the same answer" } else { "another answer" });
    }
    std::fs::remove_dir_all(directory())?;
    Ok(())
}
