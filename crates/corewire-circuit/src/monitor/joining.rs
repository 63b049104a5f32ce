//! How monitors find each other: the one with the higher number connects.
//!
//! It also offers the end of a link that the routing table does not need, when no circuit is on it and the links that
//! the table needs are there. It sets up no circuit on that link before the answer: the other monitor ends the link, or
//! refuses.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::closer::Whose;
use super::connection::What;
use super::handle::{Accepted, Joined};
use super::rings::TRUNK;
use super::state::Monitor;
use crate::link::ring::RingLane;
use crate::link::socket::ControlLane;
use crate::wire::packet::{Packet, Role};
use crate::wire::{NodeId, monitor_of_name, name_of_monitor};

/// How long another monitor may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl Monitor {
    /// Connects to the monitors that this one must have a link with, and that wait for it to connect.
    pub(crate) fn join_others(&mut self) {
        self.names_have_changed = false;
        let Ok(names) = self.domain.listeners() else { return };
        let (own, others) =
            (self.node.id(), names.iter().filter_map(|name| monitor_of_name(name.as_str())));
        let mut others: Vec<NodeId> = others.filter(|node| *node != own).collect();
        others.sort();
        let is_alone = !others.iter().any(|node| self.node.link_of(*node).is_some());
        let has_place = |node: &NodeId| !self.node.is_outside(*node);
        let is_first =
            has_place(&own) && others.iter().filter(|node| has_place(node)).all(|node| *node > own);
        // One that has not answered is asked again later.
        let first = others.iter().position(|node| !self.failed.contains(node));
        for (index, &node) in others.iter().enumerate() {
            // The first one knows the routing table, if there is one. Those behind this one connect by themselves.
            let is_due = match is_alone {
                true => Some(index) == first,
                // One that came later and has no place in the table gets it from the first that has.
                false => self.node.is_neighbour(node) || self.node.is_outside(node) && is_first,
            };
            let is_there = self.node.link_of(node).is_some()
                || self.joining.1.contains(&node)
                || self.failed.contains(&node);
            if node < own && is_due && !is_there {
                self.join(node);
            }
        }
        self.node.close_unneeded(others.into_iter().collect(), &mut self.out);
    }

    /// Connects to neighbours that should have connected by themselves since the last call: they may have an earlier table,
    /// and nobody to tell them of this one.
    pub(crate) fn join_late(&mut self) {
        let missing: BTreeSet<NodeId> = self.node.missing().collect();
        for node in missing.intersection(&self.missing).copied().collect::<Vec<_>>() {
            if !self.joining.1.contains(&node) && !self.failed.contains(&node) {
                self.join(node);
            }
        }
        self.missing = missing;
    }

    /// Connects to another monitor, in a thread of its own.
    fn join(&mut self, node: NodeId) {
        let (domain, done) = (self.domain.clone(), self.joining.0.clone());
        let (own, wake) = (self.node.id(), std::sync::Arc::clone(&self.wake));
        let connector = self.out.rings[TRUNK].endpoint.connector();
        let work = move || {
            let accepted = ask(&domain, own, node).and_then(|accepted| {
                connector.connect(&accepted.endpoint).ok()?;
                Some(accepted)
            });
            let joined = match accepted {
                Some(accepted) => Joined::Monitor(std::sync::Arc::new(Some(accepted).into())),
                None => Joined::Failed(node),
            };
            // The monitor may have ended.
            let _ = done.send(joined);
            let _ = rustix::io::write(&wake, &1_u64.to_le_bytes());
        };
        let thread = std::thread::Builder::new().name("corewire-join".to_owned()).spawn(work);
        if thread.is_ok() {
            self.joining.1.insert(node);
        }
    }

    /// Takes what threads have done. True if the monitor must end.
    pub(crate) fn take_joined(&mut self) -> bool {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        self.release_held();
        while let Ok(joined) = self.joined.try_recv() {
            match joined {
                Joined::Stop => return true,
                Joined::Policy(policy) => {
                    self.node.set_policy(policy);
                    self.out.reported.clear();
                }
                Joined::Failed(node) => {
                    self.joining.1.remove(&node);
                    self.failed.insert(node);
                    self.names_have_changed = true;
                }
                Joined::Monitor(accepted) => {
                    let accepted = accepted.lock().ok().and_then(|mut accepted| accepted.take());
                    if let Some(accepted) = accepted {
                        self.joining.1.remove(&accepted.node);
                        self.accepted(accepted);
                    }
                }
            }
        }
        false
    }

    fn accepted(&mut self, accepted: Accepted) {
        let Accepted { node, socket, secret, endpoint: endpoint_name } = accepted;
        let endpoint = &mut self.out.rings[TRUNK].endpoint;
        // None if it has gone meanwhile.
        let Some(mut ring) = RingLane::to(endpoint, &endpoint_name) else { return };
        let until = Instant::now() + ANSWER_WITHIN;
        let closer = self.out.closers.of(Whose::Monitor);
        if let Some(key) = self.out.add(socket, What::Joining { node, until }) {
            if let Some(connection) = self.out.connections.get_mut(&key) {
                connection.lane.socket_mut().set_monitor(closer);
            }
            ring.say_hello(&mut self.out.rings[TRUNK].endpoint, secret);
            self.out.joining.insert(key, ring);
        }
    }
}

/// Asks another monitor to be a neighbour.
fn ask(domain: &corewire::Domain, own: NodeId, node: NodeId) -> Option<Accepted> {
    let socket = domain.connect(&name_of_monitor(node), ANSWER_WITHIN).ok()?;
    let until = Instant::now() + ANSWER_WITHIN;
    let mut lane = ControlLane::new(socket);
    lane.send(&Packet::Attach { role: Role::Monitor(own), wants_ring: true }, Vec::new()).ok()?;
    loop {
        match lane.receive().ok()? {
            Some((Packet::Attached { node: found, secret, endpoint }, _)) if found == node => {
                return Some(Accepted { node, socket: lane.into_socket(), secret, endpoint });
            }
            Some(_) => return None,
            None => {
                let waited = crate::link::socket::wait(lane.socket(), PollFlags::IN, until);
                waited.then_some(())?;
            }
        }
    }
}
