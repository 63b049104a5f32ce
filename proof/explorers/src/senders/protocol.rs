//! The model: which parties there are, which can be killed, and which learn of a death.

use crate::senders::configuration::{Configuration, Send};
use crate::senders::engine::{Model, Step, Steps};
use crate::senders::mutant::Mutant;
use crate::senders::state::{
    Known, Life, PARTIES_MAX, Receiver, ReceiverAt, ReceiverRow, SLOTS_MAX, Seat, Sender, SenderAt,
    SenderRow, Slot, Stamp, State, receiver_bit, sender_bit,
};

/// The protocol in one configuration, with or without a mistake.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub(crate) configuration: Configuration,
    mutant: Option<Mutant>,
}

/// Collects steps, together with the party that takes them.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    pub(crate) steps: &'a mut Steps<State>,
    pub(crate) actor: (&'static str, usize),
}

impl Out<'_> {
    fn add(&mut self, name: &'static str, helps: bool, outcome: Result<State, &'static str>) {
        self.steps.push(Step { actor: self.actor, name, helps, outcome });
    }

    /// A step that leads to `state`.
    pub(crate) fn go(&mut self, name: &'static str, mut state: State) {
        state.note_quiet();
        self.add(name, true, Ok(state));
    }

    /// A step that progress may not rely on.
    pub(crate) fn suffer(&mut self, name: &'static str, mut state: State) {
        state.note_quiet();
        self.add(name, false, Ok(state));
    }

    /// A step that breaks a rule.
    pub(crate) fn fail(&mut self, name: &'static str, rule: &'static str) {
        self.add(name, true, Err(rule));
    }
}

impl State {
    /// Marks each receiver that scans for senders: it may end, since no sender is there at this
    /// moment.
    fn note_quiet(&mut self) {
        if self.senders.iter().any(Sender::is_present) {
            return;
        }
        for receiver in &mut self.receivers {
            if let ReceiverAt::Scan { quiet, .. } = &mut receiver.at {
                *quiet = true;
            }
        }
    }
}

impl Protocol {
    /// The protocol without a mistake.
    ///
    /// # Panics
    /// If the configuration does not fit the model's memory.
    #[must_use]
    pub fn new(configuration: Configuration) -> Self {
        Self::checked(configuration, None)
    }

    /// The protocol with one mistake.
    ///
    /// # Panics
    /// If the configuration does not fit the model's memory.
    #[must_use]
    pub fn with_mutant(configuration: Configuration, mutant: Mutant) -> Self {
        Self::checked(configuration, Some(mutant))
    }

    fn checked(configuration: Configuration, mutant: Option<Mutant>) -> Self {
        let Configuration { name, slots, run_max, sender_rows, receiver_rows, .. } = configuration;
        let parties = [configuration.senders.len(), configuration.receivers.len()];
        let rows = [sender_rows.into(), receiver_rows.into()];
        let senders_early = configuration.senders.iter().filter(|plan| !plan.is_late).count();
        let receivers_early = configuration.receivers.iter().filter(|plan| !plan.is_late).count();
        let is_run = |send: &Send| (1..=run_max).contains(&send.slots());
        assert!(
            usize::from(slots) <= SLOTS_MAX && (1..=slots).contains(&run_max),
            "{name}: {slots} slots, runs of {run_max}: at most {SLOTS_MAX}, and no longer than that"
        );
        assert!(
            configuration.senders.iter().flat_map(|plan| &plan.sends).all(is_run),
            "{name}: a run has from one to {run_max} slots"
        );
        assert!(
            parties.iter().chain(&rows).all(|&count| count <= PARTIES_MAX),
            "{name}: at most {PARTIES_MAX} senders, receivers, and rows of each"
        );
        assert!(
            senders_early <= rows[0] && receivers_early <= rows[1],
            "{name}: a sender that is there at first has a row"
        );
        Self { configuration, mutant }
    }

    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The first sequence. Older stamps belong to the lap before the first.
    pub(crate) fn first(&self) -> u8 {
        self.configuration.slots
    }

    pub(crate) fn slot(&self, sequence: u8) -> usize {
        usize::from(sequence % self.configuration.slots)
    }

    pub(crate) fn stamp(&self, state: &State, sequence: u8) -> Stamp {
        state.slots[self.slot(sequence)].stamp
    }

    /// Whether the holder of a sender's row is dead according to the deaths in `known`.
    pub(crate) fn is_known_dead(&self, state: &State, row: u8, known: Known) -> bool {
        if self.has(Mutant::DeathByRow) {
            return (0..).zip(&state.senders).any(|(index, sender)| {
                sender.row == row && sender.life == Life::Dead && known.has_sender(index)
            });
        }
        let is_last = |holder| known.last[usize::from(row)] == holder + 1;
        state.sender_rows[usize::from(row)].holder.is_some_and(|holder| {
            known.has_sender(holder) && (!self.has(Mutant::ForgetLaterDeath) || is_last(holder))
        })
    }

    /// The first step of a sender that has its row.
    pub(crate) fn first_at(&self, sender: usize) -> SenderAt {
        let is_idle = self.configuration.senders[sender].sends.is_empty();
        if is_idle { SenderAt::Leave } else { SenderAt::Look }
    }

    /// The number of slots that a sender wants to claim next.
    pub(crate) fn run(&self, sender: usize, sends: u8) -> u8 {
        self.configuration.senders[sender].sends.get(usize::from(sends)).map_or(1, Send::slots)
    }

    fn kill(&self, state: &State, out: &mut Out<'_>) {
        if state.kills_count == self.configuration.kills_max {
            return;
        }
        for (index, sender) in state.senders.iter().enumerate() {
            if sender.life == Life::Live {
                let mut next = state.clone();
                next.kills_count += 1;
                // A sender that is being admitted keeps its position: its host goes on.
                let at = if sender.is_present() { SenderAt::Leave } else { sender.at };
                let row = sender.row;
                next.senders[index] = Sender { life: Life::Dead, row, at, ..Sender::ABSENT };
                out.actor = ("sender", index);
                out.suffer("is killed", next);
            }
        }
        for (index, receiver) in state.receivers.iter().enumerate() {
            if receiver.life == Life::Live {
                let mut next = state.clone();
                next.kills_count += 1;
                // The same for a receiver that is joining.
                let at = match receiver.at {
                    ReceiverAt::Join { .. } => receiver.at,
                    _ => ReceiverAt::Look,
                };
                let Receiver { row, generation, .. } = *receiver;
                next.receivers[index] =
                    Receiver { life: Life::Dead, row, generation, at, ..Receiver::ABSENT };
                out.actor = ("receiver", index);
                out.suffer("is killed", next);
            }
        }
    }

    /// The kernel reports the deaths of processes that the rows identify.
    fn learn(&self, state: &State, out: &mut Out<'_>) {
        let forgets = self.has(Mutant::ForgetLaterDeath);
        let is_reported = |sender: &Sender| {
            let is_over = sender.life == Life::Dead || forgets && sender.life == Life::Gone;
            is_over && sender.at == SenderAt::Leave
        };
        let is_held = |index: u8| {
            let seats = [Seat::Joined(index), Seat::Evicted(index)];
            state.receiver_rows.iter().any(|row| seats.contains(&row.seat))
        };
        let senders = (0..)
            .zip(&state.senders)
            .filter(|(_, sender)| is_reported(sender))
            .fold(0, |bits, (index, _)| bits | sender_bit(index));
        let receivers = (0..)
            .zip(&state.receivers)
            .filter(|&(index, receiver)| receiver.life == Life::Dead && is_held(index))
            .fold(0, |bits, (index, _)| bits | receiver_bit(index));
        let told = |known: Known, bit: u8| {
            let mut known = Known { bits: known.bits | bit, ..known };
            if let Some(sender) = state.senders.get(bit.trailing_zeros() as usize)
                && forgets
            {
                let place = usize::from(sender.row);
                known.last[place] = u8::try_from(bit.trailing_zeros()).unwrap_or(0) + 1;
            }
            known
        };
        for (index, sender) in state.senders.iter().enumerate() {
            let mut news = (senders | receivers) & !sender.known.bits;
            while sender.life == Life::Live && news != 0 {
                let mut next = state.clone();
                next.senders[index].known = told(sender.known, news & news.wrapping_neg());
                out.actor = ("sender", index);
                out.go("learns of a death", next);
                news &= news - 1;
            }
        }
        for (index, receiver) in state.receivers.iter().enumerate() {
            let mut news = senders & !receiver.known.bits;
            while receiver.life == Life::Live && news != 0 {
                let mut next = state.clone();
                next.receivers[index].known = told(receiver.known, news & news.wrapping_neg());
                out.actor = ("receiver", index);
                out.go("learns of a death", next);
                news &= news - 1;
            }
        }
    }
}

impl Sender {
    pub(crate) const ABSENT: Self = Self {
        life: Life::Gone,
        row: 0,
        sends: 0,
        next: 0,
        limit: 0,
        known: Known::NONE,
        at: SenderAt::Enter,
    };
}

impl Receiver {
    pub(crate) const ABSENT: Self = Self {
        life: Life::Gone,
        row: 0,
        generation: 0,
        known: Known::NONE,
        start: 0,
        next: 0,
        stored: 0,
        run: None,
        at: ReceiverAt::Look,
    };
}

impl Model for Protocol {
    type State = State;

    fn initial(&self) -> State {
        let mut state = State {
            slots: [Slot { stamp: Stamp::NEVER, words: [0; 2] }; SLOTS_MAX],
            tail: self.first(),
            head: self.first(),
            host: 0,
            sender_rows: [SenderRow { holder: None, generation: 0 }; PARTIES_MAX],
            receiver_rows: [ReceiverRow { seat: Seat::Free, generation: 0, cursor: 0 };
                PARTIES_MAX],
            epoch: 0,
            senders: [Sender::ABSENT; PARTIES_MAX],
            receivers: [Receiver::ABSENT; PARTIES_MAX],
            kills_count: 0,
        };
        let first = self.first();
        for (index, plan) in (0..).zip(&self.configuration.senders) {
            let place = usize::from(index);
            let sender = &mut state.senders[place];
            if plan.is_late {
                sender.life = Life::Waiting;
            } else {
                *sender = Sender {
                    life: Life::Live,
                    row: index,
                    next: first,
                    at: self.first_at(place),
                    ..Sender::ABSENT
                };
                state.sender_rows[place] = SenderRow { holder: Some(index), generation: 1 };
            }
        }
        // The first receivers have the last rows, so that a joining receiver's row is read before
        // theirs.
        let early = self.configuration.receivers.iter().filter(|plan| !plan.is_late);
        let rows_free = usize::from(self.configuration.receiver_rows).saturating_sub(early.count());
        for (index, plan) in (0..).zip(&self.configuration.receivers) {
            let place = usize::from(index);
            let receiver = &mut state.receivers[place];
            receiver.life = Life::Live;
            if plan.is_late {
                receiver.at = ReceiverAt::Absent;
            } else {
                let row = place + rows_free;
                receiver.row = u8::try_from(row).unwrap_or(0);
                (receiver.start, receiver.next) = (first, first);
                receiver.stored = if self.configuration.has_lazy_cursors { first } else { 0 };
                receiver.generation = 1;
                let seat = Seat::Joined(index);
                state.receiver_rows[row] = ReceiverRow { seat, generation: 1, cursor: first };
            }
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        let mut out = Out { steps, actor: ("", 0) };
        for index in 0..self.configuration.senders.len() {
            out.actor = ("sender", index);
            self.sender_steps(state, index, &mut out);
        }
        for index in 0..self.configuration.receivers.len() {
            out.actor = ("receiver", index);
            self.receiver_steps(state, index, &mut out);
        }
        self.kill(state, &mut out);
        self.learn(state, &mut out);
    }

    fn is_done(&self, state: &State) -> bool {
        let is_over = |life| matches!(life, Life::Dead | Life::Gone);
        state.senders.iter().all(|sender| is_over(sender.life))
            && state.receivers.iter().all(|receiver| is_over(receiver.life))
    }

    fn show(&self, state: &State) -> String {
        let mut text = String::new();
        for slot in &state.slots[..self.configuration.slots.into()] {
            let Stamp { sequence, claimed, run, row } = slot.stamp;
            let claimed = if claimed { " claimed" } else { "" };
            let run = if run > 1 { format!(" run of {run}") } else { String::new() };
            text += &format!("[{sequence}{claimed}{run} by {row}] ");
        }
        if self.configuration.has_hint {
            text += &format!("tail {} ", state.tail);
        }
        let count = usize::from(self.configuration.receiver_rows);
        for row in &state.receiver_rows[..count] {
            text += &format!("{:?}#{}@{} ", row.seat, row.generation, row.cursor);
        }
        for sender in &state.senders[..self.configuration.senders.len()] {
            let Sender { next, limit, at, life, .. } = sender;
            text += &format!("| {life:?} {next}<{limit} {at:?} ");
        }
        for receiver in &state.receivers[..self.configuration.receivers.len()] {
            let Receiver { next, at, life, run, .. } = receiver;
            text += &format!("| {life:?} {next} {at:?} ");
            if let Some(run) = run {
                text += &format!("{run:?} ");
            }
        }
        text
    }
}
