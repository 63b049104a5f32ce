//! Looking at groups from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use corewire::{Domain, Event, MessageError, Selector};
use corewire_os::random_u128;

use crate::engine::{name_of, place_of};
use crate::error::JoinGroupError;
use crate::frame::{FRAME_TAG, Frame, Seen, decode, encode};

/// A group, as its members say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// What those say that have answered, by place.
    pub members: Vec<Seen>,
    /// The places of those that have not: stopped, or about to become members or to leave.
    pub silent: Vec<u8>,
}

impl GroupView {
    /// How many entries the member that knows most knows to be decided.
    #[must_use]
    pub fn most_decided(&self) -> u64 {
        self.members.iter().map(|seen| seen.decided).max().unwrap_or(0)
    }
}

/// Asks all members of all groups of a domain. Waits for at most `within`.
///
/// # Errors
/// As for [`GroupBuilder::join`](crate::GroupBuilder::join), where an endpoint cannot be created.
pub fn look(domain: &Domain, within: Duration) -> Result<Vec<GroupView>, JoinGroupError> {
    let channels = domain.channels()?;
    let endpoints = domain.endpoints()?;
    let mut asked: BTreeMap<String, (String, u8)> = BTreeMap::new();
    for channel in &channels {
        let Some(group) = channel.as_str().strip_suffix(".log") else { continue };
        for endpoint in &endpoints {
            if let Some(place) = place_of(group, endpoint.as_str()) {
                asked.insert(name_of(group, place), (group.to_owned(), place));
            }
        }
    }
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let own = format!("looking.{:016x}", random_u128()? & u128::from(u64::MAX));
    let mut endpoint = domain.endpoint(&own).peers(1024).create()?;
    let mut waiting: BTreeSet<String> = asked.keys().cloned().collect();
    // One that is stopped does not hold up the others.
    let (failures, failed) = mpsc::channel();
    for name in asked.keys().cloned() {
        let (connector, failures, interrupter) =
            (endpoint.connector(), failures.clone(), endpoint.interrupter());
        let connect = move || {
            if connector.connect(&name).is_err() {
                let _ = failures.send(name);
                interrupter.interrupt();
            }
        };
        let _ = std::thread::Builder::new().name("corewire-look".to_owned()).spawn(connect);
    }
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    let deadline = Instant::now().checked_add(within);
    while !waiting.is_empty() {
        let left = deadline.map_or(within, |at| at.saturating_duration_since(Instant::now()));
        match endpoint.within(left).receive_event(Selector::any()) {
            Ok(None) => break,
            Ok(Some(Event::Came(peer))) => {
                let _ = endpoint.try_send(peer, FRAME_TAG, &encode(&<Frame>::Look));
            }
            Ok(Some(Event::Received(message))) => {
                let name = endpoint.name_of(message.source()).unwrap_or_default().to_owned();
                if let Some(Frame::Seen(said)) = decode::<Frame>(&message) {
                    waiting.remove(&name);
                    // One that is about to become a member knows nothing yet.
                    if said.view.number > 0 {
                        seen.insert(name, *said);
                    }
                }
            }
            Ok(Some(Event::Gone { peer, .. })) => {
                waiting.remove(endpoint.name_of(peer).unwrap_or_default());
            }
            // A connection has failed.
            Err(MessageError::Interrupted) => {}
            Err(_) => break,
        }
        while let Ok(name) = failed.try_recv() {
            waiting.remove(&name);
        }
    }
    let mut groups: BTreeMap<String, GroupView> = BTreeMap::new();
    for (name, (group, place)) in asked {
        let view = || GroupView { name: group.clone(), members: Vec::new(), silent: Vec::new() };
        let found = groups.entry(group.clone()).or_insert_with(view);
        match seen.remove(&name) {
            Some(said) => found.members.push(said),
            None => found.silent.push(place),
        }
    }
    for found in groups.values_mut() {
        found.members.sort_by_key(|seen| seen.member.place);
    }
    Ok(groups.into_values().collect())
}
