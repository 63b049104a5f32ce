//! A given number of 48-byte messages, for counting what they cost and for forcing sleeps.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use corewire::Domain;

use crate::{Options, Outcome};

/// Waits for a line of standard input: the test is ready.
fn wait_for_go() -> Outcome {
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

/// Now and then, does nothing for long enough that the other side goes to sleep: for 1024 messages
/// the sender does, which empties the ring, and for the next 1024 the receiver, which fills it.
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

/// Says what the counters say, then waits for the test to have read it.
fn report(counter: impl Fn(&str) -> Option<u64>) -> Outcome {
    let names = ["messages", "waits", "sleeps", "wakes", "cap_finds", "near_sleeps"];
    let line: Vec<String> =
        names.iter().map(|name| format!("{name}={}", counter(name).unwrap_or(0))).collect();
    let mut out = std::io::stdout();
    writeln!(out, "counters {}", line.join(" "))?;
    out.flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
