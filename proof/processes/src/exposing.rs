//! Exposed memory: one that exposes it and serves, or makes no call; and one that accesses it at random.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use corewire::{Domain, Endpoint, ExposedMemory, NumberChange, Peer, RemotePart, WindowRights};

use crate::{Options, Outcome};

/// Bytes of the memory, which has key 1.
const BYTES: usize = 400_000;
const KEY: u64 = 1;

/// Exposes memory, and serves until its standard input ends. With `keep` it makes no call before a line of that.
pub(crate) fn expose(domain: &Domain, options: &Options) -> Outcome {
    let mut endpoint = domain.endpoint(&options.channel).create()?;
    let memory = ExposedMemory::new(BYTES).ok_or("no memory")?;
    endpoint.expose_as(&memory, WindowRights::ATOMIC, Some(KEY), 0)?;
    println!("exposed");
    io::stdout().flush()?;
    if options.keeps {
        io::stdin().read_line(&mut String::new())?;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = io::stdin().read_line(&mut String::new());
        told.store(true, Relaxed);
    });
    while !is_over.load(Relaxed) {
        endpoint.progress()?;
        std::thread::yield_now();
    }
    Ok(())
}

/// Numbers that are random enough.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }
}

/// Makes `count` accesses to the memory of the endpoint of the channel's name, which nobody else writes, and compares them
/// with a copy of its own; without `count` it goes on until it is killed.
pub(crate) fn visit(domain: &Domain, options: &Options) -> Outcome {
    let name = format!("visitor-{}", std::process::id());
    let mut endpoint = domain.endpoint(&name).create()?;
    let peer = endpoint.peer_when_created(&options.channel, None)?;
    let (mut copy, mut numbers) = (vec![0; BYTES], Numbers(options.count + 1));
    println!("visiting");
    io::stdout().flush()?;
    let mut done = 0;
    while options.count == 0 || done < options.count {
        step(&mut endpoint, peer, &mut copy, &mut numbers, options.count > 0)?;
        done += 1;
    }
    println!("right");
    Ok(())
}

fn step(
    endpoint: &mut Endpoint,
    peer: Peer,
    copy: &mut [u8],
    numbers: &mut Numbers,
    is_compared: bool,
) -> Outcome {
    // Short ones are common.
    let most = [64, 1100, 9000, 100_000][numbers.below(4)];
    let parts: Vec<(usize, usize)> = (0..numbers.below(4))
        .map(|_| {
            let bytes = numbers.below(most);
            (numbers.below(BYTES - bytes), bytes)
        })
        .collect();
    let remote: Vec<RemotePart> = parts
        .iter()
        .map(|&(offset, bytes)| RemotePart { key: KEY, offset: offset as u64, bytes: bytes as u64 })
        .collect();
    let total: usize = parts.iter().map(|part| part.1).sum();
    match numbers.below(3) {
        0 => {
            let seed = numbers.below(256);
            let bytes: Vec<u8> = (0..251u8).cycle().skip(seed).take(total).collect();
            endpoint.put(peer, &remote, &bytes)?;
            let mut from = 0;
            for (offset, bytes_here) in parts {
                copy[offset..offset + bytes_here].copy_from_slice(&bytes[from..from + bytes_here]);
                from += bytes_here;
            }
        }
        1 => {
            let mut found = vec![0; total];
            endpoint.get(peer, &remote, &mut found)?;
            let expected: Vec<u8> =
                parts.iter().flat_map(|&(at, bytes)| copy[at..at + bytes].to_vec()).collect();
            if is_compared && found != expected {
                return Err(format!("{total} bytes differ").into());
            }
        }
        _ => {
            let (at, operand) = (numbers.below(BYTES - 8), numbers.below(1000) as u64);
            let before = endpoint.change(peer, (KEY, at as u64), NumberChange::Add, operand)?;
            let expected = u64::from_le_bytes(copy[at..at + 8].try_into()?);
            if is_compared && before != expected {
                return Err(format!("{before} at {at}, not {expected}").into());
            }
            copy[at..at + 8].copy_from_slice(&expected.wrapping_add(operand).to_le_bytes());
        }
    }
    Ok(())
}
