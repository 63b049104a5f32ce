//! Messages of a declared type, sent and read in place.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use corewire_layout::segment::TypeTag;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{ReceiveError, SendError, ValueError};
use crate::path::receive::{Message, Receiver};
use crate::path::send::Sender;
use crate::path::shared::SharedSender;

/// A type that messages can have: plain data of a fixed layout, with a name that both sides agree
/// on. A receiver of another name, size or alignment is refused when it joins.
///
/// ```
/// use corewire::MessageType;
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
/// #[repr(C)]
/// struct Tick {
///     price: u64,
///     volume: u64,
/// }
///
/// impl MessageType for Tick {
///     const NAME: &'static str = "example.Tick.1";
/// }
/// ```
pub trait MessageType: FromBytes + IntoBytes + KnownLayout + Immutable {
    /// The type's name; change it when the meaning of its fields changes. At most 64-byte
    /// alignment is possible for larger types, 16-byte for those of up to 48 bytes.
    const NAME: &'static str;
}

/// The declared type of a channel's messages, as the channel states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ChannelType {
    /// Hash of the type's declared name, size and alignment.
    pub hash: u64,
    /// Size of one value in bytes.
    pub bytes: u64,
}

/// What a channel of this type says of itself.
pub(crate) fn tag_of<T: MessageType>() -> TypeTag {
    const {
        let align_max = if size_of::<T>() <= 48 { 16 } else { 64 };
        assert!(align_of::<T>() <= align_max, "no message is aligned like this type");
    }
    let sizes = [size_of::<T>() as u64, align_of::<T>() as u64];
    let bytes = T::NAME.bytes().chain(sizes.into_iter().flat_map(u64::to_le_bytes));
    // FNV-1a: a check against mistakes, not against malice.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    TypeTag { hash: hash.max(1), bytes: sizes[0] }
}

/// A sender of values of one type, by itself or one of several ([`SharedSender`]); derefs to that
/// sender for everything else.
#[derive(Debug)]
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
    ($sender:ident) => {
        impl<T: MessageType> TypedSender<T, $sender> {
            /// Sends a value, waiting for room if there is none.
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
        }
    };
}

sends_values!(Sender);
sends_values!(SharedSender);

impl<T, S> Deref for TypedSender<T, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.sender
    }
}

impl<T, S> DerefMut for TypedSender<T, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.sender
    }
}

/// A receiver of values of one type; derefs to the [`Receiver`] for everything else.
#[derive(Debug)]
pub struct TypedReceiver<T> {
    pub(crate) receiver: Receiver,
    _type: PhantomData<fn() -> T>,
}

/// A value, read where the sender wrote it. Dropping it gives the place back.
#[derive(Debug)]
pub struct Value<'a, T> {
    message: Message<'a>,
    _type: PhantomData<fn() -> T>,
}

impl<T: MessageType> TypedReceiver<T> {
    pub(crate) fn new(receiver: Receiver) -> Self {
        Self { receiver, _type: PhantomData }
    }

    /// The next value, in place, waiting for it if need be.
    ///
    /// # Errors
    /// As for [`Receiver::receive`]; a message that is no `T`, which only a sender that does not keep
    /// to its declared type can send, ends as [`ReceiveError::Value`].
    #[inline]
    pub fn receive(&mut self) -> Result<Value<'_, T>, ReceiveError> {
        let message = self.receiver.receive()?;
        if T::ref_from_bytes(&message).is_err() {
            let (expected, found) = (size_of::<T>(), message.len());
            return Err(ValueError { name: T::NAME, expected, found }.into());
        }
        Ok(Value { message, _type: PhantomData })
    }
}

impl<T> Deref for TypedReceiver<T> {
    type Target = Receiver;

    fn deref(&self) -> &Receiver {
        &self.receiver
    }
}

impl<T> DerefMut for TypedReceiver<T> {
    fn deref_mut(&mut self) -> &mut Receiver {
        &mut self.receiver
    }
}

impl<T: MessageType> Deref for Value<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        T::ref_from_bytes(&self.message).expect("checked when it was received")
    }
}
