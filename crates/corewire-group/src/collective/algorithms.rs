//! The calls. Each is first written for a set of ranks; with two levels a call is made of calls among smaller sets.

use std::ops::Range;

use corewire::zerocopy::{FromBytes, Immutable, IntoBytes};
use corewire_ring::copying::{NextReader, copy_slice};

use super::{CollectiveError, Communicator};

/// From so many bytes on, an allreduce cuts its values into a part for each member.
pub(super) const LONG_BYTES: usize = 32 << 10;

/// Up to so many bytes, one member combines the values of all where there are too few processors.
const CENTER_BYTES_MAX: usize = 1024;
/// Parts that are gathered go along a tree if all together have at most so many bytes.
const TREE_BYTES_MAX: usize = 8 << 10;
/// The length of a part goes with those that are gathered.
const LENGTH_BYTES: usize = size_of::<u64>();
/// Parts of an all-to-all of up to so many bytes are all sent before the first one is received where there are too few
/// processors. (With a processor for each, eight members took 3.8 us this way, and 3.4 us in pairs.)
const AT_ONCE_BYTES_MAX: usize = 4096;

/// What can be sent: values without padding, of which every pattern of bits is one.
pub trait Value: FromBytes + IntoBytes + Immutable + Copy {}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Value for T {}

impl Communicator {
    /// Returns when all members have called it.
    ///
    /// # Errors
    /// [`CollectiveError::Ended`].
    pub fn barrier(&mut self) -> Result<(), CollectiveError> {
        let tag = self.begin()?;
        self.in_sets(
            |all, set| all.barrier_among(tag, set),
            |all, set| all.reduce_among(tag, set, 0, &mut [0u8; 0], |one, _| one),
            |all, set| all.broadcast_among(tag, set, 0, &mut [0u8; 0]),
        )
    }

    /// Copies the values of the member with rank `root` to all.
    ///
    /// # Errors
    /// [`CollectiveError`]; `Length` if the members give slices of different lengths.
    pub fn broadcast<T: Value>(
        &mut self,
        root: usize,
        values: &mut [T],
    ) -> Result<(), CollectiveError> {
        let tag = self.begin()?;
        self.check_rank(root)?;
        let sets = self.sets.clone();
        let own = self.own_set(&sets);
        let at = |set: &[usize], rank| set.iter().position(|one| *one == rank);
        if let [set] = &sets[..] {
            return self.broadcast_among(tag, set, root, values);
        }
        // In each other set the first one gets it; in the root's own set the root has it.
        let heads = heads(&sets, root);
        if let Some(at) = at(&heads, root).filter(|_| heads.contains(&self.rank)) {
            self.broadcast_among(tag, &heads, at, values)?;
        }
        let head = heads[own];
        let at = at(&sets[own], head).unwrap_or(0);
        self.broadcast_among(tag, &sets[own], at, values)
    }

    /// Combines the values of all members, element by element, into those of the member with rank `root`. The operation
    /// must be associative and commutative. The slices of the other members hold anything then.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn reduce<T: Value>(
        &mut self,
        root: usize,
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let tag = self.begin()?;
        self.check_rank(root)?;
        let sets = self.sets.clone();
        let at = |set: &[usize], rank| set.iter().position(|one| *one == rank).unwrap_or(0);
        if let [set] = &sets[..] {
            return self.reduce_among(tag, set, root, values, &combine);
        }
        let heads = heads(&sets, root);
        let own = self.own_set(&sets);
        self.reduce_among(tag, &sets[own], at(&sets[own], heads[own]), values, &combine)?;
        match heads.contains(&self.rank) {
            true => self.reduce_among(tag, &heads, at(&heads, root), values, &combine),
            false => Ok(()),
        }
    }

    /// Combines the values of all members, element by element, for all. The operation must be associative and
    /// commutative.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast). After an error `values` hold anything.
    pub fn allreduce<T: Value>(
        &mut self,
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let tag = self.begin()?;
        let values = std::cell::RefCell::new(values);
        self.in_sets(
            |all, set| all.allreduce_among(tag, set, &mut values.borrow_mut(), &combine),
            |all, set| all.reduce_among(tag, set, 0, &mut values.borrow_mut(), &combine),
            |all, set| all.broadcast_among(tag, set, 0, &mut values.borrow_mut()),
        )
    }

    /// Copies the values of all members, in the order of their ranks, into `all` of the member with rank `root`; `all` of
    /// the other members is not used, and may be empty.
    ///
    /// # Errors
    /// [`CollectiveError::Buffer`] if `all` is not as long as the parts together; otherwise as for
    /// [`broadcast`](Self::broadcast).
    pub fn gather<T: Value>(
        &mut self,
        root: usize,
        part: &[T],
        all: &mut [T],
    ) -> Result<(), CollectiveError> {
        let tag = self.begin()?;
        self.check_rank(root)?;
        if self.rank == root {
            check_buffer(all.len(), part.len() * self.size())?;
        }
        if self.size() > 2 {
            let by_tree = size_of_val(part) * self.size() <= TREE_BYTES_MAX;
            let goes = if by_tree { part.as_bytes() } else { &[] };
            let parts = self.gather_by_tree(tag, root, size_of_val(part) as u64, goes)?;
            if by_tree && self.rank == root && !goes.is_empty() {
                for (at, bytes) in (0..self.size()).zip(parts.chunks_exact(goes.len())) {
                    let place = (root + at) % self.size() * part.len();
                    copy_slice(NextReader::Own, bytes, all[place..][..part.len()].as_mut_bytes());
                }
            }
            self.buffer = parts;
            if by_tree {
                return Ok(());
            }
        }
        if self.rank != root {
            self.send(root, tag, part.as_bytes())?;
            return self.settle(size_of_val(part));
        }
        copy_values(part, &mut all[root * part.len()..][..part.len()]);
        for from in self.others() {
            let place = &mut all[from * part.len()..][..part.len()];
            receive_values(self, from, tag, place)?;
        }
        Ok(())
    }

    /// Sends to each member one part of `parts`, in the order of their ranks, and gets one from each into `received`.
    ///
    /// # Errors
    /// [`CollectiveError::Buffer`] if a slice is not a whole number of parts, or the two differ in length; otherwise as
    /// for [`broadcast`](Self::broadcast).
    pub fn all_to_all<T: Value>(
        &mut self,
        parts: &[T],
        received: &mut [T],
    ) -> Result<(), CollectiveError> {
        let tag = self.begin()?;
        let (size, rank) = (self.size(), self.rank);
        let each = parts.len() / size;
        for given in [parts.len(), received.len()] {
            if given != each * size {
                return Err(CollectiveError::Buffer { given, needed: each * size });
            }
        }
        copy_values(&parts[rank * each..][..each], &mut received[rank * each..][..each]);
        let of_step = |step: usize| ((rank + step) % size, (rank + size - step) % size);
        let part_of = |to: usize| parts[to * each..][..each].as_bytes();
        if self.is_crowded && each * size_of::<T>() <= AT_ONCE_BYTES_MAX {
            // All parts are on their way before this member waits for the first one, and others must run.
            for (to, _) in (1..size).map(of_step) {
                self.send(to, tag, part_of(to))?;
            }
            for (_, from) in (1..size).map(of_step) {
                receive_values(self, from, tag, &mut received[from * each..][..each])?;
            }
            return self.settle(each * size_of::<T>());
        }
        // Piece by piece with each other one in turn: nobody is asked by all at once.
        for (to, from) in (1..size).map(of_step) {
            let place = received[from * each..][..each].as_mut_bytes();
            self.send_receive((to, part_of(to)), (from, place), tag)?;
        }
        self.settle(each * size_of::<T>())
    }

    pub(super) fn check_rank(&self, asked: usize) -> Result<(), CollectiveError> {
        match asked < self.size() {
            true => Ok(()),
            false => Err(CollectiveError::NoSuchRank { asked, size: self.size() }),
        }
    }

    /// The index of the set with this member.
    fn own_set(&self, sets: &[Vec<usize>]) -> usize {
        sets.iter().position(|set| set.contains(&self.rank)).unwrap_or(0)
    }

    /// With one level, all together. With two: each set to its first one, these together, and back.
    fn in_sets(
        &mut self,
        together: impl Fn(&mut Self, &[usize]) -> Result<(), CollectiveError>,
        up: impl Fn(&mut Self, &[usize]) -> Result<(), CollectiveError>,
        down: impl Fn(&mut Self, &[usize]) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let sets = std::mem::take(&mut self.sets);
        let done = match &sets[..] {
            [set] => together(self, set),
            sets => {
                let own = &sets[self.own_set(sets)];
                let heads: Vec<usize> = sets.iter().map(|set| set[0]).collect();
                up(self, own)
                    .and_then(|()| match heads.contains(&self.rank) {
                        true => together(self, &heads),
                        false => Ok(()),
                    })
                    .and_then(|()| down(self, own))
            }
        };
        self.sets = sets;
        done
    }

    fn at(&self, set: &[usize]) -> usize {
        set.iter().position(|rank| *rank == self.rank).unwrap_or(0)
    }

    /// Dissemination (Hensgen, Finkel and Manber, 1988): in round r, each hears from the one 2^r before it.
    fn barrier_among(&mut self, tag: u64, set: &[usize]) -> Result<(), CollectiveError> {
        let (size, at) = (set.len(), self.at(set));
        if self.has_center(0) {
            return self.allreduce_at_center(tag, set, &mut [0u8; 0], |one, _| one);
        }
        let mut step = 1;
        while step < size {
            self.send(set[(at + step) % size], tag, &[])?;
            self.receive(set[(at + size - step) % size], tag, &mut [])?;
            step *= 2;
        }
        Ok(())
    }

    /// A binomial tree from `root`, an index in `set`.
    fn broadcast_among<T: Value>(
        &mut self,
        tag: u64,
        set: &[usize],
        root: usize,
        values: &mut [T],
    ) -> Result<(), CollectiveError> {
        let size = set.len();
        let at = (self.at(set) + size - root) % size;
        let other = |at: usize| set[(at + root) % size];
        let mut step = size.next_power_of_two();
        if at > 0 {
            step = 1 << at.trailing_zeros();
            receive_values(self, other(at - step), tag, values)?;
        }
        while step > 1 {
            step /= 2;
            if at + step < size {
                self.send(other(at + step), tag, values.as_bytes())?;
            }
        }
        self.settle(size_of_val(values))
    }

    /// The same tree, towards `root`.
    fn reduce_among<T: Value>(
        &mut self,
        tag: u64,
        set: &[usize],
        root: usize,
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let size = set.len();
        let at = (self.at(set) + size - root) % size;
        let other = |at: usize| set[(at + root) % size];
        let mut step = 1;
        while step < size {
            if at & step != 0 {
                self.send(other(at - step), tag, values.as_bytes())?;
                return self.settle(size_of_val(values));
            }
            if at + step < size {
                self.receive_and_combine(other(at + step), tag, values, &combine)?;
            }
            step *= 2;
        }
        Ok(())
    }

    /// The same tree: each sends the parts that it has, one after the other, so that the root receives few messages. With
    /// each message goes the length of a part: a part of another length is noticed, and not waited for. Returns the parts
    /// from `root` on; at other members anything.
    fn gather_by_tree(
        &mut self,
        tag: u64,
        root: usize,
        length: u64,
        part: &[u8],
    ) -> Result<Vec<u8>, CollectiveError> {
        let size = self.size();
        let at = (self.rank + size - root) % size;
        let other = |at: usize| (at + root) % size;
        let mut parts = std::mem::take(&mut self.buffer);
        parts.clear();
        parts.extend_from_slice(part);
        parts.extend_from_slice(&length.to_le_bytes());
        let mut step = 1;
        while step < size && at & step == 0 {
            if at + step < size {
                // What comes lies over the length, which comes with it again.
                let own = parts.len() - LENGTH_BYTES;
                parts.resize(own + step.min(size - at - step) * part.len() + LENGTH_BYTES, 0);
                let from = other(at + step);
                let bytes = self.receive_some(from, tag, &mut parts[own..])?;
                let found = parts[own..][..bytes].last_chunk().copied().map(u64::from_le_bytes);
                if found != Some(length) || own + bytes != parts.len() {
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    return Err(self.wrong_length(from, found.unwrap_or_default(), length));
                }
            }
            step *= 2;
        }
        if at > 0 {
            self.send(other(at - step), tag, &parts)?;
            self.settle(parts.len())?;
        }
        Ok(parts)
    }

    fn allreduce_among<T: Value>(
        &mut self,
        tag: u64,
        set: &[usize],
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        if size_of_val(values) >= LONG_BYTES && values.len() >= set.len() && set.len() > 2 {
            return self.allreduce_in_parts(tag, set, values, combine);
        }
        if self.has_center(size_of_val(values)) {
            return self.allreduce_at_center(tag, set, values, combine);
        }
        // Those beyond the largest power of two give their values to another one, and get the result.
        let (size, at) = (set.len(), self.at(set));
        let most = (size / 2 + 1).next_power_of_two();
        if at >= most {
            self.send(set[at - most], tag, values.as_bytes())?;
            return receive_values(self, set[at - most], tag, values);
        }
        if at + most < size {
            self.receive_and_combine(set[at + most], tag, values, &combine)?;
        }
        // Recursive doubling.
        let mut step = 1;
        while step < most {
            let (own, other) = (values.as_bytes(), set[at ^ step]);
            let buffer = self.swap((other, own), (other, own.len()), tag)?;
            combine_bytes(values, &buffer, &combine);
            self.buffer = buffer;
            step *= 2;
        }
        if at + most < size {
            self.send(set[at + most], tag, values.as_bytes())?;
        }
        self.settle(size_of_val(values))
    }

    /// Around a ring: each combines one part, and all parts go around once more.
    fn allreduce_in_parts<T: Value>(
        &mut self,
        tag: u64,
        set: &[usize],
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let (size, at) = (set.len(), self.at(set));
        let (next, before) = (set[(at + 1) % size], set[(at + size - 1) % size]);
        let length = values.len();
        let part = |index: usize| {
            let index = index % size;
            index * length / size..(index + 1) * length / size
        };
        for step in 0..size - 1 {
            let due = part(at + 2 * size - step - 1);
            let own = values[part(at + size - step)].as_bytes();
            let bytes = size_of_val(&values[due.clone()]);
            let buffer = self.swap((next, own), (before, bytes), tag)?;
            combine_bytes(&mut values[due], &buffer, &combine);
            self.buffer = buffer;
        }
        for step in 0..size - 1 {
            let due = part(at + size - step);
            let own = part(at + 1 + size - step);
            self.pass_on(next, before, tag, values, [own, due])?;
        }
        self.settle(size_of_val(values))
    }

    /// Whether one member does the work of all: with too few processors what counts is how often each must run, and all
    /// others then run once.
    fn has_center(&self, bytes: usize) -> bool {
        self.is_crowded && bytes <= CENTER_BYTES_MAX
    }

    /// The first one combines the values of all, in the order of their ranks, and sends them back.
    fn allreduce_at_center<T: Value>(
        &mut self,
        tag: u64,
        set: &[usize],
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let (center, others) = set.split_first().unwrap_or((&0, &[]));
        if self.rank != *center {
            self.send(*center, tag, values.as_bytes())?;
            return receive_values(self, *center, tag, values);
        }
        for other in others {
            self.receive_and_combine(*other, tag, values, &combine)?;
        }
        for other in others {
            self.send(*other, tag, values.as_bytes())?;
        }
        self.settle(size_of_val(values))
    }

    /// Sends bytes, and receives so many others in the member's buffer. The caller gives the buffer back.
    pub(super) fn swap(
        &mut self,
        to: (usize, &[u8]),
        (from, bytes): (usize, usize),
        tag: u64,
    ) -> Result<Vec<u8>, CollectiveError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(bytes, 0);
        self.send_receive(to, (from, &mut buffer), tag)?;
        Ok(buffer)
    }

    /// Sends one part of `values`, and receives another one where it belongs.
    pub(super) fn pass_on<T: Value>(
        &mut self,
        to: usize,
        from: usize,
        tag: u64,
        values: &mut [T],
        [own, due]: [Range<usize>; 2],
    ) -> Result<(), CollectiveError> {
        let Ok([own, due]) = values.get_disjoint_mut([own, due]) else {
            unreachable!("parts overlap, or lie behind the end")
        };
        self.send_receive((to, own.as_bytes()), (from, due.as_mut_bytes()), tag)
    }

    fn receive_and_combine<T: Value>(
        &mut self,
        from: usize,
        tag: u64,
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(size_of_val(values), 0);
        let done = self.receive(from, tag, &mut buffer);
        if done.is_ok() {
            combine_bytes(values, &buffer, combine);
        }
        self.buffer = buffer;
        done
    }
}

/// The one of each set that speaks with those of the others: the root in its own set.
fn heads(sets: &[Vec<usize>], root: usize) -> Vec<usize> {
    sets.iter().map(|set| if set.contains(&root) { root } else { set[0] }).collect()
}

/// Combines values with those that these bytes are.
pub(super) fn combine_bytes<T: Value>(
    values: &mut [T],
    others: &[u8],
    combine: impl Fn(T, T) -> T,
) {
    for (value, other) in values.iter_mut().zip(others.chunks_exact(size_of::<T>().max(1))) {
        if let Ok(other) = T::read_from_bytes(other) {
            *value = combine(*value, other);
        }
    }
}

pub(super) fn receive_values<T: Value>(
    all: &mut Communicator,
    from: usize,
    tag: u64,
    values: &mut [T],
) -> Result<(), CollectiveError> {
    all.receive(from, tag, values.as_mut_bytes())
}

/// Copies a part to where it belongs. Not by `memcpy`, which is slow on some processors from some addresses to others.
pub(super) fn copy_values<T: Value>(from: &[T], to: &mut [T]) {
    copy_slice(NextReader::Own, from.as_bytes(), to.as_mut_bytes());
}

/// Whether a buffer has the length that a call needs.
pub(super) fn check_buffer(given: usize, needed: usize) -> Result<(), CollectiveError> {
    match given == needed {
        true => Ok(()),
        false => Err(CollectiveError::Buffer { given, needed }),
    }
}
