//! Waiting for a name that nobody has yet: a note in the runtime directory, by which whoever takes the name
//! finds who waits.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire_layout::name::ChannelName;
use corewire_os::directory::Claim;
use corewire_os::event::Bell;
use corewire_os::random_u128;

use crate::control::attach::{Wishes, protocol};
use crate::control::domain::DomainInner;
use crate::error::JoinError;
use crate::open::join::join_other;
use crate::path::receive::{Reading, Receiver};
use crate::wait::Patience;

/// How often a process that gives no answer is asked again, and after what time.
const MUTE_LOOKS_MAX: u32 = 100;
const MUTE_LOOK_AFTER: Duration = Duration::from_millis(50);

/// Joins channel `name` as soon as it exists, and before its first message is sent if it does not
/// yet, unless this process is a guest; gives up after `timeout`. A channel of the incarnation
/// `former` does not count: it has ended, even if its name still exists for a moment.
pub(crate) fn join_when_created<A: Reading>(
    domain: &Arc<DomainInner>,
    name: &ChannelName,
    wishes: Wishes,
    timeout: Option<Duration>,
    former: Option<u128>,
) -> Result<Receiver<A>, JoinError> {
    if domain.is_forked() {
        return Err(JoinError::Forked);
    }
    let patience = timeout.map_or(Patience::Forever, Patience::until);
    let deadline = patience.deadline();
    let wishes = Wishes { patience, ..wishes };
    // In this order: once the note is there, whoever creates the channel invites us; whoever
    // created it before is found below, or changes a file after the watch began.
    let watch = domain.directory.watch()?;
    let note = Note::leave(domain, name)?;
    let mut mute_looks = 0;
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
        // A process that has the name, is alive, and closes connections without an answer may be just
        // giving the name up. If it goes on, it cannot speak.
        if is_alive(domain, name, former)? {
            mute_looks += 1;
            if mute_looks > MUTE_LOOKS_MAX {
                return Err(protocol(name, "by closing the connection".into()));
            }
            let later = Instant::now() + MUTE_LOOK_AFTER;
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

/// Does the process that has `name` now take connections? One that has it for the channel `former` does
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

/// The note of one who waits for a name; taken back at its end.
pub(crate) struct Note {
    domain: Arc<DomainInner>,
    id: u128,
    bell: Arc<Bell>,
    claim: Option<Claim>,
}

impl Note {
    pub(crate) fn leave(domain: &Arc<DomainInner>, name: &ChannelName) -> Result<Self, JoinError> {
        let bell = Arc::new(Bell::new()?);
        let mut note = Self { domain: Arc::clone(domain), id: 0, bell, claim: None };
        // A guest leaves no note: nobody invites it, and the watch alone tells it.
        if let Some(socket) = domain.socket_name() {
            note.id = random_u128()?.max(1);
            domain.add_waiter(note.id, name, &note.bell);
            note.claim = Some(domain.directory.leave_waiter(name, note.id, socket)?);
        }
        Ok(note)
    }

    /// The number of whoever waits.
    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    /// Rings when an owner of the name invites.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // In a forked child it is the parent's.
        if self.domain.is_forked() {
            return;
        }
        self.domain.remove_waiter(self.id);
        if let Some(claim) = self.claim.take() {
            claim.release(&self.domain.directory);
        }
    }
}
