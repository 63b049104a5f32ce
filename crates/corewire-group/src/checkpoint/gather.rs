//! The calls that gather the states of all ranks.

use super::ComputationError;
use super::computation::{Computation, REPLY, REQUEST};
use super::gathering::Gathered;

impl Computation {
    /// Gathers the states of all ranks, at checkpoints that belong together: this rank takes one and asks all others. They
    /// answer in their calls that receive messages, and in [`checkpoint_if_due`](Self::checkpoint_if_due). Waits for that.
    /// The first requests go to each rank by itself, until all hear this rank's channel; then each is one message that all
    /// read.
    ///
    /// # Errors
    /// As for [`send`](Self::send); [`ComputationError::Channel`] if the channel for requests cannot be created.
    pub fn gather(
        &mut self,
        mut state: impl FnMut() -> Vec<u8>,
    ) -> Result<Gathered, ComputationError> {
        let mut number = self.number() + 1;
        self.check_others()?;
        loop {
            self.checkpoint_numbered(number, state())?;
            let (own, rank) = (self.last_state(), self.rank());
            if !self.gathering.publish(rank, number)? {
                for other in self.others() {
                    self.put(other, REQUEST, &number.to_le_bytes(), &[])?;
                }
            }
            while !self.others().all(|other| self.gathering.is_answered(other, number)) {
                self.answer(&mut state)?;
                self.receive_until(None)?;
            }
            let (most, states) = self.gathering.take_states(rank, own);
            if let Some(states) = states {
                return Ok(Gathered { number, states });
            }
            // One that is ahead by two checkpoints does not have that state any more.
            number = most.max(self.number()) + 1;
        }
    }

    /// Answers those who have asked for a state.
    pub(super) fn answer(
        &mut self,
        state: &mut impl FnMut() -> Vec<u8>,
    ) -> Result<(), ComputationError> {
        while let Some((from, number)) = self.gathering.next_asked() {
            if number > self.number() {
                self.checkpoint_numbered(number, state())?;
            }
            let (numbers, state) = ((number, self.number()), self.state_of(number));
            let head = self.gathering.head_of_answer(from, numbers, state.is_some());
            let state = state.as_ref().map(|state| &state[..]).unwrap_or_default();
            self.put(from, REPLY, &head, state)?;
        }
        Ok(())
    }
}
