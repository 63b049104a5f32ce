//! Typed calls of an interface that is made for measurements (`measured.if`), for `corewire bench interface` and the
//! study: the service, how client and service are placed ([`ways`]), and the thesis' types of messages ([`types`]).

pub mod types;
pub mod ways;

use std::fmt::Display;
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_bind::{Bind, ClientId, Driver};
use corewire_os::allocations;

use crate::failure::{Doing, Failure};

corewire_bind::interface!(measured);

pub use measured::{Client, Server};

/// The name of the service in its domain.
pub(crate) const SERVICE: &str = "measured";
/// How long a client waits for its service.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Calls before each block that are not counted: they wake the service, and fill caches.
const UNCOUNTED: u64 = 32;
/// Limits for the number of calls in a block.
const CALLS: [f64; 2] = [16.0, 200_000.0];

/// Serves until the client, the only one, has gone.
///
/// # Errors
/// If the service cannot be created, or its endpoint fails.
pub fn serve(domain: &Domain) -> Result<(), Failure> {
    serve_and_tell(domain, || ())
}

/// Like [`serve`]. Calls `created` as soon as clients can bind.
///
/// # Errors
/// As for [`serve`].
pub fn serve_and_tell(domain: &Domain, created: impl FnOnce()) -> Result<(), Failure> {
    let mut server = Server::new(domain, SERVICE, Echo::default()).doing("create a service")?;
    created();
    while !server.service().is_over {
        server.serve_one().doing("serve")?;
    }
    Ok(())
}

/// Binds to the service by this driver.
///
/// # Errors
/// If the service does not appear in time, or the driver cannot reach it.
pub fn bind(domain: &Domain, driver: Driver) -> Result<Client, Failure> {
    let bind = Bind::default().drivers([driver]).timeout(PATIENCE);
    Client::bind(domain, SERVICE, &bind).doing("bind")
}

/// Fails unless a call has returned what it was given.
///
/// # Errors
/// If the call failed, or returned something else.
#[inline(always)]
pub fn check<T: PartialEq, E: Display>(found: Result<T, E>, due: &T) -> Result<(), Failure> {
    match found {
        Ok(found) if found == *due => Ok(()),
        Ok(_) => Err(Failure::other("a call returned something else than it was given")),
        Err(error) => Err(Failure::other(format!("a call failed: {error}"))),
    }
}

/// Blocks of calls, each of about 10 ms.
#[derive(Debug, Clone, Default)]
pub struct Block {
    calls: u64,
}

impl Block {
    /// Blocks whose number of calls is not known yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { calls: 0 }
    }

    /// The mean time of a call in one block, in nanoseconds. The first block, which belongs to the warm-up, only
    /// measures how many calls the next ones have.
    ///
    /// # Errors
    /// The error of a call.
    pub fn time_ns<E>(&mut self, mut call: impl FnMut(u64) -> Result<(), E>) -> Result<f64, E> {
        for number in 0..UNCOUNTED {
            call(number)?;
        }
        let calls = if self.calls == 0 { 4 * UNCOUNTED } else { self.calls };
        let start = Instant::now();
        for number in 0..calls {
            call(std::hint::black_box(number))?;
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 calls")]
        let time_ns = start.elapsed().as_secs_f64() * 1e9 / calls as f64;
        if self.calls == 0 {
            let [least, most] = CALLS;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            let calls = (10e6 / time_ns).clamp(least, most) as u64;
            self.calls = calls;
        }
        Ok(time_ns)
    }
}

/// Answers every rpc with its arguments.
#[derive(Debug, Default)]
pub struct Echo {
    pub(crate) received: u64,
    held: Vec<measured::HoldLaterReply>,
    is_over: bool,
}

/// An rpc that answers with its arguments.
macro_rules! echo {
    ($name:ident($($argument:ident: $type:ty),*) -> $reply:ident) => {
        fn $name(&mut self, $($argument: $type,)* reply: measured::$reply<'_>) {
            reply.send($($argument),*);
        }
    };
}

impl measured::Service for Echo {
    fn gone(&mut self, _client: ClientId) {
        self.is_over = true;
    }

    fn hold(&mut self, reply: measured::HoldReply<'_>) {
        self.held.push(reply.later());
    }

    echo!(empty() -> EmptyReply);
    echo!(payload32_1(a: u32) -> Payload32_1Reply);
    echo!(payload32_4(a: u32, b: u32, c: u32, d: u32) -> Payload32_4Reply);
    echo!(payload32_8(a: u32, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32) -> Payload32_8Reply);
    echo!(payload64_1(a: u64) -> Payload64_1Reply);
    echo!(payload64_4(a: u64, b: u64, c: u64, d: u64) -> Payload64_4Reply);
    echo!(payload64_8(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64) -> Payload64_8Reply);
    echo!(fixed100(a: [u64; 12], b: u32) -> Fixed100Reply);
    echo!(line(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> LineReply);
    echo!(two_lines(a: [u64; 12]) -> TwoLinesReply);

    fn buffer(&mut self, bytes: &[u8], reply: measured::BufferReply<'_>) {
        // The bytes are within the bound, since they have arrived.
        reply.send(bytes);
    }

    fn one_way_32(&mut self, _a: u64, _b: u64, _c: u64, _d: u64, _client: ClientId) {
        self.received += 1;
    }

    fn one_way(&mut self, _value: u64, _client: ClientId) {
        self.received += 1;
    }

    fn counts(&mut self, reply: measured::CountsReply<'_>) {
        reply.send(self.received, allocations::of_this_thread());
    }
}
