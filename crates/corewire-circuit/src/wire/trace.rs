//! The memory in which a process records what it does with frames of circuits, for `corewire trace`.
//!
//! ```text
//! 0     magic, version, events (a power of two), pid, length of a tick in ns (f64), length of the name, the name
//! 128   how many events were recorded so far          written by every recording thread, which adds one
//! 192   events, each a line: the n-th is at n modulo their number
//! ```
//!
//! | word of an event | contents |
//! |---|---|
//! | 0, 1 | when it began and ended, in ticks of the processor's counter |
//! | 2, 3 | the label with which the frame came, and the one with which it went; 0 if it did not |
//! | 4 | how many lines of the circuit had come and gone with it: two times 32 bits, the same at both ends of a hop |
//! | 5 | ordinal 16, bytes 16, kind 8, thread 24 |
//! | 6 | nothing |
//! | 7 | its number and one: written last, so that a reader sees whether the event is whole |
//!
//! A reader takes nothing on trust: the memory may be that of another user.

/// The first word: `cwtrace1`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"cwtrace1");
/// Offset of the magic number.
pub const AT_MAGIC: usize = 0;
/// Offset of the number of places for events, 32 bits.
pub const AT_EVENTS: usize = 8;
/// Offset of the process, 32 bits.
pub const AT_PID: usize = 12;
/// Offset of the length of a tick.
pub const AT_TICK: usize = 16;
/// Offset of the length of the name, 32 bits.
pub const AT_NAME_LENGTH: usize = 24;
/// Offset of the name.
pub const AT_NAME: usize = 32;
/// The longest name.
pub const NAME_BYTES_MAX: usize = 96;
/// Offset of the number of events so far.
pub const AT_COUNT: usize = 128;
/// Offset of the first event.
pub const AT_FIRST: usize = 192;
/// Bytes of an event.
pub const EVENT_BYTES: usize = 64;

/// What a process did with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A program sent it.
    Send = 1,
    /// A program took it.
    Receive = 2,
    /// A service served it; what went is the reply.
    Serve = 3,
    /// A monitor passed it on at once.
    Forward = 4,
    /// A monitor stored it, because something was in its way.
    Store = 5,
    /// A monitor sent what it had stored.
    Resume = 6,
}

impl Kind {
    const fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Send,
            2 => Self::Receive,
            3 => Self::Serve,
            4 => Self::Forward,
            5 => Self::Store,
            6 => Self::Resume,
            _ => return None,
        })
    }
}

/// Where a frame was seen: its label, and how many lines of the circuit there were with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Point {
    /// The label's word.
    pub label: u64,
    /// Lines so far, modulo 2^32.
    pub lines: u32,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When it began and ended, in ticks.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// How the frame came.
    pub came: Option<Point>,
    /// How it went.
    pub went: Option<Point>,
    /// Which message of the interface.
    pub ordinal: u16,
    /// Bytes of the frame's payload.
    pub bytes: u16,
    /// What was done.
    pub kind: Kind,
    /// The thread, a number of its process, 24 bits.
    pub thread: u32,
}

impl Event {
    /// The event's words, without the last one.
    #[must_use]
    pub fn to_words(&self) -> [u64; 7] {
        let Self { began, ended, came, went, ordinal, bytes, kind, thread } = *self;
        let [came, went] = [came, went].map(Option::unwrap_or_default);
        let what = u64::from(ordinal)
            | u64::from(bytes) << 16
            | u64::from(kind as u8) << 32
            | u64::from(thread & 0xff_ffff) << 40;
        let lines = u64::from(came.lines) | u64::from(went.lines) << 32;
        [began, ended, came.label, went.label, lines, what, 0]
    }

    /// The event in these words; `None` if they are none.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "takes words apart")]
    pub fn of_words([began, ended, came, went, lines, what, _]: [u64; 7]) -> Option<Self> {
        let point =
            |label: u64, lines: u64| (label != 0).then_some(Point { label, lines: lines as u32 });
        Some(Self {
            began,
            ended: (ended >= began).then_some(ended)?,
            came: point(came, lines),
            went: point(went, lines >> 32),
            ordinal: what as u16,
            bytes: (what >> 16) as u16,
            kind: Kind::of((what >> 32) as u8)?,
            thread: (what >> 40) as u32,
        })
    }
}

/// Bytes of memory with so many places for events.
#[must_use]
pub const fn bytes_of(events: usize) -> usize {
    AT_FIRST + events * EVENT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_the_same_in_words() {
        let event = Event {
            began: 7,
            ended: 9,
            came: Some(Point { label: 5, lines: u32::MAX }),
            went: None,
            ordinal: 0x8001,
            bytes: 4080,
            kind: Kind::Store,
            thread: 0xff_fffe,
        };
        assert_eq!(Event::of_words(event.to_words()), Some(event));
        for kind in [0, 7, 255] {
            let mut words = event.to_words();
            words[5] = words[5] & !(0xff << 32) | kind << 32;
            assert_eq!(Event::of_words(words), None);
        }
        assert_eq!(Event::of_words(Event { ended: 6, ..event }.to_words()), None);
    }
}
