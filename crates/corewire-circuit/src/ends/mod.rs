//! A program's ends of its circuits, without input and output: labels, credit, parts of messages, and how they end.
//!
//! One link to a monitor carries all circuits of a program. Any thread that waits drains the link's ring. It stores
//! messages for other receivers here, within the credit of their circuits, so they hold up no other circuit. While no thread waits, the monitor keeps what comes, circuit by circuit.
//!
//! More than 600 lines, because labels, credit and the parts of messages of a circuit change together, under one lock of the caller.

use std::collections::{BTreeMap, VecDeque};

use crate::wire::credit::{Intake, Outflow, is_after};
use crate::wire::packet::{End, Reset};
use crate::wire::trace::Point;
use crate::wire::{
    Hop, Kind, Label, NodeSet, PAYLOAD_BYTES_MAX, PREFIX_BYTES, flags, lines_of, payload_of,
};

/// Lines that an end grants at first.
pub const FIRST_WINDOW_LINES: u32 = 64;
/// Lines that it grants at most, if the other end asks for more.
const WINDOW_LINES_MAX: u32 = 1024;

/// What carries frames to the monitor. False if there is no room now.
pub trait Lane {
    /// Sends a frame; false if there is no room for it now.
    fn frame(&mut self, label: Label, hop: Hop, payload: &[u8]) -> bool;

    /// A part of a message that had waited has gone: for a trace.
    fn sent(&mut self, _at: Point, _ordinal: u16, _bytes: usize) {}
}

/// What travels with the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// Which message of the interface.
    pub ordinal: u16,
    /// Which call.
    pub token: u32,
    /// The status of a message that has one.
    pub status: Option<u32>,
    /// How many capabilities travel in the control lane.
    pub capabilities: u8,
}

impl Head {
    const fn has_prefix(self) -> bool {
        self.token != 0 || self.status.is_some()
    }

    fn hop(self, kind: Kind) -> Hop {
        let Self { ordinal, capabilities, status, .. } = self;
        let prefix = if self.has_prefix() { flags::PREFIX } else { 0 };
        let status = if status.is_some() { flags::STATUS } else { 0 };
        Hop { credit: 0, ordinal, capabilities, flags: prefix | status, kind }
    }

    fn prefix(self) -> [u8; PREFIX_BYTES] {
        let word = u64::from(self.token) | u64::from(self.status.unwrap_or(0)) << 32;
        word.to_le_bytes()
    }

    /// The head of a message, and its bytes or their beginning.
    fn of_frame(hop: Hop, payload: &[u8]) -> Option<(Self, &[u8])> {
        let Hop { ordinal, capabilities, .. } = hop;
        if hop.flags & flags::PREFIX == 0 {
            return Some((Self { ordinal, capabilities, ..Self::default() }, payload));
        }
        let (prefix, bytes) = payload.split_first_chunk::<PREFIX_BYTES>()?;
        let word = u64::from_le_bytes(*prefix);
        #[expect(clippy::cast_possible_truncation, reason = "takes the halves of the word")]
        let (token, status) = (word as u32, (word >> 32) as u32);
        let status = (hop.flags & flags::STATUS != 0).then_some(status);
        Some((Self { ordinal, token, status, capabilities }, bytes))
    }
}

/// A message that has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<'a> {
    /// Nothing that the program must know of.
    Nothing,
    /// A message in one frame. Its lines count as free unless [`Ends::store`] is called.
    Short(u32, Head, &'a [u8]),
    /// A message in several frames.
    Long(u32, Head, Vec<u8>),
    /// The circuit has changed: it has ended, or its last message has come, or what waited was sent.
    Changed(u32),
}

/// What the other side did that it must not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The monitor does not keep to what was agreed: the link must end.
    #[error("the monitor sent {what}")]
    Monitor {
        /// What it sent.
        what: &'static str,
    },
    /// The other end sent what is no message: its circuit must end.
    #[error("the other end sent {what}")]
    Peer {
        /// The circuit.
        index: u32,
        /// What it sent.
        what: &'static str,
    },
}

/// How a circuit has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// What happened.
    pub end: End,
    /// For people.
    pub reason: String,
}

#[derive(Debug, Clone)]
struct Unsent {
    head: Head,
    kind: Kind,
    /// The prefix, if there is one, and the bytes.
    payload: Vec<u8>,
    sent_bytes: usize,
}

/// What each message needs: one line of memory, since the next message may be of any of thousands of circuits.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Circuit {
    label_in: Label,
    label_out: Label,
    outflow: Outflow,
    intake: Intake,
    bytes_max: u32,
    is_due: bool,
    is_pending: bool,
    delivered_count: u64,
    /// None in a circuit that has never needed it.
    rest: Option<Box<Rest>>,
}

/// What few circuits need.
#[derive(Debug, Clone, Default)]
struct Rest {
    unsent: VecDeque<Unsent>,
    unsent_bytes: usize,
    partial: Option<(Head, Vec<u8>)>,
    /// The other side's last frame has come; the own one has been sent, or waits in front of nothing.
    has_fin: [bool; 2],
    /// It ends once so many lines have come.
    ending: Option<(u32, Ended)>,
    ended: Option<Ended>,
    /// A recall waits for its answer.
    must_return: bool,
}

impl Rest {
    /// Whether the next frame may be a message like any other.
    const fn has_nothing(&self) -> bool {
        self.partial.is_none() && self.ending.is_none() && self.ended.is_none() && !self.has_fin[0]
    }

    /// Whether a message may go at once.
    fn may_send(&self) -> bool {
        self.unsent.is_empty() && !self.has_fin[1] && self.ended.is_none()
    }

    /// The other end takes nothing more.
    fn drop_unsent(&mut self) {
        self.unsent.clear();
        self.unsent_bytes = 0;
    }

    fn end(&mut self, ended: Ended) {
        self.drop_unsent();
        self.ended.get_or_insert(ended);
    }
}

impl Circuit {
    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    fn ended(&self) -> Option<&Ended> {
        self.rest.as_ref()?.ended.as_ref()
    }

    fn has_unsent(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| !rest.unsent.is_empty())
    }

    /// The head of a message, and its bytes or their beginning.
    #[inline]
    fn begin<'a>(
        &self,
        index: u32,
        hop: Hop,
        payload: &'a [u8],
    ) -> Result<(Head, &'a [u8]), ProtocolError> {
        let wrong = ProtocolError::Peer { index, what: "a message without its beginning" };
        let (head, bytes) = Head::of_frame(hop, payload).ok_or(wrong)?;
        match bytes.len() > self.bytes_max as usize {
            true => Err(ProtocolError::Peer { index, what: TOO_LONG }),
            false => Ok((head, bytes)),
        }
    }
}

/// All ends of one link.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    circuits: Vec<Option<Circuit>>,
    free: VecDeque<u32>,
    due: VecDeque<u32>,
    pending: VecDeque<u32>,
    /// Circuits that others have opened, by the label of their requests: one that is given up before its acceptance has
    /// come is known by nothing else.
    opened: BTreeMap<Label, u32>,
}

impl Ends {
    /// An end that its own program opens: nothing can be sent before the other one has accepted. `random` makes the
    /// label that the request carries. `None` if there are too many.
    pub fn open(&mut self, random: u64, bytes_max: usize) -> Option<u32> {
        self.add(random, Label::NONE, 0, bytes_max)
    }

    /// The end of a circuit that the other one has opened.
    pub fn opened(
        &mut self,
        random: u64,
        label_out: Label,
        credit: u32,
        bytes_max: usize,
    ) -> Option<u32> {
        let index = self.add(random, label_out, credit, bytes_max)?;
        self.opened.insert(label_out, index);
        Some(index)
    }

    fn add(&mut self, random: u64, label_out: Label, credit: u32, bytes_max: usize) -> Option<u32> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.circuits.len()).ok();
                let index = index.filter(|index| *index < crate::wire::INDEX_MAX)?;
                self.circuits.push(None);
                index
            }
        };
        let mut outflow = Outflow::default();
        outflow.raise(credit);
        *self.circuits.get_mut(index as usize)? = Some(Circuit {
            label_in: Label::new(random, index),
            label_out,
            outflow,
            intake: Intake::new(FIRST_WINDOW_LINES),
            bytes_max: u32::try_from(bytes_max).unwrap_or(u32::MAX),
            is_due: false,
            is_pending: false,
            delivered_count: 0,
            rest: None,
        });
        Some(index)
    }

    fn get(&self, index: u32) -> Option<&Circuit> {
        self.circuits.get(index as usize)?.as_ref()
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Circuit> {
        self.circuits.get_mut(index as usize)?.as_mut()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.circuits.len() - self.free.len()
    }

    /// What a request, or its acceptance, must carry: the label that frames to this end have, and up to which line they
    /// may come.
    #[must_use]
    pub fn greeting(&self, index: u32) -> (Label, u32) {
        self.get(index).map_or((Label::NONE, 0), |one| (one.label_in, one.intake.latest()))
    }

    /// What packets to the monitor call a circuit.
    #[must_use]
    pub fn label_of(&self, index: u32) -> Label {
        self.get(index).map_or(Label::NONE, |one| one.label_out)
    }

    /// The label of frames that go, and how many lines have gone.
    #[must_use]
    pub fn sent_to(&self, index: u32) -> Option<Point> {
        let one = self.get(index)?;
        Some(Point { label: one.label_out.to_word(), lines: one.outflow.sent_lines() })
    }

    /// The label of frames that come, and how many lines have come.
    #[must_use]
    pub fn received_at(&self, label: Label) -> Option<Point> {
        let one = self.get(self.find(label)?)?;
        Some(Point { label: label.to_word(), lines: one.intake.taken_lines() })
    }

    /// The circuit with this label.
    #[must_use]
    pub fn find(&self, label: Label) -> Option<u32> {
        let index = label.index();
        self.get(index).filter(|one| one.label_in == label).map(|_| index)
    }

    /// The other end has accepted.
    pub fn accepted(&mut self, index: u32, label_out: Label, credit: u32) {
        if let Some(one) = self.get_mut(index) {
            one.label_out = label_out;
            one.outflow.raise(credit);
            // Frames may have come before, and nobody to grant more to was known then.
            if one.intake.is_due() {
                self.make_due(index);
            }
        }
        self.make_pending(index);
    }

    /// Accepts messages up to this length from now on.
    pub fn set_bytes_max(&mut self, index: u32, bytes_max: usize) {
        if let Some(one) = self.get_mut(index) {
            one.bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        }
    }

    /// A frame has come.
    ///
    /// # Errors
    /// [`ProtocolError`]: the circuit, or the link, must end.
    #[inline]
    pub fn frame<'a>(
        &mut self,
        label: Label,
        hop: Hop,
        payload: &'a [u8],
    ) -> Result<Arrival<'a>, ProtocolError> {
        let index = label.index();
        let Some(one) = self.circuits.get_mut(index as usize).and_then(Option::as_mut) else {
            return Ok(Arrival::Nothing);
        };
        // One that has ended: frames of it may still come.
        if one.label_in != label || one.ended().is_some() {
            return Ok(Arrival::Nothing);
        }
        one.outflow.raise(hop.credit);
        if hop.takes_lines() {
            let lines = lines_of(payload.len());
            let taken = one.intake.take(lines);
            taken.map_err(|_| ProtocolError::Monitor { what: "more than was granted" })?;
        }
        let is_usual = hop.kind == Kind::Data
            && one.rest.as_ref().is_none_or(|rest| rest.has_nothing() && rest.unsent.is_empty())
            && hop.flags & flags::WANTS == 0
            && !one.intake.is_due();
        if is_usual {
            let (head, bytes) = one.begin(index, hop, payload)?;
            one.delivered_count += 1;
            return Ok(Arrival::Short(index, head, bytes));
        }
        self.unusual(index, hop, payload)
    }

    #[cold]
    fn unusual<'a>(
        &mut self,
        index: u32,
        hop: Hop,
        payload: &'a [u8],
    ) -> Result<Arrival<'a>, ProtocolError> {
        let Some(one) = self.get_mut(index) else { return Ok(Arrival::Nothing) };
        if hop.takes_lines() && one.rest.as_ref().is_some_and(|rest| rest.has_fin[0]) {
            return Err(ProtocolError::Monitor { what: "a frame behind the last one" });
        }
        if hop.flags & flags::WANTS != 0 {
            let window = one.intake.window_lines();
            one.intake.lend((window * 4).min(WINDOW_LINES_MAX).saturating_sub(window));
        }
        let came = match hop.kind {
            Kind::Data | Kind::More => {
                let partial = one.rest.as_mut().and_then(|rest| rest.partial.take());
                match (partial, hop.kind) {
                    (None, Kind::Data) => {
                        let (head, bytes) = one.begin(index, hop, payload)?;
                        one.delivered_count += 1;
                        Arrival::Short(index, head, bytes)
                    }
                    (None, _) => {
                        let (head, bytes) = one.begin(index, hop, payload)?;
                        one.rest().partial = Some((head, bytes.to_vec()));
                        Arrival::Nothing
                    }
                    (Some((head, mut bytes)), kind) => {
                        bytes.extend_from_slice(payload);
                        if bytes.len() > one.bytes_max as usize {
                            return Err(ProtocolError::Peer { index, what: TOO_LONG });
                        }
                        match kind {
                            Kind::Data => {
                                one.delivered_count += 1;
                                Arrival::Long(index, head, bytes)
                            }
                            _ => {
                                one.rest().partial = Some((head, bytes));
                                Arrival::Nothing
                            }
                        }
                    }
                }
            }
            Kind::Fin => {
                one.rest().has_fin[0] = true;
                Arrival::Changed(index)
            }
            Kind::Recall => {
                one.rest().must_return = true;
                Arrival::Nothing
            }
            Kind::Return => {
                let _ = one.intake.returned();
                Arrival::Nothing
            }
            Kind::Credit => Arrival::Nothing,
            Kind::Hello => return Err(ProtocolError::Monitor { what: "a second hello" }),
        };
        if one.intake.is_due() || one.rest.as_ref().is_some_and(|rest| rest.must_return) {
            self.make_due(index);
        }
        self.make_pending(index);
        let has_ended = self.look_for_end(index);
        Ok(match came {
            Arrival::Nothing if has_ended => Arrival::Changed(index),
            came => came,
        })
    }

    /// A packet says that a circuit has ended, or ends when all frames before have come. The circuit, if that is now.
    pub fn reset(&mut self, reset: Reset) -> Option<u32> {
        let index = match reset.to.is_none() {
            false => self.find(reset.to)?,
            true => *self.opened.get(&reset.from)?,
        };
        let rest = self.get_mut(index)?.rest();
        let ended = Ended { end: reset.end, reason: reset.reason };
        rest.drop_unsent();
        match reset.after {
            Some(after) if rest.ended.is_none() => {
                rest.ending = Some((after, ended));
                self.look_for_end(index).then_some(index)
            }
            _ => {
                rest.end(ended);
                Some(index)
            }
        }
    }

    fn look_for_end(&mut self, index: u32) -> bool {
        let Some(one) = self.get_mut(index) else { return false };
        let taken = one.intake.taken_lines();
        let Some(rest) = &mut one.rest else { return false };
        match rest.ending.take_if(|(after, _)| !is_after(*after, taken)) {
            Some((_, ended)) => {
                rest.ended.get_or_insert(ended);
                true
            }
            None => false,
        }
    }

    /// The link has ended, and with it all circuits.
    pub fn link_lost(&mut self, reason: &str) {
        for one in self.circuits.iter_mut().flatten() {
            one.rest().end(Ended { end: End::Lost, reason: reason.to_owned() });
        }
    }

    /// How the circuit has ended, if it has. What came before still counts.
    #[must_use]
    pub fn ended(&self, index: u32) -> Option<&Ended> {
        self.get(index)?.ended()
    }

    /// Whether the other side has sent its last message, by its own word.
    #[must_use]
    pub fn has_last(&self, index: u32) -> bool {
        self.get(index).and_then(|one| one.rest.as_ref()).is_some_and(|rest| rest.has_fin[0])
    }

    /// Whether a circuit has not ended, and no message of it waits for the program.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self, index: u32) -> bool {
        self.get(index).is_some_and(|one| one.intake.stored_lines() == 0 && one.ended().is_none())
            && !self.has_last(index)
    }

    /// Messages that have come.
    #[must_use]
    pub fn delivered_count(&self, index: u32) -> u64 {
        self.get(index).map_or(0, |one| one.delivered_count)
    }

    /// A message that has come waits for the program: its lines are not granted again until then.
    pub fn store(&mut self, index: u32, lines: u32) {
        if let Some(one) = self.get_mut(index) {
            one.intake.store(lines);
        }
    }

    /// The program has taken it.
    pub fn release(&mut self, index: u32, lines: u32) {
        if let Some(one) = self.get_mut(index) {
            one.intake.release(lines);
            if one.intake.is_due() {
                self.make_due(index);
            }
        }
    }

    /// Sends a message in one frame, if nothing is in its way. False if it was not sent.
    #[inline]
    pub fn try_send(&mut self, index: u32, head: Head, bytes: &[u8], lane: &mut impl Lane) -> bool {
        let Some(one) = self.circuits.get_mut(index as usize).and_then(Option::as_mut) else {
            return false;
        };
        let has_prefix = head.has_prefix();
        let length = bytes.len() + if has_prefix { PREFIX_BYTES } else { 0 };
        let (lines, room) = (lines_of(length), one.outflow.room_lines());
        if lines > room
            || length > PAYLOAD_BYTES_MAX
            || one.label_out.is_none()
            || one.rest.as_ref().is_some_and(|rest| !rest.may_send())
        {
            return false;
        }
        let credit = one.intake.offer();
        let mut hop = Hop { credit, ..head.hop(Kind::Data) };
        if lines == room {
            hop.flags |= flags::WANTS;
        }
        let (label, prefix) = (one.label_out, head.prefix());
        let sent = match has_prefix {
            false => lane.frame(label, hop, bytes),
            // What travels in slots of a ring: little to clear and to copy.
            true if length <= SLOTS_BYTES => {
                lane.frame(label, hop, prefixed(&mut [0; SLOTS_BYTES], prefix, bytes))
            }
            true => lane.frame(label, hop, prefixed(&mut [0; PAYLOAD_BYTES_MAX], prefix, bytes)),
        };
        if sent {
            one.outflow.send(lines);
            one.intake.granted(credit);
        }
        sent
    }

    /// Keeps a message until [`flush`](Self::flush) can send it, behind those that wait.
    pub fn queue(&mut self, index: u32, head: Head, bytes: Vec<u8>) {
        let mut payload = bytes;
        if head.has_prefix() {
            payload.splice(..0, head.prefix());
        }
        self.add_unsent(index, Unsent { head, kind: Kind::Data, payload, sent_bytes: 0 });
    }

    /// Sends nothing more behind what waits, and tells the other end so.
    pub fn finish(&mut self, index: u32) {
        let Some(one) = self.get_mut(index) else { return };
        if !std::mem::replace(&mut one.rest().has_fin[1], true) {
            let (head, payload) = (Head::default(), Vec::new());
            self.add_unsent(index, Unsent { head, kind: Kind::Fin, payload, sent_bytes: 0 });
        }
    }

    fn add_unsent(&mut self, index: u32, unsent: Unsent) {
        let Some(one) = self.get_mut(index) else { return };
        let rest = one.rest();
        if rest.ended.is_some() {
            return;
        }
        rest.unsent_bytes += unsent.payload.len();
        rest.unsent.push_back(unsent);
        self.make_pending(index);
    }

    /// Whether nothing of a circuit waits to be sent.
    #[must_use]
    pub fn is_all_sent(&self, index: u32) -> bool {
        self.get(index).is_none_or(|one| !one.has_unsent())
    }

    /// Bytes of a circuit that wait to be sent, and how many messages.
    #[must_use]
    pub fn unsent(&self, index: u32) -> (usize, usize) {
        let rest = self.get(index).and_then(|one| one.rest.as_ref());
        rest.map_or((0, 0), |rest| (rest.unsent_bytes, rest.unsent.len()))
    }

    /// Forgets a circuit. The packet, if one must be sent: the monitor delivers what was sent before.
    pub fn close(&mut self, index: u32, end: End, reason: &str) -> Option<Reset> {
        let one = self.circuits.get_mut(index as usize)?.take()?;
        self.opened.remove(&one.label_out);
        self.free.push_back(index);
        if self.free.len() == self.circuits.len() {
            *self = Self::default();
        }
        let needs_none = |rest: &Rest| {
            let is_finished = rest.has_fin == [true; 2] && rest.unsent.is_empty();
            is_finished || rest.ended.is_some() || rest.ending.is_some()
        };
        if one.rest.as_deref().is_some_and(needs_none) {
            return None;
        }
        let after = (!one.label_out.is_none()).then(|| one.outflow.sent_lines());
        let (to, from, reason) = (one.label_out, one.label_in, reason.to_owned());
        Some(Reset { to, from, after, end, visited: NodeSet::default(), reason })
    }

    /// Ends a circuit whose other end does what it must not. The packet, if one must be sent.
    pub fn cut(&mut self, index: u32, end: End, reason: &str) -> Option<Reset> {
        let one = self.get_mut(index)?;
        let rest = one.rest();
        let was_over = rest.ended.is_some() || rest.ending.is_some();
        rest.end(Ended { end, reason: reason.to_owned() });
        let (to, from, reason) = (one.label_out, one.label_in, reason.to_owned());
        let visited = NodeSet::default();
        (!was_over).then_some(Reset { to, from, after: None, end, visited, reason })
    }

    fn make_due(&mut self, index: u32) {
        let Some(one) = self.get_mut(index) else { return };
        if !std::mem::replace(&mut one.is_due, true) {
            self.due.push_back(index);
        }
    }

    fn make_pending(&mut self, index: u32) {
        let Some(one) = self.get_mut(index) else { return };
        let can_send = one.has_unsent() && one.outflow.room_lines() > 0;
        if can_send && !one.label_out.is_none() && !std::mem::replace(&mut one.is_pending, true) {
            self.pending.push_back(index);
        }
    }

    /// Whether there is something that [`flush`](Self::flush) would send.
    #[inline]
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.due.is_empty() || !self.pending.is_empty()
    }

    /// Sends what waits, as far as there is room and credit. False if there is no room. `sent` is told which circuits
    /// have nothing left.
    pub fn flush(&mut self, lane: &mut impl Lane, mut sent: impl FnMut(u32)) -> bool {
        while let Some(&index) = self.due.front() {
            if !self.send_word(index, lane) {
                return false;
            }
            self.due.pop_front();
        }
        for _ in 0..self.pending.len() {
            let Some(&index) = self.pending.front() else { break };
            if !self.send_unsent(index, lane) {
                return false;
            }
            self.pending.pop_front();
            if let Some(one) = self.get_mut(index) {
                one.is_pending = false;
                if !one.has_unsent() {
                    sent(index);
                }
            }
        }
        true
    }

    fn send_word(&mut self, index: u32, lane: &mut impl Lane) -> bool {
        let Some(one) = self.get_mut(index) else { return true };
        if one.label_out.is_none() || one.ended().is_some() {
            // Once it is accepted, a frame of its own carries it.
            one.is_due = false;
            return true;
        }
        let credit = one.intake.offer();
        if one.rest.as_ref().is_some_and(|rest| rest.must_return) {
            if !lane.frame(one.label_out, Hop { credit, ..Hop::new(Kind::Return) }, &[]) {
                return false;
            }
            one.intake.granted(credit);
            one.outflow.returned();
            one.rest().must_return = false;
        }
        if one.intake.is_due() {
            if !lane.frame(one.label_out, Hop { credit, ..Hop::new(Kind::Credit) }, &[]) {
                return false;
            }
            one.intake.granted(credit);
        }
        one.is_due = false;
        true
    }

    /// False if there is no room.
    fn send_unsent(&mut self, index: u32, lane: &mut impl Lane) -> bool {
        let Some(one) = self.get_mut(index) else { return true };
        let Some(rest) = &mut one.rest else { return true };
        while let Some(unsent) = rest.unsent.front_mut() {
            let left = unsent.payload.get(unsent.sent_bytes..).unwrap_or_default();
            let room = one.outflow.room_lines();
            let count = left.len().min(payload_of(room));
            if room == 0 || count == 0 && !left.is_empty() {
                return true;
            }
            let (payload, behind) = left.split_at(count);
            let is_last = behind.is_empty();
            let kind = if is_last { unsent.kind } else { Kind::More };
            // The first part has the whole prefix: a line has room for it.
            let mut hop = match unsent.sent_bytes {
                0 => unsent.head.hop(kind),
                _ => Head { ordinal: unsent.head.ordinal, ..Head::default() }.hop(kind),
            };
            hop.credit = one.intake.offer();
            let lines = lines_of(count);
            if lines == room {
                hop.flags |= flags::WANTS;
            }
            if !lane.frame(one.label_out, hop, payload) {
                return false;
            }
            one.outflow.send(lines);
            let went = Point { label: one.label_out.to_word(), lines: one.outflow.sent_lines() };
            lane.sent(went, hop.ordinal, count);
            one.intake.granted(hop.credit);
            unsent.sent_bytes += count;
            if is_last {
                rest.unsent_bytes -= unsent.payload.len();
                rest.unsent.pop_front();
            }
        }
        true
    }
}

/// The longest payload that travels in slots of a ring.
const SLOTS_BYTES: usize = 160;

/// A prefix and the bytes of a message, one behind the other. The buffer has room for both.
#[inline]
fn prefixed<'a>(buffer: &'a mut [u8], prefix: [u8; PREFIX_BYTES], bytes: &[u8]) -> &'a [u8] {
    let payload = &mut buffer[..PREFIX_BYTES + bytes.len()];
    payload[..PREFIX_BYTES].copy_from_slice(&prefix);
    payload[PREFIX_BYTES..].copy_from_slice(bytes);
    payload
}

const TOO_LONG: &str = "a message longer than any of the interface";

#[cfg(test)]
mod tests;
