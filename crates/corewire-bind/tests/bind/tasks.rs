//! Several tasks that share a client.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::common::*;
use corewire_bind::{AsyncBinding, Capabilities, Driver, Serve, ServerCore};

fn none() -> Capabilities<'static> {
    Capabilities::new()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Polls all the time.
fn spin_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

#[test]
fn a_task_that_finishes_leaves_none_of_the_others_asleep() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let running = Running::start(&place.domain);
        let client = AsyncBinding::new(bind(&place.domain, driver)).unwrap();
        let (told, tells) = mpsc::channel();
        for _ in 0..2 {
            let (client, told) = (client.clone(), told.clone());
            std::thread::spawn(move || {
                while block_on(client.event()).is_ok() {
                    let _ = told.send(());
                }
            });
        }
        for round in 0..5_000 {
            spin_on(client.call(BURST, 0, &1_u64.to_le_bytes(), &none())).unwrap();
            let soon = Duration::from_secs(5);
            assert!(tells.recv_timeout(soon).is_ok(), "{driver}: asleep in round {round}");
        }
        running.end();
    }
}

#[test]
fn a_message_that_a_task_has_sent_is_not_kept() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        // It serves when the client is bound and its messages find no room any more.
        let mut core =
            ServerCore::new(&place.domain, "echo", Serve::default(), &DESCRIPTION).unwrap();
        let (go, goes) = mpsc::channel::<()>();
        let (bound, is_bound) = mpsc::channel();
        let (stopper, mut echo) = (core.stopper(), Echo::default());
        let service = std::thread::spawn(move || {
            while echo.bound.is_empty() && core.serve_one(None, &mut echo).unwrap() {}
            bound.send(()).unwrap();
            let _ = goes.recv();
            while core.serve_one(None, &mut echo).unwrap() {}
        });
        let client = AsyncBinding::new(bind(&place.domain, driver)).unwrap();
        is_bound.recv().unwrap();
        let no = none();
        loop {
            let mut sent = pin!(client.send(NOTE, &[7; 4096], &no));
            match sent.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(sent) => sent.unwrap(),
                Poll::Pending => {
                    go.send(()).unwrap();
                    block_on(sent).unwrap();
                    break;
                }
            }
            assert!(!client.lock().flush(Some(Duration::ZERO)).is_ok_and(|is_sent| !is_sent));
        }
        stopper.stop();
        service.join().unwrap();
    }
}

#[test]
fn a_service_that_is_a_task_sends_many_events_and_can_be_stopped() {
    for driver in [Driver::Ump, Driver::Sock] {
        let place = Place::new();
        let mut core =
            ServerCore::new(&place.domain, "echo", Serve::default(), &DESCRIPTION).unwrap();
        let (stopper, outbox) = (core.stopper(), core.outbox());
        let service = std::thread::spawn(move || {
            block_on(core.serve_async(&mut Echo::default())).unwrap();
        });
        let mut binding = bind(&place.domain, driver);
        binding.call(ECHO, b"x", &none(), 8, None).unwrap();
        for _ in 0..10 {
            for _ in 0..200 {
                outbox.send(None, EVENT, 3, vec![vec![7; 8]], &none()).unwrap();
            }
            for _ in 0..200 {
                binding.event(Some(Duration::from_secs(60))).unwrap();
            }
        }
        stopper.stop();
        service.join().unwrap();
    }
}
