//! A last value: one writer, and readers that want the newest value, whatever came before it.
//!
//! It is a channel that [overwrites](crate::SenderBuilder::overwrite), of a few slots. A reader joins, finds the newest
//! message by a binary search over the stamps, and copies it. Only if the writer has overwritten it meanwhile, which takes
//! as many values as there are slots, it looks again. The writer never waits, and does not know who reads.
//!
//! | cost | |
//! |---|---|
//! | of a value | one send: a line for a value of at most 48 bytes |
//! | of a read | log2(slots) loads to find the newest, and the copy |

use std::fmt;
use std::time::{Duration, Instant};

use corewire_layout::name::ChannelName;

use crate::error::{CreateError, JoinError, ReceiveError, SendError};
use crate::open::domain::Domain;
use crate::path::send::Sender;
use crate::path::snapshot::{Snapshot, SnapshotReceiver};
use crate::wait::{Interrupter, Readiness, Wait};

/// Default of the longest value.
const VALUE_BYTES: usize = 4096;
/// Default of the values that stay readable.
const VALUES: usize = 16;
/// Fewer would be overwritten while they are copied.
const VALUES_MIN: usize = 4;
/// The smallest window of a channel.
const WINDOW_BYTES_MIN: usize = 4096;

impl Domain {
    /// Returns the builder of the writer or a reader of a last value, such as a configuration or a position.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-latest-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// let mut writer = domain.latest("config").create()?;
    /// writer.set(b"level=1")?;
    /// writer.set(b"level=2")?;
    ///
    /// // In any other process:
    /// let mut reader = domain.latest("config").open()?;
    /// assert_eq!(reader.get()?, Some(&b"level=2"[..]));
    /// writer.set(b"level=3")?;
    /// assert_eq!(reader.wait()?, b"level=3");
    ///
    /// drop(writer);
    /// assert!(reader.wait().is_err(), "no other value comes");
    /// assert_eq!(reader.get()?, Some(&b"level=3"[..]));
    /// # drop(reader); drop(domain); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn latest(&self, name: &str) -> LatestBuilder {
        let (domain, name) = (self.clone(), name.to_owned());
        let (value_bytes, values, readers) = (VALUE_BYTES, VALUES, 64);
        LatestBuilder { domain, name, value_bytes, values, readers, wait: Wait::default() }
    }
}

/// Builder of the writer or a reader of a last value, returned by [`Domain::latest`].
#[derive(Debug, Clone)]
#[must_use = "nothing is created or opened before `create` or `open`"]
pub struct LatestBuilder {
    domain: Domain,
    name: String,
    value_bytes: usize,
    values: usize,
    readers: usize,
    wait: Wait,
}

impl LatestBuilder {
    /// For the writer: the longest value in bytes. Default: 4096.
    pub fn largest(mut self, bytes: usize) -> Self {
        self.value_bytes = bytes;
        self
    }

    /// For the writer: how many of the newest values stay readable while they are copied, at least 4, rounded up to a
    /// power of two. Default: 16. A reader that takes longer for a copy than the writer for so many values tries again.
    pub fn values(mut self, count: usize) -> Self {
        self.values = count;
        self
    }

    /// For the writer: the most readers at one time, 1 to 1024. Default: 64.
    pub fn readers(mut self, count_max: usize) -> Self {
        self.readers = count_max;
        self
    }

    /// For a reader: how it waits. Default: [`Wait::Adaptive`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Makes this process the writer.
    ///
    /// # Errors
    /// As for [`SenderBuilder::create`](crate::SenderBuilder::create): among others, the name is in use, or a number is out
    /// of range.
    pub fn create(self) -> Result<LatestWriter, CreateError> {
        // The sender names what is out of range.
        let values = self.values.max(VALUES_MIN);
        let values = values.checked_next_power_of_two().unwrap_or(values);
        // Between two values there may be as much unused as a value is long.
        let window =
            self.value_bytes.saturating_mul(values).saturating_mul(2).max(WINDOW_BYTES_MIN);
        let window = window.checked_next_power_of_two().unwrap_or(usize::MAX);
        let sender = self.domain.sender(&self.name).overwrite().slots(values).window_bytes(window);
        let sender = sender.largest_message(self.value_bytes).receivers(self.readers).create()?;
        Ok(LatestWriter { sender })
    }

    /// Opens the value for reading. Blocks until the writer's process answers, for at most 10 s.
    ///
    /// # Errors
    /// [`JoinError::NotFound`] if there is no writer; [`NotALastValue`](JoinError::NotALastValue) if the channel of this name is
    /// an ordinary one; [`JoinError`].
    pub fn open(self) -> Result<LatestReader, JoinError> {
        let reader = self.domain.receiver(&self.name).snapshots().wait(self.wait);
        self.opened(reader.join()?)
    }

    /// Opens the value as soon as it has a writer.
    ///
    /// # Errors
    /// As for [`open`](Self::open), but never `NotFound`.
    pub fn open_when_created(self) -> Result<LatestReader, JoinError> {
        let reader = self.domain.receiver(&self.name).snapshots().wait(self.wait);
        self.opened(reader.join_when_created()?)
    }

    /// Like [`open_when_created`](Self::open_when_created), for at most `timeout`.
    ///
    /// # Errors
    /// As for [`ReceiverBuilder::join_timeout`](crate::ReceiverBuilder::join_timeout).
    pub fn open_timeout(self, timeout: Duration) -> Result<LatestReader, JoinError> {
        let reader = self.domain.receiver(&self.name).snapshots().wait(self.wait);
        self.opened(reader.join_timeout(timeout)?)
    }

    fn opened(&self, receiver: SnapshotReceiver) -> Result<LatestReader, JoinError> {
        match receiver.untyped.ring.is_overwritten() {
            true => Ok(LatestReader::new(receiver)),
            false => Err(JoinError::NotALastValue(ChannelName::new(&self.name)?)),
        }
    }
}

/// The writer of a last value. Dropping it tells the readers that no other value comes.
pub struct LatestWriter {
    sender: Sender,
}

impl LatestWriter {
    /// Makes these bytes the value. Never waits.
    ///
    /// # Errors
    /// [`SendError::TooLarge`] or `Forked`: the value stays as it was.
    #[inline]
    pub fn set(&mut self, value: &[u8]) -> Result<(), SendError> {
        self.sender.send(value)
    }

    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.sender.sent()
    }

    /// How many readers there are.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.sender.receivers()
    }
}

impl fmt::Debug for LatestWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatestWriter").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// A reader of a last value. It never returns an older value than one that it has returned, nor a part of one.
pub struct LatestReader {
    receiver: SnapshotReceiver,
    /// The newest value that was found, and its number; none before the first.
    value: Vec<u8>,
    number: Option<u64>,
    /// Where a value is copied, before it is known to be whole.
    spare: Vec<u8>,
    /// Why no other value comes.
    ended: Option<ReceiveError>,
}

impl LatestReader {
    fn new(receiver: SnapshotReceiver) -> Self {
        let (value, spare) = (Vec::new(), Vec::new());
        Self { receiver, value, number: None, spare, ended: None }
    }

    /// The newest value; `None` if there was none yet. Never waits. Once the writer has ended, its last value.
    ///
    /// # Errors
    /// [`ReceiveError::Violation`], `Interrupted` or `Forked`.
    pub fn get(&mut self) -> Result<Option<&[u8]>, ReceiveError> {
        while self.ended.is_none() {
            match self.take(|receiver| receiver.try_receive()) {
                Ok(Taken::Overwritten) => {}
                Ok(_) => break,
                Err(error @ (ReceiveError::EndOfStream | ReceiveError::SenderDied)) => {
                    self.ended = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.number.map(|_| &self.value[..]))
    }

    /// Waits for a value that is newer than the one that was returned last, and returns it; at first the newest that there
    /// is.
    ///
    /// # Errors
    /// [`ReceiveError::EndOfStream`] if the writer was dropped, or `SenderDied`: no other value comes, and
    /// [`get`](Self::get) still returns the last one. `Violation`, `Interrupted`, `Forked`.
    pub fn wait(&mut self) -> Result<&[u8], ReceiveError> {
        while self.take_newer(|receiver| receiver.receive().map(Some))? != Taken::Whole {}
        Ok(&self.value)
    }

    /// Like [`wait`](Self::wait), for at most `timeout`; `None` if no newer value came.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<&[u8]>, ReceiveError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            let left =
                until.map_or(timeout, |until| until.saturating_duration_since(Instant::now()));
            match self.take_newer(|receiver| receiver.receive_timeout(left))? {
                Taken::Whole => return Ok(Some(&self.value)),
                Taken::Nothing => return Ok(None),
                Taken::Overwritten => {}
            }
        }
    }

    /// Like `take`, and keeps in mind that no other value comes.
    fn take_newer(
        &mut self,
        receive: impl FnOnce(&mut SnapshotReceiver) -> Result<Option<Snapshot<'_>>, ReceiveError>,
    ) -> Result<Taken, ReceiveError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        let taken = self.take(receive);
        if let Err(error @ (ReceiveError::EndOfStream | ReceiveError::SenderDied)) = &taken {
            self.ended = Some(error.clone());
        }
        taken
    }

    /// Copies the newest value that `receive` gives.
    fn take(
        &mut self,
        receive: impl FnOnce(&mut SnapshotReceiver) -> Result<Option<Snapshot<'_>>, ReceiveError>,
    ) -> Result<Taken, ReceiveError> {
        self.receiver.untyped.ring.skip_to_newest();
        let Some(mut found) = receive(&mut self.receiver)? else { return Ok(Taken::Nothing) };
        let number = found.sequence();
        if found.copy_into(&mut self.spare).is_err() {
            return Ok(Taken::Overwritten);
        }
        std::mem::swap(&mut self.value, &mut self.spare);
        self.number = Some(number);
        Ok(Taken::Whole)
    }

    /// The number of the value that was returned last, from 0: those in between were passed over. `None` before the first.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Whether no newer value than the one that was returned last will come.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// A handle with which another thread ends a call of this reader that waits.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.receiver.interrupter()
    }

    /// A descriptor for an event loop: see [`Receiver::readiness`](crate::Receiver::readiness).
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn readiness(&self) -> Result<Readiness, JoinError> {
        self.receiver.readiness()
    }

    /// Announces that the caller is about to wait for the descriptor. False if there may be a newer value: then call
    /// [`get`](Self::get) first.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn arm(&mut self) -> Result<bool, JoinError> {
        self.receiver.arm()
    }
}

/// What a look for a newer value has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Nothing,
    /// It was overwritten while it was copied.
    Overwritten,
    Whole,
}

impl fmt::Debug for LatestReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatestReader").field("number", &self.number).finish_non_exhaustive()
    }
}
