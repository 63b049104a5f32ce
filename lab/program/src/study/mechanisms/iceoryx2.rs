//! iceoryx2, lossless: messages are written and read in place, with a queue of references for each
//! subscriber.

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;

use super::{Kept, Kind, Mechanism, Patience, Receives, Seat, Sends, Shape, Site, shared_memory};
use crate::rivals::iceoryx2::{Leftovers, Service, await_others, node};
use crate::study::failure::{Doing, Failure};

/// Maximum number of messages that wait for a subscriber.
const BUFFER_MAX: usize = 1024;
const BUFFER_MIN: usize = 4;
/// Size of these messages, if it holds enough of them.
const BUFFER_BYTES: usize = 4 << 20;

pub(crate) struct Iceoryx2;

pub(crate) struct Sender {
    publisher: Publisher<Service, [u8], ()>,
    bytes: usize,
    _node: Node<Service>,
}

pub(crate) struct Receiver {
    subscriber: Subscriber<Service, [u8], ()>,
    patience: Patience,
    _node: Node<Service>,
}

type Factory = iceoryx2::service::port_factory::publish_subscribe::PortFactory<Service, [u8], ()>;

fn buffer(bytes: usize) -> usize {
    shared_memory::slots(bytes, BUFFER_MIN, BUFFER_MAX, BUFFER_BYTES)
}

fn open(site: &Site) -> Result<(Node<Service>, Factory), Failure> {
    let Shape { bytes, receivers, senders } = site.shape;
    let node = node(&site.directory, site.number)?;
    let name = "study".try_into().doing("name a service")?;
    let service = node
        .service_builder(&name)
        .publish_subscribe::<[u8]>()
        .enable_safe_overflow(false)
        .subscriber_max_buffer_size(buffer(bytes))
        .subscriber_max_borrowed_samples(2)
        .history_size(0)
        .max_subscribers(receivers as usize)
        .max_publishers(senders as usize)
        .max_nodes((receivers + senders) as usize)
        .open_or_create()
        .doing("open an iceoryx2 service")?;
    Ok((node, service))
}

impl Mechanism for Iceoryx2 {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "iceoryx2";
    const KIND: Kind = Kind::InPlace;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        format!(
            "version 0.10, no safe overflow, retry until delivered, {BUFFER_MIN} to {BUFFER_MAX} messages \
             waiting, {} MiB if it can be; several publishers have no common order",
            BUFFER_BYTES >> 20
        )
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        Ok(Box::new(Leftovers::of(&site.directory, site.number)))
    }

    fn sender(site: &Site, _: u32, _: Seat<'_>) -> Result<Sender, Failure> {
        let (node, service) = open(site)?;
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(site.shape.bytes)
            .max_loaned_samples(1)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .doing("make an iceoryx2 publisher")?;
        // Messages for subscribers that are not connected yet would be lost.
        let receivers = site.shape.receivers as usize;
        await_others(|| service.dynamic_config().number_of_subscribers() == receivers);
        publisher.update_connections().doing("connect an iceoryx2 publisher")?;
        Ok(Sender { publisher, bytes: site.shape.bytes, _node: node })
    }

    fn receiver(site: &Site, _: u32, seat: Seat<'_>) -> Result<Receiver, Failure> {
        let (node, service) = open(site)?;
        let subscriber = service
            .subscriber_builder()
            .buffer_size(buffer(site.shape.bytes))
            .create()
            .doing("make an iceoryx2 subscriber")?;
        let senders = site.shape.senders as usize;
        await_others(|| service.dynamic_config().number_of_publishers() == senders);
        subscriber.update_connections().doing("connect an iceoryx2 subscriber")?;
        Ok(Receiver { subscriber, patience: seat.patience, _node: node })
    }
}

impl Sends for Sender {
    #[expect(clippy::incompatible_msrv, reason = "iceoryx2 itself needs Rust 1.93")]
    #[inline(always)]
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let mut sample = self.publisher.loan_slice_uninit(self.bytes).doing("loan a sample")?;
        let payload = sample.payload_mut();
        // SAFETY: every byte is a valid u8, and shared memory holds initialized bytes; `write` writes
        // them all.
        write(unsafe { payload.assume_init_mut() });
        // SAFETY: as above.
        unsafe { sample.assume_init() }.send().doing("send a sample")?;
        Ok(())
    }
}

impl Receives for Receiver {
    #[inline(always)]
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        let subscriber = &self.subscriber;
        let sample = self.patience.until(|| subscriber.receive().transpose());
        Ok(read(sample.doing("receive a sample")?.payload()))
    }
}
