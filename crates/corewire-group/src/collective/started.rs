//! Calls that are started, and waited for later.
//!
//! A started call is a list of rounds, each of messages to send and to receive. They are sent and received while a member
//! is in any call of the communicator: there is no other thread. What a round has received is combined with the member's
//! values, or copied into them, before the next round. The trees are those of the calls that wait.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use corewire::zerocopy::IntoBytes;
use corewire_ring::copying::{NextReader, copy_slice};

use super::algorithms::{Value, check_buffer, combine_bytes};
use super::link::{LOOKS_EVERY, PIECE_BYTES};
use super::{CollectiveError, Communicator};

/// A call that was started. [`Communicator::wait`] gives its result. If it is dropped, the call is finished within later
/// calls of the communicator, for the other members, and its result is not kept.
#[must_use = "`Communicator::wait` gives the result"]
pub struct Request<T> {
    /// Held as long as somebody wants the result.
    wanted: Arc<()>,
    values: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request")
    }
}

type Combine = Box<dyn Fn(&mut [u8], &[u8]) + Send>;

/// A call under way.
pub(super) struct Started {
    tag: u64,
    rounds: VecDeque<Vec<Step>>,
    /// What the call works on.
    values: Vec<u8>,
    /// The part of them that is the result.
    result: Range<usize>,
    /// Combines values with others that came.
    combine: Combine,
    wanted: Weak<()>,
}

/// A message of a round.
struct Step {
    other: usize,
    is_receive: bool,
    /// Where its bytes come from or go to in the values.
    place: Range<usize>,
    /// Of a message that is received: whether it is combined with the values, or replaces them.
    is_combined: bool,
    /// What has come.
    came: Vec<u8>,
    /// How many bytes have gone or come.
    done: usize,
    is_over: bool,
}

fn send(to: usize, place: Range<usize>) -> Step {
    let (came, done) = (Vec::new(), 0);
    Step { other: to, is_receive: false, place, is_combined: false, came, done, is_over: false }
}

fn receive(from: usize, place: Range<usize>) -> Step {
    let came = vec![0; place.len()];
    Step { other: from, is_receive: true, place, is_combined: false, came, done: 0, is_over: false }
}

fn combine_with(from: usize, place: Range<usize>) -> Step {
    Step { is_combined: true, ..receive(from, place) }
}

type Rounds = VecDeque<Vec<Step>>;

/// A binomial tree from `root`: what to receive first, then what to send.
fn down(rank: usize, size: usize, root: usize, all: &Range<usize>) -> Rounds {
    let at = (rank + size - root) % size;
    let other = |at: usize| (at + root) % size;
    let mut rounds = Rounds::new();
    let mut step = size.next_power_of_two();
    if at > 0 {
        step = 1 << at.trailing_zeros();
        rounds.push_back(vec![receive(other(at - step), all.clone())]);
    }
    let mut sends = Vec::new();
    while step > 1 {
        step /= 2;
        if at + step < size {
            sends.push(send(other(at + step), all.clone()));
        }
    }
    rounds.push_back(sends);
    rounds
}

/// The same tree, towards `root`.
fn up(rank: usize, size: usize, root: usize, all: &Range<usize>) -> Rounds {
    let at = (rank + size - root) % size;
    let other = |at: usize| (at + root) % size;
    let mut rounds = Rounds::new();
    let mut step = 1;
    while step < size {
        if at & step != 0 {
            rounds.push_back(vec![send(other(at - step), all.clone())]);
            break;
        }
        if at + step < size {
            rounds.push_back(vec![combine_with(other(at + step), all.clone())]);
        }
        step *= 2;
    }
    rounds
}

fn no_combine(_: &mut [u8], _: &[u8]) {}

/// Combines values with those that come from lower ranks or from any.
fn combiner<T: Value>(
    combine: impl Fn(T, T) -> T + Send + 'static,
    is_lower_first: bool,
) -> Combine {
    Box::new(move |values, came| {
        let bytes = size_of::<T>().max(1);
        for (value, came) in values.chunks_exact_mut(bytes).zip(came.chunks_exact(bytes)) {
            if let Ok(own) = T::read_from_bytes(value) {
                let mut one = [own];
                let both = |own, other| match is_lower_first {
                    true => combine(other, own),
                    false => combine(own, other),
                };
                combine_bytes(&mut one, came, both);
                value.copy_from_slice(one.as_bytes());
            }
        }
    })
}

impl Communicator {
    fn start<T: Value>(
        &mut self,
        rounds: Rounds,
        values: Vec<u8>,
        result: Range<usize>,
        combine: Combine,
    ) -> Result<Request<T>, CollectiveError> {
        let tag = self.begin()?;
        let wanted = Arc::new(());
        let started =
            Started { tag, rounds, values, result, combine, wanted: Arc::downgrade(&wanted) };
        self.under_way.push(started);
        self.advance_all()?;
        Ok(Request { wanted, values: PhantomData })
    }

    /// Starts a [`barrier`](Self::barrier). (`MPI_Ibarrier`)
    ///
    /// # Errors
    /// [`CollectiveError::Ended`].
    pub fn ibarrier(&mut self) -> Result<Request<()>, CollectiveError> {
        let (size, rank) = (self.size(), self.rank);
        let mut rounds = Rounds::new();
        let mut step = 1;
        while step < size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            rounds.push_back(vec![send(to, 0..0), receive(from, 0..0)]);
            step *= 2;
        }
        self.start(rounds, Vec::new(), 0..0, Box::new(no_combine))
    }

    /// Starts a [`broadcast`](Self::broadcast): the result are the root's values. (`MPI_Ibcast`)
    ///
    /// ```no_run
    /// # fn f(all: &mut corewire_group::Communicator) -> Result<(), corewire_group::CollectiveError> {
    /// let settings = if all.rank() == 0 { vec![7, 8, 9] } else { vec![0; 3] };
    /// let started = all.ibroadcast(0, &settings)?;
    /// // What needs no settings is done here.
    /// let settings: Vec<i32> = all.wait(started)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn ibroadcast<T: Value>(
        &mut self,
        root: usize,
        values: &[T],
    ) -> Result<Request<T>, CollectiveError> {
        self.check_rank(root)?;
        let all = 0..size_of_val(values);
        let rounds = down(self.rank, self.size(), root, &all);
        self.start(rounds, values.as_bytes().to_vec(), all, Box::new(no_combine))
    }

    /// Starts a [`reduce`](Self::reduce): the result is that of all values at the root, and nothing at the others.
    /// (`MPI_Ireduce`)
    ///
    /// # Errors
    /// As for [`reduce`](Self::reduce).
    pub fn ireduce<T: Value>(
        &mut self,
        root: usize,
        values: &[T],
        combine: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<Request<T>, CollectiveError> {
        self.check_rank(root)?;
        let all = 0..size_of_val(values);
        let rounds = up(self.rank, self.size(), root, &all);
        let result = if self.rank == root { all } else { 0..0 };
        self.start(rounds, values.as_bytes().to_vec(), result, combiner(combine, false))
    }

    /// Starts an [`allreduce`](Self::allreduce). (`MPI_Iallreduce`)
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn iallreduce<T: Value>(
        &mut self,
        values: &[T],
        combine: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<Request<T>, CollectiveError> {
        let all = 0..size_of_val(values);
        let mut rounds = up(self.rank, self.size(), 0, &all);
        rounds.extend(down(self.rank, self.size(), 0, &all));
        self.start(rounds, values.as_bytes().to_vec(), all, combiner(combine, false))
    }

    /// Starts a [`gather`](Self::gather): the result are all parts at the root, and nothing at the others.
    /// (`MPI_Igather`)
    ///
    /// # Errors
    /// As for [`gather`](Self::gather).
    pub fn igather<T: Value>(
        &mut self,
        root: usize,
        part: &[T],
    ) -> Result<Request<T>, CollectiveError> {
        self.check_rank(root)?;
        if self.rank != root {
            let rounds = Rounds::from([vec![send(root, 0..size_of_val(part))]]);
            let values = part.as_bytes().to_vec();
            return self.start(rounds, values, 0..0, Box::new(no_combine));
        }
        let (values, place) = self.place_part(part);
        let receives = self.others().map(|from| receive(from, place(from))).collect();
        let all = 0..values.len();
        self.start(Rounds::from([receives]), values, all, Box::new(no_combine))
    }

    /// Starts a [`scatter`](Self::scatter) of parts of `part_length` values: the result is this member's part. `all` of members
    /// other than the root is not used, and may be empty. (`MPI_Iscatter`)
    ///
    /// # Errors
    /// As for [`scatter`](Self::scatter).
    pub fn iscatter<T: Value>(
        &mut self,
        root: usize,
        all: &[T],
        part_length: usize,
    ) -> Result<Request<T>, CollectiveError> {
        self.check_rank(root)?;
        let whole = part_length.saturating_mul(self.size());
        let is_possible =
            whole.checked_mul(size_of::<T>()).is_some_and(|it| it <= isize::MAX as usize);
        if !is_possible {
            check_buffer(all.len(), whole)?;
        }
        let bytes = part_length * size_of::<T>();
        if self.rank != root {
            let rounds = Rounds::from([vec![receive(root, 0..bytes)]]);
            return self.start(rounds, vec![0; bytes], 0..bytes, Box::new(no_combine));
        }
        check_buffer(all.len(), whole)?;
        let place = |rank: usize| rank * bytes..(rank + 1) * bytes;
        let sends = self.others().map(|to| send(to, place(to))).collect();
        let values = all.as_bytes().to_vec();
        self.start(Rounds::from([sends]), values, place(root), Box::new(no_combine))
    }

    /// Starts an [`allgather`](Self::allgather): the result are all parts. (`MPI_Iallgather`)
    ///
    /// # Errors
    /// As for [`allgather`](Self::allgather).
    pub fn iallgather<T: Value>(&mut self, part: &[T]) -> Result<Request<T>, CollectiveError> {
        let (values, place) = self.place_part(part);
        let own = place(self.rank);
        let steps = self
            .others()
            .flat_map(|other| [send(other, own.clone()), receive(other, place(other))]);
        let rounds = Rounds::from([steps.collect()]);
        let all = 0..values.len();
        self.start(rounds, values, all, Box::new(no_combine))
    }

    /// Starts an [`all_to_all`](Self::all_to_all): the result are the parts that others have sent to this member.
    /// (`MPI_Ialltoall`)
    ///
    /// # Errors
    /// As for [`all_to_all`](Self::all_to_all).
    pub fn iall_to_all<T: Value>(&mut self, parts: &[T]) -> Result<Request<T>, CollectiveError> {
        let each = parts.len() / self.size();
        check_buffer(parts.len(), each * self.size())?;
        let (bytes, half) = (each * size_of::<T>(), size_of_val(parts));
        // What comes lies behind what goes.
        let mut values = parts.as_bytes().repeat(2);
        let place = |rank: usize| rank * bytes..(rank + 1) * bytes;
        let behind = |rank: usize| half + rank * bytes..half + (rank + 1) * bytes;
        values.copy_within(place(self.rank), behind(self.rank).start);
        let steps = self
            .others()
            .flat_map(|other| [send(other, place(other)), receive(other, behind(other))]);
        let rounds = Rounds::from([steps.collect()]);
        self.start(rounds, values, half..2 * half, Box::new(no_combine))
    }

    /// Starts a [`reduce_scatter`](Self::reduce_scatter): the result is this member's part. (`MPI_Ireduce_scatter_block`)
    ///
    /// # Errors
    /// As for [`reduce_scatter`](Self::reduce_scatter).
    pub fn ireduce_scatter<T: Value>(
        &mut self,
        values: &[T],
        combine: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<Request<T>, CollectiveError> {
        let each = values.len() / self.size();
        check_buffer(values.len(), each * self.size())?;
        let bytes = each * size_of::<T>();
        let place = |rank: usize| rank * bytes..(rank + 1) * bytes;
        let own = place(self.rank);
        let steps = self
            .others()
            .flat_map(|other| [send(other, place(other)), combine_with(other, own.clone())]);
        let rounds = Rounds::from([steps.collect()]);
        self.start(rounds, values.as_bytes().to_vec(), own, combiner(combine, false))
    }

    /// Starts a [`scan`](Self::scan). (`MPI_Iscan`)
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn iscan<T: Value>(
        &mut self,
        values: &[T],
        combine: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<Request<T>, CollectiveError> {
        let (size, rank, all) = (self.size(), self.rank, 0..size_of_val(values));
        let mut rounds = Rounds::new();
        let mut step = 1;
        while step < size {
            let to = (rank + step < size).then(|| send(rank + step, all.clone()));
            let from = rank.checked_sub(step).map(|from| combine_with(from, all.clone()));
            rounds.push_back(to.into_iter().chain(from).collect());
            step *= 2;
        }
        self.start(rounds, values.as_bytes().to_vec(), all, combiner(combine, true))
    }

    /// Room for the parts of all with this member's in it, and where each lies.
    fn place_part<T: Value>(
        &self,
        part: &[T],
    ) -> (Vec<u8>, impl Fn(usize) -> Range<usize> + use<T>) {
        let bytes = size_of_val(part);
        let place = move |rank: usize| rank * bytes..(rank + 1) * bytes;
        let mut values = vec![0; bytes * self.size()];
        copy_slice(NextReader::Own, part.as_bytes(), &mut values[place(self.rank)]);
        (values, place)
    }

    /// Sends and receives what is possible now, for all calls that were started. Whether this one is over: then
    /// [`wait`](Self::wait) does not wait. (`MPI_Test`)
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn test<T>(&mut self, request: &Request<T>) -> Result<bool, CollectiveError> {
        self.advance_all()?;
        let at = self.place_of(request)?;
        Ok(self.under_way[at].rounds.is_empty())
    }

    /// Waits for the end of a call that was started, and gives its result. (`MPI_Wait`)
    ///
    /// # Errors
    /// As for the call that was started; [`CollectiveError::Foreign`] for a request of another communicator.
    pub fn wait<T: Value>(&mut self, request: Request<T>) -> Result<Vec<T>, CollectiveError> {
        loop {
            self.advance_all()?;
            let at = self.place_of(&request)?;
            if self.under_way[at].rounds.is_empty() {
                let Started { values, result, .. } = self.under_way.remove(at);
                self.settle(values.len())?;
                let values = values[result].chunks_exact(size_of::<T>().max(1));
                return Ok(values.filter_map(|value| T::read_from_bytes(value).ok()).collect());
            }
            self.wait_for_step(at)?;
        }
    }

    fn place_of<T>(&self, request: &Request<T>) -> Result<usize, CollectiveError> {
        let wanted = Arc::as_ptr(&request.wanted);
        let is_it = |started: &Started| std::ptr::eq(started.wanted.as_ptr(), wanted);
        self.under_way.iter().position(is_it).ok_or(CollectiveError::Foreign)
    }

    /// Sleeps until the first message has come that this call waits for, or for a moment.
    fn wait_for_step(&mut self, at: usize) -> Result<(), CollectiveError> {
        let round = self.under_way[at].rounds.front();
        let mut steps = round.into_iter().flatten();
        let Some(index) = steps.position(|step| step.is_receive && !step.is_over) else {
            return self.wait_for_room();
        };
        let mut started = self.under_way.remove(at);
        let tag = started.tag;
        let step = &mut started.rounds[0][index];
        let end = step.came.len().min(step.done + PIECE_BYTES);
        let from = step.other;
        let came = self.receive_within(from, tag, LOOKS_EVERY, &mut step.came[step.done..end]);
        let taken = came.and_then(|bytes| match bytes {
            Some(bytes) if bytes != end - step.done => {
                Err(self.wrong_length(from, bytes as u64, end - step.done))
            }
            Some(_) => {
                (step.done, step.is_over) = (end, end == step.came.len());
                Ok(())
            }
            None => Ok(()),
        });
        self.under_way.insert(at, started);
        taken
    }

    /// Goes on with all calls that were started.
    pub(super) fn advance_all(&mut self) -> Result<(), CollectiveError> {
        if self.under_way.is_empty() {
            return Ok(());
        }
        let mut calls = std::mem::take(&mut self.under_way);
        let advanced = calls.iter_mut().try_for_each(|call| self.advance(call));
        calls.retain(|call| !call.rounds.is_empty() || call.wanted.strong_count() > 0);
        self.under_way = calls;
        advanced
    }

    fn advance(&mut self, call: &mut Started) -> Result<(), CollectiveError> {
        let Started { tag, rounds, values, combine, .. } = call;
        while let Some(round) = rounds.front_mut() {
            for step in round.iter_mut().filter(|step| !step.is_over) {
                match step.is_receive {
                    true => self.advance_receive(*tag, step)?,
                    false => self.advance_send(*tag, step, values)?,
                }
            }
            if round.iter().any(|step| !step.is_over) {
                return Ok(());
            }
            for step in round.iter().filter(|step| step.is_receive) {
                match step.is_combined {
                    true => combine(&mut values[step.place.clone()], &step.came),
                    false => {
                        copy_slice(NextReader::Own, &step.came, &mut values[step.place.clone()])
                    }
                }
            }
            rounds.pop_front();
        }
        Ok(())
    }

    fn advance_send(
        &mut self,
        tag: u64,
        step: &mut Step,
        values: &[u8],
    ) -> Result<(), CollectiveError> {
        let bytes = &values[step.place.clone()];
        while !step.is_over {
            let end = bytes.len().min(step.done + PIECE_BYTES);
            if !self.send_now(step.other, tag, &bytes[step.done..end])? {
                break;
            }
            (step.done, step.is_over) = (end, end == bytes.len());
        }
        Ok(())
    }

    fn advance_receive(&mut self, tag: u64, step: &mut Step) -> Result<(), CollectiveError> {
        while !step.is_over {
            let end = step.came.len().min(step.done + PIECE_BYTES);
            let place = &mut step.came[step.done..end];
            match self.receive_within(step.other, tag, Duration::ZERO, place)? {
                None => break,
                Some(bytes) if bytes != end - step.done => {
                    return Err(self.wrong_length(step.other, bytes as u64, end - step.done));
                }
                Some(_) => (step.done, step.is_over) = (end, end == step.came.len()),
            }
        }
        Ok(())
    }
}
