//! Programs that were made from different versions of an interface.
//!
//! Every test here keeps P192.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use corewire_bind::{Bind, CallError, ClientId, Domain, Driver, Failed, Serve, Stopper};
use corewire_processes::interfaces::{
    DRIVERS, Place, broken, by, descriptor, inode, middle, new, old, pin,
};

const LONG: Duration = Duration::from_secs(20);

/// An old service: it answers with its arguments, and sends a tick for each note.
struct Old(Option<old::Outbox>);

impl old::Service for Old {
    fn look(&mut self, number: u32, reply: old::LookReply<'_>) {
        match number {
            0 => reply.fail(old::Trouble::Wrong),
            _ => reply.send(number),
        }
    }

    fn note(&mut self, number: u32, client: ClientId) {
        let file = descriptor();
        self.0.as_ref().unwrap().tick(client, number, file.as_fd()).unwrap();
    }

    fn open(&mut self, file: OwnedFd, class: old::SizeClass, reply: old::OpenReply<'_>) {
        reply.send(file.as_fd(), class);
    }
}

/// A new one.
struct New {
    outbox: Option<new::Outbox>,
    kept: Vec<(u32, new::LookLaterReply)>,
}

impl new::Service for New {
    fn look(
        &mut self,
        number: u32,
        more: Option<u32>,
        name: Option<&str>,
        reply: new::LookReply<'_>,
    ) {
        match number {
            0 => reply.fail(new::Trouble::Odd),
            // Later, when the next one comes.
            1 => self.kept.push((number, reply.later())),
            _ => {
                for (number, later) in self.kept.drain(..) {
                    later.send(number, Some("later"));
                }
                let text = format!("{more:?} {name:?}");
                reply.send(number, Some(&text));
            }
        }
    }

    fn note(&mut self, number: u32, when: Option<u64>, client: ClientId) {
        let (file, outbox) = (descriptor(), self.outbox.as_ref().unwrap());
        // Not there for old clients.
        outbox.novel(client, number).unwrap();
        let count = number + u32::from(when.is_some());
        match number {
            100 => outbox.tick_to_all(count, file.as_fd(), Some(file.as_fd())).unwrap(),
            _ => outbox.tick(client, count, file.as_fd(), Some(file.as_fd())).unwrap(),
        }
    }

    fn open(
        &mut self,
        file: OwnedFd,
        class: new::SizeClass,
        other: Option<OwnedFd>,
        reply: new::OpenReply<'_>,
    ) {
        reply.send(file.as_fd(), class, Some(other.as_ref().unwrap_or(&file).as_fd()));
    }

    fn fresh(&mut self, number: u32, reply: new::FreshReply<'_>) {
        reply.send(number);
    }

    fn added(&mut self, _number: u32, _client: ClientId) {}
}

struct Stop(Stopper);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs a service while `work` runs, once for each driver but `local`, which has nothing of its own here.
macro_rules! serve {
    ($test:literal, $module:ident, $service:expr, $outbox:expr, $work:expr) => {{
        pin();
        let place = Place::new($test);
        let mut server = $module::Server::new(&place.domain, "evolving", $service).unwrap();
        let outbox = server.outbox();
        $outbox(server.service(), outbox);
        let stop = Stop(server.stopper());
        std::thread::scope(|scope| {
            scope.spawn(move || server.serve().unwrap());
            let stop = stop;
            let work: &dyn Fn(&Domain, Driver) = &$work;
            for driver in DRIVERS {
                work(&place.domain, driver);
            }
            drop(stop);
        });
    }};
}

// Keeps P186.
#[test]
fn a_new_client_speaks_to_an_old_service() {
    let set = |old: &mut Old, outbox| old.0 = Some(outbox);
    serve!("old-service", old, Old(None), set, |domain, driver| {
        let mut client = new::Client::bind(domain, "evolving", &by(driver)).unwrap();
        let out = client.look(5, Some(6), Some("seven")).unwrap();
        assert_eq!((out.same, out.text), (5, None), "{driver}");
        assert_eq!(
            client.look(0, None, None).unwrap_err(),
            Failed::Service(new::Trouble::Wrong),
            "{driver}"
        );
        let pending = client.start_look(8, None, Some("name")).unwrap();
        assert_eq!(pending.wait(&mut client).unwrap().same, 8);
        let (sender, told) = std::sync::mpsc::channel();
        client.look_then(9, Some(1), None, move |out| sender.send(out).unwrap()).unwrap();
        while !client.wait(Some(LONG)).unwrap() {}
        assert_eq!(told.recv().unwrap().unwrap().same, 9);

        client.note(3, Some(77)).unwrap();
        match client.event_timeout(LONG).unwrap() {
            new::Event::Tick { count: 3, more: None, .. } => {}
            other => panic!("{driver}: {other:?}"),
        }

        let (file, other) = (descriptor(), descriptor());
        let out = client.open(file.as_fd(), new::SizeClass::Large, Some(other.as_fd())).unwrap();
        assert_eq!((inode(&out.same), out.more.is_some()), (inode(&file), false));
        // A value that the old service does not know comes back all the same.
        assert_eq!(out.back, new::SizeClass::Large);

        let absent = |name| CallError::NotInService { name };
        assert_eq!(client.fresh(1), Err(absent("fresh")));
        assert_eq!(client.start_fresh(1).unwrap_err(), absent("fresh"));
        assert_eq!(client.fresh_then(1, |_| panic!("it is not sent")), Err(absent("fresh")));
        assert_eq!(client.added(1), Err(absent("added")));
        assert_eq!(client.try_added(1), Err(absent("added")));
        assert_eq!(client.look(5, None, None).unwrap().same, 5);
    });
}

// Keeps P186.
#[test]
fn an_old_client_speaks_to_a_new_service() {
    let set = |new: &mut New, outbox| new.outbox = Some(outbox);
    let service = New { outbox: None, kept: Vec::new() };
    serve!("new-service", new, service, set, |domain, driver| {
        let mut client = old::Client::bind(domain, "evolving", &by(driver)).unwrap();
        assert_eq!(client.look(5), Ok(5), "{driver}");
        // Newer errors are unknown.
        assert_eq!(client.look(0).unwrap_err(), Failed::Service(old::Trouble::Unknown(2)));
        let later = client.start_look(1).unwrap();
        assert_eq!(client.look(6), Ok(6));
        assert_eq!(later.wait(&mut client), Ok(1));
        for number in [3, 100] {
            client.note(number).unwrap();
            match client.event_timeout(LONG).unwrap() {
                old::Event::Tick { count, .. } => assert_eq!(count, number, "{driver}"),
                other => panic!("{driver}: {other:?}"),
            }
        }
        let file = descriptor();
        let out = client.open(file.as_fd(), old::SizeClass::Unknown(9)).unwrap();
        assert_eq!(inode(&out.same), inode(&file));
        assert_eq!(out.back, old::SizeClass::Unknown(9));

        let mut client = middle::Client::bind(domain, "evolving", &by(driver)).unwrap();
        let out = client.look(5, Some(6)).unwrap();
        assert_eq!(out.text.as_deref(), Some("Some(6) None"), "{driver}");
        assert_eq!(client.fresh(3), Ok(3));
    });
}

#[test]
fn tasks_of_a_new_client_speak_to_an_old_service() {
    let set = |old: &mut Old, outbox| old.0 = Some(outbox);
    serve!("old-tasks", old, Old(None), set, |domain, driver| {
        async_io::block_on(async {
            let bind = by(driver);
            let client = new::AsyncClient::bind(domain, "evolving", &bind).await.unwrap();
            let out = client.look(5, Some(6), Some("seven")).await.unwrap();
            assert_eq!((out.same, out.text), (5, None), "{driver}");
            client.note(3, Some(77)).await.unwrap();
            let event = client.event().await.unwrap();
            assert!(matches!(event, new::Event::Tick { count: 3, more: None, .. }), "{driver}");
            let absent = CallError::NotInService { name: "fresh" };
            assert_eq!(client.fresh(1).await, Err(absent));
        });
    });
}

// Keeps P186.
#[test]
fn a_change_that_is_not_compatible_is_named() {
    let set = |new: &mut New, outbox| new.outbox = Some(outbox);
    let service = New { outbox: None, kept: Vec::new() };
    serve!("broken", new, service, set, |domain, driver| {
        let error = broken::Client::bind(domain, "evolving", &by(driver)).unwrap_err();
        let due = "no binding to evolving: the service has another version of interface evolving: argument \
                   `number` of message `note` is `uint64` and was `uint32`";
        assert_eq!(error.to_string(), due);
    });
    let place = Place::new("other-interface");
    place.serve(|domain| {
        let error = new::Client::bind(domain, "echo", &Bind::default()).unwrap_err();
        assert!(error.to_string().contains("the service speaks all, not evolving"), "{error}");
    });
}

#[test]
fn a_refusal_for_another_reason_is_not_taken_for_another_version() {
    pin();
    let place = Place::new("full-of-another-version");
    let (one, service) = (Serve::default().clients(1), New { outbox: None, kept: Vec::new() });
    let mut server = new::Server::with(&place.domain, "evolving", service, one).unwrap();
    let stop = Stop(server.stopper());
    std::thread::scope(|scope| {
        scope.spawn(move || server.serve().unwrap());
        // The service is stopped whatever happens.
        let _stop = stop;
        let bind = by(Driver::Ump);
        let _only = new::Client::bind(&place.domain, "evolving", &bind).unwrap();
        let error = old::Client::bind(&place.domain, "evolving", &bind).unwrap_err().to_string();
        assert!(error.contains("the service has 1 clients, as many as it can have"), "{error}");
    });
}
