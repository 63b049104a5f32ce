//! Calls that are answered in parts.
//!
//! Every test here keeps P234.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use async_io::block_on;
use corewire_bind::{CallError, ClientId, Failed};
use corewire_processes::interfaces::parts::{
    AsyncClient, Client, CountReply, EightReply, Event, Failure, LongReply, Outbox, Server,
    Service, ToldReply,
};
use corewire_processes::interfaces::{DRIVERS, Place, by, pin, short};
use futures_lite::StreamExt;

/// What a stream may cost before it is read, and each of its parts here.
const CREDIT: u64 = 1 << 16;
const PART: u64 = 256 + 8;

#[derive(Default)]
struct Counter {
    outbox: Option<Outbox>,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    counted: AtomicU64,
    ended: AtomicU64,
}

/// An iterator whose end is counted, however it comes.
struct Numbers {
    next: u64,
    until: u64,
    told: Arc<Told>,
}

impl Iterator for Numbers {
    type Item = Result<u64, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next += 1;
        self.told.counted.fetch_add(1, SeqCst);
        Some(match self.next > self.until {
            true => Err(stopped(self.until)),
            false => Ok(self.next),
        })
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.told.ended.fetch_add(1, SeqCst);
    }
}

fn byte(number: u32) -> u8 {
    u8::try_from(number % 256).unwrap_or_default()
}

fn stopped(at: u64) -> Failure {
    Failure::Stopped { at, why: "it is enough".to_owned() }
}

impl Service for Counter {
    fn count(&mut self, until: u64, thread: bool, reply: CountReply<'_>) {
        let mut numbers = Numbers { next: 0, until, told: Arc::clone(&self.told) };
        if !thread {
            return reply.send_results(numbers);
        }
        let sender = reply.later();
        if until == 0 {
            // What only the service's thread hands out must not be waited for in it.
            while sender.send(0).is_ok() {}
            assert_eq!(sender.send(0), Err(CallError::Busy));
        }
        std::thread::spawn(move || {
            loop {
                match numbers.next() {
                    Some(Ok(number)) => match sender.send(number) {
                        Ok(()) => {}
                        Err(error) => return assert_eq!(error, CallError::Cancelled),
                    },
                    Some(Err(error)) => return sender.fail(error),
                    None => return sender.end(),
                }
            }
        });
    }

    fn long(&mut self, bytes: u32, count: u32, reply: LongReply<'_>) {
        reply.send_all((0..count).map(move |number| vec![byte(number); bytes as usize]));
    }

    fn told(&mut self, reply: ToldReply<'_>) {
        reply.send(self.told.counted.load(SeqCst), self.told.ended.load(SeqCst));
    }

    fn eight(&mut self, value: u64, reply: EightReply<'_>) {
        reply.send(value);
    }

    fn ask(&mut self, events: u32, client: ClientId) {
        let outbox = self.outbox.as_ref().unwrap();
        (0..events).for_each(|number| outbox.tick(client, number).unwrap());
    }
}

/// Runs a service while `work` runs with a client of each driver.
fn each(test: &str, work: impl Fn(&mut Client, &Place)) {
    pin();
    for driver in DRIVERS {
        let place = Place::new(&format!("streams-{test}-{driver}"));
        let mut server = Server::new(&place.domain, "parts", Counter::default()).unwrap();
        server.service().outbox = Some(server.outbox());
        let stopper = server.stopper();
        std::thread::scope(|scope| {
            scope.spawn(move || server.serve().unwrap());
            let mut client = Client::bind(&place.domain, "parts", &by(driver)).unwrap();
            work(&mut client, &place);
            stopper.stop();
        });
    }
}

/// Waits until so many streams have ended in the service.
fn wait_for_ended(client: &mut Client, ended: u64) {
    while client.told().unwrap().ended < ended {
        std::thread::yield_now();
    }
}

// Keeps P236.
#[test]
fn all_parts_come_in_order_and_then_the_error_with_its_details() {
    each("all", |client, _| {
        for thread in [false, true] {
            let mut due = 0;
            let mut stream = client.count(10_000, thread).unwrap();
            for number in stream.by_ref().take(10_000) {
                due += 1;
                assert_eq!(number, Ok(due));
            }
            assert_eq!(stream.next(), Some(Err(Failed::Service(stopped(10_000)))));
            assert_eq!(stream.next(), None);
            let text = Failed::Service(stopped(7)).to_string();
            assert_eq!(text, "STOPPED (at: 7, why: \"it is enough\")");
        }
        let sizes = [0_u32, 1, 100, 5_000, 70_000, 2_000_000];
        for bytes in sizes {
            let parts = client.long(bytes, 5).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
            let due = (0..5).map(|number| vec![number; bytes as usize]).collect::<Vec<_>>();
            assert_eq!(parts, due);
        }
    });
}

struct Low;

impl short::Service for Low {
    fn low(&mut self, until: u32, reply: short::LowReply<'_>) {
        reply.send_all((0..until).map(byte));
    }
}

// Words of credit are longer than every message of the interface.
#[test]
fn credit_comes_where_all_messages_are_short() {
    pin();
    for driver in DRIVERS {
        let place = Place::new(&format!("streams-short-{driver}"));
        let mut server = short::Server::new(&place.domain, "short", Low).unwrap();
        let stopper = server.stopper();
        std::thread::scope(|scope| {
            scope.spawn(move || server.serve().unwrap());
            let mut client = short::Client::bind(&place.domain, "short", &by(driver)).unwrap();
            let parts = client.low(30_000).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
            assert!(parts.into_iter().eq((0..30_000).map(byte)), "{driver}");
            stopper.stop();
        });
    }
}

#[test]
fn long_streams_are_read_in_any_order() {
    each("order", |client, _| {
        for is_reversed in [false, true] {
            let mut streams =
                [3, 5].map(|count| (count, client.start_long(300_000, count).unwrap()));
            if is_reversed {
                streams.reverse();
            }
            for (count, mut stream) in streams {
                let parts = std::iter::from_fn(|| stream.next(client));
                let parts = parts.collect::<Result<Vec<_>, _>>().unwrap();
                let due = (0..count).map(|number| vec![byte(number); 300_000]);
                assert!(parts.into_iter().eq(due));
            }
        }
    });
}

#[test]
fn a_stream_that_nobody_reads_takes_its_credit_and_delays_nothing() {
    each("unread", |client, _| {
        let mut unread = client.start_count(u64::MAX, false).unwrap();
        let mut other = client.start_count(u64::MAX, true).unwrap();
        for value in 0..2_000 {
            assert_eq!(client.eight(value), Ok(value));
        }
        client.ask(500).unwrap();
        for number in 0..500 {
            assert_eq!(client.event().unwrap(), Event::Tick { number });
        }
        // The thread counts one more, which it waits to send.
        let counted = client.told().unwrap().counted;
        assert!(counted <= 2 * (CREDIT / PART + 2), "{counted}");
        for number in 1..2_000 {
            assert_eq!(unread.next(client), Some(Ok(number)));
            assert_eq!(other.next(client), Some(Ok(number)));
        }
        let counted = client.told().unwrap().counted;
        assert!(counted <= 2 * (2_000 + CREDIT / PART + 2), "{counted}");
    });
}

#[test]
fn a_service_is_told_of_streams_that_are_dropped() {
    each("dropped", |client, place| {
        for thread in [false, true] {
            let before = client.told().unwrap().ended;
            let mut stream = client.count(u64::MAX, thread).unwrap();
            assert_eq!(stream.next(), Some(Ok(1)));
            drop(stream);
            let handle = client.start_count(u64::MAX, thread).unwrap();
            drop(handle);
            wait_for_ended(client, before + 2);
        }
        // A client that goes has dropped all of them.
        let before = client.told().unwrap().ended;
        let mut other =
            Client::bind(&place.domain, "parts", &by(client.binding().driver())).unwrap();
        let streams = [false, true].map(|thread| other.start_count(u64::MAX, thread).unwrap());
        drop(other);
        wait_for_ended(client, before + 2);
        drop(streams);
        assert_eq!(client.eight(1), Ok(1));
    });
}

#[test]
fn a_client_has_so_many_streams_and_no_more() {
    each("many", |client, _| {
        let mut streams =
            (0..16).map(|_| client.start_count(u64::MAX, true).unwrap()).collect::<Vec<_>>();
        let error = client.start_count(1, false).unwrap_err();
        assert_eq!(error, CallError::TooManyStreams { count_max: 16 });
        for stream in streams.iter_mut().rev() {
            assert_eq!(stream.next(client), Some(Ok(1)));
        }
        drop(streams.pop());
        while let Err(CallError::TooManyStreams { .. }) = client.start_count(1, false) {
            std::thread::yield_now();
        }
        assert_eq!(client.eight(5), Ok(5));
    });
}

#[test]
fn a_sender_does_not_wait_in_the_thread_that_hands_out_the_credit() {
    each("own", |client, _| {
        let stream = client.count(0, true).unwrap();
        let count = stream.take_while(Result::is_ok).count() as u64;
        assert_eq!(count, CREDIT.div_ceil(PART));
    });
}

#[test]
fn waits_have_limits_and_lose_nothing() {
    each("limits", |client, _| {
        let mut stream = client.start_count(1_000, true).unwrap();
        let mut due = 1;
        while due <= 1_000 {
            match stream.next_timeout(client, Duration::from_micros(1)) {
                Some(Ok(number)) => {
                    assert_eq!(number, due);
                    due += 1;
                }
                Some(Err(Failed::Call(CallError::Timeout { .. }))) => {}
                other => panic!("{other:?}"),
            }
        }
        let end = loop {
            match stream.try_next(client) {
                Some(Err(Failed::Call(CallError::Busy))) => {}
                end => break end,
            }
        };
        assert_eq!(end, Some(Err(Failed::Service(stopped(1_000)))));
    });
}

#[test]
fn the_end_of_the_service_ends_its_streams() {
    pin();
    for driver in DRIVERS {
        let place = Place::new(&format!("streams-end-{driver}"));
        let mut server = Server::new(&place.domain, "parts", Counter::default()).unwrap();
        let told = Arc::clone(&server.service().told);
        std::thread::scope(|scope| {
            let stopper = server.stopper();
            scope.spawn(move || server.serve().unwrap());
            let mut client = Client::bind(&place.domain, "parts", &by(driver)).unwrap();
            let streams = [false, true].map(|thread| client.start_count(u64::MAX, thread).unwrap());
            client.eight(1).unwrap();
            stopper.stop();
            for mut stream in streams {
                let last = std::iter::from_fn(|| stream.next(&mut client)).last();
                let is_end = matches!(
                    last,
                    Some(Err(Failed::Call(CallError::PeerLeft { .. } | CallError::Lost { .. })))
                );
                assert!(is_end, "{driver}: {last:?}");
            }
        });
        while told.ended.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn tasks_read_streams_and_drop_them() {
    pin();
    for driver in DRIVERS {
        let place = Place::new(&format!("streams-tasks-{driver}"));
        let mut server = Server::new(&place.domain, "parts", Counter::default()).unwrap();
        let stopper = server.stopper();
        std::thread::scope(|scope| {
            scope.spawn(move || server.serve().unwrap());
            block_on(async {
                let client = AsyncClient::bind(&place.domain, "parts", &by(driver)).await.unwrap();
                for thread in [false, true] {
                    let mut stream = client.count(5_000, thread).await.unwrap();
                    let mut other = client.count(u64::MAX, thread).await.unwrap();
                    for number in 1..=5_000 {
                        // A wait that is given up loses nothing.
                        let mut wait = Box::pin(stream.next());
                        let seen = poll_fn(|cx| {
                            Poll::Ready(match Pin::new(&mut wait).poll(cx) {
                                Poll::Ready(next) => Some(next),
                                Poll::Pending => None,
                            })
                        });
                        let seen = seen.await;
                        drop(wait);
                        let next = match seen {
                            Some(next) => next,
                            None => stream.next().await,
                        };
                        assert_eq!(next, Some(Ok(number)));
                    }
                    let end = StreamExt::next(&mut stream).await;
                    assert_eq!(end, Some(Err(Failed::Service(stopped(5_000)))));
                    assert_eq!(stream.next().await, None);
                    assert_eq!(other.next().await, Some(Ok(1)));
                    let before = client.told().await.unwrap().ended;
                    drop(other);
                    while client.told().await.unwrap().ended == before {}
                }
            });
            stopper.stop();
        });
    }
}
