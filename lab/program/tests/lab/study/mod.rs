//! Tests of the study, run like a user runs it.

mod active;
mod collectives;
mod commands;
mod interfaces;
mod mechanisms;
mod mpi;
mod nemesis;
mod protocols;
mod transfer;

use std::process::{Command, Output};
use std::sync::PoisonError;

use crate::TURN;

/// Runs a study and waits for its end.
fn study(arguments: &[&str]) -> Output {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    command(arguments).output().expect("the program is there")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = crate::command("study");
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
