//! The configurations: how many slots and parties there are, and what each party does.

/// One item that a sender sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Send {
    /// One message in a slot of its own.
    Message,
    /// This number of messages, in one run.
    Batch(u8),
}

impl Send {
    /// The number of slots that it claims.
    #[must_use]
    pub fn slots(&self) -> u8 {
        match *self {
            Self::Message => 1,
            Self::Batch(count) => count,
        }
    }
}

/// A sender's plan. The sender leaves when the plan is done.
#[derive(Debug, Clone)]
pub struct SenderPlan {
    /// What the sender sends, in order.
    pub sends: Vec<Send>,
    /// Whether the sender has no row at first and enters later.
    pub is_late: bool,
}

/// A receiver's plan. The receiver receives until the channel ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReceiverPlan {
    /// Whether it joins while the other parties are already active.
    pub is_late: bool,
    /// Whether it may leave at any time.
    pub may_leave: bool,
}

/// A small world to explore.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Names what the configuration shows.
    pub name: &'static str,
    /// Slots of the ring, at most six.
    pub slots: u8,
    /// The longest run.
    pub run_max: u8,
    /// Rows of the senders' table, at most three.
    pub sender_rows: u8,
    /// Rows of the receivers' table, at most three.
    pub receiver_rows: u8,
    /// The senders, at most three.
    pub senders: Vec<SenderPlan>,
    /// The receivers, at most three.
    pub receivers: Vec<ReceiverPlan>,
    /// Whether a sender that is held back may evict a receiver.
    pub can_evict: bool,
    /// Maximum number of processes that may be killed.
    pub kills_max: u8,
    /// Whether a receiver may delay storing its cursor.
    pub has_lazy_cursors: bool,
    /// Whether senders store the shared tail. If not, it stays at the first sequence.
    pub has_hint: bool,
}

impl Configuration {
    /// `senders` lists the number of single messages of each sender. All senders and all
    /// `receivers` receivers are there from the start, and there is at most one death.
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

    /// Allows runs of up to `run_max` slots.
    #[must_use]
    pub fn runs(mut self, run_max: u8) -> Self {
        self.run_max = run_max;
        self
    }

    /// Lets senders store the shared tail.
    #[must_use]
    pub fn hint(mut self) -> Self {
        self.has_hint = true;
        self
    }

    /// Sets the plan of one sender.
    #[must_use]
    pub fn plan(mut self, sender: usize, sends: &[Send]) -> Self {
        self.senders[sender].sends = sends.to_vec();
        self
    }

    /// Makes one sender enter while the others are already active.
    #[must_use]
    pub fn late_sender(mut self, sender: usize) -> Self {
        self.senders[sender].is_late = true;
        self
    }

    /// Adds a receiver that joins while the others are already active.
    #[must_use]
    pub fn joiner(mut self) -> Self {
        self.receivers.push(ReceiverPlan { is_late: true, may_leave: false });
        self
    }

    /// Lets one receiver leave at any time.
    #[must_use]
    pub fn leaver(mut self, receiver: usize) -> Self {
        self.receivers[receiver].may_leave = true;
        self
    }

    /// Sets the number of rows for senders and for receivers.
    #[must_use]
    pub fn rows(mut self, sender_rows: u8, receiver_rows: u8) -> Self {
        (self.sender_rows, self.receiver_rows) = (sender_rows, receiver_rows);
        self
    }

    /// Sets the maximum number of deaths.
    #[must_use]
    pub fn kills(mut self, kills_max: u8) -> Self {
        self.kills_max = kills_max;
        self
    }

    /// Lets senders evict receivers.
    #[must_use]
    pub fn evict(mut self) -> Self {
        self.can_evict = true;
        self
    }

    /// Lets receivers delay storing their cursors.
    #[must_use]
    pub fn lazy(mut self) -> Self {
        self.has_lazy_cursors = true;
        self
    }
}
