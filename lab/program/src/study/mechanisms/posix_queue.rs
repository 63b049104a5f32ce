//! POSIX message queues (ZIMP, II-A4): one queue for each receiver.

use nix::mqueue::{MQ_OFlag, MqAttr, MqdT, mq_close, mq_open, mq_receive, mq_send, mq_unlink};
use nix::sys::stat::Mode;

use super::{Kept, Kind, Mechanism, Receives, Seat, Sends, Shape, Site, queue_limits};
use crate::study::failure::{Doing, Failure};

/// Capacity of a queue in messages: the Linux default for unprivileged processes.
const MESSAGES: i64 = 10;

pub(crate) struct PosixQueues;

/// The sending end: the queues of all receivers.
pub(crate) struct Sender {
    queues: Vec<MqdT>,
    message: Vec<u8>,
}

pub(crate) struct Receiver {
    queue: MqdT,
    message: Vec<u8>,
}

/// Names of queues, which are unlinked on drop.
struct Names(Vec<String>);

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.0 {
            // The queue may never have been created.
            let _ = mq_unlink(name.as_str());
        }
    }
}

impl Mechanism for PosixQueues {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "POSIX message queues";
    const KIND: Kind = Kind::Kernel;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        format!("queues of {MESSAGES} messages")
    }

    fn limit(shape: Shape) -> Option<String> {
        if let Some(reason) = queue_limits::POSIX_MESSAGE.exceeded_by(shape.bytes) {
            return Some(reason);
        }
        let probe = || {
            let mut names = Names(Vec::new());
            make(&mut names, shape)
        };
        Some(probe().err()?.message)
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        let mut names = Names(Vec::new());
        make(&mut names, site.shape)?;
        site.ticket.clone_from(&names.0);
        Ok(Box::new(names))
    }

    fn sender(site: &Site, _: u32, _: Seat<'_>) -> Result<Sender, Failure> {
        let queues = site.receivers().map(|receiver| open(site, receiver, MQ_OFlag::O_WRONLY));
        Ok(Sender { queues: queues.collect::<Result<_, _>>()?, message: vec![0; site.shape.bytes] })
    }

    fn receiver(site: &Site, index: u32, _: Seat<'_>) -> Result<Receiver, Failure> {
        let queue = open(site, index, MQ_OFlag::O_RDONLY)?;
        Ok(Receiver { queue, message: vec![0; site.shape.bytes] })
    }
}

/// Creates a queue for each receiver.
fn make(names: &mut Names, shape: Shape) -> Result<(), Failure> {
    let bytes = i64::try_from(shape.bytes).doing("make such a long message")?;
    let attributes = MqAttr::new(0, MESSAGES, bytes, 0);
    for _ in 0..shape.receivers {
        let random = corewire_os::random_u128().doing("name a POSIX message queue")?;
        let name = format!("/corewire-study-{random:032x}");
        names.0.push(name.clone());
        let flags = MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL | MQ_OFlag::O_RDWR;
        let made = mq_open(name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR, Some(&attributes));
        let what = format_args!("make a POSIX message queue of {MESSAGES} messages (ulimit -q)");
        made.and_then(mq_close).doing(what)?;
    }
    Ok(())
}

fn open(site: &Site, receiver: u32, flags: MQ_OFlag) -> Result<MqdT, Failure> {
    let name = site.entry(receiver as usize)?;
    mq_open(name, flags, Mode::empty(), None).doing("open a POSIX message queue")
}

impl Sends for Sender {
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        write(&mut self.message);
        for queue in &self.queues {
            mq_send(queue, &self.message, 0).doing("send to a POSIX message queue")?;
        }
        Ok(())
    }
}

impl Receives for Receiver {
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        let mut priority = 0;
        let bytes = mq_receive(&self.queue, &mut self.message, &mut priority)
            .doing("receive from a POSIX message queue")?;
        Ok(read(&self.message[..bytes]))
    }
}
