//! Messages that are held after the call that received them. `corewire_ring::broadcast` says how they are released.
//!
//! A receiver that is dropped while it holds messages keeps its row; dropping the last of them gives the row up. A
//! follower leaves its group at once, and keeps only its row in the relay's ring.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use corewire_ring::broadcast as ring;

use crate::host::Hosted;
use crate::path::receive::Message;
use crate::typed::payload::Payload;

impl<T: ?Sized> Message<'_, T> {
    /// Holds the message beyond this call's borrow of the receiver. The bytes are not copied: they stay where the
    /// sender wrote them. The receiver can receive the following messages meanwhile. Does not block.
    ///
    /// Held messages can be dropped in any order, on any thread. The sender may reuse the memory of a message when that
    /// message and every earlier one is released, so one held message also keeps the memory of all later ones. A
    /// receiver can hold as many messages as the channel has slots; then, or when the held payloads fill the channel's
    /// window, the sender waits as for any slow receiver, until the *oldest* held message is dropped. That drop frees
    /// room at once and wakes the sender, whatever the receiver is doing.
    ///
    /// Holding is for receivers that read in place. Channels that overwrite or evict cannot be read in place: copy
    /// their messages out with [`Snapshot::to_vec`](crate::Snapshot::to_vec).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-hold-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// # let mut sender = domain.sender("frames").create()?;
    /// # let mut receiver = domain.receiver("frames").join()?;
    /// # for frame in ["first", "second", "third"] { sender.send(frame.as_bytes())?; }
    /// let first = receiver.receive()?.hold();
    /// let second = receiver.receive()?.hold();
    /// assert_eq!(&receiver.receive()?[..], b"third");
    ///
    /// let worker = std::thread::spawn(move || assert_eq!(&second[..], b"second"));
    /// worker.join().unwrap();
    /// assert_eq!(&first[..], b"first");
    /// # drop((first, receiver, sender, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hold(self) -> HeldMessage<T> {
        HeldMessage { ring: self.ring.hold(), _type: PhantomData }
    }
}

/// A message that stays where the sender wrote it until this value is dropped, on any thread: see [`Message::hold`]. It
/// derefs to its bytes, or to its value.
///
/// It outlives the [`Receiver`](crate::Receiver). A receiver that is dropped while it holds messages still counts for
/// the sender, and leaves the channel when the last of them is dropped. If the sender closes the channel or dies, held
/// messages stay readable. A held message that is never dropped (`std::mem::forget`) makes the sender wait forever once
/// it needs the memory.
///
/// In a forked child a held message of the parent contains zeros, like all of the parent's channels, and dropping it
/// does nothing.
///
/// The content is protected for as long as the sender counts the receiver. It stops counting a living receiver only if
/// something is broken: the sender's memory held an impossible value
/// ([`ReceiveError::Violation`](crate::ReceiveError::Violation), after which the receiver has left), or the sender's
/// side could not communicate with the receiver's process or took it for dead
/// ([`ReceiveError::Evicted`](crate::ReceiveError::Evicted), although this channel does not evict). Messages that are
/// still held then stay mapped, but the sender may overwrite them: drop them.
pub struct HeldMessage<T: ?Sized = [u8]> {
    ring: ring::Held<Hosted>,
    _type: PhantomData<fn(&T)>,
}

impl<T: ?Sized> HeldMessage<T> {
    /// Its number in the channel, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.ring.sequence()
    }
}

impl<T: Payload + ?Sized> Deref for HeldMessage<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        T::view(&self.ring)
    }
}

impl<T: Payload + ?Sized> AsRef<T> for HeldMessage<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized> fmt::Debug for HeldMessage<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sequence, bytes) = (self.sequence(), self.ring.len());
        f.debug_struct("HeldMessage").field("sequence", &sequence).field("bytes", &bytes).finish()
    }
}
