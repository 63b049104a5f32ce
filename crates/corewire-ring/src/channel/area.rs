//! Room for payloads above 48 bytes: the window and the large area, each a ring of bytes.
//!
//! Positions are virtual: they only grow, and the place of a payload is its position modulo the
//! area's size. Room is given out in ring order and comes back in ring order, so the slowest cursor
//! determines how much is free: a private queue of (message, end) maps a cursor to a position.
//! Nothing here is shared, so nothing needs recovery when the owner dies.

use alloc::collections::VecDeque;

use corewire_layout::{LINE_BYTES, place_of, round_up};

/// The sender's private view of one area.
#[derive(Debug)]
pub struct Area {
    bytes: u64,
    /// Virtual end of the room that has been given out.
    reserved: u64,
    /// Virtual end of the room that has been freed.
    freed: u64,
    /// Published messages whose payload is still in use, oldest first, and the end of each.
    in_use: VecDeque<InUse>,
    /// The last message whose payload was freed.
    last_freed_sequence: u64,
    /// Starts again at the beginning whenever the area is empty, to touch as little memory as
    /// possible.
    rewinds: bool,
}

#[derive(Debug, Clone, Copy)]
struct InUse {
    sequence: u64,
    end: u64,
}

/// Room for one payload, not yet taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Virtual position of its first byte.
    pub position: u64,
    /// Virtual end, rounded up to a line.
    pub end: u64,
}

impl Area {
    /// An area of `bytes` bytes that never holds more than `messages_max` payloads.
    #[must_use]
    pub fn new(bytes: u64, messages_max: u64, rewinds: bool) -> Self {
        let capacity = messages_max.min(bytes / LINE_BYTES as u64);
        let in_use = VecDeque::with_capacity(usize::try_from(capacity).unwrap_or_default());
        Self { bytes, reserved: 0, freed: 0, in_use, last_freed_sequence: 0, rewinds }
    }

    /// Holds the whole area until all receivers have read message `sequence`: until then they may
    /// still read what another sender has left in this memory. Must be called before any room is
    /// given out.
    pub fn hold_all_until(&mut self, sequence: u64) {
        self.reserved = self.bytes;
        self.in_use.push_back(InUse { sequence, end: self.bytes });
    }

    /// Virtual end of the room that has been given out.
    #[cfg(test)]
    fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Finds contiguous room for `bytes` bytes, and skips the end of the area if the room would not
    /// fit there. `None` while too much is in use.
    #[inline]
    #[must_use]
    pub fn find(&self, bytes: u64) -> Option<Room> {
        self.find_from(self.reserved, bytes)
    }

    /// As [`Area::find`], as if `span` were closed. `span` is open in this area, or closed already.
    #[must_use]
    pub fn find_beside(&self, span: &Span, bytes: u64) -> Option<Room> {
        let is_closed = span.start == span.end;
        self.find_from(if is_closed { self.reserved } else { span.next }, bytes)
    }

    #[inline]
    fn find_from(&self, reserved: u64, bytes: u64) -> Option<Room> {
        let bytes = round_up(bytes, LINE_BYTES as u64)?;
        let place = place_of(reserved, self.bytes)?;
        let is_empty = self.freed == reserved;
        let must_skip = place + bytes > self.bytes || (is_empty && self.rewinds && place > 0);
        let position = reserved + if must_skip { self.bytes - place } else { 0 };
        let end = position + bytes;
        let oldest = if is_empty { position } else { self.freed };
        (end - oldest <= self.bytes).then_some(Room { position, end })
    }

    /// Gives out the room that [`Area::find`] found.
    #[inline]
    pub fn take(&mut self, room: Room) {
        if self.freed == self.reserved {
            self.freed = room.position;
        }
        self.reserved = room.end;
    }

    /// Takes back room that was never published.
    pub fn put_back(&mut self, room: Room) {
        self.reserved = room.position;
    }

    /// Takes back the end of the room last given out, beyond `bytes` bytes.
    pub fn shrink(&mut self, room: &mut Room, bytes: u64) {
        let end = room.position.saturating_add(bytes.next_multiple_of(LINE_BYTES as u64));
        if end < room.end {
            room.end = end;
            self.reserved = end;
        }
    }

    /// Records that message `sequence`, just published, holds the room last given out.
    #[inline]
    pub fn publish(&mut self, sequence: u64) {
        self.in_use.push_back(InUse { sequence, end: self.reserved });
    }

    /// Records that message `sequence`, just published, holds `room`, one of several rooms that
    /// were given out before any of their messages was published.
    pub fn publish_room(&mut self, sequence: u64, room: Room) {
        self.in_use.push_back(InUse { sequence, end: room.end });
    }

    /// Frees the room of every message before `cursor`.
    #[inline]
    pub fn free_before(&mut self, cursor: u64) {
        while let Some(&oldest) = self.in_use.front() {
            if oldest.sequence >= cursor {
                break;
            }
            self.freed = oldest.end;
            self.last_freed_sequence = oldest.sequence;
            self.in_use.pop_front();
        }
    }

    /// The oldest message that holds room here: giving it up makes room for the next one. `None` if
    /// no message holds any.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.in_use.front().map(|oldest| oldest.sequence)
    }

    /// Bytes that are free now, or will be before the area wraps around.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.bytes - (self.reserved - self.freed)
    }

    /// Holds everything from `position` on again, for a receiver that joins at an older message.
    pub fn hold_from(&mut self, position: u64) {
        if position < self.freed {
            let held = InUse { sequence: self.last_freed_sequence, end: self.freed };
            self.in_use.push_front(held);
            self.freed = position;
        }
    }
}

/// A contiguous stretch of the window that is given out at once and then filled message by message.
/// A message then needs two comparisons, and the sender records one number for it.
#[derive(Debug, Default)]
pub struct Span {
    /// Virtual positions: of its first byte, of the next message, and of its end.
    start: u64,
    next: u64,
    end: u64,
    /// Subtracted from a position to get its place in the area.
    origin: u64,
    /// The last message that was published in it.
    last: Option<u64>,
}

impl Span {
    /// The span of `room`, which an area of `area_bytes` bytes has just given out.
    #[must_use]
    pub fn of(room: Room, area_bytes: u64) -> Self {
        let Room { position, end } = room;
        let origin = position - place_of(position, area_bytes).unwrap_or(0);
        Self { start: position, next: position, end, origin, last: None }
    }

    /// Room for the next message, of `bytes` bytes, if it fits.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, bytes: u64) -> Option<Room> {
        let lines_bytes = bytes.wrapping_add(LINE_BYTES as u64 - 1) & !(LINE_BYTES as u64 - 1);
        (lines_bytes <= self.end - self.next)
            .then(|| Room { position: self.next, end: self.next + lines_bytes })
    }

    /// The place in its area of the room found in this span.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, room: Room) -> u64 {
        room.position - self.origin
    }

    /// Makes the next message begin at `position`: at the end of the room that was found, or at its
    /// start again.
    #[inline(always)]
    pub fn go_on_at(&mut self, position: u64) {
        self.next = position;
    }

    /// Records that message `sequence`, just published, is the last one so far.
    #[inline(always)]
    pub fn publish(&mut self, sequence: u64) {
        self.last = Some(sequence);
    }

    /// Gives the unfilled rest back to `area`; the filled part is freed once its last message has
    /// been read. The area must not have given out other room since, and no room found in this span
    /// may be in use.
    pub fn close(&mut self, area: &mut Area) {
        let Self { start, next, end, last, .. } = core::mem::take(self);
        if start == end {
            return;
        }
        area.reserved = next;
        if let Some(sequence) = last {
            area.publish(sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Send(u64),
        Abandon(u64),
        Receive(u64),
        JoinOldest,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (1u64..700).prop_map(Step::Send),
            1 => (1u64..700).prop_map(Step::Abandon),
            4 => (1u64..6).prop_map(Step::Receive),
            1 => Just(Step::JoinOldest),
        ];
        proptest::collection::vec(step, 1..if cfg!(miri) { 60 } else { 400 })
    }

    proptest! {
        /// The same oracle for an area that is filled span by span, as the sender does it: a span
        /// is closed when the next message does not fit and opened as large as possible, and each
        /// message is put back, shortened or published.
        #[test]
        fn live_payloads_of_spans_never_overlap(kilobytes in 1u64..5, steps in steps()) {
            let bytes = kilobytes.next_power_of_two() * 1024;
            let (mut area, mut span) = (Area::new(bytes, 64, false), Span::default());
            // Sequence, virtual position, place, end.
            let mut sent: Vec<(u64, u64, u64, u64)> = Vec::new();
            let (mut head, mut cursor, mut reserved) = (0u64, 0u64, 0u64);
            for step in steps {
                match step {
                    Step::Send(length) | Step::Abandon(length) => {
                        let length = length.min(bytes / 4);
                        let has_room = span.find(length).is_some()
                            || area.find_beside(&span, length).is_some();
                        if span.find(length).is_none() {
                            span.close(&mut area);
                            let room = area.find(length.max(bytes / 16)).or_else(|| area.find(length));
                            prop_assert_eq!(room.is_some(), has_room);
                            prop_assert!(cursor < head || room.is_some());
                            let Some(room) = room else { continue };
                            area.take(room);
                            reserved = room.end;
                            span = Span::of(room, bytes);
                        }
                        let mut room = span.find(length).unwrap();
                        let place = span.place(room);
                        prop_assert_eq!(place, room.position % bytes);
                        span.go_on_at(room.end);
                        if matches!(step, Step::Abandon(_)) {
                            span.go_on_at(room.position);
                            continue;
                        }
                        // Some messages are shortened first.
                        let length = if length % 3 == 0 { length / 2 } else { length };
                        span.go_on_at(room.position);
                        room = span.find(length).unwrap();
                        span.go_on_at(room.end);
                        span.publish(head);
                        prop_assert!(place + length <= bytes);
                        for &(sequence, _, start, end) in sent.iter().rev() {
                            if sequence >= cursor {
                                prop_assert!(place >= end || place + length <= start);
                            }
                        }
                        sent.push((head, room.position, place, place + length));
                        head += 1;
                    }
                    Step::Receive(count) => {
                        cursor = (cursor + count).min(head);
                        area.free_before(cursor);
                    }
                    Step::JoinOldest => {
                        // As `Members::oldest_whole` chooses: half of the window is left for
                        // messages in flight.
                        let Some(&(sequence, position, ..)) =
                            sent.iter().find(|&&(sequence, ..)| sequence + 1 == cursor)
                        else { continue };
                        if position + bytes >= reserved + bytes / 2 {
                            area.hold_from(position);
                            cursor = sequence;
                        }
                    }
                }
            }
        }
    }

    proptest! {
        /// The oracle: live payloads never share a byte, and an empty area always has room for
        /// half of itself.
        #[test]
        fn live_payloads_never_overlap(rewinds: bool, kilobytes in 1u64..4, steps in steps()) {
            let bytes = kilobytes * 1024;
            let mut area = Area::new(bytes, 64, rewinds);
            let mut sent: Vec<(u64, u64, u64)> = Vec::new();
            let (mut head, mut cursor) = (0u64, 0u64);
            for step in steps {
                match step {
                    Step::Send(length) => {
                        let room = area.find(length);
                        prop_assert!(cursor < head || length > bytes / 2 || room.is_some());
                        let Some(room) = room else { continue };
                        area.take(room);
                        area.publish(head);
                        let first = room.position % bytes;
                        prop_assert!(first + length <= bytes);
                        for &(sequence, start, end) in sent.iter().rev() {
                            if sequence >= cursor {
                                prop_assert!(first >= end || first + length <= start);
                            }
                        }
                        sent.push((head, first, first + length));
                        head += 1;
                    }
                    Step::Abandon(length) => {
                        if let Some(room) = area.find(length) {
                            area.take(room);
                            area.put_back(room);
                        }
                    }
                    Step::Receive(count) => {
                        cursor = (cursor + count).min(head);
                        area.free_before(cursor);
                    }
                    Step::JoinOldest => {
                        let Some(index) = sent.iter().position(|&(sequence, ..)| sequence + 1 == cursor)
                        else { continue };
                        // The message just before the cursor is whole as long as nothing was
                        // written over it afterwards.
                        let (_, start, end) = sent[index];
                        let whole = sent[index + 1..].iter().all(|&(_, s, e)| s >= end || e <= start);
                        let since = area.reserved() - area.reserved() % bytes;
                        let position = if since + start < area.freed { since + start } else {
                            (since + start).saturating_sub(bytes)
                        };
                        if whole && position + bytes >= area.reserved() && position < area.freed {
                            cursor -= 1;
                            area.hold_from(position);
                        }
                    }
                }
            }
        }
    }
}
