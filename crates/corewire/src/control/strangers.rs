//! Connections that have not said yet who they are: a bounded number, of which the oldest goes if another one waits for its place.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corewire_net::open::hang_up;
use corewire_os::event::Bell;
use corewire_os::fork::Descriptor;

use crate::guard::lock;

/// How many there are at most.
pub(crate) const STRANGERS_MAX: usize = 64;
/// What each has to itself. One that takes longer is closed if another one waits.
const UNDISTURBED: Duration = Duration::from_millis(200);

/// All of them.
pub(crate) struct Strangers {
    state: Mutex<State>,
    /// Rings when one has gone.
    gone: Bell,
}

#[derive(Default)]
struct State {
    last: u64,
    /// The oldest first.
    all: VecDeque<One>,
}

struct One {
    number: u64,
    since: Instant,
    /// A descriptor of its own, to close it by; `None` once that is done.
    stream: Option<Descriptor>,
}

impl Strangers {
    pub(crate) fn new() -> Result<Arc<Self>, corewire_os::OsError> {
        Ok(Arc::new(Self { state: Mutex::default(), gone: Bell::new()? }))
    }

    /// Rings when one has gone.
    pub(crate) fn gone(&self) -> &Bell {
        &self.gone
    }

    pub(crate) fn has_room(&self) -> bool {
        lock(&self.state).all.len() < STRANGERS_MAX
    }

    /// One more, until what is returned is dropped. `None` if there is no room, or no descriptor.
    pub(crate) fn add(self: &Arc<Self>, stream: impl AsFd) -> Option<Stranger> {
        let mut state = lock(&self.state);
        if state.all.len() >= STRANGERS_MAX {
            return None;
        }
        // A forked child must not keep the connection.
        let stream = Some(Descriptor::make(|| stream.as_fd().try_clone_to_owned()).ok()?);
        state.last += 1;
        let number = state.last;
        state.all.push_back(One { number, since: Instant::now(), stream });
        Some(Stranger { all: Arc::clone(self), number })
    }

    /// Somebody waits for a place: closes the oldest, unless it has come just now or is closed. When to ask again, at the latest.
    pub(crate) fn close_oldest(&self) -> Option<Instant> {
        let mut state = lock(&self.state);
        let oldest = state.all.iter_mut().find(|one| one.stream.is_some())?;
        let until = oldest.since + UNDISTURBED;
        if Instant::now() < until {
            return Some(until);
        }
        if let Some(stream) = oldest.stream.take() {
            // A thread that reads from it sees its end.
            hang_up(&stream);
        }
        None
    }
}

/// One of them.
pub(crate) struct Stranger {
    all: Arc<Strangers>,
    number: u64,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        lock(&self.all.state).all.retain(|one| one.number != self.number);
        self.all.gone.ring();
    }
}
