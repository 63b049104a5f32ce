//! The objects that a program holds pointers to.
//!
//! An object begins with libfabric's structure, as its class demands, and goes on with its own state. Its memory is never
//! freed: a closed object keeps its memory, with class 0, until the next one of its kind takes it. A call on a closed
//! object, or on one of another class, therefore finds that and returns an error.

use core::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corewire_ofi::fid::{FI_CLASS_UNSPEC, Fid, Ops};

use crate::errors::{INVALID, Outcome};
use crate::fork;
use crate::gate::{Entry, Gate};

/// The state of a kind of object.
pub(crate) trait Object: Sized + 'static {
    /// libfabric's structure, which begins with a [`Fid`].
    type Head: 'static;
    const CLASS: usize;
    /// What all objects of the kind can do. No other provider has this table.
    fn ops() -> &'static Ops;
    /// The memory of closed ones.
    fn closed() -> &'static Closed<Self>;
}

/// An object in memory.
#[repr(C)]
pub(crate) struct Shell<T: Object> {
    head: T::Head,
    gate: &'static Gate,
    body: MaybeUninit<T>,
}

/// The memory of closed objects of one kind.
pub(crate) struct Closed<T: Object>(Mutex<Vec<At<T>>>);

struct At<T: Object>(NonNull<Shell<T>>);

// SAFETY: it is the only pointer to memory that is not in use.
unsafe impl<T: Object> Send for At<T> {}

impl<T: Object> Closed<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<At<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of an object.
pub(crate) fn fid_of<T: Object>(context: *mut c_void) -> Fid {
    Fid { fclass: T::CLASS, context, ops: T::ops() }
}

/// An object, for as long as one call works with it.
pub(crate) struct Entered<T: Object> {
    link: Link<T>,
    _entry: Entry,
}

impl<T: Object> Deref for Entered<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `enter` has found that the object is open, and has entered its gate.
        unsafe { self.link.share() }
    }
}

impl<T: Object> DerefMut for Entered<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.link.get() }
    }
}

impl<T: Object> Entered<T> {
    /// The lock of its domain.
    pub(crate) fn gate(&self) -> &'static Gate {
        self.link.gate()
    }

    /// The object itself, as other objects keep it.
    pub(crate) fn link(&self) -> Link<T> {
        self.link
    }
}

/// An object that another object uses. It cannot be closed meanwhile: closing it ends with `FI_EBUSY`.
pub(crate) struct Link<T: Object>(NonNull<Shell<T>>);

impl<T: Object> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Object> Copy for Link<T> {}

impl<T: Object> PartialEq for Link<T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Object> Link<T> {
    /// The object's state.
    ///
    /// # Safety
    /// The caller has entered the gate that both objects have, and holds no other reference to the state.
    #[inline(always)]
    pub(crate) unsafe fn get<'a>(mut self) -> &'a mut T {
        // SAFETY: the memory of objects is never freed; the caller guarantees that this is the only reference.
        let shell = unsafe { self.0.as_mut() };
        // SAFETY: an object that is used by another is open.
        unsafe { shell.body.assume_init_mut() }
    }

    /// The object's state, which others may read at the same time.
    ///
    /// # Safety
    /// The caller has entered the object's gate, and nobody has a reference from [`get`](Self::get).
    #[inline(always)]
    pub(crate) unsafe fn share<'a>(self) -> &'a T {
        // SAFETY: the memory of objects is never freed; the caller guarantees the rest.
        let shell = unsafe { self.0.as_ref() };
        // SAFETY: an object that is used by another is open.
        unsafe { shell.body.assume_init_ref() }
    }

    /// Where the object's state is.
    pub(crate) fn body(self) -> NonNull<T> {
        // SAFETY: the memory of objects is never freed.
        let body = unsafe { &raw mut (*self.0.as_ptr()).body };
        NonNull::new(body).map_or(NonNull::dangling(), NonNull::cast)
    }

    /// The gate of its domain.
    pub(crate) fn gate(self) -> &'static Gate {
        // SAFETY: the memory of objects is never freed, and the gate of an open one does not change.
        unsafe { self.0.as_ref() }.gate
    }
}

// SAFETY: the state behind it is only accessed by who has entered its gate.
unsafe impl<T: Object> Send for Link<T> {}

/// Makes an object, and returns it as the program will know it.
pub(crate) fn open<T: Object>(head: T::Head, gate: &'static Gate, body: T) -> *mut T::Head {
    let shell = Shell { head, gate, body: MaybeUninit::new(body) };
    let at = match T::closed().lock().pop() {
        Some(At(at)) => {
            // SAFETY: memory of a closed object, which nothing else uses.
            unsafe { at.write(shell) };
            at
        }
        None => NonNull::from(Box::leak(Box::new(shell))),
    };
    at.as_ptr().cast()
}

/// The object that a program named.
///
/// # Safety
/// `object` is null or an object of libfabric, open or closed, of this provider or not, that no other thread uses unless
/// the threading level of its domain permits that.
pub(crate) unsafe fn enter<T: Object>(object: *mut T::Head) -> Outcome<Entered<T>> {
    // A thread that the child does not have may hold the lock.
    fork::check()?;
    // SAFETY: the caller guarantees that.
    let link = Link(unsafe { find::<T>(object) }?);
    let entry = link.gate().enter();
    if entry.is_some() {
        // SAFETY: as above. It may have been closed meanwhile.
        unsafe { find::<T>(object) }?;
    }
    Ok(Entered { link, _entry: entry })
}

/// The memory of an open object of this class.
///
/// # Safety
/// As for [`enter`].
#[inline(always)]
unsafe fn find<T: Object>(object: *mut T::Head) -> Outcome<NonNull<Shell<T>>> {
    let at = NonNull::new(object).ok_or(INVALID)?;
    // SAFETY: the caller guarantees that it is an object; every object begins with its class.
    let class = unsafe { at.cast::<Fid>().as_ref() }.fclass;
    // An object of this class that was reached through this provider's tables is one of its shells.
    if class == T::CLASS { Ok(at.cast()) } else { Err(INVALID) }
}

/// Calls `action` with the object that a program named, in a call of the data path: those of objects that need the lock
/// are in a table of their own. Without the lock that costs two comparisons.
///
/// # Safety
/// As for [`enter`]; and without `LOCKED` the object's gate has no lock.
#[inline(always)]
pub(crate) unsafe fn with<T: Object, const LOCKED: bool>(
    object: *mut T::Head,
    action: impl FnOnce(&mut T, Link<T>) -> isize,
) -> isize {
    if LOCKED {
        // SAFETY: the caller guarantees that.
        return match unsafe { enter::<T>(object) } {
            // SAFETY: it has entered the gate, and uses nothing else of what it has entered.
            Ok(entered) => action(unsafe { entered.link.get() }, entered.link),
            Err(error) => error.negative(),
        };
    }
    // SAFETY: the caller guarantees that.
    match unsafe { find::<T>(object) } {
        Ok(at) => {
            debug_assert!(!Link(at).gate().is_locked());
            // SAFETY: it is open, and the caller keeps it from other threads.
            action(unsafe { Link(at).get() }, Link(at))
        }
        Err(error) => error.negative(),
    }
}

/// The object that a program named beside the one whose call it is: it may be another provider's.
///
/// # Safety
/// As for [`enter`], and the caller has entered the gate of the object if this provider has made it.
pub(crate) unsafe fn linked<T: Object>(fid: *mut Fid) -> Outcome<Link<T>> {
    let at = NonNull::new(fid).ok_or(INVALID)?;
    // SAFETY: the caller guarantees that it is an object; every object begins so.
    let head = unsafe { at.as_ref() };
    if head.fclass != T::CLASS || !std::ptr::eq(head.ops, T::ops()) {
        return Err(INVALID);
    }
    Ok(Link(at.cast()))
}

/// The same, for the time of a call.
///
/// # Safety
/// As for [`enter`].
pub(crate) unsafe fn enter_own<T: Object>(fid: *mut Fid) -> Outcome<Entered<T>> {
    // SAFETY: the caller guarantees that.
    unsafe { linked::<T>(fid) }?;
    // SAFETY: as above; it is one of this provider's.
    unsafe { enter::<T>(fid.cast()) }
}

/// The class of an object that a program named.
///
/// # Safety
/// As for [`enter`].
pub(crate) unsafe fn class_of(fid: *mut Fid) -> usize {
    // SAFETY: the caller guarantees that it is null or an object.
    unsafe { fid.as_ref() }.map_or(FI_CLASS_UNSPEC, |fid| fid.fclass)
}

/// Closes an object, and returns its state. A thread that waits at the gate finds it closed.
pub(crate) fn close<T: Object>(entered: Entered<T>) -> T {
    let Entered { link: Link(at), _entry } = entered;
    // SAFETY: the memory of objects is never freed, and this thread has entered the gate.
    let body = unsafe { &raw const (*at.as_ptr()).body };
    // SAFETY: as above.
    let body = unsafe { body.read() };
    // SAFETY: the object is open, and is not from here on.
    let body = unsafe { body.assume_init() };
    // SAFETY: every object begins with its class.
    let class = unsafe { &raw mut (*at.cast::<Fid>().as_ptr()).fclass };
    // SAFETY: as above.
    unsafe { class.write(FI_CLASS_UNSPEC) };
    T::closed().lock().push(At(at));
    body
}
