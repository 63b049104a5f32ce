//! What is asked of a peer about the memory that it exposes: requests, and how far they are. What becomes of them:
//! [`accesses`](super::accesses).

use std::collections::VecDeque;

use corewire_layout::access::{
    ACCESS_BYTES_MAX, ACCESS_HEAD_BYTES, ACCESSES_MAX, Access, Answer, Denial, Kind, Part, Reply,
};
use corewire_layout::rendezvous::{NOTICE_BYTES, Notice, Verb};
use corewire_ring::message::{Fragment, Memory, Sink, Source};
use smallvec::SmallVec;

use crate::error::MessageError;
use crate::rendezvous::NoticeBytes;

/// After a peer has not answered in time, so many short copies are made without asking it; each time twice as many, up to
/// the second number.
const ALONE: (u32, u32) = (32, 4096);

/// What is asked of a peer.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    /// Not complete yet, in order.
    pub(super) waiting: VecDeque<Waiting>,
    /// The requests that have no answer yet, in order.
    pub(super) asked: VecDeque<Asked>,
    /// The number of the last request.
    number: u64,
    /// The last request that was taken back, perhaps too late.
    pub(super) taken: u64,
    /// Requests that were taken back and are not answered as such yet: they count among those that wait for answers.
    pub(super) void: usize,
    /// Calls since something was asked for or answered.
    pub(super) steps: u32,
    /// Short copies that are made without asking, since the peer did not answer in time; and how many are next time.
    pub(super) alone: u32,
    alone_next: u32,
}

/// A request that has no answer yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) bytes: u32,
    pub(super) reply: Reply,
}

/// An access that is not complete.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) operation: u32,
    pub(super) request: Request,
    pub(super) way: Way,
    /// Bytes that have been asked for, and those of them that were answered.
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// What was denied first: nothing more is asked for then.
    pub(super) denied: Option<(Access, Denial)>,
}

/// How an access is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By the peer.
    Asked,
    /// By the peer; by the transport if the peer does not answer in time. It is one request.
    AskedFirst,
    /// By the transport, when nothing waits for an answer.
    Copied,
}

/// What comes next.
pub(super) enum Step {
    /// An answer.
    Wait,
    /// A request: its number and its notice.
    Ask(u64, NoticeBytes),
    /// The copy of the oldest access.
    Copy,
    /// The end of the oldest access.
    End,
}

impl Waiting {
    /// Whether nothing is left to be asked for.
    fn is_asked(&self) -> bool {
        self.denied.is_some() || self.asked == self.request.steps()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_asked() && self.answered == self.asked
    }
}

impl Accesses {
    /// `polls`: this endpoint polls, and takes back what it has asked for before it sleeps.
    pub(super) fn next_step(&mut self, polls: bool) -> Step {
        let Self { waiting, asked, number, taken, void, steps, .. } = self;
        if waiting.front().is_some_and(Waiting::is_over) {
            return Step::End;
        }
        // What was taken back comes first.
        let is_blocked = asked.front().is_some_and(|asked| asked.number <= *taken);
        if is_blocked || asked.len() + *void >= ACCESSES_MAX {
            return Step::Wait;
        }
        // What may be taken back is last of all that was asked for.
        let mut may_be_taken = false;
        let next = waiting.iter_mut().find(|it| {
            may_be_taken |= it.way == Way::AskedFirst && it.answered < it.asked;
            !it.is_asked()
        });
        let Some(next) = next else { return Step::Wait };
        match next.way {
            Way::Copied if asked.is_empty() => return Step::Copy,
            Way::Copied => return Step::Wait,
            Way::Asked if may_be_taken => return Step::Wait,
            Way::Asked | Way::AskedFirst => {}
        }
        let Some(mut access) = next.request.next(next.asked) else { return Step::Wait };
        access.reply = match next.way {
            Way::AskedFirst if access.kind.tells() || !polls => Reply::Notice,
            Way::AskedFirst if asked.is_empty() => Reply::FirstWord,
            Way::AskedFirst => Reply::Word,
            Way::Asked | Way::Copied => Reply::Notice,
        };
        // A signal follows what was put.
        if access.kind == Kind::Signal && next.answered < next.asked {
            return Step::Wait;
        }
        let notice = next.request.notice(&access, next.asked);
        next.asked += u64::from(access.bytes);
        *number += 1;
        *steps = 0;
        asked.push_back(Asked { number: *number, bytes: access.bytes, reply: access.reply });
        Step::Ask(*number, notice)
    }

    /// Takes the answer to the oldest request. False if it is impossible.
    pub(super) fn take_answer(&mut self, answer: Answer, found: &[u8]) -> bool {
        let (Some(asked), Some(waiting)) = (self.asked.pop_front(), self.waiting.front_mut())
        else {
            return false;
        };
        let Asked { number, bytes, .. } = asked;
        (self.steps, self.alone_next) = (0, ALONE.0);
        if answer == Err(Denial::TakenBack) {
            // So are all others that were.
            self.asked.push_front(asked);
            self.forget_asked(self.taken);
            self.void = self.void.saturating_sub(1);
            return found.is_empty() && number <= self.taken;
        }
        let access = waiting.request.next(waiting.answered);
        let tells = access.is_some_and(|access| access.kind.tells());
        let told = if answer.is_ok() && tells { bytes as usize } else { 0 };
        if found.len() != told {
            return false;
        }
        if told > 0 {
            let at = usize::try_from(waiting.answered).unwrap_or(usize::MAX);
            waiting.request.target.put(at, found);
        }
        if let (Err(denial), None) = (answer, &waiting.denied) {
            waiting.denied = access.map(|access| (access, denial));
        }
        waiting.answered += u64::from(bytes);
        true
    }

    /// Requests up to number `last` will not be carried out: the transport makes their copies.
    pub(super) fn forget_asked(&mut self, last: u64) {
        let count = self.asked.iter().take_while(|asked| asked.number <= last).count();
        self.asked.drain(..count);
        self.void += count;
        let is_asked = |it: &&mut Waiting| it.way == Way::AskedFirst && it.answered < it.asked;
        for waiting in self.waiting.iter_mut().filter(is_asked).take(count) {
            (waiting.asked, waiting.way) = (0, Way::Copied);
        }
        self.taken = self.taken.max(last);
    }

    /// Whether nothing is left to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a peer is asked for a short copy first.
    pub(super) fn asks_first(&self) -> bool {
        self.alone == 0 && self.void == 0
    }

    /// The peer has not answered in time: the next short copies are made without asking it.
    pub(super) fn go_alone(&mut self) {
        self.alone = self.alone_next.max(ALONE.0);
        self.alone_next = (2 * self.alone).min(ALONE.1);
    }

    /// Whether the oldest request is one whose end is told by a word, and `done` is what that says.
    pub(super) fn is_done(&self, done: u64) -> bool {
        let front = self.asked.front();
        front.is_some_and(|asked| asked.reply != Reply::Notice && asked.number <= done)
    }

    /// The first and the last request of those that may be taken back: all of short copies before any other one.
    pub(super) fn takeable(&self) -> Option<(u64, u64)> {
        let first = self.asked.front()?.number;
        if first <= self.taken {
            return None;
        }
        let is_short = |waiting: &&Waiting| waiting.way == Way::AskedFirst;
        let count = self.waiting.iter().take(self.asked.len()).take_while(is_short).count();
        let last = self.asked.get(count.checked_sub(1)?)?.number;
        Some((first, last))
    }

    /// Whether something waits for an answer that may be taken back.
    pub(super) fn may_be_taken(&self) -> bool {
        self.takeable().is_some()
    }
}

/// What is done, and with which memory of this side.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) parts: SmallVec<[Part; 1]>,
    /// The operands: what is put; what numbers are changed by, or replaced with.
    pub(crate) operands: Memory,
    /// What numbers are compared with, or the bits that are replaced.
    pub(crate) compared: Memory,
    /// Where what was there before goes.
    pub(crate) target: Memory,
    /// What the peer is told when all of it is done.
    pub(crate) signal: Option<u64>,
}

impl Request {
    pub(crate) fn new(kind: Kind, parts: &[Part]) -> Self {
        let (operands, compared) = (Memory::default(), Memory::default());
        let target = Memory::default();
        Self { kind, parts: parts.into(), operands, compared, target, signal: None }
    }

    pub(crate) fn put(parts: &[Part], memory: Memory) -> Self {
        Self { operands: memory, ..Self::new(Kind::Put, parts) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// The same, and the signal.
    fn steps(&self) -> u64 {
        self.bytes() + u64::from(self.signal.is_some())
    }

    /// Whether the memory of this side has the length that the parts have.
    pub(super) fn check(&self) -> Result<(), MessageError> {
        let bytes = self.bytes();
        let fit = |given: u64| {
            let error = MessageError::PartsDiffer { parts: bytes, given };
            if given == bytes { Ok(()) } else { Err(error) }
        };
        let operands = self.kind.operand_bytes(1);
        if operands > 0 {
            fit(self.operands.bytes())?;
        }
        if operands > 1 {
            fit(self.compared.bytes())?;
        }
        if self.kind.tells() {
            fit(self.target.room() as u64)?;
        }
        let width = self.kind.number().map_or(1, |number| number.bytes() as u64);
        match self.parts.iter().find(|part| !part.bytes.is_multiple_of(width)) {
            Some(part) => Err(MessageError::PartOfNumber { bytes: part.bytes, width }),
            None => Ok(()),
        }
    }

    /// The next request from byte `from` on.
    fn next(&self, from: u64) -> Option<Access> {
        let mut skip = from;
        let part = self.parts.iter().find(|part| {
            let is_it = skip < part.bytes;
            skip -= if is_it { 0 } else { part.bytes };
            is_it
        });
        let Some(part) = part else {
            let signal = self.signal.filter(|_| skip == 0)?;
            let kind = Kind::Signal;
            return Some(Access { key: 0, offset: signal, bytes: 1, kind, reply: Reply::Notice });
        };
        let most = (ACCESS_BYTES_MAX / self.kind.operand_bytes(1).max(1)) as u64;
        // Numbers are not divided: `most` is a multiple of every size.
        let bytes = u32::try_from(most.min(part.bytes - skip)).unwrap_or(0);
        let Part { key, offset, .. } = *part;
        let offset = offset.wrapping_add(skip);
        Some(Access { key, offset, bytes, kind: self.kind, reply: Reply::Notice })
    }

    /// The notice of that request, with its operands.
    fn notice(&self, access: &Access, from: u64) -> NoticeBytes {
        let (bytes, count) = (access.bytes as usize, access.kind.operand_bytes(1));
        let length = NOTICE_BYTES + ACCESS_HEAD_BYTES + count * bytes;
        let mut notice = NoticeBytes::with_capacity(length);
        let words = Notice { verb: Verb::Access, offset: access.offset };
        notice.extend_from_slice(&words.to_bytes());
        notice.extend_from_slice(&access.to_bytes());
        let operands = [&self.compared, &self.operands];
        for operands in &operands[2 - count..] {
            let begin = notice.len();
            notice.resize(begin + bytes, 0);
            operands.fill(from, &mut Fragment::private(&mut notice[begin..]));
        }
        notice
    }

    /// The memory that its caller gets back.
    pub(super) fn into_memory(self) -> Memory {
        if self.kind.tells() { self.target } else { self.operands }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` short puts, of which all that may be are asked for: the replies that they ask for.
    fn asked(accesses: &mut Accesses, count: u32, polls: bool) -> Vec<Reply> {
        for operation in 0..count {
            let part = Part { key: 1, offset: 0, bytes: 8 };
            let request = Request::put(&[part], vec![0; 8].into());
            let (way, asked, answered, denied) = (Way::AskedFirst, 0, 0, None);
            let waiting = Waiting { operation, request, way, asked, answered, denied };
            accesses.waiting.push_back(waiting);
        }
        let mut replies = Vec::new();
        while let Step::Ask(_, notice) = accesses.next_step(polls) {
            let (notice, place) = Notice::parse(&notice).unwrap();
            replies.push(Access::parse(notice.offset, place).unwrap().0.reply);
        }
        replies
    }

    /// Whether the oldest access ends next; then it does.
    fn ends(accesses: &mut Accesses) -> bool {
        let is_end = matches!(accesses.next_step(true), Step::End);
        if is_end {
            accesses.waiting.pop_front();
        }
        is_end
    }

    #[test]
    fn a_word_ends_all_up_to_its_number() {
        let mut accesses = Accesses::default();
        let replies = asked(&mut accesses, 3, true);
        assert_eq!(replies, [Reply::FirstWord, Reply::Word, Reply::Word]);
        assert!(!accesses.is_done(0));
        for _ in 0..2 {
            assert!(accesses.is_done(2) && accesses.take_answer(Ok(()), &[]));
            assert!(ends(&mut accesses));
        }
        assert!(!accesses.is_done(2));
        // The last one is answered by a notice, after it could not be taken back.
        assert!(accesses.take_answer(Ok(()), &[]) && ends(&mut accesses) && accesses.is_empty());
        assert_eq!(asked(&mut accesses, 1, true), [Reply::FirstWord]);
    }

    #[test]
    fn one_that_does_not_poll_is_answered() {
        let mut accesses = Accesses::default();
        assert_eq!(asked(&mut accesses, 2, false), [Reply::Notice; 2]);
        assert!(!accesses.is_done(9));
    }

    #[test]
    fn no_more_are_asked_for_than_may_be() {
        let mut accesses = Accesses::default();
        let most = u32::try_from(ACCESSES_MAX).unwrap();
        assert_eq!(asked(&mut accesses, most + 5, true).len(), ACCESSES_MAX);
        let (first, last) = accesses.takeable().unwrap();
        assert_eq!((first, last), (1, u64::from(most)));
        // Those that were taken back count until they are answered as such.
        accesses.forget_asked(last);
        assert_eq!((accesses.void, accesses.asked.len()), (ACCESSES_MAX, 0));
        assert!(!accesses.asks_first() && accesses.takeable().is_none());
    }
}
