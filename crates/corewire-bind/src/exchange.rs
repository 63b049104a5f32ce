//! What both sides tell each other of their interface when they bind.

use std::fmt;
use std::sync::Arc;

use crate::driver::Driver;
use crate::tag::{CREDIT_BYTES, Control, Tag};

/// The longest name of a service: its endpoints have longer ones.
pub const SERVICE_NAME_BYTES_MAX: usize = 80;

/// The longest description of a client of another host, in bytes.
#[cfg(feature = "net")]
pub(crate) const FAR_OFFER_BYTES_MAX: u64 = 1 << 20;

/// The interface of a client or a service. Generated code has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description<'a> {
    /// The interface's name.
    pub name: &'a str,
    /// Structural hash of all messages.
    pub hash: u64,
    /// Every message as it travels.
    pub wires: &'a [Wire<'a>],
    /// The interface in JSON (`corewire_idl::form`), which a service gives out; empty in a client.
    pub form: &'a str,
}

/// One message as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire<'a> {
    /// Its name; an rpc's request and reply are `NAME_call` and `NAME_reply`.
    pub name: &'a str,
    /// Its ordinal, from 1. 0 for an error with its details, which is compared only.
    pub ordinal: u16,
    /// Structural hash of this message alone.
    pub hash: u64,
    /// The longest that it can be.
    pub bytes_max: u32,
    /// Hashes of its earlier versions, the latest first.
    pub earlier: &'a [u64],
}

/// A message by the name that its author gave it.
struct Named<'a> {
    name: &'a str,
    what: &'static str,
}

impl Named<'_> {
    fn differs(&self) -> String {
        format!("{} has other {} in the service", self.name, self.what)
    }
}

impl<'a> Wire<'a> {
    /// `add_call` is `add`, if that is an rpc among these: then its reply has the same ordinal.
    fn shown(&self, all: &[Wire<'_>]) -> Named<'a> {
        if self.ordinal == 0 {
            return Named { name: self.name, what: "values or details" };
        }
        let is_rpc = all.iter().filter(|one| one.ordinal == self.ordinal).count() > 1;
        let ends = [("_call", "arguments"), ("_reply", "results or errors"), ("_part", "parts")];
        let end = ends
            .into_iter()
            .find_map(|(end, what)| self.name.strip_suffix(end).map(|name| Named { name, what }));
        match end {
            Some(named) if is_rpc => named,
            _ => Named { name: self.name, what: "arguments" },
        }
    }
}

/// Which version of each message a side uses, because the other one knows no later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forms(Option<Arc<[u8]>>);

/// The version of a message that one side uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The one of its own interface file.
    Current,
    /// An earlier one, as an index into [`Wire::earlier`].
    Earlier(u8),
    /// The other side does not know the message.
    Absent,
}

/// How [`Form::Absent`] is stored. [`Form::Earlier`] is stored plus 1.
const ABSENT: u8 = 0xff;

impl Forms {
    /// The form of the message with this index in [`Description::wires`].
    #[inline]
    #[must_use]
    pub fn get(&self, wire: usize) -> Form {
        let stored = self.0.as_ref().and_then(|forms| forms.get(wire).copied());
        match stored.unwrap_or(0) {
            0 => Form::Current,
            ABSENT => Form::Absent,
            index => Form::Earlier(index - 1),
        }
    }

    /// Whether both sides have the same version of the interface.
    pub(crate) const fn is_exact(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn of_bytes(forms: &[u8]) -> Self {
        let is_exact = forms.iter().all(|form| *form == 0);
        Self((!is_exact).then(|| forms.into()))
    }

    pub(crate) fn to_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// The beginning of an exchange: `crwbind` and the version of the exchange.
const MAGIC: u64 = u64::from_le_bytes(*b"crwbind\x01");
/// The largest number of messages of an interface.
const WIRES_MAX: usize = 8192;
/// The largest number of earlier versions of a message.
const EARLIER_MAX: usize = 16;

/// What a service and a client have agreed on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) service: Forms,
    pub(crate) client: Forms,
}

impl Description<'_> {
    /// The longest message; at least one with credit for a stream.
    pub(crate) fn bytes_max(&self) -> u32 {
        self.wires.iter().map(|wire| wire.bytes_max).max().unwrap_or(0).max(CREDIT_BYTES)
    }

    /// Whether the answer to a request is a stream.
    pub(crate) fn has_parts(&self, ordinal: u16) -> bool {
        self.wires.iter().any(|wire| wire.ordinal == ordinal && wire.name.ends_with("_part"))
    }

    /// The name of the request with this ordinal.
    pub(crate) fn request_of(&self, ordinal: u16) -> &str {
        let request = self.wires.iter().find(|wire| wire.ordinal == ordinal);
        request.map_or("", |wire| wire.name.strip_suffix("_call").unwrap_or(wire.name))
    }

    /// `magic:8 | hash:8 | count:2 | length:1 name`, then `hash:8 | ordinal:2 | length:1 name | count:1 (hash:8)...` for
    /// each message. `None` if a name is too long or there are too many messages.
    pub(crate) fn to_bytes(self) -> Option<Vec<u8>> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(self.hash.to_le_bytes());
        let count = u16::try_from(self.wires.len()).ok().filter(|_| self.wires.len() <= WIRES_MAX);
        bytes.extend(count?.to_le_bytes());
        put_name(&mut bytes, self.name)?;
        for wire in self.wires {
            bytes.extend(wire.hash.to_le_bytes());
            bytes.extend(wire.ordinal.to_le_bytes());
            put_name(&mut bytes, wire.name)?;
            let earlier = wire.earlier.get(..EARLIER_MAX).unwrap_or(wire.earlier);
            bytes.push(u8::try_from(earlier.len()).ok()?);
            bytes.extend(earlier.iter().flat_map(|hash| hash.to_le_bytes()));
        }
        Some(bytes)
    }

    /// Compares a client's description with the service's own. The error is the reason for the client.
    pub(crate) fn agree(&self, theirs: &[u8]) -> Result<Agreement, String> {
        let mut at = Cursor(theirs);
        if at.number::<8>() != Some(MAGIC) {
            return Err("not an exchange of this version of corewire".to_owned());
        }
        let broken = || "the exchange is incomplete".to_owned();
        let hash = at.number::<8>().ok_or_else(broken)?;
        let count = at.number::<2>().ok_or_else(broken)?;
        if count > WIRES_MAX as u64 {
            return Err(format!("{count} messages: an interface has at most {WIRES_MAX}"));
        }
        let name = at.name().ok_or_else(broken)?;
        if name != self.name {
            return Err(format!("the service speaks {}, not {}", self.name, Shown(name)));
        }
        if hash == self.hash {
            return Ok(Agreement { service: Forms::default(), client: Forms::default() });
        }
        let (mut client, mut service) = (Vec::new(), vec![ABSENT; self.wires.len()]);
        let mut are_common = false;
        for _ in 0..count {
            let theirs = Theirs::read(&mut at).ok_or_else(broken)?;
            let index = self.wires.iter().position(|own| own.name == theirs.name);
            let (own_form, their_form) = match index.and_then(|index| self.wires.get(index)) {
                None => (0, self.absent(&theirs)?),
                Some(own) => theirs.agree(own, self.wires)?,
            };
            if let Some(place) = index.and_then(|index| service.get_mut(index)) {
                *place = own_form;
            }
            client.push(their_form);
            are_common |= theirs.ordinal != 0 && their_form != ABSENT;
        }
        if !are_common {
            return Err(format!("the client and the service know different messages of {name}"));
        }
        Ok(Agreement { service: Forms::of_bytes(&service), client: Forms::of_bytes(&client) })
    }

    /// A message that only the client knows. It may have no ordinal that means another message here.
    fn absent(&self, theirs: &Theirs<'_>) -> Result<u8, String> {
        match self.wires.iter().find(|own| own.ordinal == theirs.ordinal) {
            None | Some(Wire { ordinal: 0, .. }) => Ok(ABSENT),
            Some(own) => Err(format!(
                "ordinal {} is {} in the client, and {} in the service",
                theirs.ordinal,
                Shown(theirs.name.strip_suffix("_call").unwrap_or(theirs.name)),
                own.shown(self.wires).name
            )),
        }
    }
}

/// A message of the client.
struct Theirs<'a> {
    name: &'a str,
    ordinal: u16,
    hash: u64,
    earlier: [u64; EARLIER_MAX],
    earlier_count: usize,
}

impl<'a> Theirs<'a> {
    fn read(at: &mut Cursor<'a>) -> Option<Self> {
        let hash = at.number::<8>()?;
        let ordinal = u16::try_from(at.number::<2>()?).ok()?;
        let name = at.name()?;
        let earlier_count = usize::try_from(at.number::<1>()?).ok()?;
        let mut earlier = [0; EARLIER_MAX];
        for place in earlier.get_mut(..earlier_count)? {
            *place = at.number::<8>()?;
        }
        Some(Self { name, ordinal, hash, earlier, earlier_count })
    }

    /// The forms that the service and the client use.
    fn agree(&self, own: &Wire<'_>, rpcs: &[Wire<'_>]) -> Result<(u8, u8), String> {
        if own.ordinal != self.ordinal {
            let name = own.shown(rpcs).name;
            return Err(format!(
                "{name} has ordinal {} in the client, and {} in the service",
                self.ordinal, own.ordinal
            ));
        }
        let stored = |index: usize| u8::try_from(index + 1).unwrap_or(ABSENT);
        let mut earlier = self.earlier.iter().take(self.earlier_count);
        if own.hash == self.hash {
            Ok((0, 0))
        } else if let Some(index) = own.earlier.iter().position(|hash| *hash == self.hash) {
            Ok((stored(index), 0))
        } else if let Some(index) = earlier.position(|hash| *hash == own.hash) {
            Ok((0, stored(index)))
        } else {
            Err(own.shown(rpcs).differs())
        }
    }
}

pub(crate) fn put_name(bytes: &mut Vec<u8>, name: &str) -> Option<()> {
    bytes.push(u8::try_from(name.len()).ok()?);
    bytes.extend(name.as_bytes());
    Some(())
}

/// A name that a peer sent, in an error: only as far as it looks like a name.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        self.0.chars().take(128).filter(is_name).try_for_each(|letter| write!(f, "{letter}"))
    }
}

/// Reads what a peer sent.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn number<const N: usize>(&mut self) -> Option<u64> {
        let mut word = [0; 8];
        word.get_mut(..N)?.copy_from_slice(self.take(N)?);
        Some(u64::from_le_bytes(word))
    }

    pub(crate) fn name(&mut self) -> Option<&'a str> {
        let length = self.number::<1>()?;
        std::str::from_utf8(self.take(usize::try_from(length).ok()?)?).ok()
    }
}

/// What a service tells a client that it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acceptance {
    pub(crate) number: u16,
    /// Whether the client may use a ring: it runs as the service's user.
    pub(crate) may_use_ring: bool,
    /// The processor on which the service's thread ran.
    pub(crate) processor: u32,
    /// The longest message that the service sends.
    pub(crate) bytes_max: u32,
    pub(crate) secret: u64,
    /// The service's endpoint.
    pub(crate) endpoint: String,
    pub(crate) forms: Forms,
}

impl Acceptance {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.number.to_le_bytes().to_vec();
        bytes.push(u8::from(self.may_use_ring));
        bytes.extend(self.processor.to_le_bytes());
        bytes.extend(self.bytes_max.to_le_bytes());
        bytes.extend(self.secret.to_le_bytes());
        // Endpoints have short names.
        let _ = put_name(&mut bytes, &self.endpoint);
        bytes.extend(self.forms.to_bytes());
        bytes
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut at = Cursor(bytes);
        Some(Self {
            number: u16::try_from(at.number::<2>()?).ok()?,
            may_use_ring: at.number::<1>()? != 0,
            processor: u32::try_from(at.number::<4>()?).ok()?,
            bytes_max: u32::try_from(at.number::<4>()?).ok()?,
            secret: at.number::<8>()?,
            endpoint: at.name()?.to_owned(),
            forms: Forms::of_bytes(at.0),
        })
    }
}

/// What a client says in its ring: the secret, and what it takes the ring for. Its number is in the tag.
pub(crate) fn hello(number: u16, secret: u64, driver: Driver) -> (Tag, [u8; 9]) {
    let mut bytes = [driver as u8; 9];
    if let Some(place) = bytes.first_chunk_mut() {
        *place = secret.to_le_bytes();
    }
    (Tag::control(number, Control::Hello), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Wire<'_> = Wire { name: "one", ordinal: 1, hash: 10, bytes_max: 8, earlier: &[] };
    const TWO: Wire<'_> =
        Wire { name: "two", ordinal: 2, hash: 20, bytes_max: 8, earlier: &[19, 18] };
    const OWN: Description<'_> =
        Description { name: "calc", hash: 1, wires: &[ONE, TWO], form: "" };

    fn agreed(wires: &[Wire<'_>]) -> Result<Agreement, String> {
        OWN.agree(&Description { hash: 2, wires, ..OWN }.to_bytes().unwrap())
    }

    #[test]
    fn equal_hashes_are_accepted() {
        let agreement = OWN.agree(&OWN.to_bytes().unwrap()).unwrap();
        assert_eq!(agreement.service.get(1), Form::Current);
        assert_eq!(agreement.client.get(1), Form::Current);
    }

    #[test]
    fn the_newer_side_uses_the_version_that_the_older_one_knows() {
        let older = agreed(&[Wire { hash: 18, earlier: &[], ..TWO }]).unwrap();
        assert_eq!([older.service.get(0), older.service.get(1)], [Form::Absent, Form::Earlier(1)]);
        assert_eq!(older.client.get(0), Form::Current);
        let newer = agreed(&[ONE, Wire { hash: 21, earlier: &[20, 19, 18], ..TWO }]).unwrap();
        assert_eq!(newer.service.get(1), Form::Current);
        assert_eq!(newer.client.get(1), Form::Earlier(0));
        let more = agreed(&[ONE, Wire { name: "three", ordinal: 3, ..TWO }]).unwrap();
        assert_eq!(more.client.get(1), Form::Absent);
    }

    #[test]
    fn a_refusal_names_what_differs() {
        let other = Description { name: "other", hash: 2, ..OWN }.to_bytes().unwrap();
        assert_eq!(OWN.agree(&other).unwrap_err(), "the service speaks calc, not other");
        let mut many = other;
        many[16..18].copy_from_slice(&[0xff; 2]);
        let reason = "65535 messages: an interface has at most 8192";
        assert_eq!(OWN.agree(&many).unwrap_err(), reason);
        let reason = |wires: &[Wire<'_>]| agreed(wires).unwrap_err();
        assert_eq!(
            reason(&[ONE, Wire { hash: 21, ..TWO }]),
            "two has other arguments in the service"
        );
        assert_eq!(
            reason(&[ONE, Wire { ordinal: 3, ..TWO }]),
            "two has ordinal 3 in the client, and 2 in the service"
        );
        assert_eq!(
            reason(&[ONE, Wire { name: "three", ..TWO }]),
            "ordinal 2 is three in the client, and two in the service"
        );
        assert_eq!(
            reason(&[Wire { name: "three", ordinal: 3, ..TWO }]),
            "the client and the service know different messages of calc"
        );
    }

    #[test]
    fn errors_with_details_are_compared_if_both_sides_know_them() {
        const fn error(name: &str, hash: u64) -> Wire<'_> {
            Wire { name, ordinal: 0, hash, bytes_max: 0, earlier: &[] }
        }
        const WIRES: &[Wire<'_>] = &[ONE, error("e.GONE", 5), error("e.FULL", 6)];
        let own = Description { wires: WIRES, ..OWN };
        let agreed = |wires: &[Wire<'_>]| {
            own.agree(&Description { hash: 2, wires, ..OWN }.to_bytes().unwrap())
        };
        assert!(agreed(&[ONE, error("e.FULL", 6), error("e.NEW", 7)]).is_ok());
        let reason = agreed(&[ONE, error("e.FULL", 7)]).unwrap_err();
        assert_eq!(reason, "e.FULL has other values or details in the service");
        let reason = agreed(&[error("e.FULL", 6)]).unwrap_err();
        assert_eq!(reason, "the client and the service know different messages of calc");
        // A process that does not know of details takes them for messages that it does not have.
        assert!(
            OWN.agree(&Description { hash: 2, wires: WIRES, ..OWN }.to_bytes().unwrap()).is_ok()
        );
    }

    #[test]
    fn an_rpc_is_named_as_its_author_does() {
        const fn wire(name: &str, hash: u64) -> Wire<'_> {
            Wire { name, ordinal: 4, hash, bytes_max: 8, earlier: &[] }
        }
        let own = Description { wires: &[wire("add_call", 1), wire("add_reply", 2)], ..OWN };
        let reason = |wires: &[Wire<'_>]| {
            own.agree(&Description { hash: 2, wires, ..OWN }.to_bytes().unwrap()).unwrap_err()
        };
        assert_eq!(reason(&[wire("add_call", 3)]), "add has other arguments in the service");
        assert_eq!(
            reason(&[wire("add_reply", 3)]),
            "add has other results or errors in the service"
        );
        assert_eq!(
            reason(&[wire("sum_call", 3)]),
            "ordinal 4 is sum in the client, and add in the service"
        );
    }

    #[test]
    fn any_prefix_is_refused_without_a_panic() {
        let bytes = Description { hash: 2, ..OWN }.to_bytes().unwrap();
        for length in 0..bytes.len() {
            assert!(OWN.agree(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_agreed_on_or_refused() {
        let good = Description { hash: 2, ..OWN }.to_bytes().unwrap();
        crate::random::bytes(|bytes| {
            // A random number of right bytes, then random ones.
            let kept = bytes.first().map_or(0, |first| usize::from(*first) % (good.len() + 1));
            let theirs = [&good[..kept], bytes].concat();
            if let Ok(agreement) = OWN.agree(&theirs) {
                assert!(agreement.service.to_bytes().len() <= OWN.wires.len());
            }
        });
    }
}
