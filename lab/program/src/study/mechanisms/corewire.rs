//! corewire's own channel: messages are written in place, and read in place or copied out, as in ZIMP.

use corewire::{Domain, Loan, SendError, SharedSender, Wait};

use super::{Kind, Mechanism, Patience, Receives, Seat, Sends, Shape, Site};
use crate::study::failure::{Doing, Failure};

/// Maximum number of senders of a shared channel.
const SENDERS_MAX: u32 = 128;

pub(crate) struct InPlace;
pub(crate) struct CopyingOut;

/// The only sender, or one of several.
pub(crate) enum Sender {
    Alone { sender: corewire::Sender, patience: Patience, bytes: usize },
    Shared { sender: SharedSender, patience: Patience, bytes: usize },
}

/// Reads messages in place.
pub(crate) struct Receiver {
    receiver: corewire::Receiver,
    patience: Patience,
}

/// Copies messages out, then reads them.
pub(crate) struct CopyingReceiver {
    receiver: corewire::Receiver,
    patience: Patience,
    message: Vec<u8>,
    copied: u64,
}

impl Mechanism for InPlace {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "corewire, in place";
    const KIND: Kind = Kind::InPlace;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        "the library's defaults: 4096 slots, a window of 1 MiB".to_owned()
    }

    fn limit(shape: Shape) -> Option<String> {
        limit(shape)
    }

    fn sender(site: &Site, _: u32, seat: Seat<'_>) -> Result<Sender, Failure> {
        sender(site, seat)
    }

    fn receiver(site: &Site, _: u32, seat: Seat<'_>) -> Result<Receiver, Failure> {
        Ok(Receiver { receiver: receiver(site)?, patience: seat.patience })
    }
}

impl Mechanism for CopyingOut {
    type Sender = Sender;
    type Receiver = CopyingReceiver;
    const NAME: &'static str = "corewire, copying out";
    const KIND: Kind = Kind::Copying;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        InPlace::settings()
    }

    fn limit(shape: Shape) -> Option<String> {
        limit(shape)
    }

    fn sender(site: &Site, _: u32, seat: Seat<'_>) -> Result<Sender, Failure> {
        sender(site, seat)
    }

    fn receiver(site: &Site, _: u32, seat: Seat<'_>) -> Result<CopyingReceiver, Failure> {
        let (receiver, message) = (receiver(site)?, vec![0; site.shape.bytes]);
        Ok(CopyingReceiver { receiver, patience: seat.patience, message, copied: 0 })
    }
}

fn domain(site: &Site) -> Result<Domain, Failure> {
    let path = site.directory.join(format!("domain-{}", site.number));
    Domain::open_at(&path).doing("open a domain")
}

/// The limit of a channel on its senders.
fn limit(shape: Shape) -> Option<String> {
    let is_too_many = shape.senders > SENDERS_MAX;
    is_too_many.then(|| format!("a shared channel has up to {SENDERS_MAX} senders"))
}

fn sender(site: &Site, seat: Seat<'_>) -> Result<Sender, Failure> {
    let (shape, patience) = (site.shape, seat.patience);
    let builder = domain(site)?
        .sender("study")
        .receivers(shape.receivers as usize)
        .largest_message(shape.bytes.max(4096))
        .wait(Wait::Spin)
        .prefault(true);
    if shape.senders > 1 {
        let sender = builder.open_shared(shape.senders as usize).doing("open a shared channel")?;
        return Ok(Sender::Shared { sender, patience, bytes: shape.bytes });
    }
    let mut sender = builder.create().doing("create a channel")?;
    sender.wait_for_receivers(shape.receivers as usize).doing("wait for receivers")?;
    Ok(Sender::Alone { sender, patience, bytes: shape.bytes })
}

fn receiver(site: &Site) -> Result<corewire::Receiver, Failure> {
    domain(site)?.receiver("study").wait(Wait::Spin).join_when_created().doing("join a channel")
}

impl Sends for Sender {
    #[inline(always)]
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let mut write = Some(write);
        match self {
            Self::Alone { sender, patience, bytes } => {
                patience.until(|| match sender.try_loan(*bytes) {
                    Ok(loan) => Some(send(loan, write.take()?)),
                    Err(SendError::Full { .. }) => None,
                    Err(error) => Some(Err(Failure::other(error))),
                })
            }
            Self::Shared { sender, patience, bytes } => {
                patience.until(|| match sender.try_loan(*bytes) {
                    Ok(mut loan) => {
                        write.take()?(&mut loan);
                        Some(loan.send().doing("send"))
                    }
                    Err(SendError::Full { .. }) => None,
                    Err(error) => Some(Err(Failure::other(error))),
                })
            }
        }
    }
}

#[inline(always)]
fn send(mut loan: Loan<'_>, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
    write(&mut loan);
    loan.send();
    Ok(())
}

/// Waits for the next message and lets `read` read it in place.
#[inline(always)]
fn next<R>(
    receiver: &mut corewire::Receiver,
    patience: Patience,
    read: impl FnOnce(&[u8]) -> R,
) -> Result<R, Failure> {
    let mut read = Some(read);
    patience.until(|| match receiver.try_receive() {
        Ok(Some(message)) => Some(Ok(read.take()?(&message))),
        Ok(None) => None,
        Err(error) => Some(Err(Failure::other(error))),
    })
}

impl Receives for Receiver {
    #[inline(always)]
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        next(&mut self.receiver, self.patience, read)
    }
}

impl Receives for CopyingReceiver {
    #[inline(always)]
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        let Self { receiver, patience, message, copied } = self;
        next(receiver, *patience, |found| message.copy_from_slice(found))?;
        *copied += message.len() as u64;
        Ok(read(message))
    }

    fn copied_bytes(&self) -> u64 {
        self.copied
    }
}
