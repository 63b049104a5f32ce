//! The distance between the two cores. Some hosts move the cores while a program runs: for a second
//! they are two threads of one core, then two cores of different clusters. Measurements at different
//! distances cannot be compared. So a bare line is timed before and after each size, and only runs with
//! similar line times are compared.

/// Line times that differ by at most this factor count as the same distance.
const ALIKE: f64 = 1.5;
/// A distance is shown if it has at least this share of all runs.
const SHOWN_SHARE: f64 = 0.2;

/// The time of a bare line one way, before and after a run; `None` if both processes share a core.
pub(crate) type Lines = Option<[f64; 2]>;

/// A distance that the cores had for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Distance {
    /// The shortest and the longest time of a bare line at this distance. `None` if no line was timed;
    /// then all runs count as one distance.
    pub(crate) line_ns: Option<(f64, f64)>,
    /// Number of runs of all points at this distance, and number of all runs.
    pub(crate) runs: usize,
    pub(crate) of: usize,
}

impl Distance {
    /// Whether a run was measured at this distance. `line_ns` are the times of a line before and after it.
    pub(crate) fn has(&self, line_ns: Lines) -> bool {
        let Some((least, most)) = self.line_ns else { return true };
        line_of(line_ns).is_some_and(|line| (least..=most).contains(&line))
    }
}

/// The distances of runs, the one with the most runs first. Empty if the cores were moved during every run.
pub(crate) fn of(runs: impl Iterator<Item = Lines>) -> Vec<Distance> {
    let (mut lines, mut of) = (Vec::new(), 0);
    let mut is_timed = false;
    for run in runs {
        of += 1;
        is_timed |= run.is_some();
        lines.extend(line_of(run));
    }
    if !is_timed {
        let one = Distance { line_ns: None, runs: of, of };
        return (of > 0).then_some(one).into_iter().collect();
    }
    lines.sort_unstable_by(f64::total_cmp);
    let mut distances = Vec::new();
    while let Some((first, end)) = widest(&lines) {
        #[expect(clippy::cast_precision_loss, reason = "few runs")]
        let share = (end - first) as f64 / of as f64;
        if share < SHOWN_SHARE && !distances.is_empty() {
            break;
        }
        let line_ns = Some((lines[first], lines[end - 1]));
        distances.push(Distance { line_ns, runs: end - first, of });
        lines.drain(first..end);
    }
    distances
}

/// The longest sequence of similar line times.
fn widest(lines: &[f64]) -> Option<(usize, usize)> {
    let end = |first: usize| lines.partition_point(|line| *line <= lines[first] * ALIKE);
    (0..lines.len()).map(|first| (first, end(first))).max_by_key(|(first, end)| end - first)
}

/// The line time of a run; `None` if the cores were moved during the run.
fn line_of(line_ns: Lines) -> Option<f64> {
    let [before, after] = line_ns?;
    (before.max(after) <= before.min(after) * ALIKE).then_some(f64::midpoint(before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_with_alike_lines_are_of_one_distance_and_those_between_of_none() {
        let lines = [[64.0, 66.0], [280.0, 300.0], [290.0, 285.0], [66.0, 290.0], [270.0, 280.0]];
        let all = lines.map(Some);
        let distances = of(all.into_iter());
        let far = Distance { line_ns: Some((275.0, 290.0)), runs: 3, of: 5 };
        let near = Distance { line_ns: Some((65.0, 65.0)), runs: 1, of: 5 };
        assert_eq!(distances, [far, near]);
        assert_eq!(all.map(|run| far.has(run)), [false, true, true, false, true]);
    }

    #[test]
    fn without_lines_all_runs_are_of_one_distance() {
        let all = [None, None];
        let distance = Distance { line_ns: None, runs: 2, of: 2 };
        assert_eq!(of(all.into_iter()), [distance]);
        assert!(distance.has(None));
        assert_eq!(of([].into_iter()), []);
    }
}
