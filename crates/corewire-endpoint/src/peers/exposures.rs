//! Memory that this endpoint exposes to its peers, and what it does there for them.

use corewire_layout::access::{
    ACCESSES_MAX, Access, Answer, Denial, Kind, Reply, Rights, TOLD_TWICE, answer_to_word,
    exposure_key,
};
use corewire_layout::rendezvous::{Notice, Stretch, Verb};
use corewire_ring::message::Exposed;
use corewire_ring::pair::ExposedPlace;

use super::Peers;
use crate::error::MessageError;
use crate::exposures::Exposure;
use crate::selector::Status;
use crate::transport::{PeerViolation, Transport};

/// Maximum number of answers that a peer's word has told, too, and that wait for room: a peer that takes requests back at the moment
/// when they are done causes one each time.
const TOLD_TWICE_MAX: usize = 1024;

impl<T: Transport> Peers<T> {
    /// Lets peers access memory. Returns its key.
    ///
    /// # Errors
    /// [`MessageError::KeyInUse`].
    pub(crate) fn expose(
        &mut self,
        memory: Exposed,
        key: Option<u64>,
        origin: u64,
        rights: Rights,
    ) -> Result<u64, MessageError> {
        if let Some(key) = key.filter(|key| self.exposures.by_key.contains_key(key)) {
            return Err(MessageError::KeyInUse { key });
        }
        let (address, bytes) = (memory.address() as u64, memory.bytes() as u64);
        let place = ExposedPlace { address, bytes, origin, rights };
        self.exposures.has_exposed = true;
        let is_for_others = rights != Rights::NONE;
        let found = is_for_others.then(|| self.transport.expose(key, &place, &memory)).flatten();
        let entry = found.map(|(entry, _)| entry);
        let key = found.map(|(_, key)| key).or(key).unwrap_or_else(|| {
            self.exposures.keys += 1;
            exposure_key(u16::MAX, self.exposures.keys)
        });
        self.exposures.by_key.insert(key, Exposure { memory, place, entry });
        Ok(key)
    }

    /// Peers access the memory of `key` no more, but for copies that are under way.
    ///
    /// # Errors
    /// [`MessageError::UnknownKey`].
    pub(crate) fn conceal(&mut self, key: u64) -> Result<(), MessageError> {
        let exposure =
            self.exposures.by_key.remove(&key).ok_or(MessageError::UnknownKey { key })?;
        if let Some(entry) = exposure.entry {
            self.transport.conceal(entry);
        }
        Ok(())
    }

    /// Whether peers may ask for accesses, if only to be told that nothing is exposed any more.
    pub(crate) fn has_exposed(&self) -> bool {
        self.exposures.has_exposed
    }

    /// The peer of `row` asks for an access.
    pub(crate) fn handle_access(&mut self, row: u32, number: u64, offset: u64, place: &[u8]) {
        let Some((access, operands)) = Access::parse(offset, place) else {
            return self.cut_off(row, PeerViolation { word: "access", found: number, position: 0 });
        };
        let (unsent, told_twice) = self.unsent_answers(row);
        if unsent >= ACCESSES_MAX || told_twice >= TOLD_TWICE_MAX {
            let violation = PeerViolation { word: "accesses", found: number, position: 0 };
            return self.cut_off(row, violation);
        }
        let mut found = Vec::new();
        let answer = match self.exposures.by_key.get(&access.key) {
            _ if !self.transport.serve(row, number) => Err(Denial::TakenBack),
            _ if access.kind == Kind::Signal => match self.note_signal(row, offset) {
                Some(answer) => answer,
                None => return,
            },
            None => Err(Denial::Key),
            Some(exposure) if !self.is_there(exposure, &access) => Err(Denial::Unmapped),
            Some(exposure) => exposure.apply(&access, operands, &mut found),
        };
        if let Some(answer) = self.answer_beside_word(row, number, &access, answer) {
            self.notify_of_place(row, number, Verb::Accessed, answer, &found);
        }
    }

    /// What a notice must answer; `None` if a word has told it.
    fn answer_beside_word(
        &mut self,
        row: u32,
        number: u64,
        access: &Access,
        answer: Answer,
    ) -> Option<u64> {
        let has_denied = &mut self.rows[row as usize].has_denied;
        match access.reply {
            Reply::Notice => return Some(answer_to_word(answer)),
            Reply::FirstWord => *has_denied = false,
            Reply::Word => {}
        }
        *has_denied |= answer.is_err();
        if *has_denied {
            return Some(answer_to_word(answer));
        }
        self.transport.finish(row, number).then_some(TOLD_TWICE)
    }

    /// Whether peers may signal.
    pub(crate) fn take_signals(&mut self, takes_signals: bool) {
        self.exposures.takes_signals = takes_signals;
    }

    /// The peer of `row` signals. `None` if it has been cut off, since too many signals have not been told yet.
    fn note_signal(&mut self, row: u32, signal: u64) -> Option<Answer> {
        if !self.exposures.takes_signals {
            return Some(Err(Denial::Rights));
        }
        let source = self.peer_of(row);
        let status = Status { source, tag: 0, bytes: 0, immediate: Some(signal) };
        if self.operations.add_signal(status) {
            self.has_news = true;
            return Some(Ok(()));
        }
        self.cut_off(row, PeerViolation { word: "signals", found: signal, position: 0 });
        None
    }

    /// Whether what is asked for is mapped, where nobody has promised that it is.
    fn is_there(&self, exposure: &Exposure, access: &Access) -> bool {
        let bytes = u64::from(access.bytes);
        let is_everything = exposure.memory.bytes() == usize::MAX;
        let Some(address) = exposure.place.address_of(access.offset, bytes) else { return true };
        let stretch = Stretch { address, bytes };
        !is_everything
            || match access.kind {
                Kind::Signal => true,
                Kind::Get => self.transport.is_readable(&[stretch]),
                _ => self.transport.is_writable(stretch),
            }
    }

    /// Number of answers to the peer of `row` that wait for room, and of those that its word has told, too.
    fn unsent_answers(&self, row: u32) -> (usize, usize) {
        let notices = self.rows[row as usize].notices.iter();
        let notices = notices.filter_map(|(_, words)| Notice::parse(words));
        notices.filter(|(notice, _)| notice.verb == Verb::Accessed).fold(
            (0, 0),
            |(unsent, told_twice), (notice, _)| match notice.offset {
                TOLD_TWICE => (unsent, told_twice + 1),
                _ => (unsent + 1, told_twice),
            },
        )
    }
}
