//! One hub for each monitor that this process uses.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use corewire::Domain;
use corewire_os::fork::PerProcess;

use super::Hub;
use crate::link::attach::AttachError;
use crate::patience::Patience;
use crate::wire::NodeId;

/// The hub of a monitor, or the place where it will be: threads wait only for the monitor that they want.
#[derive(Default)]
struct HubPlace {
    state: Mutex<PlaceState>,
    changed: Condvar,
}

#[derive(Default)]
struct PlaceState {
    hub: Weak<Hub>,
    is_attaching: bool,
}

type Places = Vec<(PathBuf, NodeId, Arc<HubPlace>)>;

static PLACES: PerProcess<Mutex<Places>> = PerProcess::new();

impl HubPlace {
    fn of(domain: &Domain, node: NodeId) -> Arc<Self> {
        let path = domain.runtime_directory();
        let mut places = PLACES.get().lock().unwrap_or_else(PoisonError::into_inner);
        let found = places.iter().find(|(at, number, _)| at == path && *number == node);
        if let Some((_, _, place)) = found {
            return Arc::clone(place);
        }
        // Those of monitors that nobody uses any more.
        places.retain(|(_, _, place)| Arc::strong_count(place) > 1 || place.is_used());
        let place = Arc::new(Self::default());
        places.push((path.to_owned(), node, Arc::clone(&place)));
        place
    }

    fn lock(&self) -> MutexGuard<'_, PlaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_used(&self) -> bool {
        self.lock().hub.strong_count() > 0
    }
}

impl Hub {
    /// The hub of this process for a monitor: there is one for all clients.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn of(domain: &Domain, node: NodeId, until: Patience) -> Result<Arc<Self>, AttachError> {
        let place = HubPlace::of(domain, node);
        let mut state = place.lock();
        while state.is_attaching {
            let left = until.left()?.unwrap_or(Duration::MAX);
            let waited = place.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_usable = |hub: &Arc<Self>| hub.is_ours() && !hub.is_lost();
        if let Some(hub) = state.hub.upgrade().filter(is_usable) {
            return Ok(hub);
        }
        state.is_attaching = true;
        drop(state);
        let attached = Self::new(domain, node, until).map(Arc::new);
        let mut state = place.lock();
        state.is_attaching = false;
        state.hub = attached.as_ref().map_or_else(|_| Weak::new(), Arc::downgrade);
        place.changed.notify_all();
        attached
    }
}
