//! Three versions of one interface, between processes: `versions serve 1`, and `versions call 2` in another terminal,
//! or the other way round. 1 and 2 understand each other; 3 is refused by both, with the name of the message.

use std::error::Error;

use corewire_bind::{Bind, CallError, ClientId, Domain};

corewire_bind::interface!(greeter_1, "1/greeter.rs");
corewire_bind::interface!(greeter_2, "2/greeter.rs");
corewire_bind::interface!(greeter_3, "3/greeter.rs");

const NAME: &str = "greeter";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let domain = Domain::open()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", "1"] => serve_1(&domain),
        ["serve", "2"] => serve_2(&domain),
        ["call", "1"] => call_1(&domain),
        ["call", "2"] => call_2(&domain),
        ["call", "3"] => {
            let refused = greeter_3::Client::bind(&domain, NAME, &Bind::default());
            println!("{}", refused.map(drop).unwrap_err());
            Ok(())
        }
        ["stop"] => Ok(greeter_1::Client::bind(&domain, NAME, &Bind::default())?.stop()?),
        _ => Err("versions serve 1|2 | call 1|2|3 | stop".into()),
    }
}

#[derive(Default)]
struct Greeter1 {
    outbox: Option<greeter_1::Outbox>,
    is_over: bool,
}

impl greeter_1::Service for Greeter1 {
    fn greet(&mut self, name: &str, reply: greeter_1::GreetReply<'_>) {
        reply.send(&format!("hello, {name}"));
        if let Some(Err(error)) = self.outbox.as_ref().map(|outbox| outbox.greeted_to_all(name)) {
            eprintln!("{error}");
        }
    }

    fn stop(&mut self, _client: ClientId) {
        self.is_over = true;
    }
}

fn serve_1(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let mut server = greeter_1::Server::new(domain, NAME, Greeter1::default())?;
    server.service().outbox = Some(server.outbox());
    while !server.service().is_over && server.serve_one()? {}
    Ok(())
}

#[derive(Default)]
struct Greeter2 {
    outbox: Option<greeter_2::Outbox>,
    count: u32,
    is_over: bool,
}

impl greeter_2::Service for Greeter2 {
    fn greet(&mut self, name: &str, language: Option<&str>, reply: greeter_2::GreetReply<'_>) {
        self.count += 1;
        let hello = if language == Some("de") { "hallo" } else { "hello" };
        reply.send(&format!("{hello}, {name}"));
        if let Some(Err(error)) =
            self.outbox.as_ref().map(|outbox| outbox.greeted_to_all(name, Some(self.count)))
        {
            eprintln!("{error}");
        }
    }

    fn count(&mut self, reply: greeter_2::CountReply<'_>) {
        reply.send(self.count);
    }

    fn stop(&mut self, _client: ClientId) {
        self.is_over = true;
    }
}

fn serve_2(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let mut server = greeter_2::Server::new(domain, NAME, Greeter2::default())?;
    server.service().outbox = Some(server.outbox());
    while !server.service().is_over && server.serve_one()? {}
    Ok(())
}

fn call_1(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let mut greeter = greeter_1::Client::bind(domain, NAME, &Bind::default())?;
    println!("{}", greeter.greet("Ada")?);
    println!("{:?}", greeter.event()?);
    Ok(())
}

fn call_2(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let mut greeter = greeter_2::Client::bind(domain, NAME, &Bind::default())?;
    println!("{}", greeter.greet("Ada", Some("de"))?);
    println!("{:?}", greeter.event()?);
    match greeter.count() {
        Ok(count) => println!("{count} greeted"),
        Err(error @ CallError::NotInService { .. }) => println!("{error}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
