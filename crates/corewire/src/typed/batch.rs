//! Sending and receiving several values at a time.

use std::fmt;
use std::marker::PhantomData;

use super::MessageType;
use super::loan::check;
use crate::error::{ReceiveError, SendError};
use crate::path::batch::{Batch, SendBatch};
use crate::path::shared::SharedBatch;

macro_rules! collects {
    ($(#[$doc:meta])* $typed:ident, $batch:ident) => {
        $(#[$doc])*
        pub struct $typed<'a, T> {
            batch: $batch<'a>,
            _type: PhantomData<fn(&T)>,
        }

        impl<'a, T> $typed<'a, T> {
            pub(super) fn new(batch: $batch<'a>) -> Self {
                Self { batch, _type: PhantomData }
            }
        }

        impl<T: MessageType> $typed<'_, T> {
            /// Adds a value to the batch, waiting for room if there is none.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($batch), "::send`](crate::", stringify!($batch), "::send).")]
            #[inline]
            pub fn send(&mut self, value: &T) -> Result<(), SendError> {
                self.batch.send(value.as_bytes())
            }

            /// Lends memory for one value, calls `write` to fill it, and adds it to the batch. Its fields have no
            /// meaningful content at first. Write each of them.
            ///
            /// # Errors
            /// As for [`send`](Self::send).
            #[inline]
            pub fn send_with(&mut self, write: impl FnOnce(&mut T)) -> Result<(), SendError> {
                self.batch.send_with(size_of::<T>(), |bytes| {
                    write(T::mut_from_bytes(bytes).expect("a loan of this type"));
                })
            }

            /// Ends the batch.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($batch), "::finish`](crate::", stringify!($batch), "::finish).")]
            pub fn finish(self) -> Result<(), SendError> {
                self.batch.finish()
            }
        }

        impl<T> fmt::Debug for $typed<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($typed)).field(&self.batch).finish()
            }
        }
    };
}

collects! {
    /// Values that are being sent together, as in a [`SendBatch`](crate::SendBatch).
    TypedSendBatch, SendBatch
}

collects! {
    /// Values that are being sent together on a shared channel, as in a
    /// [`SharedBatch`](crate::SharedBatch).
    TypedSharedBatch, SharedBatch
}

/// Several values, all readable in place. The first ones can be released while more are received. Dropping the batch
/// releases all.
pub struct TypedBatch<'a, T> {
    batch: Batch<'a>,
    _type: PhantomData<fn() -> T>,
}

impl<'a, T: MessageType> TypedBatch<'a, T> {
    pub(super) fn new(batch: Batch<'a>) -> Self {
        Self { batch, _type: PhantomData }
    }

    /// Receives up to `count_max` more values. Waits for one if none is available and the batch is empty. Returns their
    /// number; 0 if the batch has some and no more are available.
    ///
    /// # Errors
    /// As for [`Receiver::receive`](crate::Receiver::receive).
    pub fn receive(&mut self, count_max: usize) -> Result<usize, ReceiveError> {
        self.batch.receive(count_max)
    }

    /// Number of values in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// True if the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Reads value `index` of the batch, in place; `None` if there is no such value.
    ///
    /// # Errors
    /// [`ReceiveError::Value`] if the message is not a `T`, [`ReceiveError::Violation`] if the
    /// sender's memory holds an impossible value.
    pub fn get(&self, index: usize) -> Result<Option<&T>, ReceiveError> {
        let bytes = self.batch.get(index)?;
        Ok(bytes.map(check).transpose()?)
    }

    /// The values of the batch, in order, in place. Ends early at a message that is not a `T`, or at an impossible
    /// value in the sender's memory; [`get`](Self::get) returns the error.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).map_while(|index| self.get(index).ok().flatten())
    }

    /// Releases the first `count` values to the sender.
    ///
    /// # Errors
    /// [`ReceiveError::Violation`] if the sender's memory holds an impossible value.
    pub fn release(&mut self, count: usize) -> Result<(), ReceiveError> {
        self.batch.release(count)
    }
}

impl<T> fmt::Debug for TypedBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedBatch").field(&self.batch).finish()
    }
}
