//! A window: memory that both processes have mapped, in which the sender's messages lie (IV-B). The receiver copies them
//! with one copy, and calls nobody. And the interface with nothing behind it, which shows what the barrier costs.

use corewire_transfer::mechanisms::Role;

use super::arena::Place;
use super::operations::Operations;
use super::pair::{Home, Pair};
use crate::study::failure::Failure;

/// One side of a window.
#[derive(Default)]
pub(super) struct Window {
    /// The buffer of this side, and that of the sender in the window.
    now: Option<(Place, Place)>,
}

impl Operations for Window {
    fn local(&self) -> Role {
        Role::Target
    }

    fn home(&self) -> Home {
        Home::Window
    }

    fn register(&mut self, pair: &mut Pair<'_>, place: Place) -> Result<(), Failure> {
        let other = pair.swap_numbers(place.at as u64)?;
        let at = usize::try_from(other).unwrap_or(usize::MAX);
        self.now = Some((place, Place { at, ..place }));
        Ok(())
    }

    fn deregister(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        self.now = None;
        Ok(())
    }

    #[inline(always)]
    fn copy_local(&mut self, pair: &mut Pair<'_>) -> Result<(), Failure> {
        if let Some((place, other)) = self.now {
            pair.private.copy_from(place, &pair.window, other);
        }
        Ok(())
    }

    #[inline(always)]
    fn copy_remote(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// No transfer.
pub(super) struct Nothing;

impl Operations for Nothing {
    fn local(&self) -> Role {
        Role::Target
    }

    fn register(&mut self, _: &mut Pair<'_>, _: Place) -> Result<(), Failure> {
        Ok(())
    }

    fn deregister(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        Ok(())
    }

    #[inline(always)]
    fn copy_local(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        Ok(())
    }

    #[inline(always)]
    fn copy_remote(&mut self, _: &mut Pair<'_>) -> Result<(), Failure> {
        Ok(())
    }
}
