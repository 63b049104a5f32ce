//! Completion counters: a put that its target can wait for.

use std::time::Duration;

use corewire_layout::window::Rights;

use super::Window;
use crate::error::WindowError;
use crate::wait::Patience;

impl Window {
    /// As [`put`](Self::put), and then adds 1 to counter `counter` of the window, of which it has 32. Who sees the count
    /// sees the bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-counted-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// use corewire::WindowRights;
    ///
    /// let mut window = domain.window("inbox", 4096).create()?;
    /// let there = domain.attach_window("inbox", WindowRights::WRITE)?;
    /// there.put_counted(0, b"a block", 3)?;
    ///
    /// window.wait_counter(3, 1)?; // one block is there
    /// let mut block = [0; 7];
    /// window.get(0, &mut block)?;
    /// assert_eq!(&block, b"a block");
    /// # drop((there, window, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WindowError::Counter`], [`WindowError::Guest`], and as for [`put`](Self::put). Nothing has been copied or counted
    /// then.
    pub fn put_counted(
        &self,
        offset: u64,
        source: &[u8],
        counter: usize,
    ) -> Result<(), WindowError> {
        self.counter(counter)?;
        self.put(offset, source)?;
        self.count(counter, 1)
    }

    /// Adds to a counter. Who sees the count sees everything that this thread has put before.
    ///
    /// # Errors
    /// As for [`put_counted`](Self::put_counted).
    pub fn count(&self, counter: usize, count: u64) -> Result<(), WindowError> {
        self.check(Rights::WRITE)?;
        let participant = self.seated()?;
        participant.add(counter, count).ok_or(WindowError::Counter { asked: counter })?;
        participant.tell(&self.linux);
        Ok(())
    }

    /// What a counter holds. It goes round after 2^64.
    ///
    /// # Errors
    /// [`WindowError::Counter`], [`WindowError::Guest`], and as for [`get`](Self::get).
    pub fn counter(&self, counter: usize) -> Result<u64, WindowError> {
        self.check(Rights::READ)?;
        let count = self.seated()?.book().count(counter);
        count.ok_or(WindowError::Counter { asked: counter })
    }

    /// Waits until a counter holds at least `count`. Returns what it holds.
    ///
    /// # Errors
    /// As for [`counter`](Self::counter), also if the owner goes meanwhile; [`WindowError::Interrupted`].
    pub fn wait_counter(&mut self, counter: usize, count: u64) -> Result<u64, WindowError> {
        loop {
            if let Some(found) = self.count_within(counter, count, Patience::Forever)? {
                return Ok(found);
            }
        }
    }

    /// As [`wait_counter`](Self::wait_counter), but waits for at most `timeout`: `None` if it holds less then.
    ///
    /// # Errors
    /// As for [`wait_counter`](Self::wait_counter).
    pub fn wait_counter_timeout(
        &mut self,
        counter: usize,
        count: u64,
        timeout: Duration,
    ) -> Result<Option<u64>, WindowError> {
        self.count_within(counter, count, Patience::until(timeout))
    }

    fn count_within(
        &self,
        counter: usize,
        count: u64,
        patience: Patience,
    ) -> Result<Option<u64>, WindowError> {
        self.counter(counter)?;
        let mut found = 0;
        let is_there = self.wait_for(patience, |one| {
            found = one.book().count(counter).unwrap_or(0);
            Ok(found >= count)
        })?;
        Ok(is_there.then_some(found))
    }
}
