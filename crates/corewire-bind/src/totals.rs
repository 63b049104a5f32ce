//! What a service has served, method by method: counts, bytes and times since it began, also of
//! clients that have gone.
//!
//! Only the service's thread writes and reads them. Of every 16 calls of a method one is timed, from when the service's
//! thread takes the request until it sends the reply. That costs two looks at the clock in 16 calls. Messages without a
//! reply are not timed.

use std::fmt;
use std::time::{Duration, Instant};

use crate::exchange::{Cursor, Description, put_name};

/// Of so many calls of a method, one is timed.
pub const TIMED_OF: u64 = 16;

/// Parts of each power of two that have buckets of their own.
const PARTS: u32 = 8;
/// Longer times are counted with those of the last bucket: half an hour.
const LONGEST_BITS: u32 = 41;
const BUCKETS: usize = ((LONGEST_BITS - PARTS.ilog2() + 1) * PARTS) as usize;

/// What a service has served of one method since it began.
///
/// ```
/// use corewire_bind::MethodTotals;
/// use std::time::Duration;
///
/// fn line(totals: &MethodTotals) -> String {
///     let p99 = totals.times.percentile(99.0).unwrap_or(Duration::ZERO);
///     format!("{}: {} requests, p99 {p99:?}", totals.method, totals.requests)
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodTotals {
    /// Its name in the interface file.
    pub method: String,
    /// Requests, or messages without a reply, that came.
    pub requests: u64,
    /// Replies that were sent, errors among them. Of a stream, its end.
    pub replies: u64,
    /// Those that say that the call failed: an error of the interface, no reply at all, or a request that could not be
    /// decoded.
    pub errors: u64,
    /// Bytes of the requests' arguments.
    pub request_bytes: u64,
    /// Bytes of the replies' results, and of streams' parts.
    pub reply_bytes: u64,
    /// How long one call in 16 took in the service.
    pub times: Times,
}

/// A histogram of times, in buckets that are an eighth of a power of two of nanoseconds wide: a percentile is at most 12.5 %
/// too long.
#[derive(Clone, PartialEq, Eq)]
pub struct Times {
    counts: Box<[u32; BUCKETS]>,
    /// Their sum.
    nanoseconds: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), nanoseconds: 0 }
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket_of(nanoseconds)) {
            *count = count.saturating_add(1);
        }
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds);
    }

    /// Their sum.
    #[must_use]
    pub const fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// How many times are in it.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().copied().map(u64::from).sum()
    }

    /// The time that `percent` of those in it do not exceed; `None` if there are none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let count = self.count();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among the times"
        )]
        let rank = (count as f64 * percent.clamp(0.0, 100.0) / 100.0).ceil().max(1.0) as u64;
        let mut so_far = 0;
        self.buckets().find_map(|(up_to, count)| {
            so_far += count;
            (so_far >= rank).then_some(up_to)
        })
    }

    /// Those that are not empty: the longest time in each, and how many are in it, shortest times first.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let full = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        full.map(|(bucket, count)| (Duration::from_nanos(longest_of(bucket)), u64::from(*count)))
    }

    /// What came since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut times = self.clone();
        let both = times.counts.iter_mut().zip(&*earlier.counts);
        both.for_each(|(now, then)| *now = now.saturating_sub(*then));
        times.nanoseconds = times.nanoseconds.saturating_sub(earlier.nanoseconds);
        times
    }

    /// Adds those of another histogram.
    pub fn merge(&mut self, other: &Self) {
        let both = self.counts.iter_mut().zip(&*other.counts);
        both.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
    }
}

/// Where a time is counted.
fn bucket_of(nanoseconds: u64) -> usize {
    let longest = (1 << LONGEST_BITS) - 1;
    let time = nanoseconds.clamp(0, longest);
    let power = time.max(1).ilog2().max(PARTS.ilog2()) - PARTS.ilog2();
    power as usize * PARTS as usize + usize::try_from(time >> power).unwrap_or(usize::MAX)
}

/// The longest time that is counted there.
fn longest_of(bucket: usize) -> u64 {
    let parts = PARTS as usize;
    let power = (bucket / parts).saturating_sub(1);
    ((bucket - power * parts + 1) as u64) * (1 << power) - 1
}

impl MethodTotals {
    #[inline]
    const fn count_request(&mut self, bytes: usize) {
        self.requests += 1;
        self.request_bytes += bytes as u64;
    }

    /// What all methods of a service have together.
    pub fn sum<'a>(methods: impl IntoIterator<Item = &'a Self>) -> Self {
        methods.into_iter().fold(Self::default(), |mut sum, one| {
            sum.requests = sum.requests.saturating_add(one.requests);
            sum.replies = sum.replies.saturating_add(one.replies);
            sum.errors = sum.errors.saturating_add(one.errors);
            sum.request_bytes = sum.request_bytes.saturating_add(one.request_bytes);
            sum.reply_bytes = sum.reply_bytes.saturating_add(one.reply_bytes);
            sum.times.merge(&one.times);
            sum
        })
    }

    /// `length:1 name | requests:8 | replies:8 | errors:8 | request bytes:8 | reply bytes:8 |
    /// sum of times:8 | count:2`, then
    /// `bucket:2 | count:4` for each bucket that is not empty.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        if put_name(bytes, &self.method).is_none() {
            bytes.push(0);
        }
        let Self { requests, replies, errors, request_bytes, reply_bytes, times, .. } = self;
        let sum = &times.nanoseconds;
        let numbers = [requests, replies, errors, request_bytes, reply_bytes, sum];
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let full = || (0_u16..).zip(&*self.times.counts).filter(|(_, count)| **count > 0);
        // At most as many as there are buckets.
        bytes.extend(u16::try_from(full().count()).unwrap_or(0).to_le_bytes());
        for (bucket, count) in full() {
            bytes.extend(bucket.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
    }

    fn read(at: &mut Cursor<'_>) -> Option<Self> {
        // What shows it relies on that.
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let method = at.name().filter(|name| name.bytes().all(is_of_name))?.to_owned();
        let mut number = || at.number::<8>();
        let (requests, replies, errors) = (number()?, number()?, number()?);
        let (request_bytes, reply_bytes) = (number()?, number()?);
        let mut times = Times { nanoseconds: number()?, ..Times::default() };
        for _ in 0..at.number::<2>()? {
            let (bucket, count) = (at.number::<2>()?, at.number::<4>()?);
            let place = times.counts.get_mut(usize::try_from(bucket).ok()?)?;
            *place = u32::try_from(count).ok()?;
        }
        Some(Self { method, requests, replies, errors, request_bytes, reply_bytes, times })
    }

    pub(crate) fn all_of_bytes(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut at = Cursor(bytes);
        let mut all = Vec::new();
        while !at.0.is_empty() {
            all.push(Self::read(&mut at)?);
        }
        Some(all)
    }
}

/// The totals of all methods.
#[derive(Debug)]
pub(crate) struct Totals {
    /// By ordinal: the method's place, plus one.
    places: Box<[u16]>,
    methods: Vec<MethodTotals>,
}

impl Totals {
    pub(crate) fn new(description: &Description<'_>) -> Self {
        let ordinals = || description.wires.iter().map(|wire| wire.ordinal).filter(|one| *one > 0);
        let most = ordinals().max().map_or(0, |most| usize::from(most) + 1);
        let (mut places, mut methods) = (vec![0; most].into_boxed_slice(), Vec::new());
        for ordinal in ordinals() {
            // A request and its reply have the same one.
            if let Some(place @ 0) = places.get_mut(usize::from(ordinal)) {
                let method = description.request_of(ordinal).to_owned();
                methods.push(MethodTotals { method, ..Default::default() });
                *place = u16::try_from(methods.len()).unwrap_or(0);
            }
        }
        Self { places, methods }
    }

    #[inline]
    fn method(&mut self, ordinal: u16) -> Option<&mut MethodTotals> {
        let place = *self.places.get(usize::from(ordinal))?;
        self.methods.get_mut(usize::from(place).wrapping_sub(1))
    }

    /// A request has come. When that was, if it is timed.
    #[inline]
    pub(crate) fn request(&mut self, ordinal: u16, bytes: usize) -> Option<Instant> {
        let method = self.method(ordinal)?;
        let is_timed = method.requests.is_multiple_of(TIMED_OF);
        method.count_request(bytes);
        is_timed.then(Instant::now)
    }

    /// A message without a reply has come.
    #[inline]
    pub(crate) fn message(&mut self, ordinal: u16, bytes: usize) {
        if let Some(method) = self.method(ordinal) {
            method.count_request(bytes);
        }
    }

    /// A reply to a request, which is sent now.
    #[inline]
    pub(crate) fn reply(&mut self, answer: Answer) {
        let Some(method) = self.method(answer.ordinal) else { return };
        method.replies += 1;
        method.errors += u64::from(answer.is_error);
        method.reply_bytes += answer.bytes as u64;
        if let Some(took) = answer.took {
            method.times.add(took);
        }
    }

    /// A part of a stream is about to be sent.
    pub(crate) fn part(&mut self, ordinal: u16, bytes: usize) {
        if let Some(method) = self.method(ordinal) {
            method.reply_bytes += bytes as u64;
        }
    }

    /// Those that clients have called, in the order of the interface.
    pub(crate) fn called(&self) -> impl Iterator<Item = &MethodTotals> {
        self.methods.iter().filter(|method| method.requests > 0)
    }
}

/// A reply, as it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) ordinal: u16,
    pub(crate) bytes: usize,
    pub(crate) is_error: bool,
    /// From when the request came until it was sent, if it is timed.
    pub(crate) took: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Wire;

    #[test]
    fn a_time_is_counted_where_the_longest_is_at_most_an_eighth_longer() {
        let times = (0..63).flat_map(|power| [1 << power, (1 << power) + 1, (3 << power) / 2 + 7]);
        for time in times.chain(0..5000) {
            let longest = longest_of(bucket_of(time));
            if time < 1 << LONGEST_BITS {
                assert!(time <= longest && longest - time <= time / 8, "{time}: {longest}");
            }
            assert!(bucket_of(time) < BUCKETS);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!((1..BUCKETS).all(|bucket| longest_of(bucket) > longest_of(bucket - 1)));
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50.0), None);
        for nanoseconds in 1..=1000 {
            times.add(Duration::from_nanos(nanoseconds));
        }
        for (percent, exact) in [(0.0, 1), (50.0, 500), (99.0, 990), (100.0, 1000)] {
            let found = times.percentile(percent).unwrap().as_nanos();
            assert!(found >= exact && found <= exact * 9 / 8, "{percent}: {found}");
        }
        assert_eq!(times.since(&times).count(), 0);
    }

    #[test]
    fn one_call_in_sixteen_is_timed_and_no_message_without_a_reply() {
        let wire = |name, ordinal| Wire { name, ordinal, hash: 0, bytes_max: 8, earlier: &[] };
        let wires = [wire("add_call", 1), wire("add_reply", 1), wire("note", 2)];
        let description = Description { name: "sums", hash: 0, wires: &wires, form: "" };
        let mut totals = Totals::new(&description);
        for _ in 0..2 * TIMED_OF {
            let took = totals.request(1, 8).map(|began| began.elapsed());
            totals.reply(Answer { ordinal: 1, bytes: 4, is_error: false, took });
            totals.message(2, 6);
        }
        let found = |one: &MethodTotals| {
            (one.requests, one.replies, one.request_bytes, one.reply_bytes, one.times.count())
        };
        let found = totals.called().map(found).collect::<Vec<_>>();
        let count = 2 * TIMED_OF;
        assert_eq!(found, [(count, count, 8 * count, 4 * count, 2), (count, 0, 6 * count, 0, 0)]);
    }

    #[test]
    fn totals_are_read_as_written_and_any_prefix_is_harmless() {
        let mut one = MethodTotals { method: "add".into(), requests: 3, ..Default::default() };
        one.times.add(Duration::from_micros(3));
        let two = MethodTotals { method: "list".into(), errors: u64::MAX, ..one.clone() };
        let mut bytes = Vec::new();
        one.put(&mut bytes);
        let first = bytes.len();
        two.put(&mut bytes);
        assert_eq!(MethodTotals::all_of_bytes(&bytes), Some(vec![one, two]));
        for length in (1..bytes.len()).filter(|length| *length != first) {
            assert_eq!(MethodTotals::all_of_bytes(&bytes[..length]), None);
        }
        bytes.extend([1, b'x'].iter().chain(&[0xff; 56]));
        assert_eq!(MethodTotals::all_of_bytes(&bytes), None);
    }
}
