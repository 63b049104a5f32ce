//! What members send to each other, and what they publish.
//!
//! Frames are in the format of the crate `postcard`, several of them in a message: what waits for room goes together, so
//! that a member that has much to say pays for one message; but what waits for the group's file does so batch by batch. All
//! members run as one user; what cannot be read is passed over.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};

use bytes::Bytes;
use postcard::ser_flavors::Size;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::buffers::Buffers;
use crate::kept::Entry;
use crate::log_file::FileId;
use crate::member::{Member, View};
use crate::replica::{Message, Publication};

/// The tag of all frames.
pub(crate) const FRAME_TAG: u64 = u64::from_le_bytes(*b"cw-group");

/// What a frame has besides its command, at most.
pub(crate) const FRAME_BYTES: usize = 64;

/// What the length of a command takes at most.
pub(crate) const LENGTH_BYTES: usize = 5;

/// A message to which further frames are added has at most so many bytes.
pub(crate) const MESSAGE_BYTES: usize = 16 << 10;

/// Commands of a client that are not answered at one time.
pub(crate) const UNANSWERED_MAX: usize = 1024;

/// What is decided: bytes, shared among the places that keep them, also with those that have come in the same message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Command(pub(crate) Bytes);

impl Command {
    pub(crate) fn copy(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Copied;
        impl de::Visitor<'_> for Copied {
            type Value = Command;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Command, E> {
                Ok(Command::copy(bytes))
            }
        }
        deserializer.deserialize_bytes(Copied)
    }
}

/// From endpoint to endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Frame<C = Command> {
    /// The first one on every link: which file I know.
    Hello(Box<Option<FileId>>),
    Message(Message<C>),
    /// This member, which is the acceptor, cannot write the group's file, for this reason.
    Failed(String),
    /// From somebody who only looks: what do you know?
    Look,
    Seen(Box<Seen>),
    /// From a client, and to one.
    OfClient(OfClient<C>),
    ForClient(ForClient<C>),
}

/// What a client says to a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum OfClient<C = Command> {
    /// The first one on every link.
    Hello,
    /// Let this be decided: this client's command of this number.
    Ask(u64, C),
    /// Send so many entries more; from this index on if the number of the following is a new one.
    Follow { following: u32, from: u64, count: u32 },
}

/// What a member says to a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ForClient<C = Command> {
    /// Who has founded the group, how long a command may be, the client's last command that is decided, and how many entries
    /// are.
    Welcome { founder: Member, command_bytes_max: u64, last: u64, decided: u64 },
    /// This process is no member yet, or any more.
    NoMember,
    /// This command of the client is decided, at this index; `None` if a snapshot stands for it.
    Decided(u64, Option<u64>),
    /// Of this following: a decided entry, at this index.
    Entry(u32, u64, Entry<C>),
    /// Of this following: what stands for entries before this index.
    Snapshot(u32, u64, C),
}

/// What a member says of itself and its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Who says it.
    pub member: Member,
    /// Its process.
    pub pid: u32,
    /// The view that it knows.
    pub view: View,
    /// How many entries it knows to be decided.
    pub decided: u64,
    /// How many of its own commands are not decided.
    pub undecided: u64,
    /// Members whose processes have ended, of that view.
    pub ended: Vec<Member>,
}

/// In the group's channel: everybody reads everything in the same order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Published<C = Command> {
    Publication(Publication<C>),
    /// The first member has heard of the end of the second one's process. When it reads this, it has read everything
    /// that the other one had published.
    Mark(Member, Member),
}

/// What waits for room: messages of several frames each.
pub(crate) struct Unsent {
    messages: VecDeque<Vec<u8>>,
    buffers: Buffers,
}

impl Unsent {
    pub(crate) const fn new(buffers: Buffers) -> Self {
        Self { messages: VecDeque::new(), buffers }
    }

    pub(crate) fn push(&mut self, frame: &impl Serialize) {
        if let Some(last) = self.messages.back_mut()
            && append(last, frame, MESSAGE_BYTES)
        {
            return;
        }
        self.messages.push_back(encode_in(&self.buffers, frame));
    }

    /// The next message.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.messages.front().map(Vec::as_slice)
    }

    /// The next message is sent.
    pub(crate) fn pop(&mut self) {
        self.messages.pop_front().into_iter().for_each(|sent| self.buffers.put(sent));
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How many messages there are.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }
}

/// Appends a frame to a message of others, if it then has at most so many bytes.
pub(crate) fn append(message: &mut Vec<u8>, frame: &impl Serialize, largest: usize) -> bool {
    let before = message.len();
    let is_whole = postcard::to_io(frame, Room { message, largest }).is_ok();
    if !is_whole {
        message.truncate(before);
    }
    is_whole
}

/// What a message has room for.
struct Room<'a> {
    message: &'a mut Vec<u8>,
    largest: usize,
}

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.message.len() + bytes.len() > self.largest {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.message.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The frames of a message, up to one that cannot be read.
pub(crate) fn frames<'a, T: Deserialize<'a>>(mut bytes: &'a [u8]) -> impl Iterator<Item = T> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let (frame, rest) = postcard::take_from_bytes(bytes).ok()?;
        bytes = rest;
        Some(frame)
    })
}

impl Frame<&[u8]> {
    /// With commands that are parts of the message in which it has come. Those that may be kept for long are copied: the
    /// message may lie in memory of its sender.
    pub(crate) fn keep(self, message: &Bytes) -> Frame {
        let is_kept = matches!(
            &self,
            Self::Message(Message::Snapshot(_) | Message::Entries(..)) | Self::OfClient(_)
        );
        let mut part = |part: &[u8]| match is_kept {
            true => Command::copy(part),
            false => Command(message.slice_ref(part)),
        };
        match self {
            Self::Hello(file) => Frame::Hello(file),
            Self::Message(message) => Frame::Message(message.map(&mut part)),
            Self::Failed(why) => Frame::Failed(why),
            Self::Look => Frame::Look,
            Self::Seen(seen) => Frame::Seen(seen),
            Self::OfClient(said) => Frame::OfClient(match said {
                OfClient::Hello => OfClient::Hello,
                OfClient::Ask(number, command) => OfClient::Ask(number, part(command)),
                OfClient::Follow { following, from, count } => {
                    OfClient::Follow { following, from, count }
                }
            }),
            // No member is told this.
            Self::ForClient(_) => Frame::ForClient(ForClient::NoMember),
        }
    }
}

impl Published<&[u8]> {
    /// With commands that are parts of the message in which it has come.
    pub(crate) fn keep(self, message: &Bytes) -> Published {
        let mut part = |part: &[u8]| Command(message.slice_ref(part));
        match self {
            Self::Publication(publication) => Published::Publication(publication.map(&mut part)),
            Self::Mark(by, of) => Published::Mark(by, of),
        }
    }
}

pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    // It fails only where memory is short, or a type does not know its length.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// The same, in memory that was used before.
pub(crate) fn encode_in(buffers: &Buffers, value: &impl Serialize) -> Vec<u8> {
    let bytes = postcard::serialize_with_flavor(value, Size::default()).unwrap_or_default();
    let mut message = buffers.take(bytes);
    message.clear();
    append(&mut message, value, usize::MAX);
    message
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::Batch;

    fn ask(first: u64, lengths: &[usize]) -> Frame {
        let from = Member { place: 1, life: u64::MAX };
        let commands = lengths.iter().map(|length| Command::copy(&vec![7; *length])).collect();
        Frame::Message(Message::Ask(Batch { from, first, commands }))
    }

    /// The numbers and lengths of the commands in these messages.
    fn read(messages: &[Vec<u8>]) -> Vec<(u64, usize)> {
        let mut found = Vec::new();
        for message in messages {
            let message = Bytes::from(message.clone());
            for frame in frames::<Frame<&[u8]>>(&message) {
                let Frame::Message(Message::Ask(batch)) = frame.keep(&message) else { continue };
                let lengths = batch.entries().map(|entry| (entry.number, entry.command.0.len()));
                found.extend(lengths);
            }
        }
        found
    }

    fn drain(mut unsent: Unsent) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Some(message) = unsent.front() {
            messages.push(message.to_vec());
            unsent.pop();
        }
        messages
    }

    #[test]
    fn nothing_of_an_earlier_message_is_in_a_later_one() {
        let buffers = Buffers::default();
        let mut before = Vec::with_capacity(6000);
        before.resize(6000, 9);
        let memory = before.as_ptr();
        buffers.put(before);
        let frame = ask(1, &[4000]);
        let message = encode_in(&buffers, &frame);
        assert_eq!((message.as_ptr(), message.clone()), (memory, encode(&frame)));
    }

    #[test]
    fn frames_share_messages_in_their_order_and_a_long_one_has_its_own() {
        let lengths = [0, 1, 100, MESSAGE_BYTES, 5, MESSAGE_BYTES - 200, 300, 0];
        let mut unsent = Unsent::new(Buffers::default());
        for (first, length) in (1..).zip(lengths) {
            unsent.push(&ask(first, &[length]));
        }
        let messages = drain(unsent);
        assert_eq!(read(&messages), (1..).zip(lengths).collect::<Vec<_>>());
        let sizes: Vec<usize> = messages.iter().map(Vec::len).collect();
        assert!(sizes.len() < lengths.len(), "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= MESSAGE_BYTES + FRAME_BYTES), "{sizes:?}");
    }

    #[test]
    fn a_message_that_is_cut_is_read_up_to_there() {
        let mut unsent = Unsent::new(Buffers::default());
        (1..=3).for_each(|first| unsent.push(&ask(first, &[10])));
        let messages = drain(unsent);
        assert_eq!(messages.len(), 1);
        for cut in 0..messages[0].len() {
            let found = read(&[messages[0][..cut].to_vec()]);
            assert!(found.len() < 3, "{cut}");
            assert_eq!(
                found,
                (1..).map(|number| (number, 10)).take(found.len()).collect::<Vec<_>>()
            );
        }
    }
}
