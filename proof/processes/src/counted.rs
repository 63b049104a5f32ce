//! Exchanges a given number of messages, to count their cost and to force sleeps.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use corewire::{CounterError, Domain, Selector};

use crate::{Options, Outcome};

/// Waits for a line on standard input: the test is ready.
fn wait_for_go() -> Outcome {
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

/// Sometimes busy-waits so long that the other side goes to sleep. During 1024 messages the sender
/// does so, which empties the ring; during the next 1024 the receiver does, which fills it.
fn nap(number: u64, turn: u64, one_in: u64) {
    if number / 1024 % 2 != turn {
        return;
    }
    let random = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    if one_in > 0 && random.is_multiple_of(one_in) {
        let idle = Duration::from_micros(random / one_in % 40);
        let start = Instant::now();
        while start.elapsed() < idle {
            std::hint::spin_loop();
        }
    }
}

pub(crate) fn send(domain: &Domain, options: &Options) -> Outcome {
    let mut sender = domain
        .sender(&options.channel)
        .receivers(options.receivers)
        .slots(options.slots)
        .wait(options.wait)
        .prefault(true)
        .create()?;
    sender.wait_for_receivers(1)?;
    wait_for_go()?;
    for number in 0..options.count {
        let mut loan = sender.loan(48)?;
        loan.copy_from_slice([number.to_le_bytes(); 6].as_flattened());
        loan.send();
        nap(number, 0, options.nap_one_in);
    }
    sender.drain(Duration::from_secs(60))?;
    report(|name| sender.counter(name))
}

pub(crate) fn receive(domain: &Domain, options: &Options) -> Outcome {
    let mut receiver = domain.receiver(&options.channel).wait(options.wait).join_when_created()?;
    wait_for_go()?;
    for number in 0..options.count {
        let message = receiver.receive()?;
        if message[..] != *[number.to_le_bytes(); 6].as_flattened() {
            return Err(format!("message {number} is not what was sent").into());
        }
        drop(message);
        nap(number, 1, options.nap_one_in);
    }
    receiver.acknowledge();
    report(|name| receiver.counter(name))
}

/// Bytes of the messages of endpoints: several cells.
const LONG_BYTES: usize = 32 << 10;

/// Sends messages through cells to another endpoint, each after one has come from there: the names are the two halves of
/// the channel's. The first one begins.
pub(crate) fn exchange(domain: &Domain, options: &Options) -> Outcome {
    let (own, other) = options.channel.split_once('-').ok_or("two names")?;
    let mut endpoint = domain.endpoint(own).wait(options.wait).create()?;
    let peer = endpoint.peer_when_created(other, None)?;
    let (mut message, mut expected) = (vec![0; LONG_BYTES], vec![0; LONG_BYTES]);
    wait_for_go()?;
    for number in 0..options.count {
        expected.fill(number.to_le_bytes()[0]);
        if own < other {
            endpoint.send(peer, number, &expected)?;
        }
        let status = endpoint.receive_into(Selector::tag(number).from(peer), &mut message)?;
        if status.bytes != LONG_BYTES as u64 || message != expected {
            return Err(format!("message {number} is not what was sent").into());
        }
        if own > other {
            endpoint.send(peer, number, &expected)?;
        }
    }
    report(|name| endpoint.counter(name))
}

/// Prints the counters, then waits until the test has read them.
fn report(counter: impl Fn(&str) -> Result<u64, CounterError>) -> Outcome {
    let names = ["messages", "waits", "sleeps", "wakes", "cap_finds", "near_sleeps"];
    let line: Vec<String> =
        names.iter().map(|name| format!("{name}={}", counter(name).unwrap_or(0))).collect();
    let mut out = std::io::stdout();
    writeln!(out, "counters {}", line.join(" "))?;
    out.flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
