//! A message that has arrived, through whatever driver.

use std::fmt;
use std::ops::Deref;

use corewire::OwnedMessage;
use corewire_circuit::link::hub::Bytes;

use crate::capability::{Arrived, Received, none_of};
use crate::error::DecodeError;
use crate::tag::Tag;

/// Messages up to this length are received in memory that is there already, longer ones in memory of their own.
pub(crate) const BUFFER_BYTES: usize = 4096;

/// Where the bytes of a message are.
pub(crate) enum Body {
    Own(Bytes),
    Endpoint(OwnedMessage),
}

impl Body {
    pub(crate) const fn empty() -> Self {
        Self::Own(Bytes::empty())
    }

    #[inline]
    pub(crate) fn of(message: &[u8]) -> Self {
        Self::Own(Bytes::of(message))
    }
}

impl From<Vec<u8>> for Body {
    fn from(message: Vec<u8>) -> Self {
        Self::Own(Bytes::Long(message))
    }
}

impl Deref for Body {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Endpoint(message) => message,
        }
    }
}

/// A message that was received. It derefs to its bytes.
pub struct Message {
    tag: Tag,
    status: Option<u64>,
    body: Body,
    capabilities: Vec<Received>,
    memory_max: usize,
}

impl Message {
    pub(crate) const fn new(
        tag: Tag,
        status: Option<u64>,
        body: Body,
        capabilities: Vec<Received>,
    ) -> Self {
        Self { tag, status, body, capabilities, memory_max: DECODED_BYTES_MAX }
    }

    /// Sets how much memory may be allocated to decode it.
    #[inline]
    pub(crate) const fn limited(mut self, memory_max: usize) -> Self {
        self.memory_max = memory_max;
        self
    }

    /// How much memory may be allocated to decode it, if elements of variable size are in it.
    #[inline]
    #[must_use]
    pub const fn memory_max(&self) -> usize {
        self.memory_max
    }

    #[inline]
    pub(crate) const fn tag(&self) -> Tag {
        self.tag
    }

    /// Why there is no reply, if it is none.
    #[inline]
    pub(crate) const fn status(&self) -> Option<u64> {
        self.status
    }

    pub(crate) fn set_capabilities(&mut self, capabilities: Vec<Received>) {
        self.capabilities = capabilities;
    }

    pub(crate) fn capabilities_mut(&mut self) -> &mut Vec<Received> {
        &mut self.capabilities
    }

    /// What it costs while it waits.
    pub(crate) fn cost_bytes(&self) -> usize {
        self.body.len() + COST_BYTES + self.capabilities.len() * CAPABILITY_COST_BYTES
    }

    /// Its bytes.
    ///
    /// # Errors
    /// It has capabilities.
    #[inline]
    pub fn without_capabilities(&self, place: &'static str) -> Result<&[u8], DecodeError> {
        none_of(&self.capabilities, place)?;
        Ok(&self.body)
    }

    /// Its bytes and its capabilities.
    #[must_use]
    pub fn parts(&mut self, place: &'static str) -> (&[u8], Arrived<'_>) {
        (&self.body, Arrived::new(place, &mut self.capabilities))
    }
}

/// How much memory what is decoded may take, unless the binding says otherwise.
pub(crate) const DECODED_BYTES_MAX: usize = 256 << 20;

/// What a message that waits costs besides its bytes.
pub(crate) const COST_BYTES: usize = 256;
/// What each of its descriptors costs, of which a process has far fewer than bytes.
const CAPABILITY_COST_BYTES: usize = 4096;

impl Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.body
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("tag", &self.tag)
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .field("capabilities", &self.capabilities.len())
            .finish()
    }
}
