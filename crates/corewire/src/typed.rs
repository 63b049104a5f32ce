//! Channels whose messages are values of one declared type.
//!
//! Both ends are wrapped, not dereferenced: no bytes that are not a `T` can be sent on them.

mod batch;
mod loan;
pub(crate) mod schema;

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

pub use self::batch::{TypedBatch, TypedSendBatch, TypedSharedBatch};
pub use self::loan::{HeldValue, TypedLoan, TypedSharedLoan, Value};
pub use self::schema::MessageType;
use crate::error::{CounterError, JoinError, ReceiveError, SendError, WaitError};
use crate::path::receive::{Copying, InPlace, Reading, Receiver, check, until_end};
use crate::path::send::Sender;
use crate::path::shared::SharedSender;
use crate::path::wait_set::sealed::Source;
use crate::wait::{Interrupter, Readiness};

/// A sender of values of one type: the only sender of its channel, or one of several ([`SharedSender`]). Returned by
/// [`SenderBuilder::create_typed`](crate::SenderBuilder::create_typed) and
/// [`SenderBuilder::open_shared_typed`](crate::SenderBuilder::open_shared_typed).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-typed-{}", std::process::id()));
/// # let domain = corewire::Domain::open_at(&dir)?;
/// #[corewire::message]
/// #[derive(Debug, PartialEq)]
/// struct Tick {
///     price: u64,
///     volume: u64,
/// }
///
/// let mut sender = domain.sender("ticks").create_typed::<Tick>()?;
/// let mut receiver = domain.receiver("ticks").join_typed::<Tick>()?;
/// sender.send(&Tick { price: 101, volume: 7 })?; // one copy, into the channel
/// let mut tick = sender.loan()?; // no copy: written where it will be read
/// tick.price = 102;
/// tick.volume = 3;
/// tick.send();
///
/// assert_eq!(*receiver.receive()?, Tick { price: 101, volume: 7 });
/// assert_eq!(receiver.receive()?.price, 102);
/// # drop((receiver, sender, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
pub struct TypedSender<T, S = Sender> {
    sender: S,
    _type: PhantomData<fn(&T)>,
}

impl<T: MessageType, S> TypedSender<T, S> {
    pub(crate) fn new(sender: S) -> Self {
        Self { sender, _type: PhantomData }
    }
}

macro_rules! sends_values {
    ($sender:ident, $loan:ident, $batch:ident) => {
        impl<T: MessageType> TypedSender<T, $sender> {
            /// Sends a value, waiting for room if there is none. It is copied once, into the channel.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($sender), "::send`].")]
            #[inline]
            pub fn send(&mut self, value: &T) -> Result<(), SendError> {
                self.sender.send(value.as_bytes())
            }

            /// Sends a value if there is room now. Never blocks.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($sender), "::try_send`].")]
            #[inline]
            pub fn try_send(&mut self, value: &T) -> Result<(), SendError> {
                self.sender.try_send(value.as_bytes())
            }

            /// Sends a value, waiting for room for at most `timeout`.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($sender), "::send_timeout`].")]
            pub fn send_timeout(&mut self, value: &T, timeout: Duration) -> Result<(), SendError> {
                self.sender.send_timeout(value.as_bytes(), timeout)
            }

            /// Lends memory for a value, waiting for room if there is none. It derefs to a `T` whose fields have no
            /// meaningful content at first, often that of an earlier message. Write each of them.
            ///
            /// # Errors
            /// As for [`send`](Self::send).
            #[inline]
            pub fn loan(&mut self) -> Result<$loan<'_, T>, SendError> {
                self.sender.loan(size_of::<T>()).map($loan::new)
            }

            /// Lends memory for a value if there is room now. Never blocks.
            ///
            /// # Errors
            /// As for [`try_send`](Self::try_send).
            #[inline]
            pub fn try_loan(&mut self) -> Result<$loan<'_, T>, SendError> {
                self.sender.try_loan(size_of::<T>()).map($loan::new)
            }

            /// Lends memory for a value, waiting for room for at most `timeout`.
            ///
            /// # Errors
            /// As for [`send_timeout`](Self::send_timeout).
            pub fn loan_timeout(&mut self, timeout: Duration) -> Result<$loan<'_, T>, SendError> {
                self.sender.loan_timeout(size_of::<T>(), timeout).map($loan::new)
            }

            #[doc = concat!("Begins a batch of values, as [`", stringify!($sender), "::batch`].")]
            pub fn batch(&mut self) -> $batch<'_, T> {
                $batch::new(self.sender.batch())
            }

            /// Waits until at least `count` receivers have joined, and returns their number.
            ///
            /// # Errors
            /// [`SendError::Interrupted`] or `Forked`.
            pub fn wait_for_receivers(&mut self, count: usize) -> Result<usize, SendError> {
                self.sender.wait_for_receivers(count)
            }

            /// Waits until at least `count` receivers have joined, for at most `timeout`. Returns their number, which
            /// may be less than `count`.
            ///
            /// # Errors
            /// [`SendError::Interrupted`] or `Forked`.
            pub fn wait_for_receivers_timeout(
                &mut self,
                count: usize,
                timeout: Duration,
            ) -> Result<usize, SendError> {
                self.sender.wait_for_receivers_timeout(count, timeout)
            }

            /// Waits until every receiver has finished with every value that this sender has sent, for at most
            /// `timeout`. Returns false if the time ran out. See
            #[doc = concat!("[`", stringify!($sender), "::drain`].")]
            ///
            /// # Errors
            /// [`SendError::Interrupted`] or `Forked`.
            pub fn drain(&mut self, timeout: Duration) -> Result<bool, SendError> {
                self.sender.drain(timeout)
            }

            /// Number of joined receivers. Another thread may change it at any time.
            #[must_use]
            pub fn receivers(&self) -> usize {
                self.sender.receivers()
            }

            /// Number of values that this sender has sent so far.
            #[must_use]
            pub fn sent(&self) -> u64 {
                self.sender.sent()
            }

            /// The channel's name.
            #[must_use]
            pub fn name(&self) -> &str {
                self.sender.name()
            }

            /// One of the sender's counters, by name.
            #[doc = concat!("See [`", stringify!($sender), "::counter`].")]
            ///
            /// # Errors
            /// [`CounterError`] if there is no counter of that name; it lists the names.
            pub fn counter(&self, name: &str) -> Result<u64, CounterError> {
                self.sender.counter(name)
            }

            /// A handle with which another thread ends a call of this sender that waits.
            #[must_use]
            pub fn interrupter(&self) -> Interrupter {
                self.sender.interrupter()
            }

            #[doc = concat!("Does what [`", stringify!($sender), "::close`] does, as dropping it.")]
            pub fn close(self) {}
        }
    };
}

sends_values!(Sender, TypedLoan, TypedSendBatch);
sends_values!(SharedSender, TypedSharedLoan, TypedSharedBatch);

impl<T, S: fmt::Debug> fmt::Debug for TypedSender<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedSender").field(&self.sender).finish()
    }
}

/// A receiver of values of one type, returned by [`ReceiverBuilder::join_typed`](crate::ReceiverBuilder::join_typed)
/// and its variants.
///
/// `A` says how it reads, as for a [`Receiver`]: [`InPlace`] reads values where the sender wrote them; [`Copying`]
/// copies them from channels whose messages may be overwritten while they are read ([`TypedSnapshotReceiver`]).
pub struct TypedReceiver<T, A = InPlace> {
    pub(crate) receiver: Receiver<A>,
    _type: PhantomData<fn() -> T>,
}

/// A receiver of values of one type that copies them out, from any channel, whatever its policy and its sender. Each
/// copy is checked. It misses values like a [`SnapshotReceiver`](crate::SnapshotReceiver) misses messages.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("corewire-doc-typed-copy-{}", std::process::id()));
/// # let domain = corewire::Domain::open_at(&dir)?;
/// let mut prices = domain.sender("prices").slots(64).overwrite().create_typed::<u64>()?;
/// let mut reader = domain.receiver("prices").snapshots().join_typed::<u64>()?;
/// for price in 0..1000 {
///     prices.send(&price)?; // never waits for the reader
/// }
/// let price = reader.receive()?;
/// assert_eq!(price, reader.missed());
/// # drop((reader, prices, domain)); std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
pub type TypedSnapshotReceiver<T> = TypedReceiver<T, Copying>;

impl<T: MessageType> TypedReceiver<T> {
    /// Receives the next value, in place, waiting for it if necessary. Dropping the [`Value`] releases its memory to
    /// the sender.
    ///
    /// # Errors
    /// As for [`Receiver::receive`]. A message that is not a `T` ends as [`ReceiveError::Value`]. Only a sender that
    /// does not use corewire can send one.
    #[inline]
    pub fn receive(&mut self) -> Result<Value<'_, T>, ReceiveError> {
        Value::new(self.receiver.receive()?)
    }

    /// Receives the next value if there is one now. Never blocks.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<Value<'_, T>>, ReceiveError> {
        self.receiver.try_receive()?.map(Value::new).transpose()
    }

    /// Receives the next value, waiting for at most `timeout`; `None` if none came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Value<'_, T>>, ReceiveError> {
        self.receiver.receive_timeout(timeout)?.map(Value::new).transpose()
    }

    /// Waits for at least one value, and returns up to `count_max` of the available values. All are readable in place
    /// until the [`TypedBatch`] is dropped.
    ///
    /// # Errors
    /// As for [`Receiver::receive`].
    pub fn receive_batch(&mut self, count_max: usize) -> Result<TypedBatch<'_, T>, ReceiveError> {
        self.receiver.receive_batch(count_max).map(TypedBatch::new)
    }

    /// Calls `job` with each value until the end of the stream.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive), except for the end of the stream.
    pub fn for_each(&mut self, mut job: impl FnMut(&T)) -> Result<(), ReceiveError> {
        until_end(|| self.receive().map(|value| job(&value)))
    }
}

impl<T: MessageType> TypedReceiver<T, Copying> {
    /// Returns a copy of the next value, waiting for it if necessary. If a value is overwritten during the copy, it is
    /// missed, and the next one is copied instead.
    ///
    /// # Errors
    /// [`ReceiveError::EndOfStream`], `SenderDied` or `Evicted` if no value will come any more; `Violation`,
    /// `Interrupted`, `Forked`. A message that is not a `T` ends as [`ReceiveError::Value`]. Only a sender that does
    /// not use corewire can send one.
    #[inline]
    pub fn receive(&mut self) -> Result<T, ReceiveError> {
        loop {
            let read = self.receiver.receive()?.read();
            match read {
                Err(ReceiveError::Overwritten(_)) => self.check()?,
                read => return read,
            }
        }
    }

    /// Returns a copy of the next value if there is one now. Never blocks. Also returns `None` if the sender overwrote
    /// the values faster than they could be copied.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<T>, ReceiveError> {
        for _ in 0..LOSSES_MAX {
            let Some(mut snapshot) = self.receiver.try_receive()? else { break };
            match snapshot.read() {
                Err(ReceiveError::Overwritten(_)) => {}
                read => return read.map(Some),
            }
        }
        Ok(None)
    }

    /// Returns a copy of the next value, waiting for at most `timeout`; `None` if none came.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Option<T>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut left = timeout;
        loop {
            let Some(mut snapshot) = self.receiver.receive_timeout(left)? else { return Ok(None) };
            let read = snapshot.read();
            drop(snapshot);
            match read {
                Err(ReceiveError::Overwritten(_)) if left.is_zero() => return Ok(None),
                Err(ReceiveError::Overwritten(_)) => self.check()?,
                read => return read.map(Some),
            }
            left = deadline.map_or(left, |at| at.saturating_duration_since(Instant::now()));
        }
    }

    /// Calls `job` with each value until the end of the stream.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive), except for the end of the stream.
    pub fn for_each(&mut self, mut job: impl FnMut(&T)) -> Result<(), ReceiveError> {
        until_end(|| self.receive().map(|value| job(&value)))
    }

    /// Number of values that were overwritten before this receiver had copied them. Together with the received values,
    /// these are all values from where it joined.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.receiver.missed()
    }

    /// Handles a missed value. Checks for an interruption or an eviction, which a call must notice even if the sender
    /// overwrites values all the time.
    #[cold]
    fn check(&mut self) -> Result<(), ReceiveError> {
        check(&mut self.receiver.ring, &self.receiver.attachment, 0)
            .map_err(|error| self.receiver.failed(error))?;
        Ok(())
    }
}

impl<T, A: Reading> TypedReceiver<T, A> {
    /// Joins the next channel of this name, in place of one that has ended. Waits until there is one. See
    /// [`Receiver::rejoin`].
    ///
    /// # Errors
    /// [`JoinError::Type`] if it has another type; otherwise as for [`Receiver::rejoin`].
    pub fn rejoin(&mut self) -> Result<(), JoinError> {
        self.receiver.rejoin()
    }

    /// Like [`rejoin`](Self::rejoin), but waits for at most `timeout`. See [`Receiver::rejoin_timeout`].
    ///
    /// # Errors
    /// As for [`rejoin`](Self::rejoin), and [`JoinError::NotCreated`].
    pub fn rejoin_timeout(&mut self, timeout: Duration) -> Result<(), JoinError> {
        self.receiver.rejoin_timeout(timeout)
    }

    /// Like [`rejoin`](Self::rejoin), but does not wait for a next channel. See [`Receiver::rejoin_now`].
    ///
    /// # Errors
    /// As for [`rejoin`](Self::rejoin), and [`JoinError::NotFound`].
    pub fn rejoin_now(&mut self) -> Result<(), JoinError> {
        self.receiver.rejoin_now()
    }
}

/// Maximum number of values that a call that must not block tries to copy.
const LOSSES_MAX: u32 = 16;

impl<T, A> TypedReceiver<T, A> {
    pub(crate) fn new(receiver: Receiver<A>) -> Self {
        Self { receiver, _type: PhantomData }
    }

    /// Tells the sender at once that this receiver has finished with every value received so far. See
    /// [`Receiver::acknowledge`].
    pub fn acknowledge(&mut self) {
        self.receiver.acknowledge();
    }

    /// Number of values that the channel had carried before this receiver's first one: see [`Receiver::late_by`].
    #[must_use]
    pub fn late_by(&self) -> u64 {
        self.receiver.late_by()
    }

    /// The number of the next value: the number of values that the channel has carried before it.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.receiver.next_sequence()
    }

    /// One of the receiver's counters, by name. See [`Receiver::counter`].
    ///
    /// # Errors
    /// [`CounterError`] if there is no counter of that name; it lists the names.
    pub fn counter(&self, name: &str) -> Result<u64, CounterError> {
        self.receiver.counter(name)
    }

    /// A handle with which another thread ends a call of this receiver that waits.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.receiver.interrupter()
    }

    /// A descriptor that becomes readable when, after [`arm`](Self::arm), there is something to
    /// receive. See [`Receiver::readiness`].
    ///
    /// # Errors
    /// [`JoinError::NoAnswer`] or a failed call.
    pub fn readiness(&self) -> Result<Readiness, JoinError> {
        self.receiver.readiness()
    }

    /// Announces that the caller is about to wait for the [`Readiness`] descriptor. Returns false if there is something
    /// to receive already: then receive first. See [`Receiver::arm`].
    ///
    /// # Errors
    /// As for [`readiness`](Self::readiness).
    pub fn arm(&mut self) -> Result<bool, JoinError> {
        self.receiver.arm()
    }
}

impl<T, A> fmt::Debug for TypedReceiver<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedReceiver").field(&self.receiver).finish()
    }
}

/// It waits like the receiver that it wraps.
impl<T, A> Source for TypedReceiver<T, A> {
    fn look(&mut self) -> Result<bool, WaitError> {
        self.receiver.look()
    }

    fn arm(&mut self) -> Result<bool, WaitError> {
        Source::arm(&mut self.receiver)
    }

    fn descriptor(&self) -> Result<Readiness, WaitError> {
        self.receiver.descriptor()
    }
}
