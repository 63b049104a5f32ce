//! A group's relay: a thread that reads the sender's ring and forwards the messages to its group.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use corewire_layout::frame::{Place, Start};
use corewire_layout::name::ChannelName;
use corewire_os::directory::Claim;
use corewire_os::{OsError, process, processor};
use corewire_ring::broadcast::Violation;
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};

use super::incarnation_of_relay;
use crate::control::asking::{self, Row, Wishes};
use crate::control::attach::{self, Answer, Attachment};
use crate::control::domain::DomainHandle;
use crate::error::{CreateError, JoinError, ReceiveError, SendError};
use crate::guard::lock;
use crate::halves::ReceiverHalf;
use crate::open::channel::{Options, Origin};
use crate::open::join::{Joiner, grant};
use crate::path::receive::{InPlace, Receiver};
use crate::path::send::Sender;
use crate::tell::tell;
use crate::wait::Interrupter;

/// A relay in this process. On drop, the next relay continues its work.
pub(super) struct Relay {
    domain: DomainHandle,
    shared: Arc<Shared>,
    interrupters: [Interrupter; 2],
    thread: Option<JoinHandle<()>>,
}

/// The part that the thread shares with others.
#[derive(Default)]
struct Shared {
    is_stopped: AtomicU32,
    violation: Mutex<Option<Violation>>,
}

impl Relay {
    /// Creates the relay of `group` for the channel of this incarnation. The relay's own name is claimed already. It
    /// begins where the former relay ended, or at `wishes.start` if there was none.
    pub(super) fn start(
        domain: &DomainHandle,
        name: &ChannelName,
        group: u32,
        channel: u128,
        claim: Claim,
        wishes: Wishes,
    ) -> Result<Self, JoinError> {
        let entered =
            incarnation_of_relay(channel).map_err(JoinError::from).and_then(|incarnation| {
                enter(domain, name, group, incarnation, channel, wishes)
                    .map(|linked| (incarnation, linked))
            });
        let (incarnation, linked) = match entered {
            Ok(entered) => entered,
            Err(error) => {
                claim.release(&domain.directory);
                return Err(error);
            }
        };
        let (row, access) = linked;
        let Row { ring, attachment, header, .. } = row;
        let gone = Arc::clone(&attachment);
        let joiner = Arc::new(Joiner::new(domain, name, wishes));
        let from = Receiver::new(ring, attachment, access, wishes.wait, joiner);
        let local = name.relayed(group);
        let failed =
            |error: CreateError| JoinError::Relay { name: local.clone(), error: Box::new(error) };
        // The type of the relayed channel. The follower that creates the relay may have asked for any type.
        let wishes = Wishes { type_tag: header.type_tag, ..wishes };
        let options = Options::of_relay(domain, &local, wishes);
        let origin = Origin { first: from.next_sequence(), home: None, hangs_up: true };
        let to = options.create_at(claim, &local, header.geometry, incarnation, origin);
        let to = Sender::new(to.map_err(failed)?);
        let shared = Arc::new(Shared::default());
        let interrupters = [from.interrupter(), to.interrupter()];
        // If the sender is gone, the followers read the rest in the sender's ring, so none waits for another.
        let (stop, interrupter) = (Arc::clone(&shared), to.interrupter());
        gone.when_gone(move || {
            stop.is_stopped.store(1, Relaxed);
            interrupter.interrupt();
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("corewire-relay".into())
            .spawn(move || {
                process::block_all_signals();
                // Runs near its receivers. If pinning fails, the relay is only slower.
                let _ = processor::keep_at_cache_of(group as usize);
                run(from, to, &own);
            })
            .map_err(|error| OsError {
                what: "start a relay".into(),
                errno: error.raw_os_error().unwrap_or_default(),
            })?;
        tell!(info, "a relay was created", channel = name, group = group);
        Ok(Self { domain: domain.clone(), shared, interrupters, thread: Some(thread) })
    }

    /// The impossible value in the sender's memory that ended the relay.
    pub(super) fn violation(&self) -> Option<Violation> {
        *lock(&self.shared.violation)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.domain.is_forked() {
            // A forked child does not have the thread.
            std::mem::forget(thread);
            return;
        }
        self.shared.is_stopped.store(1, Relaxed);
        self.interrupters.iter().for_each(Interrupter::interrupt);
        // The thread does not panic. A panic would drop its handles as well.
        let _ = thread.join();
    }
}

/// Joins the channel as its relay.
fn enter(
    domain: &DomainHandle,
    name: &ChannelName,
    group: u32,
    incarnation: u128,
    channel: u128,
    wishes: Wishes,
) -> Result<(Row<Attachment>, InPlace), JoinError> {
    let start = match wishes.start {
        Start::At(_) => Start::Now,
        start => start,
    };
    let wishes = Wishes { start, waiter: incarnation, ..wishes };
    match attach::attach(domain, name, Place::Relay(group), wishes, true)? {
        Answer::Linked(row) if row.header.incarnation == channel => {
            let access = grant(&row.ring, row.trusted, &*row.attachment, row.header.policy)?;
            Ok((row, access))
        }
        // Another channel holds the name by now.
        Answer::Linked(Row { attachment, .. }) => {
            attachment.leave();
            Err(JoinError::NotFound(name.clone()))
        }
        _ => Err(asking::protocol(name, "as if it had one level".into())),
    }
}

/// Forwards messages until the sender is gone or the relay is stopped. Then hangs up without closing its channel.
fn run(mut from: Receiver, mut to: Sender, shared: &Shared) {
    while shared.is_stopped.load(Relaxed) == 0 {
        match forward(&mut from, &mut to) {
            // A relay that is stopped is interrupted; other interrupts are possible too.
            Ok(()) | Err(Ended::Interrupted) => {}
            Err(Ended::Violated(violation)) => {
                *lock(&shared.violation) = Some(violation);
                break;
            }
            Err(Ended::Over) => break,
        }
    }
    // The order matters: the next relay finds that the row in the sender's ring is kept.
    drop(from);
    drop(to);
}

/// Why forwarding ended.
enum Ended {
    Interrupted,
    Violated(Violation),
    Over,
}

impl From<ReceiveError> for Ended {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Interrupted => Self::Interrupted,
            ReceiveError::Violation(violation) => Self::Violated(violation),
            _ => Self::Over,
        }
    }
}

impl From<SendError> for Ended {
    fn from(error: SendError) -> Self {
        if error == SendError::Interrupted { Self::Interrupted } else { Self::Over }
    }
}

/// Forwards the available messages, and waits for more. A message is finished only once it has been sent.
fn forward(from: &mut Receiver, to: &mut Sender) -> Result<(), Ended> {
    while let Some(message) = from.peek(0)? {
        to.send(message)?;
        from.pass(1)?;
    }
    Ok(from.wait_more()?)
}
