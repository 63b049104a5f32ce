//! The program of the tutorial in `docs/interfaces.md`.

use corewire_bind::{Bind, ClientId, Domain};

corewire_bind::interface!(calc);

use calc::{Client, Failure, MultiplyReply, Outbox, Pair, Server};

struct Calculator {
    count: u32,
    outbox: Option<Outbox>,
}

impl calc::Service for Calculator {
    fn multiply(&mut self, p: Pair, reply: MultiplyReply<'_>) {
        match p.left.checked_mul(p.right) {
            Some(product) => reply.send(product),
            None => reply.fail(Failure::Overflow),
        }
    }

    fn note(&mut self, line: &str, _client: ClientId) {
        self.count += 1;
        println!("{}: {line}", self.count);
        if let Some(outbox) = &self.outbox {
            // Fails only if the service has ended, or its thread is far behind.
            let _ = outbox.noted_to_all(self.count);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::open()?;
    if std::env::args().any(|word| word == "serve") {
        let calculator = Calculator { count: 0, outbox: None };
        let mut server = Server::new(&domain, "calculator", calculator)?;
        server.service().outbox = Some(server.outbox());
        return Ok(server.serve()?);
    }
    let mut calc = Client::bind(&domain, "calculator", &Bind::default())?;
    println!("bound by {}", calc.binding().driver());
    println!("6 x 7 = {}", calc.multiply(Pair { left: 6, right: 7 })?);
    if let Err(error) = calc.multiply(Pair { left: i64::MAX, right: 2 }) {
        println!("{error}");
    }
    calc.note("hello")?;
    println!("{:?}", calc.event()?);
    Ok(())
}
