//! What generated tests of generated code need: random values, and a comparison of what was sent with what arrived.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corewire::WindowHandle;
use corewire_bind::{ChannelRef, ClientId, Domain, EndpointRef, ServiceRef, Stopper, WindowRef};

use crate::interfaces::{descriptor, inode};

/// Longer strings and vectors cost more than they find.
const LONG_MAX: usize = 4096;

/// A source of random values.
#[derive(Debug)]
pub struct Random {
    state: u64,
    domain: Domain,
}

impl Random {
    /// For one side of a test.
    #[must_use]
    pub fn new(seed: u64, domain: &Domain) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, domain: domain.clone() }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number; often a special one.
    pub fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            _ => self.next(),
        }
    }

    /// A number less than `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap_or(0) % count
    }

    /// True or false.
    pub fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn length(&mut self, count_max: u32) -> usize {
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX).min(LONG_MAX);
        match self.below(32) {
            0 => count_max,
            1 | 2 => self.below(count_max + 1),
            _ => self.below(count_max.min(16) + 1),
        }
    }

    /// A string of at most `bytes_max` bytes.
    pub fn text(&mut self, bytes_max: u32) -> String {
        let (length, mut text) = (self.length(bytes_max), String::new());
        while text.len() < length {
            let letter = match self.below(4) {
                0 => char::from_u32(u32::try_from(self.below(0x11_0000)).unwrap_or(0)),
                _ => char::from_u32(u32::try_from(self.below(0x80)).unwrap_or(0)),
            };
            match letter.filter(|letter| text.len() + letter.len_utf8() <= length) {
                Some(letter) => text.push(letter),
                None => text.push('.'),
            }
        }
        text
    }

    /// At most `count_max` values.
    pub fn list<T>(&mut self, count_max: u32, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.length(count_max)).map(|_| one(self)).collect()
    }

    /// A value or nothing.
    pub fn maybe<T>(&mut self, one: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| one(self))
    }

    /// `N` values.
    pub fn array<T, const N: usize>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> [T; N] {
        std::array::from_fn(|_| one(self))
    }

    /// A new file.
    pub fn descriptor(&mut self) -> OwnedFd {
        descriptor()
    }

    fn name(&mut self) -> String {
        format!("name {}", self.below(1000))
    }

    /// An endpoint.
    ///
    /// # Panics
    /// If there are no more descriptors.
    pub fn endpoint(&mut self) -> EndpointRef {
        let name = self.name();
        EndpointRef::new(&self.domain, &name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A channel.
    ///
    /// # Panics
    /// If there are no more descriptors.
    pub fn channel<T>(&mut self) -> ChannelRef<T> {
        let name = self.name();
        ChannelRef::new(&self.domain, &name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A service.
    ///
    /// # Panics
    /// If there are no more descriptors.
    pub fn service(&mut self) -> ServiceRef {
        let name = self.name();
        ServiceRef::new(&self.domain, &name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A window, which nobody has.
    ///
    /// # Panics
    /// If there are no more descriptors.
    pub fn window(&mut self) -> WindowRef {
        let numbers = [(); 4].map(|()| (self.number() | 1).to_le_bytes());
        let name = format!("window-{}", self.below(1000));
        let handle = WindowHandle::of_bytes(&[numbers.as_flattened(), name.as_bytes()].concat());
        let handle = handle.unwrap_or_else(|error| panic!("{error}"));
        WindowRef::new(&self.domain, handle).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Declared types, of which random values can be made.
pub trait Any {
    /// A random value.
    fn any(random: &mut Random) -> Self;
}

/// Writes a value so that values can be compared, descriptors by the file that they mean.
pub trait Show {
    /// Adds the value to `out`.
    fn show(&self, out: &mut String);
}

macro_rules! plain {
    ($($of:ty)*) => {
        $(
            impl Show for $of {
                fn show(&self, out: &mut String) {
                    let _ = write!(out, "{self:?} ");
                }
            }
        )*
    };
}

plain!(u8 u16 u32 u64 i8 i16 i32 i64 bool str String);

macro_rules! floats {
    ($($of:ty)*) => {
        $(
            impl Show for $of {
                fn show(&self, out: &mut String) {
                    // A NaN is not equal to itself, and each of its bits counts.
                    self.to_bits().show(out);
                }
            }
        )*
    };
}

floats!(f32 f64);

impl<T: Show + ?Sized> Show for &T {
    fn show(&self, out: &mut String) {
        (**self).show(out);
    }
}

impl<A: Show, B: Show> Show for (A, B) {
    fn show(&self, out: &mut String) {
        self.0.show(out);
        self.1.show(out);
    }
}

impl<T: Show> Show for [T] {
    fn show(&self, out: &mut String) {
        let _ = write!(out, "{}: ", self.len());
        self.iter().for_each(|one| one.show(out));
    }
}

impl<T: Show> Show for Vec<T> {
    fn show(&self, out: &mut String) {
        self.as_slice().show(out);
    }
}

impl<T: Show, const N: usize> Show for [T; N] {
    fn show(&self, out: &mut String) {
        self.as_slice().show(out);
    }
}

impl<T: Show> Show for Option<T> {
    fn show(&self, out: &mut String) {
        match self {
            None => out.push_str("none "),
            Some(one) => one.show(out),
        }
    }
}

impl Show for OwnedFd {
    fn show(&self, out: &mut String) {
        let _ = write!(out, "file {} ", inode(self));
    }
}

impl Show for EndpointRef {
    fn show(&self, out: &mut String) {
        let _ = write!(out, "endpoint {} in {:?} ", self.name(), self.runtime_directory());
    }
}

impl<T> Show for ChannelRef<T> {
    fn show(&self, out: &mut String) {
        let _ = write!(out, "channel {} in {:?} ", self.name(), self.runtime_directory());
    }
}

impl Show for ServiceRef {
    fn show(&self, out: &mut String) {
        let _ = write!(out, "service {} in {:?} ", self.name(), self.runtime_directory());
    }
}

impl Show for WindowRef {
    fn show(&self, out: &mut String) {
        let _ = write!(out, "window {:?} in {:?} ", self.handle(), self.runtime_directory());
    }
}

/// Ends a service.
#[derive(Debug)]
pub struct Stop(pub Stopper);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What was sent and has not arrived.
#[derive(Debug, Default)]
pub struct Trip {
    under_way: Mutex<UnderWay>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct UnderWay {
    to_service: VecDeque<String>,
    to_client: VecDeque<String>,
    client: Option<ClientId>,
}

fn shown(show: impl FnOnce(&mut String)) -> String {
    let mut out = String::new();
    show(&mut out);
    out
}

impl Trip {
    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has bound.
    pub fn bound(&self, client: ClientId) {
        self.lock().client = Some(client);
        self.changed.notify_all();
    }

    /// The client, once it has bound.
    ///
    /// # Panics
    /// If there is none after a minute.
    pub fn client(&self) -> ClientId {
        let client = self.wait(|under_way| under_way.client.is_none()).client;
        client.unwrap_or_else(|| panic!("no client has bound"))
    }

    fn wait(&self, mut is_early: impl FnMut(&mut UnderWay) -> bool) -> MutexGuard<'_, UnderWay> {
        let limit = Duration::from_secs(60);
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |all| is_early(all));
        let (all, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "what was sent did not arrive");
        all
    }

    /// The client sends.
    pub fn sends(&self, show: impl FnOnce(&mut String)) {
        let text = shown(show);
        self.lock().to_service.push_back(text);
    }

    /// The service has received.
    ///
    /// # Panics
    /// If something else was sent.
    pub fn arrived(&self, place: &str, show: impl FnOnce(&mut String)) {
        let (found, due) = (shown(show), self.lock().to_service.pop_front());
        self.changed.notify_all();
        assert_eq!(Some(found), due, "{place}");
    }

    /// The service answers, or sends an event.
    pub fn answers(&self, show: impl FnOnce(&mut String)) {
        let text = shown(show);
        self.lock().to_client.push_back(text);
    }

    /// The client has received.
    ///
    /// # Panics
    /// If something else was sent.
    pub fn answered(&self, place: &str, show: impl FnOnce(&mut String)) {
        let (found, due) = (shown(show), self.lock().to_client.pop_front());
        assert_eq!(Some(found), due, "{place}");
    }

    /// The client has received everything.
    ///
    /// # Panics
    /// If more was sent.
    pub fn finished(&self, place: &str) {
        let left = self.lock().to_client.len();
        assert_eq!(left, 0, "{place}");
    }

    /// Waits until at most `left` messages are on their way to the service.
    pub fn settle(&self, left: usize) {
        drop(self.wait(|all| all.to_service.len() > left));
    }
}
