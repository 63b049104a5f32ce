//! What the workers of a crew do. A program registers its roles, and passes the argument with which a
//! worker was started to [`serve`].

use std::path::{Path, PathBuf};

use corewire::Domain;
use corewire_os::{process, processor};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::board::Board;
use super::places::relax;
use crate::failure::{Doing, Failure};

/// The part of a worker, which gets an order of type `O`.
#[derive(Debug)]
pub struct Role<O> {
    /// Its name, unique in its program.
    pub name: &'static str,
    /// Follows an order.
    pub work: fn(&Worker, O) -> Result<(), Failure>,
}

/// A role with any type of order.
pub trait Work {
    /// The role's name.
    fn name(&self) -> &'static str;

    /// Follows an order.
    ///
    /// # Errors
    /// If the order is of another type, or the work fails.
    fn follow(&self, worker: &Worker, order: Value) -> Result<(), Failure>;
}

impl<O: DeserializeOwned> Work for Role<O> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follow(&self, worker: &Worker, order: Value) -> Result<(), Failure> {
        let order = serde_json::from_value(order).doing("read an order")?;
        (self.work)(worker, order)
    }
}

/// The argument with which a worker is started.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Letter {
    pub(super) role: String,
    pub(super) seat: Seat,
    pub(super) order: Value,
}

/// What a worker needs to know about its crew.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Seat {
    pub(super) index: usize,
    pub(super) board: String,
    pub(super) directory: PathBuf,
    pub(super) cpu: Option<usize>,
    pub(super) must_yield: bool,
}

/// A worker, as its role sees it.
#[derive(Debug)]
pub struct Worker {
    seat: Seat,
    board: Board,
}

impl Worker {
    /// Its index in the crew.
    #[must_use]
    pub fn index(&self) -> usize {
        self.seat.index
    }

    /// What it shares with the rest of the crew.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The directory of the crew, which is removed at the end.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.seat.directory
    }

    /// The processor that it is pinned to.
    #[must_use]
    pub fn cpu(&self) -> Option<usize> {
        self.seat.cpu
    }

    /// Whether loops that poll must yield the processor, because there are too few.
    #[must_use]
    pub fn must_yield(&self) -> bool {
        self.seat.must_yield
    }

    /// Waits a moment in a loop that polls.
    #[inline(always)]
    pub fn relax(&self) {
        relax(self.seat.must_yield);
    }

    /// Opens the domain of the crew.
    ///
    /// # Errors
    /// If the domain cannot be opened.
    pub fn domain(&self) -> Result<Domain, Failure> {
        Domain::open_at(&self.seat.directory).doing("open a domain")
    }

    /// Tells the controller that this worker has reached `step`.
    pub fn reach(&self, step: u64) {
        self.board.reach(self.seat.index, step);
    }

    /// Times a bare line between the first two workers, with so many round trips: now, and at each call of what this
    /// returns. A call returns the times before and after what was done since the last one, one way in nanoseconds, to the
    /// first worker; `None` to the others, and to workers that are not pinned. Both workers make the same calls.
    ///
    /// # Errors
    /// If the board has no memory for the line.
    pub fn line_around(&self, trips: u64) -> Result<impl FnMut() -> Option<[f64; 2]>, Failure> {
        let mut line = self.board.raw_line()?;
        let mut time = move || match (self.seat.cpu, self.seat.index) {
            (Some(_), 0) => Some(line.ask(trips)),
            (Some(_), 1) => {
                line.answer(trips);
                None
            }
            _ => None,
        };
        let mut before = time();
        Ok(move || {
            let after = time();
            let both = before.zip(after).map(|(before, after)| [before, after]);
            before = after;
            both
        })
    }

    /// Sends a report to the controller, as one line of standard output.
    ///
    /// # Errors
    /// If the report cannot be written as JSON.
    pub fn report(&self, report: &impl Serialize) -> Result<(), Failure> {
        println!("{}", serde_json::to_string(report).doing("write a report")?);
        Ok(())
    }
}

/// The whole life of a worker that was started with the argument `letter`: follows its order in its
/// role, which is one of `roles`.
///
/// # Errors
/// If the argument is not one of a crew, or the work fails.
pub fn serve(letter: &str, roles: &[&dyn Work]) -> Result<(), Failure> {
    let Letter { role, seat, order } = serde_json::from_str(letter)
        .map_err(|error| Failure::usage(format!("cannot read an order: {error}")))?;
    let unknown = || Failure::usage(format!("cannot be {role:?}: there is no such role"));
    let known = roles.iter().find(|known| known.name() == role).ok_or_else(unknown)?;
    // A worker that polls does not notice the death of its controller.
    process::end_with_parent().doing("end with the controller")?;
    if let Some(cpu) = seat.cpu {
        processor::pin_to(cpu).doing(format_args!("keep to processor {cpu}"))?;
    }
    let board = Board::open(&seat.board)?;
    known.follow(&Worker { seat, board }, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(worker: &Worker, order: u64) -> Result<(), Failure> {
        worker.reach(order);
        Ok(())
    }

    const ECHO: Role<u64> = Role { name: "echo", work: echo };

    fn worker() -> Worker {
        let board = Board::create(0).unwrap();
        let (directory, index) = (PathBuf::new(), 2);
        let seat = Seat { index, board: board.path(), directory, cpu: None, must_yield: true };
        Worker { seat, board }
    }

    #[test]
    fn a_role_gets_the_order_that_it_was_sent() {
        let worker = worker();
        let order = serde_json::to_value(9u64).unwrap();
        Work::follow(&ECHO, &worker, order).unwrap();
        assert!(worker.board().has_reached(2, 9));
        let other = Work::follow(&ECHO, &worker, Value::from("nine")).unwrap_err();
        assert!(other.message.starts_with("cannot read an order"), "{other}");
    }

    #[test]
    fn an_unknown_role_and_an_unreadable_letter_are_refused() {
        let seat = worker().seat;
        let letter = Letter { role: "pigeon".to_owned(), seat, order: Value::Null };
        let letter = serde_json::to_string(&letter).unwrap();
        for (letter, reason) in [(letter.as_str(), "pigeon"), ("{}", "cannot read an order")] {
            let refused = serve(letter, &[&ECHO]).unwrap_err();
            assert!(refused.code == 2 && refused.message.contains(reason), "{refused}");
        }
    }
}
