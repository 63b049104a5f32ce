//! How other programs ask a monitor what it shows, and give it a routing table.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use corewire::{ConnectServiceError, Domain};
use rustix::event::PollFlags;

use super::shown::{Circuits, Routes};
use crate::link::socket::{ControlLane, LaneEnd, wait};
use crate::wire::packet::{Packet, Question, Table};
use crate::wire::{NodeId, monitor_of_name, name_of_monitor};

/// Why a monitor did not answer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// It does not run.
    #[error("monitor {node} does not run")]
    NotRunning {
        /// The monitor.
        node: NodeId,
    },
    /// It runs as another user, and has not admitted this process's user.
    #[error("monitor {node} belongs to user {owner}, this process runs as user {user}")]
    OtherUser {
        /// The monitor.
        node: NodeId,
        /// Its user.
        owner: u32,
        /// This process's effective user.
        user: u32,
    },
    /// It cannot be reached.
    #[error("monitor {node}: {error}")]
    Connect {
        /// The monitor.
        node: NodeId,
        /// Why.
        error: Box<ConnectServiceError>,
    },
    /// It refuses.
    #[error("monitor {node} refuses: {reason}")]
    Refused {
        /// The monitor.
        node: NodeId,
        /// Its reason.
        reason: String,
    },
    /// It has ended, or what answered is no monitor of this version.
    #[error("monitor {node}: {end}")]
    Lane {
        /// The monitor.
        node: NodeId,
        /// What is wrong.
        end: LaneEnd,
    },
    /// It sent something else.
    #[error("monitor {node} sent what is no answer")]
    Protocol {
        /// The monitor.
        node: NodeId,
    },
    /// It did not answer in time.
    #[error("monitor {node} did not answer within {within:?}")]
    NoAnswer {
        /// The monitor.
        node: NodeId,
        /// How long was waited.
        within: Duration,
    },
}

impl AskError {
    fn connecting(node: NodeId, error: ConnectServiceError) -> Self {
        use ConnectServiceError as E;
        match error {
            E::NotFound(_) | E::NotCreated { .. } => Self::NotRunning { node },
            E::NotPermitted { owner, user, .. } => Self::OtherUser { node, owner, user },
            E::NoAnswer { after: within, .. } => Self::NoAnswer { node, within },
            E::Full { reason, .. } | E::Refused { reason, .. } => {
                Self::Refused { node, reason: reason.to_string() }
            }
            error => Self::Connect { node, error: Box::new(error) },
        }
    }
}

/// The longest answer that is read: a million circuits take half of it.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// A connection to a monitor that is asked.
#[derive(Debug)]
pub struct Asking {
    node: NodeId,
    lane: ControlLane<corewire::Connection>,
    within: Duration,
}

/// The monitors of a domain that run, in the order of their numbers.
///
/// # Errors
/// The runtime directory cannot be read.
pub fn monitors(domain: &Domain) -> Result<Vec<NodeId>, corewire::OpenError> {
    let names = domain.listeners()?;
    let mut all: Vec<_> = names.iter().filter_map(|name| monitor_of_name(name.as_str())).collect();
    all.sort();
    Ok(all)
}

impl Asking {
    /// Connects to a monitor, which may take this long to answer.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn connect(domain: &Domain, node: NodeId, within: Duration) -> Result<Self, AskError> {
        let socket = domain.connect(&name_of_monitor(node), within);
        let socket = socket.map_err(|error| AskError::connecting(node, error))?;
        Ok(Self { node, lane: ControlLane::new(socket), within })
    }

    /// The circuits through it.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn circuits(&mut self) -> Result<Circuits, AskError> {
        let answer = self.ask(Question::Circuits)?;
        serde_json::from_slice(&answer).map_err(|_| AskError::Protocol { node: self.node })
    }

    /// Its links, names and routes.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn routes(&mut self) -> Result<Routes, AskError> {
        let answer = self.ask(Question::Routes)?;
        serde_json::from_slice(&answer).map_err(|_| AskError::Protocol { node: self.node })
    }

    /// Gives it a routing table, which it gives to all others. Its version is set by the monitor.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn set_table(&mut self, table: Table) -> Result<(), AskError> {
        self.send(&Packet::Table(table))?;
        match self.receive()? {
            (Packet::Ready, _) => Ok(()),
            _ => Err(AskError::Protocol { node: self.node }),
        }
    }

    /// Begins or ends a trace of the monitor and the programs that have links with it. It ends with this connection, too.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn trace(&mut self, is_on: bool) -> Result<(), AskError> {
        self.send(&Packet::Trace { is_on })?;
        match self.receive()? {
            (Packet::Ready, _) => Ok(()),
            _ => Err(AskError::Protocol { node: self.node }),
        }
    }

    /// The memory of everybody who has recorded since the trace began ([`crate::wire::trace`]). It is not checked.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn traces(&mut self) -> Result<Vec<OwnedFd>, AskError> {
        self.send(&Packet::Ask(Question::Traces))?;
        let mut all = Vec::new();
        let until = Instant::now() + self.within;
        loop {
            match self.receive_until(until)? {
                (Packet::Traced, memory) => all.extend(memory.unwrap_or_default()),
                (Packet::Answer { is_last: true, .. }, _) => return Ok(all),
                _ => return Err(AskError::Protocol { node: self.node }),
            }
        }
    }

    fn ask(&mut self, question: Question) -> Result<Vec<u8>, AskError> {
        self.send(&Packet::Ask(question))?;
        let mut answer = Vec::new();
        let until = Instant::now() + self.within;
        loop {
            match self.receive_until(until)? {
                (Packet::Answer { is_last, part }, _) => {
                    answer.extend(part);
                    if answer.len() > ANSWER_BYTES_MAX {
                        return Err(AskError::Protocol { node: self.node });
                    }
                    if is_last {
                        return Ok(answer);
                    }
                }
                _ => return Err(AskError::Protocol { node: self.node }),
            }
        }
    }

    fn send(&mut self, packet: &Packet) -> Result<(), AskError> {
        let node = self.node;
        self.lane.send(packet, Vec::new()).map_err(|end| AskError::Lane { node, end })
    }

    fn receive(&mut self) -> Result<(Packet, Option<Vec<OwnedFd>>), AskError> {
        self.receive_until(Instant::now() + self.within)
    }

    fn receive_until(
        &mut self,
        until: Instant,
    ) -> Result<(Packet, Option<Vec<OwnedFd>>), AskError> {
        let (node, within) = (self.node, self.within);
        loop {
            match self.lane.receive().map_err(|end| AskError::Lane { node, end })? {
                Some((Packet::Refused { reason }, _)) => {
                    return Err(AskError::Refused { node, reason });
                }
                // The other side may send without an end.
                Some(_) if Instant::now() > until => {
                    return Err(AskError::NoAnswer { node, within });
                }
                Some(received) => return Ok(received),
                None if !wait(self.lane.socket(), PollFlags::IN, until) => {
                    return Err(AskError::NoAnswer { node, within });
                }
                None => {}
            }
        }
    }
}

corewire_layout::debug_is_text!(AskError);
