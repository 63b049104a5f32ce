//! Calls, messages and events by each driver, and what goes wrong.
//!
//! Every test here keeps P192.

use std::time::Duration;

use corewire_bind::{Bind, CallError, Domain, Driver, Failed};
use corewire_processes::interfaces::all::{Client, Event, Server, Trouble};
use corewire_processes::interfaces::{DRIVERS, Echo, Place, by, other, pin};

const LONG: Duration = Duration::from_secs(20);

fn client(domain: &Domain, driver: Driver) -> Client {
    Client::bind(domain, "echo", &by(driver)).unwrap()
}

#[test]
fn every_driver_carries_calls_messages_and_events() {
    pin();
    let place = Place::new("drivers");
    let echo = place.serve(|domain| {
        for driver in DRIVERS {
            let mut client = client(domain, driver);
            assert_eq!(client.binding().driver(), driver);
            assert_eq!(client.eight(5), Ok(5));
            client.nothing().unwrap();
            client.line(7, "hello").unwrap();
            client.try_line(8, "").unwrap();
            let event = client.event_timeout(LONG).unwrap();
            let is_it = |event| matches!(event, Event::Tick { count: 7, note: Some(note) } if note == "hello");
            assert!(is_it(event), "{driver}");
            assert!(client.try_event().unwrap().is_none());
            // The service has handled both lines when this returns.
            assert_eq!(client.eight(6), Ok(6));
        }
    });
    assert_eq!((echo.came, echo.lines), (5, 10));
}

#[test]
fn errors_of_the_service_arrive_and_unknown_ones_too() {
    Place::new("errors").serve(|domain| {
        let mut client = client(domain, Driver::Ump);
        assert_eq!(client.fails(0), Ok(7));
        assert_eq!(client.fails(1), Err(Failed::Service(Trouble::NotFound)));
        assert_eq!(client.fails(5), Err(Failed::Service(Trouble::Denied)));
        assert_eq!(client.fails(99), Err(Failed::Service(Trouble::Unknown(99))));
    });
}

// Keeps P199.
#[test]
fn a_thread_that_only_waits_holds_up_no_other_of_its_process() {
    let (place, mut waits) = (Place::new("only-waits"), None);
    place.serve(|domain| {
        // Both share the link to their monitor.
        let [mut waiting, mut calling] = [0, 1].map(|_| client(domain, Driver::Circuit));
        waits = Some(std::thread::spawn(move || waiting.event().map(drop)));
        for number in 0..10_000 {
            assert_eq!(calling.eight(number), Ok(number));
        }
        assert!(!waits.as_ref().unwrap().is_finished());
    });
    let ended = waits.unwrap().join().unwrap();
    assert!(matches!(ended, Err(CallError::PeerLeft { .. })), "{ended:?}");
}

#[test]
fn a_reply_that_is_dropped_tells_the_caller() {
    pin();
    Place::new("dropped").serve(|domain| {
        for driver in DRIVERS {
            let mut client = client(domain, driver);
            assert_eq!(client.drops(1), Err(CallError::Dropped));
            assert_eq!(client.drops_timeout(1, LONG), Err(CallError::Dropped));
            assert_eq!(client.start_drops(1).unwrap().wait(&mut client), Err(CallError::Dropped));
        }
    });
}

#[test]
fn several_calls_are_under_way_and_asked_for_in_any_order() {
    pin();
    Place::new("pending").serve(|domain| {
        for driver in DRIVERS {
            let mut client = client(domain, driver);
            let begun = (0..20).map(|i| client.start_eight(i).unwrap()).collect::<Vec<_>>();
            for (i, pending) in begun.into_iter().enumerate().rev() {
                assert_eq!(pending.wait(&mut client), Ok(i as u64));
            }
            let mut another = self::client(domain, driver);
            let mut pending = client.start_eight(3).unwrap();
            assert_eq!(pending.try_wait(&mut another), Some(Err(CallError::NotPending)));
            assert_eq!(pending.wait_timeout(&mut client, LONG), Some(Ok(3)));
            assert_eq!(pending.wait(&mut client), Err(CallError::NotPending));
        }
    });
}

#[test]
fn late_replies_are_discarded() {
    pin();
    for driver in DRIVERS {
        let place = Place::new(&format!("late-{driver}"));
        let mut server = Server::new(&place.domain, "echo", Echo::default()).unwrap();
        let outbox = server.outbox();
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut client = client(&place.domain, driver);
                let short = Duration::from_millis(1);
                let late = client.later_timeout(1, short);
                assert_eq!(late, Err(CallError::Timeout { after: short }));
                drop(client.start_later(2).unwrap());
                // Both replies are there when this event is.
                client.line(0, "now").unwrap();
                client.event_timeout(LONG).unwrap();
                // The next calls discard them.
                assert_eq!(client.eight(1), Ok(1));
                assert_eq!(client.eight(2), Ok(2));
                assert_eq!(client.binding().late_replies(), 2);
            });
            while server.service().kept.len() < 2 || server.service().lines == 0 {
                assert!(server.serve_one_timeout(LONG).unwrap());
            }
            for (value, reply) in std::mem::take(&mut server.service().kept) {
                reply.send(value);
            }
            outbox.tick_to_all(1, None).unwrap();
            while !caller.is_finished() {
                server.serve_one_timeout(Duration::from_millis(20)).unwrap();
            }
            caller.join().unwrap();
        });
    }
}

#[test]
fn another_version_is_refused_and_the_message_named() {
    Place::new("versions").serve(|domain| {
        let error = other::Client::bind(domain, "echo", &Bind::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no binding to echo: the service has another version of interface all: argument `more` of message `eight` \
             is new"
        );
    });
}

#[test]
fn each_driver_says_why_it_failed() {
    let place = Place::new("nobody");
    let bind = Bind::default().timeout(Duration::from_millis(1));
    let error = Client::bind(&place.domain, "nobody", &bind).unwrap_err();
    let said = error.to_string();
    let due = "no binding to nobody: local, lmp, ump, sock: service nobody was not created";
    assert!(said.starts_with(due), "{said}");
    assert_eq!(error.tried.iter().map(|(driver, _)| *driver).collect::<Vec<_>>(), DRIVERS);
    let bind = by(Driver::Circuit);
    for asked in ["256", "junk", ""] {
        let error = Client::bind(&place.domain, &format!("nobody@{asked}"), &bind).unwrap_err();
        let reason = format!("circuit: {asked:?} is no monitor's number: they are 0 to 255");
        assert!(error.to_string().ends_with(&reason), "{error}");
    }
}

#[test]
fn a_service_that_ends_ends_its_calls_and_forgets_clients_that_go() {
    pin();
    for driver in DRIVERS {
        let place = Place::new(&format!("ends-{driver}"));
        let mut server = Server::new(&place.domain, "echo", Echo::default()).unwrap();
        std::thread::scope(|scope| {
            let domain = &place.domain;
            let caller = scope.spawn(move || {
                drop(client(domain, driver));
                let mut client = client(domain, driver);
                client.later(1).unwrap_err()
            });
            while server.service().kept.is_empty() || server.service().left == 0 {
                assert!(server.serve_one_timeout(LONG).unwrap());
            }
            assert_eq!(server.clients().count(), 1);
            drop(server);
            assert_eq!(caller.join().unwrap(), CallError::PeerLeft { name: "echo".to_owned() });
        });
    }
}

#[test]
fn an_argument_beyond_its_bound_is_not_sent() {
    Place::new("bounds").serve(|domain| {
        let mut client = client(domain, Driver::Ump);
        let error = client.r#type("123456789").unwrap_err();
        assert_eq!(error.to_string(), "type: match: 9 elements, but its bound is 8");
        assert_eq!(client.r#type("12345678").unwrap(), "12345678");
    });
}

#[test]
fn a_stopped_service_leaves_no_room_and_try_says_so() {
    pin();
    for driver in DRIVERS {
        let place = Place::new(&format!("busy-{driver}"));
        let mut server = Server::new(&place.domain, "echo", Echo::default()).unwrap();
        std::thread::scope(|scope| {
            let domain = &place.domain;
            let caller = scope.spawn(move || {
                let mut client = client(domain, driver);
                let sent =
                    (0..100_000).find_map(|i| client.try_line(i, "").err().map(|why| (i, why)));
                let (sent, why) = sent.unwrap();
                assert_eq!(why, CallError::Busy);
                // Waits for room.
                client.line(sent, "").unwrap();
                sent + 1
            });
            // Serves nothing but the arrival until there is no room.
            assert!(server.serve_one_timeout(LONG).unwrap());
            let mut received = 0;
            while !caller.is_finished() || received < server.service().lines {
                received = server.service().lines;
                server.serve_one_timeout(Duration::from_millis(50)).unwrap();
            }
            let sent = caller.join().unwrap();
            while server.serve_one_timeout(Duration::from_millis(50)).unwrap() {}
            assert_eq!(server.service().lines, sent);
        });
    }
}

// Keeps P193.
#[test]
fn what_has_come_to_a_service_is_served_though_its_monitor_has_ended() {
    const LINES: u32 = 50;
    let mut place = Place::new("monitor-ends");
    let mut server = Server::new(&place.domain, "echo", Echo::default()).unwrap();
    let client = std::thread::scope(|scope| {
        let domain = &place.domain;
        let binds = scope.spawn(move || client(domain, Driver::Circuit));
        assert!(server.serve_one_timeout(LONG).unwrap());
        let mut client = binds.join().unwrap();
        (0..LINES).for_each(|number| client.line(number, "").unwrap());
        client
    });
    place.wait_for_lines(LINES);
    place.end_monitors();
    while server.service().left == 0 {
        assert!(server.serve_one_timeout(LONG).unwrap());
    }
    assert_eq!((server.service().lines, server.clients().count()), (LINES, 0));
    drop(client);
}

#[test]
fn events_that_a_client_does_not_read_are_counted_where_they_are_missing() {
    const EVENTS: u32 = 20_000;
    pin();
    for driver in DRIVERS {
        Place::new(&format!("unread-{driver}")).serve(|domain| {
            let bind = by(driver).event_bytes(1 << 14);
            let mut idle = Client::bind(domain, "echo", &bind).unwrap();
            let mut other = client(domain, driver);
            for number in 0..EVENTS {
                other.line(number, "to all").unwrap();
                other.event_timeout(LONG).unwrap();
            }
            let (mut next, mut lost) = (0, 0);
            while next < u64::from(EVENTS) {
                match idle.event_timeout(Duration::from_millis(50)) {
                    Ok(Event::Tick { count, .. }) => {
                        assert_eq!(count, next, "{driver}");
                        next += 1;
                    }
                    Err(CallError::EventsLost { count }) => {
                        lost += count;
                        next += count;
                    }
                    // The service tells of the last ones when it handles something else.
                    Err(CallError::Timeout { .. }) => assert_eq!(other.eight(1), Ok(1)),
                    other => panic!("{driver}: {other:?}"),
                }
            }
            assert!(lost > 0, "{driver}");
            assert_eq!(idle.eight(1), Ok(1));
        });
    }
}

#[test]
fn continuations_are_called_in_later_methods() {
    pin();
    Place::new("then").serve(|domain| {
        for driver in DRIVERS {
            let mut client = client(domain, driver);
            let (sender, results) = std::sync::mpsc::channel();
            for number in 0..100 {
                let sender = sender.clone();
                let then = move |result| sender.send((number, result)).unwrap();
                client.eight_then(number, then).unwrap();
            }
            let mut seen = Vec::new();
            while seen.len() < 100 {
                assert!(client.wait(Some(LONG)).unwrap(), "{driver}");
                seen.extend(results.try_iter().map(|(number, result)| {
                    assert_eq!(result, Ok(number));
                    number
                }));
            }
            assert!(seen.is_sorted());
            let (sender, errors) = std::sync::mpsc::channel();
            client.fails_then(5, move |result| sender.send(result).unwrap()).unwrap();
            while !client.wait(Some(LONG)).unwrap() {}
            assert_eq!(errors.try_recv(), Ok(Err(Failed::Service(Trouble::Denied))));
            let (sender, sent) = std::sync::mpsc::channel();
            client.line_then(1, "", move |result| sender.send(result).unwrap()).unwrap();
            assert!(client.flush(Some(LONG)).unwrap());
            assert_eq!(sent.try_recv(), Ok(Ok(())));
        }
    });
}

#[test]
fn continuations_learn_of_the_end() {
    pin();
    for driver in DRIVERS {
        let place = Place::new(&format!("then-ends-{driver}"));
        let mut server = Server::new(&place.domain, "echo", Echo::default()).unwrap();
        std::thread::scope(|scope| {
            let domain = &place.domain;
            let caller = scope.spawn(move || {
                let mut client = client(domain, driver);
                let (sender, results) = std::sync::mpsc::channel();
                client.later_then(1, move |result| sender.send(result).unwrap()).unwrap();
                let end = CallError::PeerLeft { name: "echo".to_owned() };
                while client.wait(Some(LONG)) != Err(end.clone()) {}
                assert_eq!(results.recv(), Ok(Err(end.clone())));
                assert_eq!(client.eight(1), Err(end));
            });
            while server.service().kept.is_empty() {
                assert!(server.serve_one_timeout(LONG).unwrap());
            }
            drop(server);
            caller.join().unwrap();
        });
    }
}
