//! Medians and spreads.

/// Median, minimum and maximum of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// The spread of `figures`; all zero without figures.
    pub(super) fn of(figures: &[f64]) -> Self {
        Self {
            median: percentile(figures, 0.5),
            min: percentile(figures, 0.0),
            max: percentile(figures, 1.0),
        }
    }
}

/// The figure that a share `part` (0 to 1) of the figures does not exceed; 0 without figures.
pub(super) fn percentile(figures: &[f64], part: f64) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
