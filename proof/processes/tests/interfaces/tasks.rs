//! Clients and services as tasks.
//!
//! Every test here keeps P192.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use async_io::{Timer, block_on};
use corewire_bind::{Bind, CallError, Failed, Serve};
use corewire_processes::interfaces::all::{AsyncClient, Event, Server, Trouble};
use corewire_processes::interfaces::{DRIVERS, Echo, Place, by, descriptor, inode};
use futures_lite::FutureExt;

/// Ends a test that hangs.
async fn limited<T>(work: impl Future<Output = T>) -> T {
    let late = async {
        Timer::after(Duration::from_secs(60)).await;
        panic!("it hangs")
    };
    work.or(late).await
}

async fn all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures = futures.map(|one| (Box::pin(one), None)).collect::<Vec<_>>();
    poll_fn(|cx| {
        for (future, done) in &mut futures {
            if done.is_none()
                && let Poll::Ready(result) = future.as_mut().poll(cx)
            {
                *done = Some(result);
            }
        }
        match futures.iter().all(|(_, done)| done.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    futures.into_iter().filter_map(|(_, done)| done).collect()
}

/// Polls once.
async fn begin(future: Pin<&mut impl Future>) {
    let mut future = future;
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// Runs a service and its client as two tasks of one thread, so that one that does not wake the other hangs: in the reactor
/// of `async-io`, and in that of tokio.
fn both<F: Future<Output = ()>>(test: &str, work: impl Fn(AsyncClient) -> F) {
    corewire_processes::interfaces::pin();
    for driver in DRIVERS {
        block_on(in_reactor(
            &format!("tasks-{test}-{driver}"),
            by(driver),
            Serve::default(),
            &work,
        ));
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (bind, serve) =
            (by(driver).reactor(corewire_tokio::reactor()), corewire_tokio::serve());
        tokio.block_on(in_reactor(&format!("tokio-{test}-{driver}"), bind, serve, &work));
    }
}

async fn in_reactor<F: Future<Output = ()>>(
    test: &str,
    bind: Bind,
    serve: Serve,
    work: impl Fn(AsyncClient) -> F,
) {
    let place = Place::new(test);
    let mut server = Server::with(&place.domain, "echo", Echo::default(), serve).unwrap();
    server.service().outbox = Some(server.outbox());
    let stopper = server.stopper();
    let client = async {
        work(AsyncClient::bind(&place.domain, "echo", &bind).await.unwrap()).await;
        stopper.stop();
    };
    limited(async {
        let (served, ()) = futures_lite::future::zip(server.serve_async(), client).await;
        served.unwrap();
    })
    .await;
}

// Keeps P187.
#[test]
fn many_calls_are_under_way() {
    both("many", |client| async move {
        let calls = all((0..200).map(|number| {
            let client = client.clone();
            async move { client.eight(number).await }
        }));
        let long = all((0..20).map(|number| {
            let client = client.clone();
            async move { client.r#type(&number.to_string()).await }
        }));
        let (calls, long) = futures_lite::future::zip(calls, long).await;
        assert!(calls.into_iter().eq((0..200).map(Ok)));
        assert!(long.into_iter().eq((0..20).map(|number| Ok(number.to_string()))));
        let failed = client.fails(5).await;
        assert_eq!(failed, Err(Failed::Service(Trouble::Denied)));
        assert_eq!(client.drops(1).await, Err(CallError::Dropped));
    });
}

#[test]
fn one_way_messages_and_events() {
    both("events", |client| async move {
        let sender = client.clone();
        let send = async move {
            for number in 0..3000 {
                sender.line(number, "text").await.unwrap();
            }
        };
        let receive = async {
            for number in 0..3000 {
                match client.event().await.unwrap() {
                    Event::Tick { count, .. } => assert_eq!(count, number),
                    other => panic!("{other:?}"),
                }
            }
        };
        futures_lite::future::zip(send, receive).await;
    });
}

#[test]
fn descriptors() {
    both("descriptors", |client| async move {
        use std::os::fd::AsFd;
        let file = descriptor();
        let out = client.open(1, file.as_fd(), None).await.unwrap();
        assert_eq!(inode(&out.same), inode(&file));
        let mut right = Some(file);
        let kept = right.as_ref().map(inode);
        assert_eq!(client.give(&mut right).await.unwrap().map(inode), kept);
        assert!(right.is_none());
        let file = descriptor();
        client.hand(file.as_fd(), "text").await.unwrap();
        assert!(matches!(client.event().await, Ok(Event::Handed { number: 4, .. })));
    });
}

// Keeps P187.
#[test]
fn a_future_that_is_dropped_abandons_its_call() {
    for driver in DRIVERS {
        corewire_processes::interfaces::pin();
        let place = Place::new(&format!("tasks-dropped-{driver}"));
        let mut server = Server::new(&place.domain, "echo", Echo::default()).unwrap();
        let bind = by(driver);
        block_on(limited(async {
            let bound = AsyncClient::bind(&place.domain, "echo", &bind);
            // The service's future is dropped, and loses nothing.
            let client = async { Ok(bound.await.unwrap()) }
                .or(async { Err(server.serve_async().await) })
                .await
                .unwrap();
            {
                let mut call = pin!(client.later(1));
                begin(call.as_mut()).await;
            }
            let call = async {
                assert_eq!(client.eight(2).await, Ok(2), "{driver}");
                Ok(())
            };
            call.or(async { Err(server.serve_async().await) }).await.unwrap();
            let kept = std::mem::take(&mut server.service().kept);
            assert_eq!(kept.len(), 1, "{driver}");
            // From another thread.
            std::thread::spawn(|| kept.into_iter().for_each(|(value, later)| later.send(value)))
                .join()
                .unwrap();
            let call = async {
                assert_eq!(client.eight(3).await, Ok(3), "{driver}");
                Ok(())
            };
            call.or(async { Err(server.serve_async().await) }).await.unwrap();
            assert_eq!(client.binding().lock().late_replies(), 1, "{driver}");
        }));
    }
}

// Keeps P187.
#[test]
fn the_end_of_the_service_ends_all_tasks() {
    for driver in DRIVERS {
        corewire_processes::interfaces::pin();
        let place = Place::new(&format!("tasks-end-{driver}"));
        let mut server = Server::new(&place.domain, "echo", Echo::default()).unwrap();
        let bind = by(driver);
        block_on(limited(async {
            let bound = AsyncClient::bind(&place.domain, "echo", &bind);
            let client = async { Ok(bound.await.unwrap()) }
                .or(async { Err(server.serve_async().await) })
                .await
                .unwrap();
            let waits = all((0..5).map(|number| client.later(number)));
            let event = client.event();
            let end = async {
                while server.service().kept.len() < 5 {
                    server
                        .serve_async()
                        .or(futures_lite::future::yield_now().then_ok())
                        .await
                        .unwrap();
                }
                drop(server);
            };
            let ((ended, event), ()) =
                futures_lite::future::zip(futures_lite::future::zip(waits, event), end).await;
            let left = CallError::PeerLeft { name: "echo".to_owned() };
            assert!(ended.into_iter().all(|one| one == Err(left.clone())), "{driver}");
            assert_eq!(event.unwrap_err(), left);
        }));
    }
}

/// For futures that give nothing, beside those that give a result.
trait ThenOk: Future + Sized {
    async fn then_ok<E>(self) -> Result<(), E> {
        self.await;
        Ok(())
    }
}

impl<F: Future<Output = ()>> ThenOk for F {}

#[test]
fn futures_can_move_to_other_threads() {
    const fn check<T: Send>(_: &T) {}
    corewire_processes::interfaces::pin();
    let place = Place::new("tasks-send");
    place.serve(|domain| {
        let bind = by(corewire_bind::Driver::Ump);
        let bound = AsyncClient::bind(domain, "echo", &bind);
        check(&bound);
        let client = block_on(bound).unwrap();
        check(&client.eight(1));
        check(&client.r#type("text"));
        check(&client.line(1, "text"));
        check(&client.fails(1));
        check(&client.perhaps(None, Some("text"), None, None));
        check(&client.event());
        let (file, mut right) = (descriptor(), Some(descriptor()));
        check(&client.hand(std::os::fd::AsFd::as_fd(&file), "text"));
        check(&client.open(1, std::os::fd::AsFd::as_fd(&file), None));
        check(&client.give(&mut right));
        // Used by two threads at once.
        std::thread::scope(|scope| {
            for start in [0, 1000] {
                let client = client.clone();
                scope.spawn(move || {
                    for number in start..start + 1000 {
                        assert_eq!(block_on(client.eight(number)), Ok(number));
                    }
                });
            }
        });
    });
    let mut server = Server::new(&place.domain, "other", Echo::default()).unwrap();
    check(&server.serve_async());
}
