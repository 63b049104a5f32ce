//! Requests and replies between processes: run `endpoints serve` once, then `endpoints ask 6 7` as
//! often as you like.

use std::error::Error;
use std::time::Duration;

use corewire::{Domain, Endpoint, Peer};

/// The request that ends the server.
const STOP: &[u8] = b"stop";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let domain = Domain::open()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve(&domain),
        ["ask", left, right] => ask(&domain, left.parse()?, right.parse()?),
        ["stop"] => {
            let (mut endpoint, server) = connect(&domain)?;
            endpoint.call(server, STOP)?;
            Ok(())
        }
        _ => Err("endpoints serve | ask NUMBER NUMBER | stop".into()),
    }
}

fn serve(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let mut endpoint = domain.endpoint("calculator").create()?;
    loop {
        // From any peer.
        let request = endpoint.receive_request()?;
        if *request == *STOP {
            request.reply(b"")?;
            return Ok(endpoint.close()?);
        }
        // A request that is dropped, as one of any other length is here, ends its call with an error.
        if let Ok(numbers) = <[u8; 16]>::try_from(&request[..]) {
            let (left, right) = numbers.split_at(8);
            let [left, right] = [left, right].map(|it| u64::from_le_bytes(it.try_into().unwrap()));
            // The peer that asked may have left by now.
            let _ = request.reply(&left.wrapping_mul(right).to_le_bytes());
        }
    }
}

fn ask(domain: &Domain, left: u64, right: u64) -> Result<(), Box<dyn Error>> {
    let (mut endpoint, server) = connect(domain)?;
    let request = [left.to_le_bytes(), right.to_le_bytes()].concat();
    let mut product = [0; 8];
    // If the server dies, this returns an error instead of waiting for ever.
    let patience = Duration::from_secs(10);
    match endpoint.within(patience).call_into(server, &request, &mut product)? {
        Some(_) => println!("{left} x {right} = {}", u64::from_le_bytes(product)),
        None => println!("no reply within {patience:?}"),
    }
    Ok(())
}

/// An endpoint of this process, and the server's as it knows it.
fn connect(domain: &Domain) -> Result<(Endpoint, Peer), Box<dyn Error>> {
    let mut endpoint = domain.endpoint(&format!("asker-{}", std::process::id())).create()?;
    let server = endpoint.peer_when_created("calculator", None)?;
    Ok((endpoint, server))
}
