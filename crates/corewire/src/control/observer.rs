//! Observing a channel without joining it. An observer joins without a segment of its own: it gets the segments read-only
//! and no row. One of another user gets only the sender's segment.

use std::collections::BTreeMap;
use std::fmt;

use corewire_layout::counters::{ControlCounter, ReceiverCounter, SenderCounter};
use corewire_layout::name::{ChannelName, SocketName};
use corewire_layout::segment::{
    RECEIVER_SEGMENT_BYTES, RawReceiverHeader, ReceiverHeader, SenderHeader,
};
use corewire_os::fork::Descriptor;
use corewire_os::memory::{Segment, SegmentError};
use corewire_ring::broadcast::{ReceiverWords, SenderWords, head_of};
use corewire_ring::region::{Region, Slots};
use corewire_ring::shared::{Door, Party, Roster};
use corewire_ring::sync::Ordering::Relaxed;
use zerocopy::{FromZeros, IntoBytes};

use crate::control::domain::DomainInner;
use crate::control::sample::{MessageSample, sample};
use crate::control::shared::SharedMemory;
use crate::error::JoinError;

/// An observer of a channel, which uses read-only maps of the memory of its senders and receivers. For a channel of one
/// sender, it shows the receivers that had joined when it was opened; open another one to see later
/// receivers.
pub struct Observer {
    name: ChannelName,
    header: SenderHeader,
    joining: Vec<u32>,
    parties: Parties,
}

/// The senders and receivers, and where their words are.
enum Parties {
    /// One sender, and the receivers that had joined when the observer was opened.
    One { slots: Slots, sender: SenderWords, receivers: Vec<(u16, u32, ReceiverWords)> },
    /// All current senders and receivers of a shared channel, and their processes when the observer was opened.
    Many { roster: Box<Roster>, table: Region, processes: Processes },
}

/// The processes of a shared channel, by their sockets: the number of each, 0 if it cannot be seen from here, or `None` if
/// it has ended. Its rows stay until a sender or the channel's host needs them.
#[derive(Default)]
pub(super) struct Processes(BTreeMap<u128, Option<u32>>);

impl Processes {
    /// Connects to each process once.
    pub(super) fn of(domain: &DomainInner, roster: &Roster) -> Self {
        let mut processes = Self::default();
        for party in [Party::Sender, Party::Receiver] {
            for (who, _) in roster.held(party) {
                let name = roster.door(party, who.row).socket();
                if processes.0.contains_key(&name) {
                    continue;
                }
                match domain.directory.connect_now(SocketName(name)) {
                    Ok(None) => drop(processes.0.insert(name, None)),
                    Ok(Some(socket)) => {
                        let pid = socket.peer().map_or(0, |peer| peer.pid);
                        processes.0.insert(name, Some(pid));
                    }
                    // It runs, and its queue of connections is full, for example.
                    Err(_) => {}
                }
            }
        }
        processes
    }

    fn pid(&self, door: &Door<'_>) -> u32 {
        let found = self.0.get(&door.socket()).copied().flatten();
        found.unwrap_or_else(|| door.pid().load(Relaxed))
    }

    fn has_ended(&self, door: &Door<'_>) -> bool {
        self.0.get(&door.socket()).is_some_and(Option::is_none)
    }
}

/// A channel's state at one moment. The numbers are read one after the other while the channel runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelView {
    /// Its name.
    pub name: String,
    /// Drawn at random when it was created.
    pub incarnation: u128,
    /// The sender's process. For a shared channel, the process of its first sender. 0 if it cannot be seen from this
    /// process's PID namespace.
    pub pid: u32,
    /// True if the channel can have several senders.
    pub is_shared: bool,
    /// Number of senders that run.
    pub senders: usize,
    /// Number of messages sent. For a shared channel, number of slots claimed.
    pub sent: u64,
    /// True once the sender has closed it.
    pub is_closed: bool,
    /// Name of the type of its messages. `None` for plain bytes.
    pub message_type: Option<String>,
    /// Number of slots of the ring.
    pub slots: u64,
    /// Size of the window in bytes.
    pub window_bytes: u64,
    /// Maximum length of a message in bytes.
    pub largest_message: u64,
    /// Maximum number of receivers.
    pub receivers_max: u64,
    /// Size of the sender's segment in bytes.
    pub segment_bytes: u64,
    /// Processes of receivers that were waiting for the channel when it was created and had not joined when this
    /// observer was opened. The first message waits for them for a limited time.
    pub joining: Vec<u32>,
    /// The sender's counters, by name. For a shared channel, their sums over all current senders.
    pub counters: Vec<(&'static str, u64)>,
    /// Lengths of some of its latest messages, newest first. They serve to estimate the bytes of short messages, which
    /// are not counted.
    pub sample: Vec<MessageSample>,
    /// Its receivers that run. A guest ([`Domain::is_guest`](crate::Domain::is_guest)) sees none.
    pub receivers: Vec<ReceiverView>,
}

/// A receiver's state at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverView {
    /// Its row.
    pub row: u16,
    /// Its process.
    pub pid: u32,
    /// Number of messages of the channel that it has finished, as last published. While it reads, this is at most an
    /// eighth of the ring behind the true number.
    pub cursor: u64,
    /// Number of messages by which the cursor is behind the sender.
    pub lag: u64,
    /// True while it sleeps.
    pub is_asleep: bool,
    /// Its counters, by name.
    pub counters: Vec<(&'static str, u64)>,
}

impl Observer {
    /// The observer of a channel of one sender.
    pub(super) fn of_one(
        name: &ChannelName,
        (memory, mut header): (Region, SenderHeader),
        pid: u32,
        joining: Vec<u32>,
        receivers: Vec<(u16, u32, ReceiverWords)>,
    ) -> Self {
        // What the header says is true in the process's own container.
        header.pid = pid;
        let slots = Slots::new(&memory, &header.geometry);
        let sender = SenderWords::new(memory);
        let parties = Parties::One { slots, sender, receivers };
        Self { name: name.clone(), header, joining, parties }
    }

    /// The observer of a shared channel.
    pub(super) fn of_many(
        domain: &DomainInner,
        name: &ChannelName,
        memory: SharedMemory,
        joining: Vec<u32>,
    ) -> Self {
        let roster = memory.roster();
        let processes = Processes::of(domain, &roster);
        let parties = Parties::Many { roster: Box::new(roster), table: memory.table, processes };
        Self { name: name.clone(), header: memory.header, joining, parties }
    }

    /// The current state of the channel.
    #[must_use]
    pub fn look(&self) -> ChannelView {
        match &self.parties {
            Parties::One { slots, sender, receivers } => self.look_at_one(slots, sender, receivers),
            Parties::Many { roster, table, processes } => {
                self.look_at_many(roster, table, processes)
            }
        }
    }

    fn look_at_one(
        &self,
        slots: &Slots,
        sender: &SenderWords,
        receivers: &[(u16, u32, ReceiverWords)],
    ) -> ChannelView {
        let sent = head_of(slots);
        let mut counters: Vec<_> = SenderCounter::ALL
            .map(|(counter, name)| (name, sender.counter(counter).load(Relaxed)))
            .into();
        counters.extend(
            ControlCounter::ALL
                .map(|(counter, name)| (name, sender.control_counter(counter).load(Relaxed))),
        );
        // The head is exact; the counter is as of the last slow path.
        counters[SenderCounter::Messages as usize].1 = sent;
        let is_closed = sender.closed().load(Relaxed) != 0;
        let receivers = receivers.iter().map(|(row, pid, words)| {
            // Until a receiver has published a cursor, its cursor is its first message.
            let start = sender.door_start(u32::from(*row)).load(Relaxed);
            view_receiver(*row, *pid, words, start, sent)
        });
        let receivers = receivers.collect();
        let sample = sample(slots, sent);
        self.view(self.header.pid, usize::from(!is_closed), sent, counters, sample, receivers)
    }

    fn look_at_many(&self, roster: &Roster, table: &Region, processes: &Processes) -> ChannelView {
        let sent = roster.head();
        let held =
            |party| roster.held(party).map(move |(who, _)| (who, roster.door(party, who.row)));
        let has_ended = |door: &Door<'_>| processes.has_ended(door);
        let mut counters: Vec<_> = SenderCounter::ALL
            .map(|(counter, name)| {
                let of = |row| roster.ring_words().counter(row, counter).load(Relaxed);
                let all = held(Party::Sender).map(|(who, _)| of(who.row));
                (name, all.fold(0, u64::wrapping_add))
            })
            .into();
        let ended = held(Party::Receiver).filter(|(_, door)| has_ended(door)).count();
        counters.extend(ControlCounter::ALL.map(|(counter, name)| {
            let counted = roster.table_words().counter(counter).load(Relaxed);
            let others = if counter == ControlCounter::Deaths { ended as u64 } else { 0 };
            (name, counted + others)
        }));
        let senders = || held(Party::Sender).filter(|(_, door)| !has_ended(door));
        let first = senders().next().map_or(self.header.pid, |(_, door)| processes.pid(&door));
        let rows = usize::try_from(self.header.geometry.table_rows_offset()).unwrap_or(usize::MAX);
        let receivers = held(Party::Receiver).filter(|(_, door)| !has_ended(door));
        let receivers = receivers.filter_map(|(who, door)| {
            let page = rows + who.row as usize * RECEIVER_SEGMENT_BYTES;
            let words = ReceiverWords::new(table.part(page, RECEIVER_SEGMENT_BYTES)?);
            let row = u16::try_from(who.row).ok()?;
            Some(view_receiver(row, processes.pid(&door), &words, 0, sent))
        });
        let sample = sample(roster.slots(), sent);
        self.view(first, senders().count(), sent, counters, sample, receivers.collect())
    }

    fn view(
        &self,
        pid: u32,
        senders: usize,
        sent: u64,
        counters: Vec<(&'static str, u64)>,
        sample: Vec<MessageSample>,
        receivers: Vec<ReceiverView>,
    ) -> ChannelView {
        let SenderHeader { geometry, type_tag, .. } = &self.header;
        ChannelView {
            name: self.name.as_str().to_owned(),
            incarnation: self.header.incarnation,
            pid,
            is_shared: self.header.geometry.is_shared(),
            senders,
            sent,
            is_closed: senders == 0,
            message_type: (!type_tag.is_plain()).then(|| type_tag.name.as_str().to_owned()),
            slots: geometry.slots(),
            window_bytes: geometry.window_bytes(),
            largest_message: geometry.message_bytes_max(),
            receivers_max: geometry.receivers_max(),
            segment_bytes: geometry.segment_bytes(),
            joining: self.joining.clone(),
            counters,
            sample,
            receivers,
        }
    }
}

fn view_receiver(row: u16, pid: u32, words: &ReceiverWords, start: u64, sent: u64) -> ReceiverView {
    let cursor = words.cursor().load(Relaxed).max(start);
    ReceiverView {
        row,
        pid,
        cursor,
        lag: sent.saturating_sub(cursor),
        is_asleep: words.sleeping().load(Relaxed) % 2 == 1,
        counters: ReceiverCounter::ALL
            .map(|(counter, name)| (name, words.counter(counter).load(Relaxed)))
            .into(),
    }
}

pub(super) fn open_receiver(
    name: &ChannelName,
    descriptor: Descriptor,
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
