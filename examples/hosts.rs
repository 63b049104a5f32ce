//! Requests between two hosts: `hosts serve 10.0.0.2:7421` on one, `hosts ask sums@b 6 7` on the other. On both,
//! `COREWIRE_HOSTS` names a file as docs/hosts.md describes it; on one machine, two files can stand for two hosts.

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use corewire::{Domain, MessageError};

/// The name of the endpoint that adds.
const SUMS: &str = "sums";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let domain = Domain::open()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(&domain, address),
        ["ask", whom, left, right] => ask(&domain, whom, left.parse()?, right.parse()?),
        _ => Err("hosts serve ADDRESS:PORT | ask NAME@HOST NUMBER NUMBER".into()),
    }
}

fn serve(domain: &Domain, address: &str) -> Result<(), Box<dyn Error>> {
    let mut endpoint = domain.endpoint(SUMS).listen(address).create()?;
    println!("takes connections at {}", endpoint.listening()[0]);
    std::io::stdout().flush()?;
    // Of peers on this machine, too: they reach it through shared memory.
    loop {
        let request = endpoint.receive_request()?;
        // One of any other length is dropped, which ends its call with an error.
        let Ok(numbers) = <[u8; 16]>::try_from(&request[..]) else { continue };
        let [left, right] =
            [&numbers[..8], &numbers[8..]].map(|it| u64::from_le_bytes(it.try_into().unwrap()));
        // The peer that asked may have left by now, or its host may be gone.
        let _ = request.reply(&left.wrapping_add(right).to_le_bytes());
    }
}

fn ask(domain: &Domain, whom: &str, left: u64, right: u64) -> Result<(), Box<dyn Error>> {
    let mut endpoint = domain.endpoint(&format!("asker-{}", std::process::id())).create()?;
    // The host may start later than this one.
    let adder = endpoint.peer_when_created(whom, Some(Duration::from_secs(10)))?;
    let mut sum = [0; 8];
    match endpoint.call_into(adder, &[left.to_le_bytes(), right.to_le_bytes()].concat(), &mut sum) {
        Ok(_) => println!("{left} + {right} = {}, says {whom}", u64::from_le_bytes(sum)),
        // Nobody can tell whether that process lives, or has seen the request.
        Err(MessageError::PeerLost { name, reason, .. }) => println!("lost {name}: {reason}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
