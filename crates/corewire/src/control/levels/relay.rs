//! A group's relay: a thread that reads the sender's ring and sends on what it reads.

use std::sync::Arc;
use std::thread::JoinHandle;

use corewire_layout::frame::{Place, Start};
use corewire_layout::name::ChannelName;
use corewire_os::directory::Claim;
use corewire_os::{OsError, process, processor, random_u128};
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};

use crate::control::attach::{self, Answer, Linked, Wishes};
use crate::control::builder::{SenderBuilder, Standing};
use crate::control::domain::DomainInner;
use crate::error::{CreateError, JoinError, ReceiveError, SendError};
use crate::path::receive::{InPlace, Receiver, ReceiverControl};
use crate::path::send::Sender;
use crate::wait::Interrupter;

/// A relay of this process.
pub(super) struct Relay {
    is_stopped: Arc<AtomicU32>,
    interrupters: [Interrupter; 2],
    thread: JoinHandle<()>,
}

impl Relay {
    /// Makes the relay of `group`, whose channel's name has been claimed. It begins where the relay
    /// before it ended, or where `start` says if there was none.
    pub(super) fn start(
        domain: &Arc<DomainInner>,
        name: &ChannelName,
        group: u32,
        claim: Claim,
        wishes: Wishes,
    ) -> Result<Self, JoinError> {
        let incarnation = random_u128();
        let joined = incarnation.map_err(JoinError::from).and_then(|incarnation| {
            Ok((incarnation, enter(domain, name, group, incarnation, wishes)?))
        });
        let (incarnation, linked) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                claim.release(&domain.directory);
                return Err(error);
            }
        };
        let Linked { ring, attachment, access, header } = linked;
        let from = Receiver::new(ring, attachment, access);
        let local = name.relayed(group);
        let failed =
            |error: CreateError| JoinError::Relay { name: local.clone(), error: Box::new(error) };
        let builder = SenderBuilder::of_relay(domain, &local, wishes);
        let standing = Standing { first: from.next_sequence(), home: None };
        let to = builder.create_at(claim, &local, header.geometry, incarnation, standing);
        let to = to.map_err(failed)?.hanging_up();
        let is_stopped = Arc::new(AtomicU32::new(0));
        let interrupters = [from.interrupter(), to.interrupter()];
        let stop = Arc::clone(&is_stopped);
        let thread = std::thread::Builder::new()
            .name("corewire-relay".into())
            .spawn(move || {
                process::block_all_signals();
                // Where its readers are. If it cannot be, it is only slower.
                let _ = processor::keep_at_cache_of(group as usize);
                run(from, to, &stop);
            })
            .map_err(|error| OsError {
                what: "start a relay".into(),
                errno: error.raw_os_error().unwrap_or_default(),
            })?;
        Ok(Self { is_stopped, interrupters, thread })
    }

    /// Has it leave its work to the next one.
    pub(super) fn stop(self) {
        self.is_stopped.store(1, Relaxed);
        self.interrupters.iter().for_each(Interrupter::interrupt);
        // It panics nowhere; if it did, its handles are dropped all the same.
        let _ = self.thread.join();
    }
}

/// Joins the channel as its relay.
fn enter(
    domain: &Arc<DomainInner>,
    name: &ChannelName,
    group: u32,
    incarnation: u128,
    wishes: Wishes,
) -> Result<Linked<InPlace>, JoinError> {
    let wishes = Wishes { waiter: incarnation, ..wishes };
    let start = match wishes.start {
        Start::At(_) => Start::Now,
        start => start,
    };
    let wishes = Wishes { start, ..wishes };
    let control = ReceiverControl::new(wishes.wait);
    match attach::attach(domain, name, Place::Relay(group), wishes, control)? {
        Answer::Linked(linked) => Ok(linked),
        _ => Err(attach::protocol(name, "as if it had one level".into())),
    }
}

/// Sends on until the channel ends, or it is stopped; then hangs up, without closing.
fn run(mut from: Receiver, mut to: Sender, is_stopped: &AtomicU32) {
    while is_stopped.load(Relaxed) == 0 {
        match pass_on(&mut from, &mut to) {
            // One that is stopped is interrupted, and perhaps one that is not.
            Ok(()) | Err(Ended::Interrupted) => {}
            Err(Ended::Over) => break,
        }
    }
    // In this order: whoever takes over finds the place in the ring kept.
    drop(from);
    drop(to);
}

/// Why no more is sent on.
enum Ended {
    Interrupted,
    Over,
}

impl From<ReceiveError> for Ended {
    fn from(error: ReceiveError) -> Self {
        if error == ReceiveError::Interrupted { Self::Interrupted } else { Self::Over }
    }
}

impl From<SendError> for Ended {
    fn from(error: SendError) -> Self {
        if error == SendError::Interrupted { Self::Interrupted } else { Self::Over }
    }
}

/// Sends on what is there, and waits for more. A message is done with only when it has been sent.
fn pass_on(from: &mut Receiver, to: &mut Sender) -> Result<(), Ended> {
    while let Some(message) = from.peek(0)? {
        to.send(message)?;
        from.pass(1)?;
    }
    Ok(from.wait_more()?)
}
