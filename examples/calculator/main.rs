//! Typed calls between processes, or within one. Run `calculator service` once, then `calculator client` as often as
//! you like, and `calculator stop`. The client is the same whatever carries its messages:
//!
//! ```text
//! calculator client                                the first driver that is possible
//! calculator client --driver ump                   a ring in shared memory
//! calculator client --driver sock                  a socket, as between users
//! calculator client --driver lmp --core 0          a ring on one core, where `calculator service --core 0` runs
//! calculator client --driver circuit               through monitors: `corewire monitor` runs
//! calculator client --driver local                 needs no service: it runs one itself
//! ```

use std::error::Error;
use std::thread;

use corewire_bind::{Bind, ClientId, Domain, Driver, Failed};

corewire_bind::interface!(calculator);

use calculator::{Client, Event, Failure, Pair, Server};

const NAME: &str = "calculator";
const USAGE: &str =
    "calculator service | client | stop [--driver local|lmp|ump|sock|circuit] [--core NUMBER]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let role = words.next().ok_or(USAGE)?;
    let mut bind = Bind::default();
    let mut is_local = false;
    while let (Some(option), Some(value)) = (words.next(), words.next()) {
        match option.as_str() {
            "--driver" => {
                let driver = value.parse::<Driver>()?;
                is_local = driver == Driver::Local;
                bind = bind.drivers([driver]);
            }
            "--core" => stay_on(value.parse()?)?,
            _ => return Err(USAGE.into()),
        }
    }
    let domain = Domain::open()?;
    match role.as_str() {
        "service" => serve(&domain),
        "client" if is_local => thread::scope(|scope| {
            let mut server = new_server(&domain)?;
            let stopper = server.stopper();
            let service = scope.spawn(move || server.serve());
            let ended = client(&domain, &bind);
            stopper.stop();
            service.join().map_err(|_| "the service panicked")??;
            ended
        }),
        "client" => client(&domain, &bind),
        "stop" => Ok(Client::bind(&domain, NAME, &bind)?.stop()?),
        _ => Err(USAGE.into()),
    }
}

/// Keeps this thread on one core.
fn stay_on(core: usize) -> Result<(), Box<dyn Error>> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

/// What the service remembers.
struct Calculator {
    notes: String,
    count: u32,
    /// Sends events. There is one once the server exists.
    outbox: Option<calculator::Outbox>,
    /// The reply to `stop`, which ends the service.
    stop: Option<calculator::StopLaterReply>,
}

impl calculator::Service for Calculator {
    fn multiply(&mut self, p: Pair, reply: calculator::MultiplyReply<'_>) {
        match p.left.checked_mul(p.right) {
            Some(product) => reply.send(product),
            None => reply.fail(Failure::Overflow),
        }
    }

    fn divide(&mut self, p: Pair, reply: calculator::DivideReply<'_>) {
        match (p.left.checked_div(p.right), p.left.checked_rem(p.right)) {
            (Some(quotient), Some(rest)) => reply.send(quotient, rest),
            _ if p.right == 0 => reply.fail(Failure::ByZero),
            _ => reply.fail(Failure::Overflow),
        }
    }

    fn sum(&mut self, numbers: Vec<i64>, reply: calculator::SumReply<'_>) {
        reply.send(numbers.iter().fold(0, |sum, number| sum.wrapping_add(*number)));
    }

    fn note(&mut self, line: &str, _client: ClientId) {
        self.notes.push_str(line);
        self.notes.push('\n');
        self.count += 1;
        if let Some(outbox) = &self.outbox {
            // Fails only if the service has ended.
            let _ = outbox.noted_to_all(self.count);
        }
    }

    fn notes(&mut self, reply: calculator::NotesReply<'_>) {
        reply.send(&self.notes);
    }

    fn stop(&mut self, reply: calculator::StopReply<'_>) {
        self.stop = Some(reply.later());
    }
}

fn new_server(domain: &Domain) -> Result<Server<Calculator>, Box<dyn Error>> {
    let calculator = Calculator { notes: String::new(), count: 0, outbox: None, stop: None };
    let mut server = Server::new(domain, NAME, calculator)?;
    server.service().outbox = Some(server.outbox());
    Ok(server)
}

fn serve(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let mut server = new_server(domain)?;
    while server.serve_one()? {
        if let Some(reply) = server.service().stop.take() {
            reply.send();
            // Sends the reply, and serves until the client that asked has gone.
            while server.clients().next().is_some() && server.serve_one()? {}
            return Ok(());
        }
    }
    Ok(())
}

fn client(domain: &Domain, bind: &Bind) -> Result<(), Box<dyn Error>> {
    let mut calc = Client::bind(domain, NAME, bind)?;
    println!("bound by {}", calc.binding().driver());
    println!("6 x 7 = {}", calc.multiply(Pair { left: 6, right: 7 })?);
    let out = calc.divide(Pair { left: 45, right: 7 })?;
    println!("45 / 7 = {} rest {}", out.quotient, out.rest);
    match calc.divide(Pair { left: 1, right: 0 }) {
        Err(Failed::Service(error)) => println!("1 / 0: {error}"),
        other => println!("1 / 0: {other:?}"),
    }
    // Two calls under way at once, asked for in the other order.
    let [first, second] = [[1, 2, 3], [4, 5, 6]].map(|numbers| calc.start_sum(&numbers));
    let (first, second) = (first?, second?);
    let second = second.wait(&mut calc)?;
    println!("sums {} and {second}", first.wait(&mut calc)?);
    // One way, and an event back.
    calc.note("bound, and counted")?;
    while !matches!(calc.event()?, Event::Noted { .. }) {}
    println!("noted: {}", calc.notes()?.lines().last().unwrap_or_default());
    Ok(())
}
