//! An endpoint, as those know it to which it is bound: queues, counters, address vectors, and the end of the process.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::time::Duration;

use corewire::Peer;
use corewire_ofi::FiAddr;

use crate::errors::Outcome;
use crate::memory::Region;
use crate::object::{Link, Object};

/// What an endpoint does for them.
pub(crate) trait Member {
    /// Handles what has arrived, while no queue is being read.
    fn progress(&mut self) -> Outcome;

    /// Whether a program may wait for the endpoint's descriptor now: false if something has happened.
    fn arm(&mut self) -> Outcome<bool>;

    /// Whether it waits for a message with a tag.
    fn has_posted(&self) -> bool;

    /// Adds the processes with which it is linked, and its own.
    fn add_processes(&mut self, processes: &mut HashSet<String>);

    /// The number of a peer that came by itself, if it is in the address vector.
    fn number_of(&mut self, peer: Peer) -> Option<FiAddr>;

    /// Lets peers access registered memory.
    fn expose(&mut self, key: u64, region: &Region) -> Outcome;

    /// Peers access it no more.
    fn conceal(&mut self, key: u64);

    /// A number is no longer in the address vector.
    fn forget(&mut self, number: FiAddr);

    /// Closes it: sends what is pending, for so long at most.
    fn finish(&mut self, limit: Duration);
}

/// An object that is known by what it does. Closing it takes it out first of everything that it is bound to.
pub(crate) struct Bound<T: ?Sized>(NonNull<T>);

impl<T: ?Sized> Clone for Bound<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Bound<T> {}

impl Bound<dyn Member> {
    /// The object behind a link.
    pub(crate) fn member<T: Object + Member>(link: Link<T>) -> Self {
        Self(link.body())
    }
}

impl<T: ?Sized> Bound<T> {
    /// An object with this state.
    pub(crate) const fn new(body: NonNull<T>) -> Self {
        Self(body)
    }

    /// Whether both are the same object.
    pub(crate) fn is<U: ?Sized>(self, other: Bound<U>) -> bool {
        std::ptr::addr_eq(self.0.as_ptr(), other.0.as_ptr())
    }

    /// The object's state.
    ///
    /// # Safety
    /// The caller has entered the gate of its domain, and holds no other reference to the state.
    #[inline(always)]
    pub(crate) unsafe fn get<'a>(mut self) -> &'a mut T {
        // SAFETY: the memory of objects is never freed, and a bound object is open; the caller guarantees the rest.
        unsafe { self.0.as_mut() }
    }
}

// SAFETY: the state behind it is only accessed by who has entered its gate.
unsafe impl<T: ?Sized> Send for Bound<T> {}

/// Calls `action` for each of the endpoints `of` an object, as long as that returns true. They may change the object's state.
///
/// # Safety
/// The caller has entered the gate, and refers to no state of the domain's objects.
pub(crate) unsafe fn each<T: Object, M: ?Sized>(
    object: Link<T>,
    of: fn(&T) -> &Vec<Bound<M>>,
    action: fn(&mut M) -> Outcome<bool>,
) -> Outcome<bool> {
    let mut index = 0;
    // SAFETY: the caller guarantees that.
    while let Some(&endpoint) = of(unsafe { object.share() }).get(index) {
        // SAFETY: the gate of the domain is that of its endpoints.
        if !action(unsafe { endpoint.get() })? {
            return Ok(false);
        }
        index += 1;
    }
    Ok(true)
}
