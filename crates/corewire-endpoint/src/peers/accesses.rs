//! Accesses to the memory that peers expose.
//!
//! The transport makes a long copy if it can, in the call that begins the access. Everything else is asked of the peer's
//! engine, in requests of at most [`ACCESS_BYTES_MAX`] bytes, of which at most [`ACCESSES_MAX`] wait for answers. Accesses to
//! one peer are done in order.
//!
//! A short copy is asked for first, too, since a peer that is in a call answers sooner than the kernel copies. If it does not
//! answer soon, the request is taken back and the copy made here: [`Transport::take_back`] and [`Transport::serve`] decide
//! between both sides. A request that was taken back and not begun is answered as such, and its copy made then.
//!
//! Wire format: `corewire_layout::access`.

use corewire_layout::access::{Access, Denial, Kind, Part, answer_of_word, answer_to_word};
use corewire_ring::message::{Sink, Source};

use super::Peers;
use super::requests::{Accesses, Request, Step, Waiting, Way};
use crate::error::MessageError;
use crate::operations::{Operation, OperationHandle, Options};
use crate::selector::{Peer, Status};
use crate::transport::{PeerViolation, Transport};

/// The longest copy that a peer is asked for first although the transport could make it: a copy by the kernel takes about
/// two microseconds on the virtual machines of today, and a request to a peer that is in a call less than one.
const SHORT_BYTES: u64 = 1024;
/// A copy that was asked for first is made here after so many calls without an answer.
const STEPS_MAX: u32 = 1024;
/// Whether a copy is short.
fn is_short(parts: &[Part]) -> bool {
    matches!(parts, [part] if (1..=SHORT_BYTES).contains(&part.bytes))
}

impl<T: Transport> Peers<T> {
    /// Copies `source` to the memory of a peer, in this call. False if that is not possible, or not the fastest way; then it
    /// may have been done in part.
    ///
    /// # Errors
    /// Why nothing goes to this peer.
    pub(crate) fn copy_to(
        &mut self,
        peer: Peer,
        parts: &[Part],
        source: &impl Source,
    ) -> Result<bool, MessageError> {
        let row = self.row_of(peer)?;
        Ok(self.may_copy(row, parts, true) && self.transport.copy_to(row, parts, source))
    }

    /// The same in the other direction.
    ///
    /// # Errors
    /// Why nothing comes from this peer.
    pub(crate) fn copy_from(
        &mut self,
        peer: Peer,
        parts: &[Part],
        target: &mut dyn Sink,
    ) -> Result<bool, MessageError> {
        let row = self.row_of(peer)?;
        Ok(self.may_copy(row, parts, false) && self.transport.copy_from(row, parts, target))
    }

    /// Whether an access that begins now is a copy of the transport's.
    fn may_copy(&mut self, row: u32, parts: &[Part], is_put: bool) -> bool {
        if self.must_link(row) || !self.transport.can_copy(row, is_put) {
            return false;
        }
        let accesses = &mut self.rows[row as usize].accesses;
        if !accesses.waiting.is_empty() {
            return false;
        }
        let asks = accesses.asks_first();
        accesses.alone = accesses.alone.saturating_sub(1);
        !(asks && is_short(parts))
    }

    /// Whether the peer would be asked for short copies, but has not answered yet what was taken back.
    #[inline]
    pub(crate) fn owes_answers(&self, peer: Peer) -> bool {
        let entry = self.rows.get(peer.row() as usize);
        entry.is_some_and(|entry| entry.accesses.void > 0 && entry.accesses.alone == 0)
    }

    /// Number of accesses to this peer that are not complete.
    #[inline]
    pub(crate) fn pending_accesses(&self, peer: Peer) -> usize {
        self.rows.get(peer.row() as usize).map_or(0, |entry| entry.accesses.waiting.len())
    }

    /// Begins an access that is not a copy which [`copy_to`](Self::copy_to) has made. Never waits.
    ///
    /// # Errors
    /// Why nothing goes to this peer; what fails later is the operation's result.
    pub(crate) fn start_access(
        &mut self,
        peer: Peer,
        request: Request,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        request.check()?;
        let row = self.row_of(peer)?;
        let is_linked = !self.must_link(row);
        let way = self.way_of(row, &request);
        let handle = self.operations.add(Operation::Access, options);
        let operation = handle.index;
        let waiting = Waiting { operation, request, way, asked: 0, answered: 0, denied: None };
        self.rows[row as usize].accesses.waiting.push_back(waiting);
        if is_linked {
            self.ask(row);
        }
        Ok(handle)
    }

    /// How this access to the peer of `row` is carried out. Before that is linked nobody knows.
    fn way_of(&self, row: u32, request: &Request) -> Way {
        let is_put = match request.kind {
            Kind::Put => true,
            Kind::Get => false,
            _ => return Way::Asked,
        };
        let asks_first = is_short(&request.parts)
            && request.signal.is_none()
            && self.rows[row as usize].accesses.asks_first();
        match self.transport.can_copy(row, is_put) {
            true if asks_first => Way::AskedFirst,
            true => Way::Copied,
            false => Way::Asked,
        }
    }

    /// The peer of `row` is linked now: goes on with what was begun before.
    pub(super) fn begin_asking(&mut self, row: u32) {
        let mut waiting = std::mem::take(&mut self.rows[row as usize].accesses.waiting);
        for access in &mut waiting {
            access.way = self.way_of(row, &access.request);
        }
        self.rows[row as usize].accesses.waiting = waiting;
        self.ask(row);
    }

    /// Goes on with the accesses to the peer of `row`, which is linked: as much is asked as may wait for answers.
    pub(super) fn ask(&mut self, row: u32) {
        loop {
            let polls = !self.transport.is_announced();
            let accesses = &mut self.rows[row as usize].accesses;
            match accesses.next_step(polls) {
                Step::Wait => break,
                Step::Ask(number, notice) => self.notify_by(row, number, notice),
                Step::Copy => {
                    if let Some(waiting) = accesses.waiting.pop_front() {
                        self.carry_out(row, waiting);
                    }
                }
                Step::End => {
                    if let Some(waiting) = accesses.waiting.pop_front() {
                        self.end_waiting(row, waiting);
                    }
                }
            }
        }
        if self.rows[row as usize].accesses.may_be_taken() && !self.asked.contains(&row) {
            self.asked.push(row);
            self.count_chores();
        }
    }

    /// Makes the copy of the oldest access. If that is not possible after all, asks for it.
    fn carry_out(&mut self, row: u32, mut waiting: Waiting) {
        let Request { kind, parts, operands, target, .. } = &mut waiting.request;
        let is_done = match kind {
            Kind::Get => self.transport.copy_from(row, parts, target),
            _ => self.transport.copy_to(row, parts, operands),
        };
        if is_done {
            waiting.asked = waiting.request.bytes();
            waiting.answered = waiting.asked;
        }
        waiting.way = Way::Asked;
        self.rows[row as usize].accesses.waiting.push_front(waiting);
    }

    /// The peer of `row` has answered a request.
    pub(crate) fn handle_answer(&mut self, row: u32, number: u64, answer: u64, found: &[u8]) {
        let accesses = &mut self.rows[row as usize].accesses;
        let front = accesses.asked.front().map(|asked| asked.number);
        if number <= accesses.taken && front != Some(number) {
            // It was taken back, or its word has told the same before.
            if answer == answer_to_word(Err(Denial::TakenBack)) {
                accesses.void = accesses.void.saturating_sub(1);
            }
            return self.ask(row);
        }
        let is_expected = match answer_of_word(answer) {
            Some(answer) if front == Some(number) => accesses.take_answer(answer, found),
            _ => false,
        };
        if is_expected {
            self.ask(row);
        } else {
            self.cut_off(row, PeerViolation { word: "answer", found: number, position: 0 });
        }
    }

    /// Part of each call while short copies wait for answers: one that has none for too long is taken back and made here.
    pub(crate) fn step_accesses(&mut self) -> bool {
        let (mut has_news, mut index) = (false, 0);
        while let Some(&row) = self.asked.get(index) {
            has_news |= self.take_done(row);
            let accesses = &mut self.rows[row as usize].accesses;
            accesses.steps += 1;
            if accesses.steps > STEPS_MAX {
                has_news |= self.take_back(row);
            }
            if self.rows[row as usize].accesses.may_be_taken() {
                index += 1;
            } else {
                self.asked.retain(|other| *other != row);
                self.count_chores();
            }
        }
        has_news
    }

    /// Ends what the peer of `row` has done, as its word says.
    fn take_done(&mut self, row: u32) -> bool {
        let (done, mut has_news) = (self.transport.last_done(row), false);
        while let accesses = &mut self.rows[row as usize].accesses
            && accesses.is_done(done)
            && accesses.take_answer(Ok(()), &[])
        {
            has_news = true;
            self.ask(row);
        }
        has_news
    }

    /// Whether an access is not complete.
    pub(crate) fn has_accesses(&self) -> bool {
        self.rows.iter().any(|row| !row.accesses.is_empty())
    }

    /// The same at once, before this endpoint sleeps.
    pub(crate) fn take_back_all(&mut self) -> bool {
        let mut has_news = false;
        for row in self.asked.clone() {
            has_news |= self.take_back(row);
        }
        has_news
    }

    /// Takes back the short copies that the peer of `row` was asked for first, and makes them here, if it has not begun any.
    /// If it has, it answers soon.
    fn take_back(&mut self, row: u32) -> bool {
        let accesses = &mut self.rows[row as usize].accesses;
        accesses.steps = 0;
        let Some((first, last)) = accesses.takeable() else { return false };
        if !self.transport.take_back(row, first, last) {
            self.rows[row as usize].accesses.taken = last;
            // What is not done yet is answered, since its owner finds that it was taken back.
            return self.take_done(row);
        }
        let accesses = &mut self.rows[row as usize].accesses;
        accesses.forget_asked(last);
        accesses.go_alone();
        for _ in first..=last {
            let accesses = &mut self.rows[row as usize].accesses;
            if let Some(waiting) = accesses.waiting.pop_front() {
                self.carry_out(row, waiting);
            }
            // What could not be copied is asked for.
            let accesses = &mut self.rows[row as usize].accesses;
            match accesses.waiting.pop_front() {
                Some(waiting) if waiting.is_over() => self.end_waiting(row, waiting),
                Some(waiting) => {
                    self.rows[row as usize].accesses.waiting.push_front(waiting);
                    break;
                }
                None => break,
            }
        }
        self.ask(row);
        true
    }

    fn end_waiting(&mut self, row: u32, waiting: Waiting) {
        let Waiting { operation, request, denied, .. } = waiting;
        let result = denied.map_or(Ok(()), |(access, denial)| {
            let Access { key, offset, bytes, .. } = access;
            let name = self.rows[row as usize].name.clone();
            let name = name.ok_or(MessageError::UnknownPeer)?;
            Err(MessageError::Denied { name, key, offset, bytes: bytes.into(), denial })
        });
        self.end_access(row, operation, request, result);
    }

    fn end_access(
        &mut self,
        row: u32,
        operation: u32,
        request: Request,
        result: Result<(), MessageError>,
    ) {
        let (source, bytes) = (self.peer_of(row), request.bytes());
        let tag = request.parts.first().map_or(0, |part| part.key);
        let status = Status { source, tag, bytes, immediate: None };
        self.has_news = true;
        self.operations.end(operation, result.map(|()| status), Some(request.into_memory()));
    }

    /// The peer of `row` has gone, and will answer nothing more.
    pub(super) fn end_accesses_to(&mut self, row: u32, error: &MessageError) {
        let Accesses { waiting, .. } = std::mem::take(&mut self.rows[row as usize].accesses);
        for Waiting { operation, request, .. } in waiting {
            self.end_access(row, operation, request, Err(error.clone()));
        }
        self.asked.retain(|other| *other != row);
        self.count_chores();
    }
}
