//! Roles that die after each of their stores.

#![cfg(corewire_kill)]

mod deaths;
mod mistakes;
mod points;
