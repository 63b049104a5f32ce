//! How threads wait for their circuits: one leads, others follow.

use std::sync::{Arc, MutexGuard};

use super::Hub;
use super::message::{CircuitError, Message};
use super::state::{Look, Signal, State};
use crate::patience::{Late, Patience};

/// Looks of a thread that waits, after which it asks for the time: others may be sent much.
const LOOKS_PER_CLOCK: usize = 64;

/// What a first look for the next message of a circuit has found.
enum First {
    Message(Message),
    Nothing,
    /// Something else, or something else must be done first.
    Other,
}

impl Hub {
    /// Waits until nothing of a circuit waits to be sent.
    ///
    /// # Errors
    /// [`CircuitError`].
    pub fn flush(&self, index: u32, patience: Patience) -> Result<(), CircuitError> {
        self.wait_until(index, patience, |state| state.ends.is_all_sent(index).then_some(()))
    }

    /// The next message of a circuit.
    ///
    /// # Errors
    /// [`CircuitError`].
    #[inline]
    pub fn receive(&self, index: u32, patience: Patience) -> Result<Message, CircuitError> {
        let mut state = self.lock();
        match self.look_first(&mut state, index, patience)? {
            First::Message(message) => Ok(message),
            First::Nothing if matches!(patience, Patience::None) => Err(Late::Busy.into()),
            _ => self.wait_from(state, index, patience, |state| state.take(index)),
        }
    }

    /// The next message of a circuit, if it has come.
    ///
    /// # Errors
    /// [`CircuitError`].
    #[inline]
    pub fn try_receive(&self, index: u32) -> Result<Option<Message>, CircuitError> {
        let mut state = self.lock();
        match self.look_first(&mut state, index, Patience::None)? {
            First::Message(message) => Ok(Some(message)),
            First::Nothing => Ok(None),
            First::Other => {
                match self.wait_from(state, index, Patience::None, |state| state.take(index)) {
                    Err(CircuitError::Late(Late::Busy)) => Ok(None),
                    received => received.map(Some),
                }
            }
        }
    }

    /// The usual way to the next message of a circuit: no other thread, and nothing waits.
    #[inline]
    fn look_first(
        &self,
        state: &mut State,
        index: u32,
        patience: Patience,
    ) -> Result<First, CircuitError> {
        if self.is_wanted() || !self.inbox.is_empty() || !state.is_quiet(index) {
            return Ok(First::Other);
        }
        match state.look(patience)? {
            Look::Message(found, arrived) if found == index && arrived.head.capabilities == 0 => {
                state.end_lead();
                return Ok(First::Message(arrived.into_message()));
            }
            Look::Message(found, arrived) => state.put(found, arrived),
            Look::Something | Look::Interrupted => {}
            Look::Nothing => return Ok(First::Nothing),
        }
        Ok(First::Other)
    }

    /// Waits until something has come for a circuit, or what waited has been sent.
    ///
    /// # Errors
    /// [`CircuitError`].
    pub fn wait(&self, index: u32, patience: Patience) -> Result<(), CircuitError> {
        let was_keeping = !self.is_all_sent(index);
        self.wait_until(index, patience, |state| {
            let has_message = state.has_message(index);
            (has_message || was_keeping && state.ends.is_all_sent(index)).then_some(())
        })
    }

    /// Waits until `find` finds something: leads, or follows.
    pub(super) fn wait_until<R>(
        &self,
        index: u32,
        patience: Patience,
        find: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, CircuitError> {
        self.wait_from(self.lock(), index, patience, find)
    }

    fn wait_from<'a, R>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        index: u32,
        patience: Patience,
        mut find: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, CircuitError> {
        let mut leads = false;
        let mut looks = 0_usize;
        let waited = loop {
            looks += 1;
            self.open_inbox(&mut state);
            // First: what is sent now may be what the caller waits for.
            state.flush();
            // What has come already counts, whatever has happened since.
            if let Some(found) = find(&mut state) {
                break Ok(found);
            }
            if let Some(error) = state.ended(index) {
                break Err(error);
            }
            // What comes for others, however much it is, must not hold up the caller.
            if looks.is_multiple_of(LOOKS_PER_CLOCK)
                && let Err(error) = patience.left()
            {
                break Err(error.into());
            }
            if state.is_led && !leads {
                state = self.follow(state, index, patience)?;
                continue;
            }
            (state.is_led, leads) = (true, true);
            // Those that come from now on interrupt the look.
            if self.is_wanted() {
                state = self.let_in(state);
                continue;
            }
            match state.look(patience) {
                Ok(Look::Message(found, arrived)) => state.put(found, arrived),
                Ok(Look::Something | Look::Interrupted) => {}
                Ok(Look::Nothing) => {
                    self.open_inbox(&mut state);
                    if let Some(found) = find(&mut state) {
                        break Ok(found);
                    }
                    if let Err(error) = patience.left() {
                        break Err(state.ended(index).unwrap_or(error.into()));
                    }
                }
                Err(error) => break Err(error),
            }
        };
        if leads {
            state.is_led = false;
        }
        state.end_lead();
        waited
    }

    /// Sleeps until the leader has found something for this circuit, or has left.
    fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        index: u32,
        patience: Patience,
    ) -> Result<MutexGuard<'a, State>, CircuitError> {
        let left = patience.left()?;
        let Some(local) = state.circuits.get_mut(index) else { return Ok(state) };
        let signal = Arc::<Signal>::default();
        local.follower = Some(Arc::clone(&signal));
        state.followers.push(index);
        drop(state);
        signal.wait(left);
        // The leader may be waiting with the state: this interrupts it.
        let mut state = self.lock();
        state.followers.retain(|one| *one != index);
        if let Some(local) = state.circuits.get_mut(index) {
            local.follower = None;
        }
        Ok(state)
    }
}
