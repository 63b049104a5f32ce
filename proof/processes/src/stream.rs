//! A sender of numbered messages of mixed lengths, and a receiver that checks every one.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use corewire::{Domain, ReceiveError};

use crate::{Options, Outcome, Slow};

/// Number of messages between two lines that report progress.
pub(crate) const PROGRESS: u64 = 500;

/// The length of message `number`: most fit a slot, some need the window, a few the large area.
fn length_of(number: u64) -> usize {
    match number % 97 {
        0 => 70_000,
        1..=9 => 49 + usize::try_from(number % 3000).unwrap_or(0),
        _ => usize::try_from(number % 49).unwrap_or(0),
    }
}

/// Byte `index` of message `number`.
fn byte_of(number: u64, index: usize) -> u8 {
    (number.wrapping_mul(31).wrapping_add(index as u64 / 8)).to_le_bytes()[0]
}

pub(crate) fn is_whole(message: &[u8], number: u64) -> bool {
    message.len() == length_of(number)
        && message.iter().enumerate().all(|(index, &byte)| byte == byte_of(number, index))
}

pub(crate) fn send(domain: &Domain, options: &Options) -> Outcome {
    let builder = domain
        .sender(&options.channel)
        .slots(256)
        .window_bytes(64 << 10)
        .largest_message(80_000)
        .receivers(options.receivers)
        .levels(options.levels)
        .cache_domain(options.group)
        .wait(options.wait);
    let builder = match options.slow {
        Slow::Block => builder,
        Slow::Overwrite => builder.overwrite(),
        Slow::Evict(after) => builder.evict(after),
    };
    let mut sender = builder.create()?;
    println!("created");
    // The end of standard input ends the stream.
    let (stop, stopped) = channel();
    let reader = thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = stop.send(());
    });
    let mut number = 0;
    while stopped.try_recv().is_err() {
        let mut loan = sender.loan(length_of(number))?;
        for (index, byte) in loan.iter_mut().enumerate() {
            *byte = byte_of(number, index);
        }
        loan.send();
        number += 1;
        if number.is_multiple_of(PROGRESS) {
            println!("at {number}");
        }
    }
    drop(sender);
    let _ = reader.join();
    println!("closed {number}");
    Ok(())
}

pub(crate) fn receive(domain: &Domain, options: &Options) -> Outcome {
    let receiver = domain.receiver(&options.channel).cache_domain(options.group);
    let mut receiver = receiver.wait(options.wait).join_when_created()?;
    let mut out = std::io::stdout();
    writeln!(out, "joined {}", receiver.next_sequence())?;
    let interrupter = Arc::new(receiver.interrupter());
    let on_end = Arc::clone(&interrupter);
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        on_end.interrupt();
    });
    let mut kept = Vec::new();
    loop {
        let next = receiver.next_sequence();
        match receiver.receive() {
            Ok(message) if message.sequence() != next || !is_whole(&message, next) => {
                return Err(format!("message {next} is not what was sent").into());
            }
            Ok(message) if options.keeps => kept.push(message.hold()),
            Ok(_) => {}
            Err(ReceiveError::EndOfStream) => return Ok(writeln!(out, "ended {next}")?),
            Err(ReceiveError::SenderDied) => return Ok(writeln!(out, "died {next}")?),
            Err(ReceiveError::Interrupted) => return Ok(writeln!(out, "left {next}")?),
            Err(error) => return Err(error.into()),
        }
        if (next + 1).is_multiple_of(PROGRESS) {
            writeln!(out, "at {}", next + 1)?;
        }
    }
}
