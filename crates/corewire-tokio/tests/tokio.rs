//! Channels, endpoints, queues, last values and groups in tokio, with futures that are dropped at any point.
//!
//! `COREWIRE_TORTURE_MESSAGES` sets the number of messages (default: 30,000).

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use corewire::{Domain, Event, MessageError, Selector};
use corewire_group::{Decision, Group};
use corewire_tokio::{LatestStream, QueueWorker, ReceiverStream, SenderSink, TokioEndpoint};
use futures_lite::{Stream, StreamExt};
use tokio::task::yield_now;

struct Scratch(PathBuf);

impl Scratch {
    fn domain(&self) -> Domain {
        Domain::open_at(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn scratch() -> Scratch {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, SeqCst);
    let name = format!("corewire-tokio-{}-{number}", std::process::id());
    Scratch(std::env::temp_dir().join(name))
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn messages() -> u64 {
    let given = std::env::var("COREWIRE_TORTURE_MESSAGES").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(30_000)
}

/// Polls a future once or twice, and drops it if it is not ready then.
async fn briefly<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Some(ready) = futures_lite::future::poll_once(&mut future).await {
            return Some(ready);
        }
        yield_now().await;
    }
    None
}

/// The next of a stream, by futures that are dropped again and again.
async fn next_by_force<S: Stream + Unpin>(stream: &mut S, number: u64) -> Option<S::Item> {
    for polls in 0..number % 3 {
        if let Some(next) = briefly(stream.next(), polls).await {
            return next;
        }
    }
    stream.next().await
}

// Keeps P244.
#[test]
fn a_channel_loses_nothing_whatever_future_is_dropped() {
    let (scratch, count) = (scratch(), messages());
    let domain = scratch.domain();
    // So few slots that the sender waits, too.
    let sender = domain.sender("numbers").slots(16).create().unwrap();
    let receiver = domain.receiver("numbers").join().unwrap();
    let sending = std::thread::spawn(move || {
        run(async move {
            let mut sink = SenderSink::new(sender);
            for number in 0..count {
                sink.send(&number.to_le_bytes()).await.unwrap();
            }
        });
    });
    run(async {
        let mut stream = ReceiverStream::new(receiver).unwrap();
        for number in 0..count {
            let message = next_by_force(&mut stream, number).await.unwrap().unwrap();
            assert_eq!(message, number.to_le_bytes());
        }
        assert!(stream.next().await.is_none() && stream.next().await.is_none());
    });
    sending.join().unwrap();
}

// Keeps P244.
#[test]
fn an_endpoint_loses_nothing_whatever_future_is_dropped() {
    let (scratch, count) = (scratch(), messages());
    let domain = scratch.domain();
    let source = domain.endpoint("source").create().unwrap();
    let sink = domain.endpoint("sink").create().unwrap();
    let length = |number: u64| {
        [8, 100, 5000, 200_000]
            [if number.is_multiple_of(500) { 3 } else { usize::try_from(number % 3).unwrap() }]
    };
    let sending = std::thread::spawn(move || {
        run(async move {
            let mut source = TokioEndpoint::new(source).unwrap();
            let to = source.peer("sink").await.unwrap();
            for number in 0..count {
                let mut message = vec![0; length(number)];
                message[..8].copy_from_slice(&number.to_le_bytes());
                // A send that is dropped once it has begun goes on.
                if number % 7 == 0 && message.len() > 8 {
                    let sent = briefly(source.send(to, 1, &message), 1).await;
                    assert!(sent.is_none_or(|sent| sent.is_ok()));
                } else {
                    source.send(to, 1, &message).await.unwrap();
                }
            }
            source.flush().await.unwrap();
        });
    });
    run(async {
        let mut sink = TokioEndpoint::new(sink).unwrap();
        for number in 0..count {
            let mut received = None;
            for polls in 0..number % 3 {
                received = received.or(briefly(sink.receive(Selector::tag(1)), polls).await);
            }
            let message = match received {
                Some(message) => message.unwrap(),
                None => sink.receive(Selector::tag(1)).await.unwrap(),
            };
            assert_eq!((&message[..8], message.len()), (&number.to_le_bytes()[..], length(number)));
        }
    });
    sending.join().unwrap();
}

// Keeps P244.
#[test]
fn an_operation_that_nobody_waits_for_any_more_stays_its_callers() {
    let scratch = scratch();
    let domain = scratch.domain();
    let mut source = domain.endpoint("source").create().unwrap();
    let sink = domain.endpoint("sink").create().unwrap();
    let to = source.peer("sink").unwrap();
    run(async {
        let mut sink = TokioEndpoint::new(sink).unwrap();
        let handle = sink.get_mut().ireceive(Selector::tag(1), vec![0; 8]).unwrap();
        assert!(briefly(sink.end_of(handle), 2).await.is_none());
        source.send(to, 1, b"message").unwrap();
        while sink.get_mut().now().receive_event(Selector::tag(2)).unwrap().is_some() {}
        let ended = sink.end_of(handle).await.unwrap();
        assert_eq!(ended.result.unwrap().bytes, 7);
    });
}

#[test]
fn outside_of_a_runtime_there_is_an_error() {
    let scratch = scratch();
    let domain = scratch.domain();
    let _sender = domain.sender("none").create().unwrap();
    let receiver = domain.receiver("none").join().unwrap();
    let error = ReceiverStream::new(receiver).unwrap_err().to_string();
    assert!(error.starts_with("wait in tokio: there is no reactor running"), "{error}");
}

// Keeps P244.
#[test]
fn a_sink_that_waits_for_a_receiver_ends_with_its_runtime() {
    let scratch = scratch();
    let domain = scratch.domain();
    let sender = domain.sender("full").create().unwrap();
    let _reads_nothing = domain.receiver("full").join().unwrap();
    run(async {
        let mut sink = SenderSink::new(sender);
        while briefly(sink.send(&[1; 1000]), 1).await.is_some() {}
    });
}

// Keeps P244.
#[test]
fn a_stream_that_never_ends_leaves_other_tasks_their_turn() {
    let scratch = scratch();
    let domain = scratch.domain();
    let mut sender = domain.sender("fast").slots(4096).create().unwrap();
    let receiver = domain.receiver("fast").join().unwrap();
    for _ in 0..2000 {
        sender.send(&[1]).unwrap();
    }
    run(async {
        let mut stream = ReceiverStream::new(receiver).unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&taken);
        let other = tokio::spawn(async move { seen.load(SeqCst) });
        for _ in 0..2000 {
            stream.next().await.unwrap().unwrap();
            taken.fetch_add(1, SeqCst);
        }
        assert!(other.await.unwrap() < 2000);
    });
}

// Keeps P244.
#[test]
fn calls_are_answered_and_peers_that_come_and_go_are_seen() {
    let scratch = scratch();
    let domain = scratch.domain();
    let server = domain.endpoint("server").create().unwrap();
    let client = domain.endpoint("client").create().unwrap();
    let serving = std::thread::spawn(move || {
        run(async move {
            let mut server = TokioEndpoint::new(server).unwrap();
            for _ in 0..1000 {
                let (owed, request) = server.receive_request().await.unwrap();
                let reply: Vec<u8> = request.iter().rev().copied().collect();
                server.get_mut().reply(owed, &reply).unwrap();
            }
            loop {
                match server.receive_event(Selector::any()).await.unwrap() {
                    Event::Gone { why: MessageError::PeerLeft { .. }, .. } => break,
                    event => assert!(matches!(event, Event::Came(_)), "{event:?}"),
                }
            }
        });
    });
    run(async move {
        let mut client = TokioEndpoint::new(client).unwrap();
        let server = client.peer("server").await.unwrap();
        assert!(client.peer("nobody").await.is_err());
        for number in 0..1000_u64 {
            let request = number.to_be_bytes();
            if number % 5 == 0 {
                // Its reply is dropped.
                if let Some(reply) = briefly(client.call(server, &request), 1).await {
                    assert_eq!(reply.unwrap(), number.to_le_bytes());
                }
                continue;
            }
            assert_eq!(client.call(server, &request).await.unwrap(), number.to_le_bytes());
        }
    });
    serving.join().unwrap();
}

// Keeps P244.
#[test]
fn last_values_jobs_and_decisions_come_as_streams_and_futures() {
    let scratch = scratch();
    let domain = scratch.domain();
    let queue = domain.queue("jobs").create().unwrap();
    let mut writer = domain.latest("value").create().unwrap();
    let reader = domain.latest("value").open().unwrap();
    let worker = domain.queue("jobs").worker().unwrap();
    let group = Arc::new(Group::builder(&domain, "log").join().unwrap());
    run(async {
        let mut values = LatestStream::new(reader).unwrap();
        let mut worker = QueueWorker::new(worker).unwrap();
        let writing = tokio::spawn(async move {
            for number in 0..1000_u64 {
                writer.set(&number.to_le_bytes()).unwrap();
                yield_now().await;
            }
        });
        let mut last = None;
        let mut number = 0;
        while let Some(value) = next_by_force(&mut values, number).await {
            let value = value.unwrap();
            assert!(last.is_none_or(|last: Vec<u8>| {
                u64::from_le_bytes(last[..].try_into().unwrap())
                    < u64::from_le_bytes(value[..].try_into().unwrap())
            }));
            (last, number) = (Some(value), number + 1);
        }
        assert_eq!(last.unwrap(), 999_u64.to_le_bytes());
        writing.await.unwrap();
        let pushing = std::thread::spawn(move || {
            for number in 0..1000_u64 {
                queue.push(&number.to_le_bytes()).unwrap();
            }
            queue.finish();
            assert!(queue.wait_until_done(Duration::from_secs(60)).unwrap());
        });
        for number in 0..1000_u64 {
            if number % 3 == 0 {
                // The job that was asked for is not lost. One that was taken goes back.
                drop(briefly(worker.take(), 1).await);
            }
            let job = worker.take().await.unwrap().unwrap();
            assert_eq!(job[..], number.to_le_bytes());
            job.done().unwrap();
        }
        assert!(worker.take().await.unwrap().is_none());
        pushing.join().unwrap();
        let mut decisions = corewire_tokio::decisions(&group, 0);
        for number in 0..100_u64 {
            let index =
                corewire_tokio::propose(&group, number.to_le_bytes().to_vec()).await.unwrap();
            assert_eq!(index, number);
            let next = StreamExt::next(&mut decisions).await;
            let Some(Decision::Entry(entry)) = next else { panic!("{next:?}") };
            assert_eq!((entry.index, &entry.command[..]), (number, &number.to_le_bytes()[..]));
        }
    });
}
