//! The log lines of many programs in one order: `log_multiplexer collect COUNT` prints the next COUNT
//! lines, and any number of `log_multiplexer write NAME` processes send a few lines each. The channel
//! exists as long as one of its writers; when all writers have left, the collector joins the next
//! channel.

use std::error::Error;
use std::io::Write;

use corewire::{Domain, ReceiveError};

/// Number of programs that may write at the same time.
const WRITERS_MAX: usize = 32;
/// Lines of each program.
const LINES: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let words: Vec<_> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["collect", count] => collect(&domain, count.parse()?),
        ["write", name] => write(&domain, name),
        _ => Err("log_multiplexer collect COUNT, or log_multiplexer write NAME".into()),
    }
}

fn write(domain: &Domain, name: &str) -> Result<(), Box<dyn Error>> {
    let mut log = domain.sender("example-log").open_shared(WRITERS_MAX)?;
    log.wait_for_receivers(1)?;
    for number in 0..LINES {
        log.send(format!("{name}: line {number}").as_bytes())?;
    }
    Ok(())
}

fn collect(domain: &Domain, count: u32) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    let mut left = count;
    while left > 0 {
        let mut log = domain.receiver("example-log").join_when_created()?;
        while left > 0 {
            match log.receive() {
                Ok(line) => writeln!(out, "{}", line.escape_ascii())?,
                // The last writer has left.
                Err(ReceiveError::EndOfStream) => break,
                Err(error) => return Err(error.into()),
            }
            left -= 1;
        }
    }
    Ok(())
}
