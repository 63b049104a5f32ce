//! Waiting for a name that no process holds yet. The waiter watches the runtime directory, then leaves a note there, then
//! looks for the channel. In this order it is either invited, by the process that claims the name and finds the note, or
//! finds the channel. It answers an invitation by joining. When it has joined, given up or died, the sender stops waiting
//! for it. A guest leaves no note: it relies on the watch.
//!
//! A receiver that has lost its channel joins it again, at once or in this way.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_layout::frame::Start;
use corewire_layout::name::ChannelName;
use corewire_os::directory::Claim;
use corewire_os::event::Bell;
use corewire_os::random_u128;

use crate::control::asking::{Wishes, protocol};
use crate::control::domain::{DomainHandle, DomainInner};
use crate::error::JoinError;
use crate::open::join::{Joiner, join_other};
use crate::path::receive::{Again, Join, Reading, Receiver};
use crate::wait::Patience;

/// Maximum number of further requests to a process that does not answer, and the time between them.
const UNANSWERED_MAX: u32 = 100;
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Joins channel `name` as soon as it exists. If it does not exist yet, joins before its first message is sent, unless
/// this process is a guest. Stops waiting after `timeout`. A channel with the incarnation `former` does not count: it
/// has ended, although its name may still exist for a moment.
pub(crate) fn join_when_created<A: Reading>(
    domain: &DomainHandle,
    name: &ChannelName,
    wishes: Wishes,
    timeout: Option<Duration>,
    former: Option<u128>,
) -> Result<Receiver<[u8], A>, JoinError> {
    if domain.is_forked() {
        return Err(JoinError::Forked);
    }
    let patience = timeout.map_or(Patience::Forever, Patience::until);
    let deadline = patience.deadline();
    let wishes = Wishes { patience, ..wishes };
    // The order matters. A process that creates the channel after the note exists sends an invitation. A channel
    // created before is found below, or its process changes a file after the watch began.
    let watch = domain.directory.watch()?;
    let note = Note::leave(domain, name)?;
    let mut unanswered = 0;
    loop {
        let joined = join_other::<A>(domain, name, Wishes { waiter: note.id, ..wishes }, former);
        let has_all = joined.as_ref().is_ok_and(|receiver| receiver.next_sequence() == 0);
        if !has_all && let Some(error) = domain.failure_of(note.id) {
            return Err(error.into());
        }
        match joined {
            Err(JoinError::NotFound(_)) => {}
            other => return other,
        }
        // A living process that holds the name but closes connections without an answer may be just releasing the name.
        // If this continues, the process does not speak the protocol.
        if is_alive(domain, name, former)? {
            unanswered += 1;
            if unanswered > UNANSWERED_MAX {
                return Err(protocol(name, "by closing the connection".into()));
            }
            let later = Instant::now() + ASK_AGAIN_AFTER;
            watch.wait(note.bell.as_fd(), Some(deadline.map_or(later, |at| at.min(later))))?;
            if deadline.is_none_or(|at| Instant::now() < at) {
                note.bell.silence();
                continue;
            }
        }
        if !watch.wait(note.bell.as_fd(), deadline)? {
            let after = timeout.unwrap_or_default();
            return Err(JoinError::NotCreated { name: name.clone(), after });
        }
        note.bell.silence();
    }
}

/// True if the process that holds `name` now accepts connections. A process that holds it for the channel `former` does
/// not count.
fn is_alive(
    domain: &DomainInner,
    name: &ChannelName,
    former: Option<u128>,
) -> Result<bool, JoinError> {
    match domain.directory.look_up(name)? {
        Some(record) if former != Some(record.incarnation) => {
            Ok(domain.directory.is_alive(record.socket)?)
        }
        _ => Ok(false),
    }
}

/// A waiter's note in the runtime directory. Removed on drop.
pub(crate) struct Note {
    domain: DomainHandle,
    id: u128,
    bell: Arc<Bell>,
    claim: Option<Claim>,
}

impl Note {
    pub(crate) fn leave(domain: &DomainHandle, name: &ChannelName) -> Result<Self, JoinError> {
        let bell = Arc::new(Bell::new()?);
        let mut note = Self { domain: domain.clone(), id: 0, bell, claim: None };
        // A guest leaves no note: it gets no invitations and relies on the watch alone.
        if let Some(socket) = domain.socket_name() {
            note.id = random_u128()?.max(1);
            domain.add_waiter(note.id, name, &note.bell);
            note.claim = Some(domain.directory.leave_waiter(name, note.id, socket)?);
        }
        Ok(note)
    }

    /// The waiter's number.
    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    /// Rings when an owner of the name sends an invitation.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // In a forked child, the note belongs to the parent.
        if self.domain.is_forked() {
            return;
        }
        self.domain.remove_waiter(self.id);
        if let Some(claim) = self.claim.take() {
            claim.release(&self.domain.directory);
        }
    }
}

impl<A: Reading> Join<A> for Joiner {
    fn join(&self, again: Again) -> Result<Receiver<[u8], A>, JoinError> {
        let Self { domain, name, wishes } = self;
        let start = if again.has_ended { wishes.start } else { Start::Now };
        let wishes = Wishes { start, waiter: 0, patience: Patience::default(), ..*wishes };
        match again.wait {
            None => join_other(domain, name, wishes, again.former),
            Some(timeout) => join_when_created(domain, name, wishes, timeout, again.former),
        }
    }
}
