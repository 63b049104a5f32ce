//! Peers that the program knows by name before they are linked: threads link them while the program goes on.
//!
//! A peer that does not answer, because its process is stopped, holds up the thread that asks it and nobody else. Up to
//! [`LINKERS_MAX`] threads link at a time; each ends when no row is left. If so many peers do not answer, the others wait
//! until one does, or its time is over. A row whose peer cannot be linked now waits at the end of the line, for a moment
//! that grows.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use corewire_endpoint::transport::{Gone, Loss, LossReason};
use corewire_layout::frame::Reason;
use corewire_layout::name::ChannelName;
use corewire_os::process;

use super::EndpointControl;
use super::connect::Unlinked;
use super::rows::{Address, Unavailable};
use super::to_link::Waiting;
use crate::error::ConnectError;
use crate::guard::lock;
use crate::halves::{EndpointHalf, PeerChange as PeerLink, notice};
use crate::tell::tell;

/// The most threads of one endpoint that link addressed peers.
const LINKERS_MAX: usize = 32;
/// What such a thread needs of stack, with a margin.
const STACK_BYTES: usize = 256 << 10;
/// The first and the longest pause before a peer is tried again.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Tries in succession for which the system is short of something, until the row is given up: after some ten seconds.
const SHORT_MAX: u32 = 100;
/// The end of a peer that was never linked.
const NOT_LINKED: Gone = Gone::Lost(Loss { reason: LossReason::NotLinked, delivered: 0 });

/// What came of one try.
enum Tried {
    /// It is linked, or nobody wants it any more.
    Over,
    /// It may work in a moment.
    Later,
    /// It may, but the system is short of something.
    Short(ConnectError),
    /// It never will.
    Never(Gone),
}

impl EndpointControl {
    /// See [`EndpointHalf::address`].
    pub(super) fn reserve_for(
        &self,
        name: &ChannelName,
        incarnation: Option<u128>,
    ) -> Result<u32, ConnectError> {
        if self.is_forked() {
            return Err(ConnectError::Forked);
        }
        let address = Address { name: name.clone(), incarnation };
        lock(&self.state).rows.address(&address).map_err(|why| match why {
            Unavailable::Full => ConnectError::Full { max: self.header.sizes.peers_max() },
            Unavailable::Closed | Unavailable::Stale => ConnectError::NotFound(name.clone()),
        })
    }

    /// See [`EndpointHalf::link`].
    pub(super) fn link_soon(&self, row: u32) {
        let Some(this) = self.this.upgrade().filter(|it| !it.is_forked()) else { return };
        let mut state = lock(&self.state);
        state.to_link.rows.push_back(Waiting::new(row));
        if state.to_link.linkers == LINKERS_MAX {
            return;
        }
        state.to_link.linkers += 1;
        drop(state);
        let linker = thread::Builder::new().name("corewire-link".into()).stack_size(STACK_BYTES);
        let linker = linker.spawn(move || {
            process::block_all_signals();
            this.link_all();
        });
        if linker.is_err() {
            // The next row that is to be linked tries again; if there is none, this one is not linked.
            let mut state = lock(&self.state);
            state.to_link.linkers -= 1;
            if state.to_link.linkers == 0 {
                let rows = std::mem::take(&mut state.to_link.rows);
                drop(state);
                for waiting in rows {
                    self.end_addressed(waiting.row, NOT_LINKED);
                }
            }
        }
    }

    /// Links rows until none is left.
    fn link_all(self: Arc<Self>) {
        loop {
            let mut state = lock(&self.state);
            let Some(Waiting { row, pause, mut short }) = state.to_link.rows.pop_front() else {
                state.to_link.linkers -= 1;
                return;
            };
            if !pause.is_zero() {
                // Ends early if this endpoint is closed, or a peer has come.
                let waited = self.answered.wait_timeout(state, pause);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            } else {
                drop(state);
            }
            let is_over = match self.try_link(row) {
                Tried::Over => true,
                Tried::Never(how) => self.end_addressed(row, how),
                Tried::Short(error) if short >= SHORT_MAX => self.give_up(row, &error),
                Tried::Short(_) => {
                    short += 1;
                    false
                }
                Tried::Later => {
                    short = 0;
                    false
                }
            };
            if !is_over {
                let pause = (pause * 2).clamp(PAUSE, PAUSE_MAX);
                lock(&self.state).to_link.rows.push_back(Waiting { row, pause, short });
            }
        }
    }

    fn try_link(&self, row: u32) -> Tried {
        let Some(Address { name, incarnation }) = lock(&self.state).rows.addressed(row).cloned()
        else {
            return Tried::Over;
        };
        let record = match self.record_of(&name) {
            Ok(record) => record,
            Err(error) => return self.failed(row, error, incarnation.is_some()),
        };
        if incarnation.is_some_and(|incarnation| incarnation != record.incarnation) {
            return Tried::Never(Gone::Died);
        }
        match self.link_with_that(&name, &record) {
            Ok(linked) if linked == row => Tried::Over,
            // The row belongs to a former one of that name, which had asked for the link.
            Ok(_) => Tried::Never(Gone::Died),
            Err(Unlinked::Stale) => Tried::Later,
            Err(Unlinked::Failed(error)) => self.failed(row, error, incarnation.is_some()),
        }
    }

    /// What an error means for a peer that is addressed, as the only one of its name if its incarnation `is_known`.
    fn failed(&self, row: u32, error: ConnectError, is_known: bool) -> Tried {
        match error {
            ConnectError::NotFound(_) if is_known => Tried::Never(Gone::Died),
            // It has not been created yet, or is stopped.
            ConnectError::NotFound(_) | ConnectError::NoAnswer { .. } => Tried::Later,
            ConnectError::Os(_)
            | ConnectError::Refused { reason: Reason::Resources { .. }, .. } => Tried::Short(error),
            ConnectError::Forked => Tried::Over,
            error if self.give_up(row, &error) => Tried::Over,
            _ => Tried::Later,
        }
    }

    /// A row cannot be linked, for this reason. False as for `end_addressed`.
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only reported"))]
    fn give_up(&self, row: u32, error: &ConnectError) -> bool {
        tell!(warn, "a peer cannot be linked", endpoint = self.name(), why = error);
        self.end_addressed(row, NOT_LINKED)
    }

    /// An addressed row will never be linked. False if its peer's own request is still under way, which may link it.
    fn end_addressed(&self, row: u32, how: Gone) -> bool {
        let mut state = lock(&self.state);
        if state.rows.fail(row) {
            state.changes.push(PeerLink::Gone { row, how, is_closed: false });
            drop(state);
            self.notify(notice::PEERS);
            return true;
        }
        state.rows.addressed(row).is_none()
    }
}
