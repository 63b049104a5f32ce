//! The lengths of short messages, from some slots of a ring.
//!
//! A sender does not count the bytes of messages of up to 48 bytes: one store for each message would cost it 5 % of
//! streaming. Their lengths are in the slots. An observer reads a few slots, the newest and some older ones, and
//! estimates the rest. Each slot that it reads is one line transfer, which can delay the sender only when the sender
//! reuses that slot.

use corewire_ring::broadcast::inline_bytes_of;
use corewire_ring::region::Slots;

/// Number of newest messages, all of which are read.
const NEWEST: u64 = 32;
/// Number of older messages that are read, spread evenly over the rest of the ring.
const OLDER: u64 = 32;

/// A message that was in the ring when an observer looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageSample {
    /// Its number in the channel, from 0.
    pub sequence: u64,
    /// Its bytes if it has at most 48, and 0 if it is longer.
    pub short_bytes: u64,
}

/// Up to 64 of the messages in the ring of a channel that has carried `sent`, newest first.
pub(super) fn sample(slots: &Slots, sent: u64) -> Vec<MessageSample> {
    let look = |sequence| {
        let short_bytes = inline_bytes_of(slots, sequence)?;
        Some(MessageSample { sequence, short_bytes })
    };
    sequences(sent, slots.count()).filter_map(look).collect()
}

/// The numbers of the messages to read, of those that can be in a ring of `slots`.
fn sequences(sent: u64, slots: u64) -> impl Iterator<Item = u64> {
    let held = sent.min(slots);
    let newest = held.min(NEWEST);
    let rest = held - newest;
    let step = rest.div_ceil(OLDER).max(1);
    let older = (0..rest / step).map(move |index| newest + index * step + step / 2);
    (0..newest).chain(older).map(move |back| sent - 1 - back)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_messages_are_read_and_some_of_the_others() {
        assert_eq!(sequences(0, 64).count(), 0);
        assert_eq!(sequences(3, 64).collect::<Vec<_>>(), [2, 1, 0]);
        for (sent, slots) in [(33, 64), (64, 64), (1000, 64), (20_000, 4096), (1 << 40, 16_384)] {
            let all: Vec<_> = sequences(sent, slots).collect();
            assert!(all.len() <= 64 && all.len() >= 32, "{} of {sent}", all.len());
            assert!(all.is_sorted_by(|newer, older| newer > older), "{all:?}");
            assert_eq!(all[..32], (0..32).map(|back| sent - 1 - back).collect::<Vec<_>>());
            let oldest = all[all.len() - 1];
            assert!(oldest >= sent.saturating_sub(slots), "{oldest} is not in the ring");
            assert!(sent - oldest > slots.min(sent) / 2, "{oldest} is not old");
        }
    }
}
