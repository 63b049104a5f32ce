//! What there is in the domain: all processes are asked at once, and one that does not answer gets a line that
//! says so.

use std::time::Duration;

use corewire::{ChannelView, Domain, EndpointView, JoinError, ListenerView, Observed};
use serde::Serialize;

use crate::failure::Failure;

/// How long all answers are waited for, in all. A process that runs answers in a fraction of a millisecond.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Everything that has a name, in the order of the names.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) channels: Vec<ChannelView>,
    pub(crate) endpoints: Vec<EndpointView>,
    pub(crate) listeners: Vec<ListenerView>,
    pub(crate) silent: Vec<Silent>,
    /// Why others cannot be looked at.
    pub(crate) unseen: Vec<String>,
}

/// A name whose process does not answer: it is stopped, or very busy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Silent {
    pub(crate) name: String,
    pub(crate) is_endpoint: bool,
    pub(crate) is_service: bool,
    /// 0 if it is not known.
    pub(crate) pid: u32,
}

impl Silent {
    /// What a line says of it.
    pub(crate) fn text(&self) -> String {
        match self.pid {
            0 => "does not answer".to_owned(),
            pid => format!("does not answer (pid {pid})"),
        }
    }
}

/// Looks at everything in `domain`.
pub(crate) fn look(domain: &Domain) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    for sighting in domain.observe_all(TIMEOUT)? {
        let name = sighting.name;
        let (is_endpoint, is_service) = (sighting.is_endpoint, sighting.is_listener);
        match sighting.observed {
            Ok(Observed::Channel(channel)) => seen.channels.push(channel.look()),
            Ok(Observed::Endpoint(endpoint)) => seen.endpoints.push(endpoint.look()),
            Ok(Observed::Listener(listener)) => seen.listeners.push(listener),
            Ok(_) => {}
            Err(JoinError::NoAnswer { pid, .. }) => {
                seen.silent.push(Silent { name, is_endpoint, is_service, pid });
            }
            Err(error) => seen.unseen.push(error.to_string()),
        }
    }
    Ok(seen)
}

/// The processes that are joining a channel.
pub(crate) fn joining(pids: &[u32]) -> String {
    match pids {
        [] => String::new(),
        [pid] => format!("joining (pid {pid})"),
        [first, others @ ..] => format!("joining (pid {first} and {} more)", others.len()),
    }
}
