//! Requests and replies between processes: run `endpoints serve` once, then `endpoints ask 6 7` as
//! often as you like.

use std::error::Error;

use corewire::{Domain, Selector};

/// The tags, which say what a message is about.
const MULTIPLY: u64 = 1;
const PRODUCT: u64 = 2;
const STOP: u64 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let domain = Domain::open()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve(&domain),
        ["ask", left, right] => ask(&domain, left.parse()?, right.parse()?),
        ["stop"] => {
            let mut endpoint = domain.endpoint(&own_name()).create()?;
            let server = endpoint.peer_when_created("calculator", None)?;
            endpoint.send(server, STOP, b"")?;
            Ok(endpoint.close()?)
        }
        _ => Err("endpoints serve | ask NUMBER NUMBER | stop".into()),
    }
}

fn own_name() -> String {
    format!("asker-{}", std::process::id())
}

fn serve(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let mut endpoint = domain.endpoint("calculator").create()?;
    loop {
        let mut numbers = [0; 16];
        // Matches any message from any peer.
        let status = endpoint.receive_into(Selector::any(), &mut numbers)?;
        if status.tag != MULTIPLY {
            return Ok(());
        }
        let (left, right) = numbers.split_at(8);
        let [left, right] = [left, right].map(|it| u64::from_le_bytes(it.try_into().unwrap()));
        let product = left.wrapping_mul(right).to_le_bytes();
        // The peer that asked may have left by now.
        let _ = endpoint.send(status.source, PRODUCT, &product);
    }
}

fn ask(domain: &Domain, left: u64, right: u64) -> Result<(), Box<dyn Error>> {
    let mut endpoint = domain.endpoint(&own_name()).create()?;
    let server = endpoint.peer_when_created("calculator", None)?;
    endpoint.send_gather(server, MULTIPLY, &[&left.to_le_bytes(), &right.to_le_bytes()])?;
    let mut product = [0; 8];
    // If the server dies, this returns an error instead of waiting for ever.
    endpoint.receive_into(Selector::tag(PRODUCT).from(server), &mut product)?;
    println!("{left} x {right} = {}", u64::from_le_bytes(product));
    Ok(())
}
