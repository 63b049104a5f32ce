//! Active epochs: all participants, or the owner and some of them, say when an epoch begins and ends.
//!
//! The data of a window is mapped in all participants, so that a put has been done when it returns; the end of an epoch only
//! makes it visible.

use std::time::Duration;

use corewire_ring::window::Stop;

use super::{Window, WindowParticipant};
use crate::error::WindowError;
use crate::wait::Patience;

impl Window {
    /// Waits until `count` participants, this one included, have called this as often as this one. What each has put before
    /// is visible to all afterwards. All pass the same `count`: the number of those that take part. A participant that
    /// attaches later begins with the first fence that nobody has left yet.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-fence-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::WindowRights;
    ///
    /// let mut window = domain.window("steps", 4096).create()?;
    /// let mut there = domain.attach_window("steps", WindowRights::WRITE)?;
    /// let other = std::thread::spawn(move || {
    ///     there.put(0, b"done")?;
    ///     there.fence(2)
    /// });
    /// window.fence(2)?;
    /// let mut found = [0; 4];
    /// window.get(0, &mut found)?;
    /// assert_eq!(&found, b"done");
    /// # other.join().unwrap()?;
    /// # drop((window, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WindowError::Gone`] if a participant has gone that took part in an earlier fence, and fewer than `count` of those
    /// that did are left: once for each (of one that has never entered a fence nobody knows that it would); [`WindowError::PeerDied`] or
    /// [`WindowError::Closed`] if the owner goes; [`WindowError::Guest`], [`WindowError::Interrupted`],
    /// [`WindowError::Forked`]. After an error this participant is still in the fence: its next call goes on with it, also
    /// with another `count`.
    pub fn fence(&mut self, count: u32) -> Result<(), WindowError> {
        while !self.fence_within(count, Patience::Forever)? {}
        Ok(())
    }

    /// As [`fence`](Self::fence), but waits for at most `timeout`. False if the others have not come: this participant
    /// stays in the fence, and the next call goes on with it.
    ///
    /// # Errors
    /// As for [`fence`](Self::fence).
    pub fn fence_timeout(&mut self, count: u32, timeout: Duration) -> Result<bool, WindowError> {
        self.fence_within(count, Patience::until(timeout))
    }

    fn fence_within(&mut self, count: u32, patience: Patience) -> Result<bool, WindowError> {
        if let Some(error) = self.ended() {
            return Err(error);
        }
        let number = match self.fence {
            Some(number) => number,
            None => {
                let participant = self.seated()?;
                let number = participant.enter_fence();
                participant.tell(&self.linux);
                *self.fence.insert(number)
            }
        };
        let mut gone = None;
        let found = self.wait_for(patience, |one| {
            let fenced = one.is_fenced(number, count, &self.missed);
            if let Err(Stop::Gone(seat)) = fenced {
                gone = Some(seat);
            }
            Ok(fenced?.is_some())
        });
        // It is said once: then this participant goes on without it, or another one takes its place.
        if let Some(seat) = gone {
            self.missed.retain(|one| one.row != seat.row);
            self.missed.push(seat);
        }
        // One that is not over is gone on with: others that take the place of one that has gone enter the same fence.
        if found == Ok(true) {
            self.fence = None;
            self.seated()?.leave_fence(number);
        }
        found
    }

    /// The owner opens the window to these participants for an epoch: each can [`start`](Self::start) one. What the owner
    /// has put before is visible to them. Never waits.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-post-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::WindowRights;
    ///
    /// let mut window = domain.window("halo", 4096).create()?;
    /// let mut there = domain.attach_window("halo", WindowRights::WRITE)?;
    /// window.post(&[there.participant().unwrap()])?;
    ///
    /// there.start()?; // in another process
    /// there.put(0, b"edge")?;
    /// there.complete()?;
    ///
    /// window.wait()?;
    /// # drop((there, window, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WindowError::NotOwner`]; [`WindowError::Owner`] if the owner is among them; [`WindowError::Gone`] if one is not there any more, for the first such one: the
    /// window has been opened to those before it.
    pub fn post(&mut self, to: &[WindowParticipant]) -> Result<(), WindowError> {
        if !self.is_owner() {
            return Err(WindowError::NotOwner(self.name_of().clone()));
        }
        if let Some(error) = self.ended() {
            return Err(error);
        }
        if to.iter().any(|one| one.row() == 0) {
            return Err(WindowError::Owner(self.name_of().clone()));
        }
        let mut gone = Ok(());
        for &WindowParticipant(seat) in to {
            let Some(turn) = self.seated()?.post(seat) else {
                gone = Err(WindowError::Gone { name: self.name_of().clone(), row: seat.row });
                break;
            };
            self.posted.push((seat, turn));
        }
        self.seated()?.tell(&self.linux);
        gone
    }

    /// Begins an epoch. Waits until the owner has opened the window to this participant.
    ///
    /// # Errors
    /// [`WindowError::Owner`], [`WindowError::Guest`], [`WindowError::PeerDied`], [`WindowError::Closed`],
    /// [`WindowError::Interrupted`], [`WindowError::Forked`].
    pub fn start(&mut self) -> Result<(), WindowError> {
        while !self.start_within(Patience::Forever)? {}
        Ok(())
    }

    /// As [`start`](Self::start), but waits for at most `timeout`. False if the owner has not opened the window.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_timeout(&mut self, timeout: Duration) -> Result<bool, WindowError> {
        self.start_within(Patience::until(timeout))
    }

    fn start_within(&mut self, patience: Patience) -> Result<bool, WindowError> {
        if self.is_owner() {
            return Err(WindowError::Owner(self.name_of().clone()));
        }
        let has_started = self.wait_for(patience, |one| Ok(one.is_posted()))?;
        self.has_started |= has_started;
        Ok(has_started)
    }

    /// Ends the epoch that this participant has started: what it has put is visible to the owner when it has
    /// [waited](Self::wait). Does nothing if it has started none. Never waits.
    ///
    /// # Errors
    /// [`WindowError::Owner`], [`WindowError::Guest`], [`WindowError::PeerDied`], [`WindowError::Closed`],
    /// [`WindowError::Forked`].
    pub fn complete(&mut self) -> Result<(), WindowError> {
        if self.is_owner() {
            return Err(WindowError::Owner(self.name_of().clone()));
        }
        if let Some(error) = self.ended() {
            return Err(error);
        }
        let participant = self.seated()?;
        if self.has_started {
            participant.complete();
            participant.tell(&self.linux);
        }
        self.has_started = false;
        Ok(())
    }

    /// The owner waits until all participants to which it has [opened](Self::post) the window have completed their epochs.
    ///
    /// # Errors
    /// [`WindowError::NotOwner`]; [`WindowError::Gone`] if one has gone before, after all others have completed;
    /// [`WindowError::Interrupted`], [`WindowError::Forked`].
    pub fn wait(&mut self) -> Result<(), WindowError> {
        while !self.wait_within(Patience::Forever)? {}
        Ok(())
    }

    /// As [`wait`](Self::wait), but waits for at most `timeout`. False if some have not completed.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<bool, WindowError> {
        self.wait_within(Patience::until(timeout))
    }

    fn wait_within(&mut self, patience: Patience) -> Result<bool, WindowError> {
        if !self.is_owner() {
            return Err(WindowError::NotOwner(self.name_of().clone()));
        }
        let mut gone = None;
        for (seat, turn) in self.posted.clone() {
            match self.wait_for(patience, |one| one.is_complete(seat, turn)) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error @ WindowError::Gone { .. }) => gone = gone.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        self.posted.clear();
        gone.map_or(Ok(true), Err)
    }
}
