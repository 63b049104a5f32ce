//! One value at a time: being written, or being read in place.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::MessageType;
use crate::error::{ReceiveError, SendError, ValueError};
use crate::path::held::HeldMessage;
use crate::path::receive::Message;
use crate::path::send::Loan;
use crate::path::shared::SharedLoan;

/// Converts `bytes` to a value. Loans have its size, messages are checked when they are received, and both are aligned
/// for every message type (see `Schema::of`).
#[inline(always)]
fn view<T: MessageType>(bytes: &[u8]) -> &T {
    T::ref_from_bytes(bytes).expect("checked when it was made")
}

/// Converts a message to a value.
///
/// # Errors
/// [`ValueError`] if it has another length.
#[inline(always)]
pub(super) fn check<T: MessageType>(bytes: &[u8]) -> Result<&T, ValueError> {
    let (expected, found) = (size_of::<T>(), bytes.len());
    T::ref_from_bytes(bytes).map_err(|_| ValueError { name: T::NAME, expected, found })
}

macro_rules! lends {
    ($(#[$doc:meta])* $typed:ident, $loan:ident) => {
        $(#[$doc])*
        pub struct $typed<'a, T> {
            loan: $loan<'a>,
            _type: PhantomData<fn(T)>,
        }

        impl<'a, T> $typed<'a, T> {
            #[inline]
            pub(super) fn new(loan: $loan<'a>) -> Self {
                Self { loan, _type: PhantomData }
            }
        }

        impl<T: MessageType> Deref for $typed<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                view(&self.loan)
            }
        }

        impl<T: MessageType> DerefMut for $typed<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                T::mut_from_bytes(&mut self.loan).expect("a loan of this type")
            }
        }

        impl<T: MessageType + fmt::Debug> fmt::Debug for $typed<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($typed)).field(&**self).finish()
            }
        }
    };
}

lends! {
    /// Memory for a value, lent for writing. Derefs to the value. Dropping it sends nothing.
    TypedLoan, Loan
}

lends! {
    /// Memory for a value of a shared channel, lent for writing. Derefs to the value. Dropping it sends nothing.
    TypedSharedLoan, SharedLoan
}

impl<T> TypedLoan<'_, T> {
    /// Publishes the value. Every receiver will get it, even if this process dies immediately.
    #[inline]
    pub fn send(self) {
        self.loan.send();
    }
}

impl<T> TypedSharedLoan<'_, T> {
    /// Sends the value, waiting for a slot if there is none.
    ///
    /// # Errors
    /// [`SendError::Interrupted`] or `Forked`; nothing was sent.
    pub fn send(self) -> Result<(), SendError> {
        self.loan.send()
    }

    /// Sends the value if there is a slot now. Never blocks.
    ///
    /// # Errors
    /// [`SendError::Full`], or as for [`send`](Self::send); nothing was sent.
    pub fn try_send(self) -> Result<(), SendError> {
        self.loan.try_send()
    }
}

/// A value, read where the sender wrote it. Derefs to the value. Dropping it releases the memory. Keep it no longer
/// than necessary, because the sender may have to wait for it. [`hold`](Self::hold) makes it independent of the
/// receiver.
pub struct Value<'a, T> {
    message: Message<'a>,
    _type: PhantomData<fn() -> T>,
}

impl<'a, T: MessageType> Value<'a, T> {
    #[inline]
    pub(super) fn new(message: Message<'a>) -> Result<Self, ReceiveError> {
        check::<T>(&message)?;
        Ok(Self { message, _type: PhantomData })
    }
}

impl<T> Value<'_, T> {
    /// Its number in the channel, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.message.sequence()
    }

    /// Holds the value beyond this call's borrow of the receiver, where the sender wrote it. Held values can be dropped
    /// in any order, on any thread. See [`Message::hold`], which says what the sender waits for.
    #[must_use]
    pub fn hold(self) -> HeldValue<T> {
        HeldValue { message: self.message.hold(), _type: PhantomData }
    }
}

/// A value that stays where the sender wrote it until this is dropped, on any thread. Derefs to the value. See
/// [`HeldMessage`].
pub struct HeldValue<T> {
    message: HeldMessage,
    _type: PhantomData<fn() -> T>,
}

impl<T> HeldValue<T> {
    /// Its number in the channel, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.message.sequence()
    }
}

impl<T: MessageType> Deref for HeldValue<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        view(&self.message)
    }
}

impl<T: MessageType + fmt::Debug> fmt::Debug for HeldValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldValue").field(&**self).finish()
    }
}

impl<T: MessageType> Deref for Value<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        view(&self.message)
    }
}

impl<T: MessageType + fmt::Debug> fmt::Debug for Value<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&**self).finish()
    }
}
