//! What is explored: how many slots and parties, and what each of them is to do.

/// One thing that a sender sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Send {
    /// One message in a slot of its own.
    Message,
    /// So many messages in a run.
    Batch(u8),
}

impl Send {
    /// The slots that it claims.
    #[must_use]
    pub fn slots(&self) -> u8 {
        match *self {
            Self::Message => 1,
            Self::Batch(count) => count,
        }
    }
}

/// A sender's plan. It leaves at the end.
#[derive(Debug, Clone)]
pub struct SenderPlan {
    /// What it sends, in this order.
    pub sends: Vec<Send>,
    /// Has it no row at first?
    pub is_late: bool,
}

/// A receiver's plan. It receives until the channel ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReceiverPlan {
    /// Does it join while the others are at work?
    pub is_late: bool,
    /// May it leave at any time?
    pub may_leave: bool,
}

/// A small world to be explored.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What it shows.
    pub name: &'static str,
    /// Slots of the ring, six at most.
    pub slots: u8,
    /// The longest run.
    pub run_max: u8,
    /// Rows of the senders' table, three at most.
    pub sender_rows: u8,
    /// Rows of the receivers' table, three at most.
    pub receiver_rows: u8,
    /// The senders, three at most.
    pub senders: Vec<SenderPlan>,
    /// The receivers, three at most.
    pub receivers: Vec<ReceiverPlan>,
    /// May a sender that is held back evict a receiver?
    pub can_evict: bool,
    /// How many processes may be killed.
    pub kills_max: u8,
    /// May a receiver put off storing its cursor?
    pub has_lazy_cursors: bool,
    /// Do senders store the shared tail? If not, it stays at the first sequence.
    pub has_hint: bool,
}

impl Configuration {
    /// One message after another from `senders` senders to `receivers` receivers, all there from
    /// the first, with at most one death.
    #[must_use]
    pub fn new(name: &'static str, slots: u8, senders: &[u8], receivers: u8) -> Self {
        let plan =
            |&count: &u8| SenderPlan { sends: vec![Send::Message; count.into()], is_late: false };
        let senders: Vec<SenderPlan> = senders.iter().map(plan).collect();
        Self {
            name,
            slots,
            run_max: slots.min(2),
            sender_rows: (0..).zip(&senders).fold(0, |_, (index, _): (u8, _)| index + 1),
            receiver_rows: receivers,
            senders,
            receivers: vec![ReceiverPlan::default(); receivers.into()],
            can_evict: false,
            kills_max: 1,
            has_lazy_cursors: false,
            has_hint: false,
        }
    }

    /// With runs of up to so many slots.
    #[must_use]
    pub fn runs(mut self, run_max: u8) -> Self {
        self.run_max = run_max;
        self
    }

    /// With a shared tail.
    #[must_use]
    pub fn hint(mut self) -> Self {
        self.has_hint = true;
        self
    }

    /// With that plan for one of the senders.
    #[must_use]
    pub fn plan(mut self, sender: usize, sends: &[Send]) -> Self {
        self.senders[sender].sends = sends.to_vec();
        self
    }

    /// With one of the senders entering when the others are at work.
    #[must_use]
    pub fn late_sender(mut self, sender: usize) -> Self {
        self.senders[sender].is_late = true;
        self
    }

    /// With one more receiver, which joins when the others are at work.
    #[must_use]
    pub fn joiner(mut self) -> Self {
        self.receivers.push(ReceiverPlan { is_late: true, may_leave: false });
        self
    }

    /// With one of the receivers free to leave.
    #[must_use]
    pub fn leaver(mut self, receiver: usize) -> Self {
        self.receivers[receiver].may_leave = true;
        self
    }

    /// With so many rows for senders and for receivers.
    #[must_use]
    pub fn rows(mut self, sender_rows: u8, receiver_rows: u8) -> Self {
        (self.sender_rows, self.receiver_rows) = (sender_rows, receiver_rows);
        self
    }

    /// With so many deaths at most.
    #[must_use]
    pub fn kills(mut self, kills_max: u8) -> Self {
        self.kills_max = kills_max;
        self
    }

    /// With eviction.
    #[must_use]
    pub fn evict(mut self) -> Self {
        self.can_evict = true;
        self
    }

    /// With cursors that are stored late.
    #[must_use]
    pub fn lazy(mut self) -> Self {
        self.has_lazy_cursors = true;
        self
    }
}
