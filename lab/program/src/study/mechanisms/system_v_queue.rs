//! System V message queues (ZIMP, II-A4, "IPC MQ"): one queue for each receiver.

use super::kernel::{OwnedQueue, Queue, QueueMessage};
use super::{Kept, Kind, Mechanism, Receives, Seat, Sends, Shape, Site, queue_limits};
use crate::study::failure::{Doing, Failure};

/// Capacity of a queue, unless that is too few messages: the kernel's default.
const QUEUE_BYTES: usize = 16 << 10;
/// Minimum number of messages that a queue should hold, as many as a POSIX queue.
const MESSAGES: usize = 10;

pub(crate) struct SystemV;

/// The sending end: the queues of all receivers.
pub(crate) struct Sender {
    queues: Vec<Queue>,
    message: QueueMessage,
}

pub(crate) struct Receiver {
    queue: Queue,
    message: QueueMessage,
}

impl Mechanism for SystemV {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "System V message queues";
    const KIND: Kind = Kind::Kernel;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        format!(
            "queues of {} KiB, the kernel's default, or of {MESSAGES} messages",
            QUEUE_BYTES >> 10
        )
    }

    fn limit(shape: Shape) -> Option<String> {
        queue_limits::SYSTEM_V_MESSAGE
            .exceeded_by(shape.bytes)
            .or_else(|| queue_limits::SYSTEM_V_QUEUE.exceeded_by(shape.bytes))
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        let queues = site.receivers().map(|_| Queue::create()).collect::<Result<Vec<_>, _>>();
        let queues = queues.doing("make a System V message queue")?;
        let allowed = queue_limits::SYSTEM_V_QUEUE.read().unwrap_or(u64::MAX);
        let wanted = QUEUE_BYTES.max(MESSAGES * site.shape.bytes);
        let bytes = usize::try_from(allowed).unwrap_or(usize::MAX).min(wanted);
        for OwnedQueue(queue) in &queues {
            queue.set_capacity(bytes).doing("set what a System V message queue holds")?;
        }
        site.ticket = queues.iter().map(|OwnedQueue(queue)| queue.id().to_string()).collect();
        Ok(Box::new(queues))
    }

    fn sender(site: &Site, _: u32, _: Seat<'_>) -> Result<Sender, Failure> {
        let queues = site.receivers().map(|receiver| queue(site, receiver));
        let message = QueueMessage::new(site.shape.bytes);
        Ok(Sender { queues: queues.collect::<Result<_, _>>()?, message })
    }

    fn receiver(site: &Site, index: u32, _: Seat<'_>) -> Result<Receiver, Failure> {
        Ok(Receiver { queue: queue(site, index)?, message: QueueMessage::new(site.shape.bytes) })
    }
}

fn queue(site: &Site, receiver: u32) -> Result<Queue, Failure> {
    let id = site.entry(receiver as usize)?;
    Ok(Queue::of(id.parse().doing("read a queue's number")?))
}

impl Sends for Sender {
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        write(self.message.bytes_mut());
        for queue in &self.queues {
            queue.send(&self.message).doing("send to a System V message queue")?;
        }
        Ok(())
    }
}

impl Receives for Receiver {
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        self.queue.receive(&mut self.message).doing("receive from a System V message queue")?;
        Ok(read(self.message.bytes()))
    }
}
