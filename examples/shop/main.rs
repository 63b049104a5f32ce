//! Floating-point numbers, lists of structs with strings, errors with details, and a stream. Run `shop serve`, then
//! `shop items`, `shop buy tea 2`, `shop follow`, and `shop close`. From a shell the same is possible with
//! `corewire call shop items`, `corewire call shop buy '["tea", 2]'` and `corewire call shop log '[true]'`.

use std::error::Error;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use corewire_bind::{Bind, ClientId, Domain, Failed};

corewire_bind::interface!(shop);

use shop::{BuyReply, Client, Item, ItemsReply, LogReply, Refusal, Server};

const USAGE: &str = "shop serve | items | buy ITEM COUNT | log | follow | close";

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    let words = words.iter().map(String::as_str).collect::<Vec<_>>();
    if words == ["serve"] {
        let mut server = Server::new(&domain, "shop", Shop::new())?;
        while !server.service().is_closed && server.serve_one()? {}
        return Ok(());
    }
    let mut client = Client::bind(&domain, "shop", &Bind::default())?;
    match words[..] {
        ["items"] => {
            for Item { name, price, stock, tags } in client.items()? {
                println!("{stock} {name} at {price} ({})", tags.join(", "));
            }
        }
        ["buy", item, count] => match client.buy(item, count.parse()?) {
            Ok(cost) => println!("{cost}"),
            Err(Failed::Service(Refusal::SoldOut { left, .. })) => println!("only {left} left"),
            Err(error) => return Err(error.into()),
        },
        ["log"] => client.log(false)?.try_for_each(|line| line.map(|line| println!("{line}")))?,
        ["follow"] => client.log(true)?.try_for_each(|line| line.map(|line| println!("{line}")))?,
        ["close"] => client.close()?,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

/// What was sold, which threads wait for that send it to those who follow.
#[derive(Default)]
struct Sales {
    lines: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Sales {
    fn add(&self, line: String) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        self.changed.notify_all();
    }

    /// The lines from this one on. Waits a little if there are none.
    fn from(&self, first: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let none = |lines: &mut Vec<String>| lines.len() <= first;
        let waited = self.changed.wait_timeout_while(lines, Duration::from_millis(100), none);
        let (lines, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lines.get(first..).unwrap_or_default().to_vec()
    }
}

struct Shop {
    items: Vec<Item>,
    sales: Arc<Sales>,
    is_closed: bool,
}

impl Shop {
    fn new() -> Self {
        let item = |name: &str, price, stock, tags: &[&str]| Item {
            name: name.to_owned(),
            price,
            stock,
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
        };
        let items = vec![
            item("tea", 4.25, 10, &["hot", "green"]),
            item("coffee", 7.5, 3, &["hot"]),
            item("ice", 0.1, 1000, &[]),
        ];
        Self { items, sales: Arc::default(), is_closed: false }
    }
}

impl shop::Service for Shop {
    fn items(&mut self, reply: ItemsReply<'_>) {
        reply.send(&self.items);
    }

    fn buy(&mut self, name: &str, count: u32, reply: BuyReply<'_>) {
        let Some(item) = self.items.iter_mut().find(|item| item.name == name) else {
            return reply.fail(Refusal::NotFound { name: name.to_owned() });
        };
        let Some(left) = item.stock.checked_sub(count) else {
            return reply.fail(Refusal::SoldOut { name: name.to_owned(), left: item.stock });
        };
        item.stock = left;
        self.sales.add(format!("sold {count} {name}"));
        reply.send(f64::from(count) * item.price);
    }

    fn log(&mut self, follow: bool, reply: LogReply<'_>) {
        if !follow {
            return reply.send_all(self.sales.from(0));
        }
        let (sales, parts) = (Arc::clone(&self.sales), reply.later());
        thread::spawn(move || {
            let mut sent = 0;
            while !parts.is_cancelled() {
                for line in sales.from(sent) {
                    // Waits while the client does not read, and fails once it has gone.
                    if parts.send(&line).is_err() {
                        return;
                    }
                    sent += 1;
                }
            }
        });
    }

    fn close(&mut self, _client: ClientId) {
        self.is_closed = true;
    }
}
