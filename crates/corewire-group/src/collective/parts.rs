//! Calls in which each member has, or gets, a part of the whole; and those in which each gets what came before it.

use corewire::zerocopy::IntoBytes;

use super::algorithms::{
    LONG_BYTES, Value, check_buffer, combine_bytes, copy_values, receive_values,
};
use super::{CollectiveError, Communicator};

impl Communicator {
    /// Copies the values of all members, in the order of their ranks, into `all` of each. (`MPI_Allgather`)
    ///
    /// # Errors
    /// [`CollectiveError::Buffer`] if `all` is not as long as the parts together; otherwise as for
    /// [`broadcast`](Self::broadcast). After an error `all` holds anything.
    pub fn allgather<T: Value>(
        &mut self,
        part: &[T],
        all: &mut [T],
    ) -> Result<(), CollectiveError> {
        let tag = self.begin()?;
        let (size, rank, each) = (self.size(), self.rank, part.len());
        check_buffer(all.len(), each * size)?;
        copy_values(part, &mut all[rank * each..][..each]);
        if size_of::<T>() == 0 {
            // Nothing to send, and no value to count parts by.
            return Ok(());
        }
        if size_of_val(all) >= LONG_BYTES {
            // Around a ring, so that each part is sent by a member that has just read it.
            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            for step in 0..size.saturating_sub(1) {
                let part = |back: usize| (rank + 2 * size - back) % size * each;
                let place = |back: usize| part(back)..part(back) + each;
                self.pass_on(next, before, tag, all, [place(step), place(step + 1)])?;
            }
            return self.settle(size_of_val(all));
        }
        // Bruck et al., 1997: after round r a member has the parts of 2^r members, from its own one on.
        let mut have = 1;
        let mut parts = part.to_vec();
        while have < size {
            let more = have.min(size - have);
            let (to, from) = ((rank + size - have) % size, (rank + have) % size);
            let own = parts[..more * each].as_bytes();
            let buffer = self.swap((to, own), (from, own.len()), tag)?;
            parts.extend(buffer.chunks_exact(size_of::<T>().max(1)).filter_map(|value| {
                // A chunk has the length of a value.
                T::read_from_bytes(value).ok()
            }));
            self.buffer = buffer;
            have += more;
        }
        for (step, one) in parts.chunks_exact(each.max(1)).enumerate() {
            copy_values(one, &mut all[(rank + step) % size * each..][..each]);
        }
        self.settle(size_of_val(all))
    }

    /// Copies a part of `all` of the member with rank `root` to each member, in the order of their ranks; `all` of the others
    /// is not used, and may be empty. (`MPI_Scatter`)
    ///
    /// # Errors
    /// As for [`allgather`](Self::allgather).
    pub fn scatter<T: Value>(
        &mut self,
        root: usize,
        all: &[T],
        part: &mut [T],
    ) -> Result<(), CollectiveError> {
        let tag = self.begin()?;
        self.check_rank(root)?;
        let (size, each) = (self.size(), part.len());
        if self.rank == root {
            check_buffer(all.len(), each * size)?;
            for other in self.others() {
                self.send(other, tag, all[other * each..][..each].as_bytes())?;
            }
            copy_values(&all[root * each..][..each], part);
            return self.settle(size_of_val(part));
        }
        receive_values(self, root, tag, part)
    }

    /// Combines the values of all members, element by element, and gives each member its part of the result, in the order of
    /// their ranks. The operation must be associative and commutative. `values` hold anything then.
    /// (`MPI_Reduce_scatter_block`)
    ///
    /// # Errors
    /// [`CollectiveError::Buffer`] if `values` are not as many as the parts together; otherwise as for
    /// [`broadcast`](Self::broadcast).
    pub fn reduce_scatter<T: Value>(
        &mut self,
        values: &mut [T],
        part: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let (size, rank, each) = (self.size(), self.rank, part.len());
        check_buffer(values.len(), each * size)?;
        if size_of_val(values) < LONG_BYTES {
            self.allreduce(values, combine)?;
            copy_values(&values[rank * each..][..each], part);
            return Ok(());
        }
        // Around a ring: each part is combined by one member after the other, and last by its own.
        let tag = self.begin()?;
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        for step in 0..size - 1 {
            let place = |back: usize| (rank + 2 * size - back) % size * each;
            let own = values[place(step + 1)..][..each].as_bytes();
            let buffer = self.swap((next, own), (before, own.len()), tag)?;
            combine_bytes(&mut values[place(step + 2)..][..each], &buffer, &combine);
            self.buffer = buffer;
        }
        copy_values(&values[rank * each..][..each], part);
        self.settle(size_of_val(values))
    }

    /// Combines, for each member, the values of those with lower ranks and its own, element by element. The operation must
    /// be associative; it gets the values of the lower ranks first. (`MPI_Scan`)
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scan<T: Value>(
        &mut self,
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let own = values.to_vec();
        let before = self.before(&own, &combine)?;
        if let Some(before) = before {
            for (value, before) in values.iter_mut().zip(before) {
                *value = combine(before, *value);
            }
        }
        Ok(())
    }

    /// The same without the member's own values. The first member has none before it, and keeps its own. (`MPI_Exscan`)
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn exscan<T: Value>(
        &mut self,
        values: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), CollectiveError> {
        let own = values.to_vec();
        if let Some(before) = self.before(&own, &combine)? {
            copy_values(&before, values);
        }
        Ok(())
    }

    /// What the members before this one have, combined. Recursive doubling (Hillis and Steele, 1986): before round r a
    /// member knows the combination of 2^r members up to itself.
    fn before<T: Value>(
        &mut self,
        own: &[T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<Option<Vec<T>>, CollectiveError> {
        let tag = self.begin()?;
        let (size, rank, bytes) = (self.size(), self.rank, size_of_val(own));
        let (mut known, mut before) = (own.to_vec(), None::<Vec<T>>);
        let mut step = 1;
        while step < size {
            let (to, from) = (rank + step, rank.checked_sub(step));
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(bytes, 0);
            match (to < size, from) {
                (true, Some(from)) => {
                    self.send_receive((to, known.as_bytes()), (from, &mut buffer), tag)?;
                }
                (true, None) => self.send(to, tag, known.as_bytes())?,
                (false, Some(from)) => self.receive(from, tag, &mut buffer)?,
                (false, None) => {}
            }
            if from.is_some() {
                let lower = |value: T, lower: T| combine(lower, value);
                combine_bytes(&mut known, &buffer, lower);
                match &mut before {
                    Some(before) => combine_bytes(before, &buffer, lower),
                    None => {
                        let mut first = own.to_vec();
                        combine_bytes(&mut first, &buffer, |_, lower| lower);
                        before = Some(first);
                    }
                }
            }
            self.buffer = buffer;
            step *= 2;
        }
        self.settle(bytes)?;
        Ok(before)
    }
}
