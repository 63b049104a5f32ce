//! Clients whose calls go through the same monitors to one service, wherever these are.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_bind::{CallError, Pending};
use corewire_circuit::monitor::{Found, Monitor};
use corewire_circuit::wire::NodeId;
use corewire_circuit::wire::packet::{Table, Via};

use super::printed::Party;
use crate::calls::{Client, Echo, Server};
use crate::failure::{Doing, Failure};
use crate::rounds::per_second;

/// Messages of a stream: about 10 ms.
const STREAMED: u64 = 100_000;
/// Messages that the service reads before the client goes on.
const SERVED: u32 = 64;

/// What one thread has of a chain; nothing if all parties but the client are processes.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) monitors: Vec<Monitor>,
    pub(super) service: Option<Server<Echo>>,
    pub(super) printed: Vec<Party>,
}

impl Side {
    /// Lets every party handle what has come. Returns whether the service had something to do.
    ///
    /// # Errors
    /// If one of them fails.
    #[inline]
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        self.turn_monitors()?;
        match &mut self.service {
            Some(service) => service.serve_one_timeout(Duration::ZERO).doing("serve"),
            None => Ok(false),
        }
    }

    /// Messages that the service has received.
    fn received(&mut self) -> u64 {
        self.service.as_mut().map_or(0, |service| service.service().received)
    }

    #[inline]
    pub(super) fn turn_monitors(&mut self) -> Result<(), Failure> {
        for party in &mut self.printed {
            party.turn()?;
        }
        for monitor in &mut self.monitors {
            if monitor.turn().doing("turn a monitor")? == Found::Stop {
                return Err(Failure::other("a monitor was stopped"));
            }
        }
        Ok(())
    }
}

/// Clients whose calls go through the same monitors, and the parties of their thread.
#[derive(Debug)]
pub struct Chain {
    pub(super) clients: Vec<Client>,
    pub(super) here: Side,
}

impl Chain {
    /// The first client. If it waits, the parties of this thread do not work.
    ///
    /// # Panics
    /// If there is none.
    pub fn client(&mut self) -> &mut Client {
        &mut self.clients[0]
    }

    /// Messages a second of a stream of 32 bytes, until the service has received all of them.
    ///
    /// # Errors
    /// If a message cannot be sent, a party fails, or messages are missing.
    pub fn stream(&mut self) -> Result<f64, Failure> {
        if self.here.service.is_some() {
            return self.stream_to_here();
        }
        let client = self.client();
        let before = client.counts().doing("call")?.received;
        let start = Instant::now();
        for number in 0..STREAMED {
            client.one_way_32(number, 1, 2, 3).doing("send")?;
        }
        let after = client.counts().doing("call")?.received;
        match after - before == STREAMED {
            true => Ok(per_second(STREAMED, start)),
            false => Err(Failure::other(format!("{} of {STREAMED} messages came", after - before))),
        }
    }

    /// A stream to a service of this thread, which reads some messages now and then, as it would on a core of its own.
    fn stream_to_here(&mut self) -> Result<f64, Failure> {
        let due = self.here.received() + STREAMED;
        let start = Instant::now();
        for number in 0..STREAMED {
            while !sent(self.client().try_one_way_32(number, 1, 2, 3))? {
                self.serve_some()?;
            }
        }
        while self.here.received() < due {
            self.client().progress().doing("send")?;
            self.serve_some()?;
        }
        Ok(per_second(STREAMED, start))
    }

    fn serve_some(&mut self) -> Result<(), Failure> {
        for _ in 0..SERVED {
            if !self.here.turn()? {
                break;
            }
        }
        Ok(())
    }

    /// Calls by the first client.
    ///
    /// # Errors
    /// If the call fails, or a party.
    ///
    /// # Panics
    /// If there is no client.
    #[inline]
    pub fn call<R, E: std::fmt::Display>(
        &mut self,
        start: impl FnOnce(&mut Client) -> Result<Pending<Result<R, E>>, CallError>,
    ) -> Result<R, Failure> {
        self.call_by(0, start)
    }

    /// Calls by one of the clients, and lets the parties of this thread work meanwhile. Nothing else may be under way.
    ///
    /// # Errors
    /// If the call fails, or a party.
    ///
    /// # Panics
    /// If there is no such client.
    #[inline]
    pub fn call_by<R, E: std::fmt::Display>(
        &mut self,
        client: usize,
        start: impl FnOnce(&mut Client) -> Result<Pending<Result<R, E>>, CallError>,
    ) -> Result<R, Failure> {
        let client = &mut self.clients[client];
        let mut pending = start(client).doing("call")?;
        let is_served_here = self.here.service.is_some();
        while is_served_here && !self.here.turn()? {}
        let reply = match self.here.monitors.is_empty() {
            true => pending.wait(client),
            false => loop {
                self.here.turn_monitors()?;
                if let Some(reply) = pending.try_wait(client) {
                    break reply;
                }
            },
        };
        reply.map_err(|error| Failure::other(format!("a call failed: {error}")))
    }
}

fn sent(tried: Result<(), CallError>) -> Result<bool, Failure> {
    match tried {
        Ok(()) => Ok(true),
        Err(CallError::Busy) => Ok(false),
        Err(error) => Err(Failure::other(format!("a message was not sent: {error}"))),
    }
}

/// The table by which each monitor sends everything to the next one on the way.
pub(super) fn table(nodes: &[NodeId]) -> Table {
    let mut vias = Vec::new();
    for (at, &from) in nodes.iter().enumerate() {
        for (end, &to) in nodes.iter().enumerate() {
            let via = if at < end { nodes.get(at + 1) } else { nodes.get(at.wrapping_sub(1)) };
            if at.abs_diff(end) > 1 {
                vias.extend(via.map(|&via| Via { from, to, via }));
            }
        }
    }
    Table { vias, ..Table::default() }
}

pub(super) fn domain_at(directory: &Path, name: &str) -> Result<Domain, Failure> {
    let path = directory.join(name);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.doing(format_args!("make {}", path.display()))?;
    Domain::open_at(&path).doing("open a domain")
}
