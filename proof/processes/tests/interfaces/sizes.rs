//! Services answer requests of 0 to 1 MiB by every driver, in every way to serve, and no client ends them. By default 30
//! random calls for each driver and way; `COREWIRE_SIZES` sets another number.

use std::time::Duration;

use corewire::{Envelope, Selector};
use corewire_bind::{Domain, Driver, ServeError};
use corewire_processes::interfaces::sizes::{Client, EchoReply, Server, Service};
use corewire_processes::interfaces::{DRIVERS, Place, by, pin};

const LONGEST: usize = 1 << 20;
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Echo;

impl Service for Echo {
    fn echo(&mut self, bytes: &[u8], reply: EchoReply<'_>) {
        reply.send(bytes);
    }
}

/// The ways to serve until the service is stopped.
#[derive(Debug, Clone, Copy)]
enum Way {
    Serve,
    ServeOne,
    Timeout,
    /// With no time at all.
    Poll,
    Task,
}

const WAYS: [Way; 5] = [Way::Serve, Way::ServeOne, Way::Timeout, Way::Poll, Way::Task];

impl Way {
    fn serve(
        self,
        server: &mut Server<Echo>,
        is_over: &std::sync::atomic::AtomicBool,
    ) -> Result<(), ServeError> {
        let is_over = || is_over.load(std::sync::atomic::Ordering::Relaxed);
        match self {
            Self::Serve => server.serve(),
            Self::ServeOne => {
                while server.serve_one()? {}
                Ok(())
            }
            Self::Timeout => {
                while !is_over() {
                    server.serve_one_timeout(Duration::from_millis(20))?;
                }
                Ok(())
            }
            Self::Poll => {
                while !is_over() {
                    if !server.serve_one_timeout(Duration::ZERO)? {
                        std::thread::yield_now();
                    }
                }
                Ok(())
            }
            Self::Task => futures_lite::future::block_on(server.serve_async()),
        }
    }
}

fn served(test: &str, way: Way, work: impl FnOnce(&Place)) {
    let place = Place::new(&format!("{test}-{way:?}"));
    let mut server = Server::new(&place.domain, "sizes", Echo).unwrap();
    let stopper = server.stopper();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let service = scope.spawn(|| way.serve(&mut server, &is_over));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&place)));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        stopper.stop();
        let served = service.join().unwrap();
        assert!(served.is_ok(), "{way:?}: the service ended: {served:?}");
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

fn client(domain: &Domain, driver: Driver) -> Client {
    Client::bind(domain, "sizes", &by(driver)).unwrap()
}

fn check(client: &mut Client, bytes: &[u8]) {
    let reply = client.echo_timeout(bytes, LONG).unwrap();
    assert!(reply.iter().eq(bytes), "{} bytes", bytes.len());
}

/// Lengths around each limit, and random ones.
fn lengths(count: usize, mut seed: u64) -> impl Iterator<Item = usize> {
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let edges =
        [0, 1, 40, 160, 161, 4000, 4080, 4096, 4097, 16 << 10, 65_535, 128 << 10, 200_000, LONGEST];
    edges.into_iter().chain((0..count).map(move |_| {
        // As many short ones as long ones.
        let bits = random(21);
        usize::try_from(random(1 << bits)).unwrap_or(0)
    }))
}

fn calls() -> usize {
    std::env::var("COREWIRE_SIZES").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

// Keeps P219.
#[test]
fn requests_of_every_length_are_answered_in_every_way_to_serve() {
    pin();
    for (number, way) in (0..).zip(WAYS) {
        served("sizes", way, |place| {
            let mut clients = DRIVERS.map(|driver| client(&place.domain, driver));
            let mut bytes = vec![0; LONGEST];
            for (index, byte) in (0_u32..).zip(&mut bytes) {
                *byte = (index.wrapping_mul(2_654_435_761) >> 24) as u8;
            }
            for client in &mut clients {
                for length in lengths(calls(), number) {
                    check(client, &bytes[LONGEST - length..]);
                }
            }
        });
    }
}

// Keeps P219.
/// Whatever processes of the same user send to the service's endpoint.
#[test]
fn long_messages_of_strangers_end_no_service() {
    pin();
    for way in WAYS {
        served("strangers", way, |place| {
            let domain = &place.domain;
            let mut honest = [Driver::Ump, Driver::Sock].map(|driver| client(domain, driver));
            let mut stranger = domain.endpoint("stranger").create().unwrap();
            let service = stranger.peer("sizes.rings").unwrap();
            let request = Envelope::tagged(1 << 48 | 1 << 32 | 7);
            for length in [4097, 100_000, 2 << 20, 8 << 20] {
                let _ = stranger.isend(service, 5, vec![1; length]).unwrap();
                let _ = stranger.isend_with(service, request, vec![2; length], Default::default());
                let _ = stranger.isend_with(
                    service,
                    Envelope::untagged(),
                    vec![3; length],
                    Default::default(),
                );
                for client in &mut honest {
                    check(client, &[4; 5000]);
                }
                // Sends what there is room for.
                assert!(stranger.try_receive(Selector::any()).unwrap().is_none());
            }
            for client in &mut honest {
                check(client, &[5; 70_000]);
            }
        });
    }
}
