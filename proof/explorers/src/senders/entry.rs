//! Hosts, and how a host admits a sender.

use crate::senders::join::ROW_TAKEN;
use crate::senders::mutant::Mutant;
use crate::senders::protocol::{Out, Protocol};
use crate::senders::state::{Life, ReceiverAt, Sender, SenderAt, SenderRow, State};

impl Protocol {
    /// The senders that may be asked to admit a party: the one that has the channel's name or, if
    /// that one is dead or gone, any sender that may take the name next.
    pub(crate) fn hosts(&self, state: &State) -> Vec<u8> {
        let has_host = state.senders[usize::from(state.host)].is_present();
        let may_host = |&host: &u8| {
            let is_host = host == state.host || !has_host || self.has(Mutant::TwoHosts);
            is_host && state.senders[usize::from(host)].is_present()
        };
        (0..).take(state.senders.len()).filter(may_host).collect()
    }

    /// Whether the host is busy: it handles one new party at a time.
    pub(crate) fn is_busy(state: &State, host: u8) -> bool {
        let is_joining = state
            .receivers
            .iter()
            .any(|receiver| matches!(receiver.at, ReceiverAt::Join { host: of, .. } if of == host));
        let is_entering = state
            .senders
            .iter()
            .any(|sender| matches!(sender.at, SenderAt::Let { host: of, .. } if of == host));
        is_joining || is_entering
    }

    pub(crate) fn enter(&self, state: &State, index: usize, out: &mut Out<'_>) {
        let sender = state.senders[index];
        let hosts = self.hosts(state);
        if hosts.is_empty() {
            return out.go("finds no host", state.with_sender(index, Sender::ABSENT));
        }
        for host in hosts.into_iter().filter(|&host| !Self::is_busy(state, host)) {
            match self.vacant(state, host) {
                Some(row) => {
                    let at = SenderAt::Let { host, row };
                    let mut next = state.with_sender(index, Sender { at, ..sender });
                    next.host = host;
                    out.go("is given a row", next);
                }
                None => out.go("is refused: full", state.with_sender(index, Sender::ABSENT)),
            }
        }
    }

    /// The first row that is free, or whose sender is dead and that no slot names. All in one step:
    /// the dead add nothing, and no other process takes rows.
    fn vacant(&self, state: &State, host: u8) -> Option<u8> {
        let known = state.senders[usize::from(host)].known;
        (0..self.configuration.sender_rows).find(|&row| {
            state.sender_rows[usize::from(row)].holder.is_none()
                || self.is_known_dead(state, row, known) && !self.is_named(state, row)
        })
    }

    fn is_named(&self, state: &State, row: u8) -> bool {
        state.slots.iter().any(|slot| {
            let by_claim = slot.stamp.claimed && !self.has(Mutant::ReuseRowWithClaim);
            let by_run = slot.stamp.run > 1 && !self.has(Mutant::ReuseRowWithRun);
            slot.stamp.row == row && (by_claim || by_run)
        })
    }

    pub(crate) fn let_in(
        &self,
        state: &State,
        index: usize,
        (host, row): (u8, u8),
        out: &mut Out<'_>,
    ) {
        let sender = state.senders[index];
        if state.senders[usize::from(host)].life != Life::Live {
            if sender.life == Life::Live {
                let at = SenderAt::Enter;
                out.go("loses its host", state.with_sender(index, Sender { at, ..sender }));
            }
            return;
        }
        let lives = |holder: u8| state.senders[usize::from(holder)].life == Life::Live;
        if state.sender_rows[usize::from(row)].holder.is_some_and(lives) {
            return out.fail("lets a sender in", ROW_TAKEN);
        }
        let at = if sender.life == Life::Live { self.first_at(index) } else { SenderAt::Leave };
        let next = if sender.life == Life::Live { state.tail } else { sender.next };
        let mut next = state.with_sender(index, Sender { row, at, next, ..sender });
        let generation = state.sender_rows[usize::from(row)].generation + 1;
        let holder = u8::try_from(index).ok();
        next.sender_rows[usize::from(row)] = SenderRow { holder, generation };
        out.actor = ("host", host.into());
        out.go("lets a sender in", next);
    }
}
