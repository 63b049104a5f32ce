//! Medians, percentiles and spreads.

use serde::{Deserialize, Serialize};

/// Median, minimum and maximum of some figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle figure, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest figure.
    pub min: f64,
    /// The largest figure.
    pub max: f64,
}

impl Spread {
    /// The spread of `figures`; `None` without figures.
    ///
    /// ```
    /// use corewire_harness::statistics::Spread;
    ///
    /// let spread = Spread::of([3.0, 1.0, 2.5, 2.0]);
    /// assert_eq!(spread, Some(Spread { median: 2.25, min: 1.0, max: 3.0 }));
    /// ```
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self { median, min, max })
    }
}

/// The median of `figures`; 0 without figures.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    Spread::of(figures).unwrap_or_default().median
}

/// The figure that a share `part` (0 to 1) of the figures does not exceed; 0 without figures.
///
/// ```
/// use corewire_harness::statistics::percentile;
///
/// let times: Vec<f64> = (0..=100).map(f64::from).collect();
/// assert_eq!(percentile(&times, 0.99), 99.0);
/// ```
#[must_use]
pub fn percentile(figures: &[f64], part: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let index = ((sorted.len().saturating_sub(1)) as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

/// Number of consecutive times whose mean counts as one, in [`typical`].
const TIMES_TOGETHER: usize = 16;

/// The median of consecutive times, each of which ends where the next one begins: of the means of 16 at a time, because
/// some clocks advance in steps of 10 ns and more, in which single times differ; 0 without times.
///
/// ```
/// use corewire_harness::statistics::{percentile, typical};
///
/// // 72 ns each, on a clock that shows tens.
/// let shown: Vec<f64> = (0..1600).map(|trip| if trip % 5 == 0 { 80.0 } else { 70.0 }).collect();
/// assert_eq!(percentile(&shown, 0.5), 70.0);
/// assert!((typical(&shown) - 72.0).abs() < 1.0);
/// ```
#[must_use]
pub fn typical(times: &[f64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most 16")]
    let mean = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
    median(times.chunks(TIMES_TOGETHER).map(mean))
}

/// `figure` with three decimals, as reports show ratios and shares.
///
/// ```
/// assert_eq!(corewire_harness::statistics::thousandths(1.23456), 1.235);
/// ```
#[must_use]
pub fn thousandths(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_two() {
        let spread = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(median([4.0, 1.0]), 2.5);
        assert_eq!(Spread::of([]), None);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn percentiles_are_figures_of_their_own() {
        let figures = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(
            [0.0, 0.5, 0.99, 1.0].map(|part| percentile(&figures, part)),
            [1.0, 3.0, 5.0, 5.0]
        );
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
