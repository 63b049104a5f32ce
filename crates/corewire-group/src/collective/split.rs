//! Communicators made of others: of some of their members, or of all once more.

use super::{CollectiveError, Communicator};

impl Communicator {
    /// Divides the members: those that give the same `color` get a communicator of their own, in which they have the order
    /// of their `key`, and with equal keys that of their ranks here. `None` gets none. All members call it.
    /// (`MPI_Comm_split`; `None` is `MPI_UNDEFINED`)
    ///
    /// The two communicators use endpoints of their own: calls of one are no calls of the other.
    ///
    /// ```no_run
    /// # fn f(all: &mut corewire_group::Communicator) -> Result<(), corewire_group::CollectiveError> {
    /// // Rows of a matrix of 4 columns.
    /// let row = all.rank() / 4;
    /// if let Some(mut row) = all.split(u32::try_from(row).ok(), 0)? {
    ///     row.barrier()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`connect`](super::CommunicatorBuilder::connect); the members that are missing are reported by this
    /// communicator.
    pub fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, CollectiveError> {
        let number = self.calls;
        // No color is 0, and negative keys come first.
        let own = color.map_or(0, |color| u64::from(color) + 1);
        let key = u64::from(key.cast_unsigned() ^ 1 << 31);
        let mut choices = vec![[0; 2]; self.size()];
        self.allgather(&[[own, key]], &mut choices)?;
        if own == 0 {
            return Ok(None);
        }
        let mut ranks: Vec<_> = (0..self.size()).filter(|rank| choices[*rank][0] == own).collect();
        ranks.sort_by_key(|rank| (choices[*rank][1], *rank));
        let rank = ranks.iter().position(|rank| *rank == self.rank).unwrap_or(0);
        let members = ranks.iter().map(|rank| self.members[*rank]).collect();
        let mut origin = self.origin.clone();
        // The same for all, and for no other communicator of the group.
        let key = origin.key.unwrap_or_default();
        origin.key = Some([number, own].into_iter().fold(key, mixed));
        origin.connect(members, rank, &mut |_| self.poll_events()).map(Some)
    }

    /// Another communicator of the same members, whose calls are no calls of this one: for a library that makes collective
    /// calls of its own, for example. All members call it. (`MPI_Comm_dup`)
    ///
    /// # Errors
    /// As for [`split`](Self::split).
    pub fn duplicate(&mut self) -> Result<Self, CollectiveError> {
        let all = self.split(Some(0), 0)?;
        // All have chosen the same color.
        all.ok_or(CollectiveError::NoSuchRank { asked: self.rank, size: self.size() })
    }
}

/// Two numbers as one, in which every bit depends on all (splitmix64: Steele, Lea and Flood, 2014).
const fn mixed(one: u64, other: u64) -> u64 {
    let mixed = one.wrapping_add(other.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
