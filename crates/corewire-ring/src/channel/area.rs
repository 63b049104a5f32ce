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
        self.find_from(if is_closed { self.reserved } else { span.filled() }, bytes)
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
///
/// # Lanes
///
/// A stream of short messages is not written one beside the other, but to eight *lanes* in turn, each a part of the span.
/// A processor that reads memory in order fetches lines ahead, up to the end of a page. A receiver that reads close behind
/// the sender would fetch the very lines that the sender is writing, which would go to and fro. In lanes, the lines that it
/// fetches are those of the message after the next seven. The sender itself fetches the lines of messages that come
/// ([`Span::coming`]), fewer than that ahead. With three receivers on sixteen cores this doubles the rate for messages of
/// 512 bytes.
#[derive(Debug, Default)]
pub struct Span {
    /// Virtual positions: of its first byte, of the next message, of the end of the lane that is filled, and of its own.
    start: u64,
    next: u64,
    limit: u64,
    end: u64,
    /// Subtracted from a position to get its place in the area.
    origin: u64,
    /// The last message that was published in it, and how many were.
    last: Option<u64>,
    messages: u64,
    /// The length of a lane; 0 if the span is filled in order.
    lane_bytes: u64,
    /// The lane of the next message, and where each lane goes on.
    lane: usize,
    lanes: [u64; LANES],
}

/// Lanes of a span that has some.
const LANES: usize = 8;
/// A lane is at least as long as the pages within which processors fetch ahead.
const LANE_BYTES_MIN: u64 = 4096;
/// So many messages in a span, or more, are short.
const MESSAGES_MANY: u64 = 16;
/// How many messages ahead the sender fetches lines.
const COMING: usize = 3;

impl Span {
    /// The span of `room`, which an area of `area_bytes` bytes has just given out.
    #[must_use]
    pub fn of(room: Room, area_bytes: u64) -> Self {
        let Room { position, end } = room;
        let origin = position - place_of(position, area_bytes).unwrap_or(0);
        Self { start: position, next: position, limit: end, end, origin, ..Self::default() }
    }

    /// The same with lanes, if messages of `bytes` bytes are short enough.
    #[must_use]
    pub fn with_lanes(self, bytes: u64) -> Self {
        self.with_lanes_from(LANE_BYTES_MIN, bytes)
    }

    fn with_lanes_from(mut self, lane_bytes_min: u64, bytes: u64) -> Self {
        let lane_bytes = ((self.end - self.start) / LANES as u64) & !(LINE_BYTES as u64 - 1);
        if lane_bytes >= lane_bytes_min && bytes <= lane_bytes / 4 {
            self.lane_bytes = lane_bytes;
            self.limit = self.start + lane_bytes;
            let starts = (self.start..).step_by(usize::try_from(lane_bytes).unwrap_or(usize::MAX));
            self.lanes.iter_mut().zip(starts).for_each(|(lane, start)| *lane = start);
        }
        self
    }

    /// Have so many messages been published in it that they were short?
    #[must_use]
    pub fn has_many(&self) -> bool {
        self.messages >= MESSAGES_MANY
    }

    /// Room for the next message, of `bytes` bytes, if it fits.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, bytes: u64) -> Option<Room> {
        let lines_bytes = bytes.wrapping_add(LINE_BYTES as u64 - 1) & !(LINE_BYTES as u64 - 1);
        (lines_bytes <= self.limit - self.next)
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
        self.messages += 1;
        if self.lane_bytes > 0 {
            self.lanes[self.lane % LANES] = self.next;
            self.lane = (self.lane + 1) % LANES;
            self.next = self.lanes[self.lane];
            self.limit = self.start + (self.lane as u64 + 1) * self.lane_bytes;
        }
    }

    /// Where in its area a message will lie that is published soon, if the span has lanes and messages of `bytes` bytes
    /// follow. Call it after [`Span::publish`].
    #[inline(always)]
    #[must_use]
    pub fn coming(&self, bytes: u64) -> Option<u64> {
        let lane = (self.lane + COMING - 1) % LANES;
        let (next, end) = (self.lanes[lane], self.start + (lane as u64 + 1) * self.lane_bytes);
        (self.lane_bytes > 0 && bytes <= end - next).then(|| next - self.origin)
    }

    /// Where what was filled ends.
    fn filled(&self) -> u64 {
        let is_used = |lane: &(u64, &u64)| *lane.1 > self.start + lane.0 * self.lane_bytes;
        match self.lane_bytes {
            0 => self.next,
            _ => (0..)
                .zip(&self.lanes)
                .filter(is_used)
                .map(|(_, end)| *end)
                .max()
                .unwrap_or(self.start),
        }
    }

    /// Gives the unfilled rest back to `area`; the filled part is freed once its last message has
    /// been read. The area must not have given out other room since, and no room found in this span
    /// may be in use.
    pub fn close(&mut self, area: &mut Area) {
        let span = core::mem::take(self);
        let Self { start, end, last, .. } = span;
        if start == end {
            return;
        }
        area.reserved = span.filled();
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
        // Keeps P66.
        /// The same oracle for an area that is filled span by span, as the sender does it: a span
        /// is closed when the next message does not fit and opened as large as possible, and each
        /// message is put back, shortened or published.
        #[test]
        fn live_payloads_of_spans_never_overlap(
            kilobytes in 1u64..5,
            has_lanes: bool,
            steps in steps(),
        ) {
            let bytes = kilobytes.next_power_of_two() * 1024;
            let (mut area, mut span) = (Area::new(bytes, 64, false), Span::default());
            // Sequence, virtual position, place, end.
            let mut sent: Vec<(u64, u64, u64, u64)> = Vec::new();
            let (mut head, mut cursor, mut reserved) = (0u64, 0u64, 0u64);
            for step in steps {
                match step {
                    Step::Send(length) | Step::Abandon(length) => {
                        // Lanes are for short messages; a long one ends them.
                        let length = match has_lanes && length % 16 > 0 {
                            true => length % (bytes / 32) + 1,
                            false => length.min(bytes / 4),
                        };
                        let has_room = span.find(length).is_some()
                            || area.find_beside(&span, length).is_some();
                        if span.find(length).is_none() {
                            span.close(&mut area);
                            let part = if has_lanes { bytes / 2 } else { bytes / 16 };
                            let find = |area: &Area| {
                                area.find(length.max(part)).or_else(|| area.find(length))
                            };
                            let mut room = find(&area);
                            prop_assert_eq!(room.is_some(), has_room);
                            if room.is_none() {
                                // A sender that finds no room looks at the cursors again.
                                area.free_before(cursor);
                                room = find(&area);
                            }
                            prop_assert!(cursor < head || room.is_some());
                            let Some(room) = room else { continue };
                            area.take(room);
                            reserved = room.end;
                            span = Span::of(room, bytes);
                            if has_lanes {
                                span = span.with_lanes_from(64, length.min(16));
                                if span.find(length).is_none() {
                                    span = Span::of(room, bytes);
                                }
                            }
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
                        if let Some(coming) = span.coming(length) {
                            prop_assert!(coming % 64 == 0 && coming + length <= bytes);
                        }
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
                        // In lanes, a later message may lie before it.
                        let later = sent.iter().filter(|one| one.0 >= sequence);
                        let position = later.map(|one| one.1).min().unwrap_or(position);
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
