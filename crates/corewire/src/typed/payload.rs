//! What a message holds: bytes, or a value of one type.

use super::schema::MessageType;
use crate::error::ValueError;

/// What the messages of a channel hold: bytes (`[u8]`), or one value of a [`MessageType`]. It is the `T` of
/// [`Sender`](crate::Sender), [`Receiver`](crate::Receiver) and what they lend and receive. Nothing else implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not declared as a type of messages",
    note = "declare the struct with `#[corewire::message]`"
)]
pub trait Payload: sealed::Sealed {
    /// The payload in a message.
    ///
    /// # Errors
    /// [`ValueError`] if the message has another length than the value.
    #[doc(hidden)]
    fn check(bytes: &[u8]) -> Result<&Self, ValueError>;

    /// The payload in a loan, or in a message that was checked.
    #[doc(hidden)]
    fn view(bytes: &[u8]) -> &Self;

    /// The payload in a loan.
    #[doc(hidden)]
    fn view_mut(bytes: &mut [u8]) -> &mut Self;

    /// Its bytes.
    #[doc(hidden)]
    fn bytes(&self) -> &[u8];
}

impl Payload for [u8] {
    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<&Self, ValueError> {
        Ok(bytes)
    }

    #[inline(always)]
    fn view(bytes: &[u8]) -> &Self {
        bytes
    }

    #[inline(always)]
    fn view_mut(bytes: &mut [u8]) -> &mut Self {
        bytes
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Loans have the size of the value, messages are checked when they are received, and both are aligned for every
/// message type (see `Schema::of`).
impl<T: MessageType> Payload for T {
    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<&Self, ValueError> {
        let (expected, found) = (size_of::<T>(), bytes.len());
        T::ref_from_bytes(bytes).map_err(|_| ValueError { name: T::NAME, expected, found })
    }

    #[inline(always)]
    fn view(bytes: &[u8]) -> &Self {
        T::ref_from_bytes(bytes).expect("checked when it was made")
    }

    #[inline(always)]
    fn view_mut(bytes: &mut [u8]) -> &mut Self {
        T::mut_from_bytes(bytes).expect("a loan of this type")
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

mod sealed {
    use crate::typed::schema::MessageType;

    /// Restricts [`Payload`](super::Payload) to bytes and message types.
    pub trait Sealed {}
    impl Sealed for [u8] {}
    impl<T: MessageType> Sealed for T {}
}
