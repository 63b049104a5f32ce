//! Capabilities: rights that travel beside the bytes of a message.
//!
//! Each is a descriptor, passed by the kernel (`SCM_RIGHTS`), and a short note. Papers/003, section 4.4.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) use corewire_circuit::link::capability::{Kind, Outgoing, Received};
use corewire_circuit::link::sent::{Sent, Whose};
use corewire_circuit::wire::packet::NOTES_BYTES_MAX;
pub(crate) use corewire_os::packet::DESCRIPTORS_MAX as CAPABILITIES_MAX;

use crate::error::{DecodeError, Problem};
use crate::reference::{ChannelRef, EndpointRef, NOTE_BYTES_MAX, Named, ServiceRef, WindowRef};

/// The notes of any message fit into one packet of a circuit's control lane.
const _: () = assert!(CAPABILITIES_MAX * (2 + NOTE_BYTES_MAX) <= NOTES_BYTES_MAX);

/// Refuses the capabilities of a message that has none in the interface.
#[inline]
pub(crate) fn none_of(all: &[Received], place: &'static str) -> Result<(), DecodeError> {
    all.first().map_or(Ok(()), |found| Err(one_more(place, found)))
}

#[cold]
fn one_more(place: &'static str, found: &Received) -> DecodeError {
    DecodeError { place, problem: Problem::Capability { found: found.kind.name(), due: "none" } }
}

/// The capabilities of a message that has arrived, in the order of the interface. For generated code.
#[derive(Debug)]
pub struct Arrived<'a> {
    rest: Rest<'a>,
    place: &'static str,
}

#[derive(Debug)]
enum Rest<'a> {
    Message(std::vec::Drain<'a, Received>),
    Part(std::vec::IntoIter<Received>),
}

impl<'a> Arrived<'a> {
    pub(crate) fn new(place: &'static str, all: &'a mut Vec<Received>) -> Self {
        Self { rest: Rest::Message(all.drain(..)), place }
    }

    fn take(&mut self) -> Option<Received> {
        match &mut self.rest {
            Rest::Message(rest) => rest.next(),
            Rest::Part(rest) => rest.next(),
        }
    }

    /// The next ones, in a part for each of `counts`. There may be fewer: the caller that takes them finds out.
    ///
    /// For arrays of structs: the capabilities of one field travel together.
    #[must_use]
    pub fn parts<const N: usize>(&mut self, counts: [usize; N]) -> [Arrived<'static>; N] {
        counts.map(|count| {
            let part = std::iter::from_fn(|| self.take()).take(count).collect::<Vec<_>>();
            Arrived { rest: Rest::Part(part.into_iter()), place: self.place }
        })
    }

    fn next(&mut self, kind: Kind) -> Result<Received, DecodeError> {
        let problem = match self.take() {
            Some(found) if found.kind == kind => return Ok(found),
            Some(found) => Problem::Capability { found: found.kind.name(), due: kind.name() },
            None => Problem::Capability { found: "none", due: kind.name() },
        };
        Err(DecodeError { place: self.place, problem })
    }

    /// The next one, a descriptor.
    ///
    /// # Errors
    /// There is none, or it is something else.
    pub fn descriptor(&mut self) -> Result<OwnedFd, DecodeError> {
        self.next(Kind::Descriptor).map(|found| found.descriptor.take())
    }

    /// The next one, an endpoint.
    ///
    /// # Errors
    /// As for [`descriptor`](Self::descriptor).
    pub fn endpoint(&mut self) -> Result<EndpointRef, DecodeError> {
        self.next(Kind::Endpoint).map(|found| EndpointRef(Named::of(found)))
    }

    /// The next one, a channel.
    ///
    /// # Errors
    /// As for [`descriptor`](Self::descriptor).
    pub fn channel<T>(&mut self) -> Result<ChannelRef<T>, DecodeError> {
        self.next(Kind::Channel).map(|found| ChannelRef(Named::of(found), PhantomData))
    }

    /// The next one, a service.
    ///
    /// # Errors
    /// As for [`descriptor`](Self::descriptor).
    pub fn service(&mut self) -> Result<ServiceRef, DecodeError> {
        self.next(Kind::Service).map(|found| ServiceRef(Named::of(found)))
    }

    /// The next one, a window.
    ///
    /// # Errors
    /// As for [`descriptor`](Self::descriptor), or its handle cannot be read.
    pub fn window(&mut self) -> Result<WindowRef, DecodeError> {
        let found = self.next(Kind::Window)?;
        self.window_of(found)
    }

    fn window_of(&self, found: Received) -> Result<WindowRef, DecodeError> {
        WindowRef::arrived(Named::of(found)).ok_or(DecodeError {
            place: self.place,
            problem: Problem::Capability {
                found: "a window without a handle",
                due: Kind::Window.name(),
            },
        })
    }

    /// The next one, of any kind, for a program that knows the interface only at run time; `None` behind the last one.
    ///
    /// # Errors
    /// It is a window whose handle cannot be read.
    pub fn any(&mut self) -> Result<Option<Right>, DecodeError> {
        let Some(found) = self.take() else { return Ok(None) };
        Ok(Some(match found.kind {
            Kind::Descriptor => Right::Descriptor(found.descriptor.take()),
            Kind::Endpoint => Right::Endpoint(EndpointRef(Named::of(found))),
            Kind::Channel => Right::Channel(ChannelRef(Named::of(found), PhantomData)),
            Kind::Service => Right::Service(ServiceRef(Named::of(found))),
            Kind::Window => Right::Window(self.window_of(found)?),
        }))
    }

    /// Checks that there are no more.
    ///
    /// # Errors
    /// There are.
    pub fn finish(mut self) -> Result<(), DecodeError> {
        match self.take() {
            None => Ok(()),
            Some(found) => Err(one_more(self.place, &found)),
        }
    }
}

/// A capability of any kind that has arrived.
#[derive(Debug)]
#[non_exhaustive]
pub enum Right {
    /// Any descriptor.
    Descriptor(OwnedFd),
    /// An endpoint.
    Endpoint(EndpointRef),
    /// A channel.
    Channel(ChannelRef<()>),
    /// A service.
    Service(ServiceRef),
    /// A window.
    Window(WindowRef),
}

/// The capabilities of a message to send, in the order of the interface. For generated code.
#[derive(Debug, Default)]
pub struct Capabilities<'a>(Vec<Outgoing<'a>>);

impl<'a> Capabilities<'a> {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a descriptor.
    pub fn descriptor(&mut self, descriptor: BorrowedFd<'a>) {
        self.0.push(Outgoing { kind: Kind::Descriptor, note: "", descriptor });
    }

    /// Adds an endpoint.
    pub fn endpoint(&mut self, endpoint: &'a EndpointRef) {
        self.named(Kind::Endpoint, &endpoint.0);
    }

    /// Adds a channel.
    pub fn channel<T>(&mut self, channel: &'a ChannelRef<T>) {
        self.named(Kind::Channel, &channel.0);
    }

    /// Adds a service.
    pub fn service(&mut self, service: &'a ServiceRef) {
        self.named(Kind::Service, &service.0);
    }

    /// Adds a window.
    pub fn window(&mut self, window: &'a WindowRef) {
        self.named(Kind::Window, window.named());
    }

    fn named(&mut self, kind: Kind, named: &'a Named) {
        self.0.push(Outgoing { kind, note: named.note(), descriptor: named.directory() });
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn all(&self) -> &[Outgoing<'a>] {
        &self.0
    }

    /// Copies, for a message that waits.
    pub(crate) fn to_owned(&self) -> std::io::Result<Vec<Received>> {
        let copy = |one: &Outgoing<'_>| {
            let descriptor = Sent::new(one.descriptor.try_clone_to_owned()?, Whose::Own);
            Ok(Received { kind: one.kind, note: one.note.to_owned(), descriptor })
        };
        self.0.iter().map(copy).collect()
    }

    /// The first ones of a message that has waited.
    pub(crate) fn first_of(all: &'a [Received], count: usize) -> Self {
        Self::of_owned(all.get(..count).unwrap_or(all))
    }

    pub(crate) fn of_owned(all: &'a [Received]) -> Self {
        let lend = |one: &'a Received| Outgoing {
            kind: one.kind,
            note: &one.note,
            descriptor: one.descriptor.as_fd(),
        };
        Self(all.iter().map(lend).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(kind: Kind, note: &str) -> Received {
        let descriptor = std::fs::File::open("/").unwrap().into();
        Received { kind, note: note.to_owned(), descriptor: Sent::new(descriptor, Whose::Own) }
    }

    fn arrived<T>(
        kind: Kind,
        note: &str,
        take: impl FnOnce(&mut Arrived<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, String> {
        let mut all = vec![received(kind, note)];
        take(&mut Arrived::new("share: memory", &mut all)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_window_arrives_with_its_handle_or_is_refused() {
        let digits = "0123456789abcdef".repeat(4);
        let note = format!("{digits}grid");
        let window = arrived(Kind::Window, &note, |it| it.window()).unwrap();
        assert_eq!((window.name(), window.named().note()), ("grid", &*note));
        assert_eq!(window.handle().to_bytes()[..9], *b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01");
        assert!(matches!(arrived(Kind::Window, &note, |it| it.any()), Ok(Some(Right::Window(_)))));

        let zeros = "0".repeat(64);
        let (long, short) = (format!("{digits}{}", "x".repeat(101)), &digits[1..]);
        let wrong = [
            "".to_owned(),
            "grid".to_owned(),
            digits.clone(),
            short.to_owned(),
            format!("{digits}a grid"),
            format!("{digits}../grid"),
            format!("{zeros}grid"),
            format!("{}grid", digits.replace('f', "g")),
            format!("{}grid", digits.replace("01", "+1")),
            format!("{short}\u{e9}grid"),
            long,
        ];
        let refused =
            "share: memory: the capability is a window without a handle, where a window was due";
        for note in &wrong {
            assert_eq!(
                arrived(Kind::Window, note, |it| it.window()).unwrap_err(),
                refused,
                "{note}"
            );
            assert_eq!(arrived(Kind::Window, note, |it| it.any()).unwrap_err(), refused, "{note}");
        }
        let other = arrived(Kind::Endpoint, "grid", |it| it.window()).unwrap_err();
        assert_eq!(other, "share: memory: the capability is an endpoint, where a window was due");
        let other = arrived(Kind::Window, &note, |it| it.endpoint()).unwrap_err();
        assert_eq!(other, "share: memory: the capability is a window, where an endpoint was due");
    }
}
