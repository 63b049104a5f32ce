//! Events: a service tells its clients what they did not ask for at that moment. One client is a loop of its own, the
//! other consists of two tasks that share it, in any executor. `events` runs all of them in one process.

use std::collections::HashMap;
use std::error::Error;
use std::thread;

use corewire_bind::{Bind, ClientId, Domain, Identity};

corewire_bind::interface!(weather);

use weather::{AsyncClient, Client, Event, Outbox, Server};

const NAME: &str = "weather";

/// A station, and by how much it must become warmer for each client.
struct Station {
    temperature: i32,
    watched: HashMap<ClientId, u32>,
    told: HashMap<ClientId, i32>,
    outbox: Option<Outbox>,
}

impl Station {
    /// A new temperature, which clients learn whose last one was different.
    fn measure(&mut self, temperature: i32) {
        self.temperature = temperature;
        let Some(outbox) = &self.outbox else { return };
        for (&client, &change) in &self.watched {
            let told = self.told.entry(client).or_insert(0);
            if told.abs_diff(temperature) >= change {
                *told = temperature;
                let warning = (temperature >= 30_000).then_some("it is hot");
                // Fails only if the service has ended or a client is far behind.
                let _ = outbox.changed(client, temperature, warning);
            }
        }
    }
}

impl weather::Service for Station {
    fn now(&mut self, reply: weather::NowReply<'_>) {
        reply.send(self.temperature);
        // Each look at the thermometer warms it.
        self.measure(self.temperature + 500);
    }

    fn watch(&mut self, change: u32, client: ClientId) {
        self.watched.insert(client, change);
        self.told.insert(client, self.temperature);
    }

    fn bound(&mut self, _client: ClientId, _identity: Identity) {}

    fn gone(&mut self, client: ClientId) {
        self.watched.remove(&client);
        self.told.remove(&client);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let (watched, told) = (HashMap::new(), HashMap::new());
    let station = Station { temperature: 20_000, watched, told, outbox: None };
    let mut server = Server::new(&domain, NAME, station)?;
    server.service().outbox = Some(server.outbox());
    let stopper = server.stopper();
    thread::scope(|scope| {
        let service = scope.spawn(move || server.serve());
        let ended = watch(&domain).and_then(|()| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(watch_in_tasks(&domain))
        });
        stopper.stop();
        service.join().map_err(|_| "the service panicked")??;
        ended
    })
}

/// Looks until it has become warmer three times.
fn watch(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let mut weather = Client::bind(domain, NAME, &Bind::default())?;
    weather.watch(1000)?;
    let mut count = 0;
    while count < 3 {
        weather.now()?;
        while let Some(Event::Changed { temperature, warning }) = weather.try_event()? {
            println!("{}.{} degrees {warning:?}", temperature / 1000, temperature % 1000 / 100);
            count += 1;
        }
    }
    Ok(())
}

/// One task looks while another is told.
async fn watch_in_tasks(domain: &Domain) -> Result<(), Box<dyn Error>> {
    let weather = AsyncClient::bind(domain, NAME, &Bind::default()).await?;
    weather.watch(4000).await?;
    let looks = async {
        loop {
            if let Err(error) = weather.now().await {
                return error;
            }
        }
    };
    let told = async {
        loop {
            match weather.event().await {
                Ok(Event::Changed { warning: None, .. }) => {}
                other => return other,
            }
        }
    };
    tokio::select! {
        error = looks => return Err(error.into()),
        event = told => println!("in tasks: {:?}", event?),
    }
    Ok(())
}
