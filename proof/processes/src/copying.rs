//! Receivers that copy messages out: from channels that do not wait for them, and as guests.

use std::io::Write;
use std::sync::Arc;
use std::thread;

use corewire::{Domain, ReceiveError};

use crate::stream::{PROGRESS, is_whole};
use crate::{Options, Outcome};

/// Copies messages until the end and checks each. Prints how many arrived and how many were missed.
pub(crate) fn copy(domain: &Domain, options: &Options) -> Outcome {
    let builder = domain.receiver(&options.channel).wait(options.wait).snapshots();
    let mut receiver = builder.join()?;
    let mut out = std::io::stdout();
    writeln!(out, "joined {}", receiver.next_sequence())?;
    let interrupter = Arc::new(receiver.interrupter());
    thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        interrupter.interrupt();
    });
    let (first, mut received, mut copy) = (receiver.next_sequence(), 0u64, Vec::new());
    loop {
        let ended = match receiver.receive() {
            Ok(mut snapshot) => {
                let number = snapshot.sequence();
                if snapshot.copy_into(&mut copy).is_err() {
                    continue;
                }
                if !is_whole(&copy, number) {
                    return Err(format!("message {number} is not what was sent").into());
                }
                received += 1;
                if received.is_multiple_of(PROGRESS) {
                    writeln!(out, "at {received}")?;
                }
                continue;
            }
            Err(ReceiveError::EndOfStream) => "ended",
            Err(ReceiveError::SenderDied) => "died",
            Err(ReceiveError::Evicted) => "evicted",
            Err(ReceiveError::Interrupted) => "left",
            Err(error) => return Err(error.into()),
        };
        let total = first + received + receiver.missed();
        return Ok(writeln!(out, "{ended} {total} missed={}", receiver.missed())?);
    }
}

/// Joins, and never reads.
pub(crate) fn hold(domain: &Domain, options: &Options) -> Outcome {
    let receiver = domain.receiver(&options.channel).snapshots().join()?;
    println!("joined {}", receiver.next_sequence());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
