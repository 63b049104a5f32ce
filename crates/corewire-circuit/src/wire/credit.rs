//! How much one side of a hop may send to the other: credit in lines, for one circuit and direction.
//!
//! The receiving side ([`Intake`]) says up to which line the sending side ([`Outflow`]) may send. Both numbers count all
//! lines since the circuit was set up, modulo 2^32, so that a number that comes twice does no harm, and one that is lost
//! is made up for by the next.
//!
//! Each circuit has a *reserve*, which cannot be taken from it. More is *lent* if the sender asks for it, and *recalled*
//! if others need it: the receiver sends `Recall` and raises nothing until the sender, at its next turn, answers `Return`
//! in the order of its frames. From then on both count from the reserve again.

/// Lines that each direction of a circuit has at every hop.
pub const RESERVE_LINES: u32 = 2;
/// The largest number of lines that are lent in addition.
pub const LOAN_LINES_MAX: u32 = 256;

/// What the sending side of a hop knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Outflow {
    sent_lines: u32,
    limit_lines: u32,
}

impl Outflow {
    /// Nothing has been sent, and up to this line may be.
    #[must_use]
    pub const fn new(limit_lines: u32) -> Self {
        Self { sent_lines: 0, limit_lines }
    }

    /// Lines that may be sent.
    #[inline]
    #[must_use]
    pub const fn room_lines(&self) -> u32 {
        self.limit_lines.wrapping_sub(self.sent_lines)
    }

    /// Lines that have been sent, cumulative.
    #[must_use]
    pub const fn sent_lines(&self) -> u32 {
        self.sent_lines
    }

    /// So many lines are sent now. The caller has looked for room.
    #[inline]
    pub const fn send(&mut self, lines: u32) {
        self.sent_lines = self.sent_lines.wrapping_add(lines);
    }

    /// The other side has granted up to this line. An older grant changes nothing.
    #[inline]
    pub const fn raise(&mut self, credit: u32) {
        if is_after(credit, self.limit_lines) {
            self.limit_lines = credit;
        }
    }

    /// Whether a grant is one that an honest receiver could have made: not more than the largest window ahead.
    #[inline]
    #[must_use]
    pub const fn is_possible(&self, credit: u32, window_lines_max: u32) -> bool {
        !is_after(credit, self.sent_lines.wrapping_add(window_lines_max))
    }

    /// The answer to a recall has been sent: everything beyond the reserve is given back.
    pub const fn returned(&mut self) {
        if self.room_lines() > RESERVE_LINES {
            self.limit_lines = self.sent_lines.wrapping_add(RESERVE_LINES);
        }
    }
}

/// What the receiving side of a hop knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Intake {
    taken_lines: u32,
    granted_lines: u32,
    /// Of those taken, the ones that are still in memory.
    stored_lines: u32,
    window_lines: u16,
    is_recalling: bool,
}

/// The sender has sent more than it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdrawn {
    /// Lines of the frame.
    pub lines: u32,
    /// Lines that it could have had.
    pub granted: u32,
}

impl Intake {
    /// Nothing has come, and a window of this many lines has been granted, at most 65,535.
    #[must_use]
    pub const fn new(window_lines: u32) -> Self {
        let window_lines = short(window_lines);
        Self {
            taken_lines: 0,
            granted_lines: window_lines as u32,
            stored_lines: 0,
            window_lines,
            is_recalling: false,
        }
    }

    /// Lines that have come, cumulative.
    #[must_use]
    pub const fn taken_lines(&self) -> u32 {
        self.taken_lines
    }

    /// Lines that may still come.
    #[inline]
    #[must_use]
    pub const fn outstanding_lines(&self) -> u32 {
        self.granted_lines.wrapping_sub(self.taken_lines)
    }

    /// Lines in memory.
    #[must_use]
    pub const fn stored_lines(&self) -> u32 {
        self.stored_lines
    }

    /// The window.
    #[must_use]
    pub const fn window_lines(&self) -> u32 {
        self.window_lines as u32
    }

    /// Whether a recall has not been answered.
    #[must_use]
    pub const fn is_recalling(&self) -> bool {
        self.is_recalling
    }

    /// A frame of so many lines has come.
    ///
    /// # Errors
    /// It is more than was granted. Nothing has changed.
    #[inline]
    pub const fn take(&mut self, lines: u32) -> Result<(), Overdrawn> {
        let granted = self.outstanding_lines();
        if lines > granted {
            return Err(Overdrawn { lines, granted });
        }
        self.taken_lines = self.taken_lines.wrapping_add(lines);
        Ok(())
    }

    /// A frame that has come stays in memory.
    pub const fn store(&mut self, lines: u32) {
        self.stored_lines += lines;
    }

    /// It has left memory.
    pub const fn release(&mut self, lines: u32) {
        self.stored_lines = self.stored_lines.saturating_sub(lines);
    }

    /// What the next frame to the sender says: everything that there is room for. Tell [`granted`](Self::granted) once it
    /// has been sent.
    #[inline]
    #[must_use]
    pub const fn offer(&self) -> u32 {
        if self.is_recalling {
            // Raises nothing, neither before the sender has given back nor after it.
            return self.taken_lines;
        }
        let due =
            self.taken_lines.wrapping_add(self.window_lines()).wrapping_sub(self.stored_lines);
        if is_after(due, self.granted_lines) { due } else { self.granted_lines }
    }

    /// A frame that says so has been sent.
    #[inline]
    pub const fn granted(&mut self, credit: u32) {
        if is_after(credit, self.granted_lines) {
            self.granted_lines = credit;
        }
    }

    /// Whether a frame must carry credit soon: less than half of the window may still come, and there is room for as much
    /// more.
    #[inline]
    #[must_use]
    pub const fn is_due(&self) -> bool {
        let outstanding = self.outstanding_lines();
        let room = self.window_lines().saturating_sub(outstanding + self.stored_lines);
        !self.is_recalling
            && outstanding * 2 < self.window_lines()
            && room * 2 >= self.window_lines()
            && room > 0
    }

    /// Lends so many lines more. No window is longer than 65,535 lines.
    pub const fn lend(&mut self, lines: u32) {
        self.window_lines = self.window_lines.saturating_add(short(lines));
    }

    /// What a recall must carry: the latest grant.
    #[must_use]
    pub const fn latest(&self) -> u32 {
        self.granted_lines
    }

    /// A recall has been sent: from now on nothing is raised.
    pub const fn recalled(&mut self) {
        self.is_recalling = true;
    }

    /// Lines that are lent.
    #[must_use]
    pub const fn lent_lines(&self) -> u32 {
        self.window_lines().saturating_sub(RESERVE_LINES)
    }

    /// Nothing more comes. Returns the lines that are free again: those in memory stay lent.
    #[must_use]
    pub const fn close(&mut self) -> u32 {
        self.granted_lines = self.taken_lines;
        self.shrink()
    }

    /// Makes the window as small as what is stored and granted allows.
    const fn shrink(&mut self) -> u32 {
        let committed = self.stored_lines + self.outstanding_lines();
        let window = if committed < RESERVE_LINES { RESERVE_LINES } else { committed };
        let free = self.window_lines().saturating_sub(window);
        self.window_lines -= short(free);
        free
    }

    /// The sender has given back. Returns the lines that are free again: those in memory stay lent.
    #[must_use]
    pub const fn returned(&mut self) -> u32 {
        self.is_recalling = false;
        if self.outstanding_lines() > RESERVE_LINES {
            self.granted_lines = self.taken_lines.wrapping_add(RESERVE_LINES);
        }
        self.shrink()
    }
}

/// A window, or a part of one.
#[expect(clippy::cast_possible_truncation, reason = "just compared")]
const fn short(lines: u32) -> u16 {
    if lines < u16::MAX as u32 { lines as u16 } else { u16::MAX }
}

/// Whether one cumulative count is later than another.
#[inline]
#[must_use]
pub const fn is_after(one: u32, other: u32) -> bool {
    let ahead = one.wrapping_sub(other);
    ahead != 0 && ahead < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(out: &mut Outflow, into: &mut Intake) {
        let credit = into.offer();
        into.granted(credit);
        out.raise(credit);
    }

    fn recall(out: &mut Outflow, into: &mut Intake) {
        out.raise(into.latest());
        into.recalled();
    }

    #[test]
    fn credit_goes_round_and_round() {
        let mut out = Outflow::new(RESERVE_LINES);
        let mut into = Intake::new(RESERVE_LINES);
        out.sent_lines = u32::MAX - 5;
        out.limit_lines = u32::MAX - 3;
        into.taken_lines = u32::MAX - 5;
        into.granted_lines = u32::MAX - 3;
        for _ in 0..100 {
            assert_eq!(out.room_lines(), RESERVE_LINES);
            out.send(2);
            into.take(2).unwrap();
            assert_eq!(into.take(1), Err(Overdrawn { lines: 1, granted: 0 }));
            assert!(into.is_due());
            let credit = into.offer();
            into.granted(credit);
            out.raise(credit);
            // The same once more.
            out.raise(into.offer());
        }
    }

    #[test]
    fn what_is_stored_is_not_granted() {
        let mut into = Intake::new(10);
        into.take(10).unwrap();
        into.store(10);
        assert!(!into.is_due());
        assert_eq!(into.offer(), 10);
        into.release(4);
        assert_eq!(into.offer(), 14);
        into.granted(14);
        assert_eq!(into.outstanding_lines(), 4);
    }

    #[test]
    fn a_loan_is_given_back_in_order() {
        let (mut out, mut into) = (Outflow::new(RESERVE_LINES), Intake::new(RESERVE_LINES));
        into.lend(16);
        grant(&mut out, &mut into);
        assert_eq!(out.room_lines(), 18);
        recall(&mut out, &mut into);
        // Sent before the recall has come.
        out.send(3);
        into.take(3).unwrap();
        grant(&mut out, &mut into);
        assert_eq!(out.room_lines(), 15);
        out.returned();
        // An old grant that is repeated after that does not count.
        grant(&mut out, &mut into);
        assert_eq!(out.room_lines(), RESERVE_LINES);
        assert_eq!(into.returned(), 16);
        assert_eq!(into.outstanding_lines(), RESERVE_LINES);
        grant(&mut out, &mut into);
        assert_eq!(out.room_lines(), RESERVE_LINES);
    }

    #[test]
    fn what_is_stored_stays_lent() {
        let (mut out, mut into) = (Outflow::new(RESERVE_LINES), Intake::new(RESERVE_LINES));
        into.lend(16);
        grant(&mut out, &mut into);
        out.send(18);
        into.take(18).unwrap();
        into.store(18);
        recall(&mut out, &mut into);
        out.returned();
        assert_eq!(out.room_lines(), 0);
        assert_eq!(into.returned(), 0);
        into.release(10);
        grant(&mut out, &mut into);
        assert_eq!(out.room_lines(), 10);
        recall(&mut out, &mut into);
        out.returned();
        assert_eq!([into.returned(), out.room_lines(), into.outstanding_lines()], [8, 2, 2]);
        assert_eq!(into.stored_lines() + into.outstanding_lines(), into.window_lines());
    }

    #[test]
    fn a_grant_beyond_any_window_is_seen() {
        let out = Outflow::new(2);
        assert!(out.is_possible(258, 258));
        assert!(!out.is_possible(259, 258));
    }
}
