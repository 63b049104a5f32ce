//! Looking on without joining.

use std::fmt;
use std::os::fd::OwnedFd;

use corewire_layout::counters::{ControlCounter, ReceiverCounter, SenderCounter};
use corewire_layout::frame::Frame;
use corewire_layout::name::ChannelName;
use corewire_layout::segment::{
    RECEIVER_SEGMENT_BYTES, RawReceiverHeader, ReceiverHeader, SenderHeader, TypeTag,
};
use corewire_os::memory::{Segment, SegmentError};
use corewire_ring::broadcast::{ReceiverWords, SenderWords, head_of};
use corewire_ring::region::{Region, Slots};
use corewire_ring::sync::Ordering::Relaxed;
use zerocopy::{FromZeros, IntoBytes};

use crate::control::attach::{answer, ask, connect, open_sender, refusal};
use crate::control::domain::DomainInner;
use crate::error::JoinError;

/// A look at a channel, from read-only maps of the memory of those who take part. It shows the
/// receivers that had joined when it was opened; open another to see who came later.
pub struct Observer {
    name: ChannelName,
    header: SenderHeader,
    slots: Slots,
    sender: SenderWords,
    receivers: Vec<(u16, u32, ReceiverWords)>,
}

/// A channel, as seen at one moment. The numbers are read one after the other while the channel
/// runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelView {
    /// Its name.
    pub name: String,
    /// The sender's process.
    pub pid: u32,
    /// Messages sent.
    pub sent: u64,
    /// True once the sender has closed it.
    pub is_closed: bool,
    /// Slots of the ring.
    pub slots: u64,
    /// Bytes of the window.
    pub window_bytes: u64,
    /// The longest message, in bytes.
    pub largest_message: u64,
    /// The most receivers.
    pub receivers_max: u64,
    /// Bytes of the sender's segment.
    pub segment_bytes: u64,
    /// The sender's counters, by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Its receivers; a guest ([`Domain::is_guest`](crate::Domain::is_guest)) is shown none.
    pub receivers: Vec<ReceiverView>,
}

/// A receiver, as seen at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverView {
    /// Its row.
    pub row: u16,
    /// Its process.
    pub pid: u32,
    /// Messages of the channel it is done with, as last published: at most an eighth of the ring
    /// behind the truth while it reads.
    pub cursor: u64,
    /// How far that is behind the sender.
    pub lag: u64,
    /// True while it sleeps.
    pub is_asleep: bool,
    /// Its counters, by name.
    pub counters: Vec<(&'static str, u64)>,
}

impl Observer {
    pub(crate) fn open(domain: &DomainInner, name: &ChannelName) -> Result<Self, JoinError> {
        let (socket, _) = connect(domain, name)?;
        ask(&socket, name, &Frame::Observe { name: name.clone() }, &[])?;
        let odd =
            |found: &Frame| JoinError::Protocol { name: name.clone(), found: format!("{found:?}") };
        let (frame, mut descriptors) = answer(&socket, name)?;
        let (count, sender) = match (frame, descriptors.pop()) {
            (Frame::Observed { count }, Some(sender)) => (count as usize, sender),
            (Frame::Refused(reason), _) => {
                return Err(refusal(name, reason, TypeTag::default()));
            }
            (other, _) => return Err(odd(&other)),
        };
        let (memory, header) = open_sender(name, sender)?;
        if count as u64 > header.geometry.receivers_max() {
            return Err(odd(&Frame::Observed { count: u32::try_from(count).unwrap_or(u32::MAX) }));
        }
        let mut receivers = Vec::new();
        while receivers.len() < count {
            match answer(&socket, name)? {
                (Frame::Rows(rows), descriptors)
                    if rows.len() == descriptors.len() && !rows.is_empty() =>
                {
                    if rows.iter().any(|&row| u64::from(row) >= header.geometry.receivers_max()) {
                        return Err(odd(&Frame::Rows(rows)));
                    }
                    for (row, descriptor) in rows.into_iter().zip(descriptors) {
                        let (pid, words) = open_receiver(name, descriptor)?;
                        receivers.push((row, pid, words));
                    }
                }
                (other, _) => return Err(odd(&other)),
            }
        }
        let slots = Slots::new(&memory, &header.geometry);
        let sender = SenderWords::new(memory);
        Ok(Self { name: name.clone(), header, slots, sender, receivers })
    }

    /// The channel now.
    #[must_use]
    pub fn look(&self) -> ChannelView {
        let geometry = &self.header.geometry;
        let sent = head_of(&self.slots);
        let mut counters: Vec<_> = SenderCounter::ALL
            .map(|(counter, name)| (name, self.sender.counter(counter).load(Relaxed)))
            .into();
        counters.extend(
            ControlCounter::ALL
                .map(|(counter, name)| (name, self.sender.control_counter(counter).load(Relaxed))),
        );
        // Exact at any time, where the counter is as of the last slow path.
        counters[SenderCounter::Messages as usize].1 = sent;
        ChannelView {
            name: self.name.as_str().to_owned(),
            pid: self.header.pid,
            sent,
            is_closed: self.sender.closed().load(Relaxed) != 0,
            slots: geometry.slots(),
            window_bytes: geometry.window_bytes(),
            largest_message: geometry.message_bytes_max(),
            receivers_max: geometry.receivers_max(),
            segment_bytes: geometry.segment_bytes(),
            counters,
            receivers: self.receivers.iter().map(|receiver| self.see(receiver, sent)).collect(),
        }
    }

    fn see(&self, (row, pid, words): &(u16, u32, ReceiverWords), sent: u64) -> ReceiverView {
        // Until it has published one, a receiver's cursor is where it began.
        let start = self.sender.door_start(u32::from(*row)).load(Relaxed);
        let cursor = words.cursor().load(Relaxed).max(start);
        ReceiverView {
            row: *row,
            pid: *pid,
            cursor,
            lag: sent.saturating_sub(cursor),
            is_asleep: words.sleeping().load(Relaxed) % 2 == 1,
            counters: ReceiverCounter::ALL
                .map(|(counter, name)| (name, words.counter(counter).load(Relaxed)))
                .into(),
        }
    }
}

fn open_receiver(
    name: &ChannelName,
    descriptor: OwnedFd,
) -> Result<(u32, ReceiverWords), JoinError> {
    let bad = |error: SegmentError| JoinError::Segment { name: name.clone(), error };
    let segment = Segment::adopt(descriptor, false).map_err(bad)?;
    let memory: Region = segment.map(RECEIVER_SEGMENT_BYTES as u64).map_err(bad)?;
    let mut raw = RawReceiverHeader::new_zeroed();
    memory.copy_out(0, raw.as_mut_bytes());
    let header = ReceiverHeader::parse(&raw, segment.bytes())
        .map_err(|error| JoinError::Header { name: name.clone(), error })?;
    Ok((header.pid, ReceiverWords::new(memory)))
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("name", &self.name).finish_non_exhaustive()
    }
}
