//! Mistakes with windows.

use corewire_kill::windows::Windows;
use corewire_ring::sync::kill::Fate;

use super::{at, must_be_found};

#[test]
fn a_death_that_nobody_learns_of() {
    must_be_found::<Windows>("a fence with one that has ended waits", |world| {
        world.hides_deaths = true
    });
}

#[test]
fn a_lock_that_is_not_given_back() {
    must_be_found::<Windows>("the lock is not free", |world| {
        at(world.lock_word(), |value| if value == 0 { Fate::Lost } else { Fate::Made });
    });
}

#[test]
fn a_lock_that_is_given_back_under_another_word() {
    must_be_found::<Windows>("the lock is not free", |world| {
        at(world.lock_word(), |value| if value == 0 { Fate::Changed(7) } else { Fate::Made });
    });
}
