//! A bank whose accounts are replicated in all processes that run this program. Any of them may be killed at any time: no
//! answer is ever taken back, and each order is carried out once, or not at all if nobody has answered it.
//!
//! Reads `deposit NAME AMOUNT`, `withdraw NAME AMOUNT` and `balance NAME` from standard input, and answers each line with
//! `accepted BALANCE` or `refused BALANCE`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::stdin;

use corewire::Domain;
use corewire_group::{DecidedEntry, Group, Replicated, StateMachine};

#[derive(Default)]
struct Bank(BTreeMap<String, u64>);

impl StateMachine for Bank {
    type Output = String;

    fn apply(&mut self, entry: &DecidedEntry) -> String {
        let order = String::from_utf8_lossy(&entry.command);
        let words: Vec<&str> = order.split(' ').chain(["", ""]).collect();
        let balance = self.0.entry(words[1].to_owned()).or_default();
        let next = match (words[0], words[2].parse()) {
            ("deposit", Ok(amount)) => balance.checked_add(amount),
            ("withdraw", Ok(amount)) => balance.checked_sub(amount),
            ("balance", _) => Some(*balance),
            _ => None,
        };
        *balance = next.unwrap_or(*balance);
        format!("{} {balance}", if next.is_some() { "accepted" } else { "refused" })
    }

    fn snapshot(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_default()
    }

    fn restore(&mut self, snapshot: &[u8]) {
        self.0 = serde_json::from_slice(snapshot).unwrap_or_default();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let group = Group::builder(&Domain::open()?, "example-bank").join()?;
    let mut bank = Replicated::new(group, Bank::default()).snapshot_every(500);
    println!("open");
    for order in stdin().lines() {
        let answer = bank.propose(order?.as_bytes())?.output();
        println!("{}", answer.as_deref().unwrap_or("carried out: a snapshot does not say how"));
    }
    Ok(())
}
