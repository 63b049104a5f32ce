//! Memory for frames that wait: lines of 64 bytes, chained.
//!
//! A frame begins with its hop word, its length, how much of it has been sent, and the first line of the next frame of
//! its queue: 16 bytes. The payload follows, in as many lines as it takes. Pieces of memory of 1024 lines are allocated
//! as they are needed, and freed when nothing is stored; one piece is kept.

use std::fmt;

use corewire_layout::LINE_BYTES;

use crate::wire::{FRAME_HEADER_BYTES, Hop, Kind, PAYLOAD_BYTES_MAX, flags, lines_of, payload_of};

/// Lines that are allocated together.
const PIECE_LINES: usize = 1024;

/// No line.
const NONE: u32 = u32::MAX;

type Line = [u8; LINE_BYTES];

/// Frames in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

/// The memory of all queues of a node.
#[derive(Clone)]
pub(crate) struct Store {
    pieces: Vec<Box<[Line]>>,
    /// For each line the next one of its frame, or of the free lines.
    next: Vec<u32>,
    free: u32,
    used_lines: usize,
    /// Where a frame is put together that is sent on. What is in it means nothing.
    whole: Box<[u8; PAYLOAD_BYTES_MAX]>,
}

/// Shows the lines that hold frames, and no others.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_free = vec![false; self.next.len()];
        let mut line = self.free;
        while let Some(place) = is_free.get_mut(line as usize) {
            (*place, line) = (true, self.next[line as usize]);
        }
        let used = is_free.iter().enumerate().filter(|(_, is_free)| !**is_free);
        let lines = used.map(|(line, _)| {
            (line, self.next[line], self.pieces[line / PIECE_LINES][line % PIECE_LINES])
        });
        f.debug_list().entries(lines).finish()
    }
}

/// The front of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front {
    pub(crate) hop: Hop,
    /// Bytes that have not been sent.
    pub(crate) bytes: usize,
}

impl Front {
    /// Lines that the rest takes.
    pub(crate) const fn lines(&self) -> u32 {
        lines_of(self.bytes)
    }

    /// The frame as far as it fits into this many lines: what is sent, and how many bytes of it.
    pub(crate) const fn part(&self, lines: u32) -> Option<(Hop, usize)> {
        if self.lines() <= lines {
            return Some((self.hop, self.bytes));
        }
        let bytes = payload_of(lines);
        if bytes == 0 {
            return None;
        }
        Some((Hop { kind: Kind::More, ..self.hop }, bytes))
    }
}

impl Store {
    pub(crate) fn new() -> Self {
        let whole = Box::new([0; PAYLOAD_BYTES_MAX]);
        Self { pieces: Vec::new(), next: Vec::new(), free: NONE, used_lines: 0, whole }
    }

    /// Lines that hold frames.
    pub(crate) const fn used_lines(&self) -> usize {
        self.used_lines
    }

    fn line(&self, index: u32) -> &Line {
        let index = index as usize;
        &self.pieces[index / PIECE_LINES][index % PIECE_LINES]
    }

    fn line_mut(&mut self, index: u32) -> &mut Line {
        let index = index as usize;
        &mut self.pieces[index / PIECE_LINES][index % PIECE_LINES]
    }

    fn take_line(&mut self) -> u32 {
        if self.free == NONE {
            let first = u32::try_from(self.next.len()).unwrap_or(NONE);
            self.pieces.push(vec![[0; LINE_BYTES]; PIECE_LINES].into_boxed_slice());
            self.next.extend((0..PIECE_LINES).map(|line| match line + 1 {
                PIECE_LINES => NONE,
                next => first + u32::try_from(next).unwrap_or(0),
            }));
            self.free = first;
        }
        let line = self.free;
        self.free = self.next[line as usize];
        self.next[line as usize] = NONE;
        self.used_lines += 1;
        line
    }

    fn give_line(&mut self, line: u32) {
        self.next[line as usize] = self.free;
        self.free = line;
        self.used_lines -= 1;
    }

    /// Adds a frame. The payload is no longer than a frame's can be.
    pub(crate) fn push(&mut self, queue: &mut Queue, hop: Hop, payload: &[u8]) {
        let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
        let first = self.take_line();
        let (head, mut rest) = payload.split_at(payload.len().min(LINE_BYTES - FRAME_HEADER_BYTES));
        let line = self.line_mut(first);
        line[..8].copy_from_slice(&hop.to_word().to_le_bytes());
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        line[8..10].copy_from_slice(&length.to_le_bytes());
        line[10..12].copy_from_slice(&0_u16.to_le_bytes());
        line[12..16].copy_from_slice(&NONE.to_le_bytes());
        line[FRAME_HEADER_BYTES..][..head.len()].copy_from_slice(head);
        let mut last = first;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(LINE_BYTES));
            let line = self.take_line();
            self.line_mut(line)[..part.len()].copy_from_slice(part);
            self.next[last as usize] = line;
            (last, rest) = (line, behind);
        }
        match queue.last {
            NONE => queue.first = first,
            before => self.line_mut(before)[12..16].copy_from_slice(&first.to_le_bytes()),
        }
        queue.last = first;
    }

    fn header(&self, first: u32) -> (Option<Hop>, usize, usize, u32) {
        let line = self.line(first);
        let word = line.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let number = |at: usize| usize::from(u16::from_le_bytes([line[at], line[at + 1]]));
        let next = u32::from_le_bytes([line[12], line[13], line[14], line[15]]);
        (Hop::of_word(word), number(8), number(10), next)
    }

    /// The oldest frame.
    pub(crate) fn front(&self, queue: &Queue) -> Option<Front> {
        if queue.is_empty() {
            return None;
        }
        let (hop, length, sent, _) = self.header(queue.first);
        let mut hop = hop?;
        if sent > 0 {
            // The first part had them.
            hop.flags &= !(flags::PREFIX | flags::STATUS);
            hop.capabilities = 0;
        }
        Some(Front { hop, bytes: length - sent })
    }

    /// The next `bytes` of the oldest frame.
    pub(crate) fn read(&mut self, queue: &Queue, bytes: usize) -> &[u8] {
        let (_, _, sent, _) = self.header(queue.first);
        let mut at = FRAME_HEADER_BYTES + sent;
        let (mut line, mut done) = (queue.first, 0);
        while at >= LINE_BYTES {
            (line, at) = (self.next[line as usize], at - LINE_BYTES);
        }
        while done < bytes {
            let count = (LINE_BYTES - at).min(bytes - done);
            let (piece, place) = (line as usize / PIECE_LINES, line as usize % PIECE_LINES);
            let from = &self.pieces[piece][place][at..at + count];
            self.whole[done..done + count].copy_from_slice(from);
            (done, at, line) = (done + count, 0, self.next[line as usize]);
        }
        &self.whole[..bytes]
    }

    /// `bytes` of the oldest frame have been sent. If nothing of it is left, removes it and returns the lines that it
    /// took when it came.
    pub(crate) fn sent(&mut self, queue: &mut Queue, bytes: usize) -> Option<u32> {
        let (_, length, sent, _) = self.header(queue.first);
        let sent = sent + bytes;
        if sent < length {
            let sent = u16::try_from(sent).unwrap_or(u16::MAX);
            self.line_mut(queue.first)[10..12].copy_from_slice(&sent.to_le_bytes());
            return None;
        }
        self.pop(queue)
    }

    /// Removes the oldest frame, and returns its lines.
    pub(crate) fn pop(&mut self, queue: &mut Queue) -> Option<u32> {
        if queue.is_empty() {
            return None;
        }
        let (_, length, _, next_frame) = self.header(queue.first);
        let mut line = queue.first;
        while line != NONE {
            let next = self.next[line as usize];
            self.give_line(line);
            line = next;
        }
        queue.first = next_frame;
        if next_frame == NONE {
            queue.last = NONE;
        }
        if self.used_lines == 0 && self.pieces.len() > 1 {
            (self.pieces, self.next, self.free) = (Vec::new(), Vec::new(), NONE);
        }
        Some(lines_of(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(length: usize, seed: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from((at * 7 + seed) % 251).unwrap()).collect()
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut store = Store::new();
        let mut queues = [Queue::EMPTY; 2];
        let lengths = [0, 1, 48, 49, 112, 1000, PAYLOAD_BYTES_MAX];
        for (index, length) in lengths.iter().enumerate() {
            for queue in &mut queues {
                store.push(queue, Hop::new(Kind::Data), &payload(*length, index));
            }
        }
        let lines: u32 = lengths.iter().map(|length| lines_of(*length)).sum();
        assert_eq!(store.used_lines(), 2 * lines as usize);
        for queue in &mut queues {
            for (index, length) in lengths.iter().enumerate() {
                let front = store.front(queue).unwrap();
                assert_eq!(front.bytes, *length);
                assert_eq!(store.read(queue, *length), payload(*length, index));
                assert_eq!(store.sent(queue, *length), Some(lines_of(*length)));
            }
            assert!(queue.is_empty());
        }
        assert_eq!(store.used_lines(), 0);
    }

    #[test]
    fn a_frame_goes_in_parts_through_little_credit() {
        let (mut store, mut queue) = (Store::new(), Queue::EMPTY);
        let bytes = payload(1000, 3);
        let hop = Hop { flags: flags::PREFIX, capabilities: 2, ..Hop::new(Kind::Data) };
        store.push(&mut queue, hop, &bytes);
        let (mut got, mut parts) = (Vec::<u8>::new(), 0);
        while let Some(front) = store.front(&queue) {
            let (hop, count) = front.part(2).unwrap();
            assert_eq!(hop.flags == flags::PREFIX, parts == 0);
            assert_eq!(hop.capabilities, if parts == 0 { 2 } else { 0 });
            got.extend(store.read(&queue, count));
            let is_last = store.sent(&mut queue, count).is_some();
            assert_eq!(hop.kind == Kind::Data, is_last);
            parts += 1;
        }
        assert_eq!(got, bytes);
        assert_eq!(parts, 9);
    }
}
