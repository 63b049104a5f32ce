//! What follows from measured times. A choice differs from the default only if it was better in nearly all rounds: each round
//! measures both, one right after the other, so that what slows the machine slows both.

/// A better choice must be so much better.
const GAIN_MIN: f64 = 1.05;
/// At no distance may it be so much worse.
const LOSS_MAX: f64 = 0.97;

/// How much better a choice is than the default: times as fast, the median of all rounds, and the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gain {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Gain {
    fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let at = |index: usize| rounds.get(index).copied().unwrap_or(1.0);
        Self {
            median: at(rounds.len() / 2),
            least: at(0),
            most: at(rounds.len().saturating_sub(1)),
        }
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Decision<T> {
    /// Nothing was better than the default.
    Default,
    /// Something was better, but not in nearly all rounds, or not at each distance.
    Undecided(T, Gain),
    /// This is better.
    Better(T, Gain),
}

impl<T: Copy> Decision<T> {
    /// What is to be written.
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Better(value, _) => Some(value),
            Self::Default | Self::Undecided(..) => None,
        }
    }
}

/// Times in nanoseconds of one choice: by distance of the processors, by round, by size.
pub(super) type Times = Vec<Vec<Vec<f64>>>;

/// The best of several choices, of which `default` is the index of the one that needs no file. All have times of the same
/// shape; a round's figure is the geometric mean over its sizes.
pub(super) fn best(choices: &[Times], default: usize) -> Decision<usize> {
    match fastest(choices, default) {
        Some(choice) if choice != default => decide(choice, &choices[choice], &choices[default]),
        _ => Decision::Default,
    }
}

/// The choice that is most often the fastest one.
fn fastest(choices: &[Times], default: usize) -> Option<usize> {
    let gain = |choice: &usize| Gain::of(gains(&choices[*choice], &choices[default]).concat());
    let all = (0..choices.len()).map(|choice| (choice, gain(&choice).median));
    all.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(choice, _)| choice)
}

/// How much better one choice is than another one, by distance and by round.
fn gains(own: &Times, other: &Times) -> Vec<Vec<f64>> {
    let of_distance = |(own, other): (&Vec<Vec<f64>>, &Vec<Vec<f64>>)| {
        own.iter().zip(other).map(|(own, other)| gain(own, other)).collect()
    };
    own.iter().zip(other).map(of_distance).collect()
}

/// Whether `choice`, which takes the times `own`, is better than the default.
fn decide<T>(choice: T, own: &Times, default: &Times) -> Decision<T> {
    let gains = gains(own, default);
    let by_distance: Vec<Gain> = gains.iter().cloned().map(Gain::of).collect();
    let rounds = gains.concat();
    let found = Gain::of(rounds.clone());
    let better = rounds.iter().filter(|gain| **gain > 1.0).count();
    match () {
        () if found.median < GAIN_MIN => Decision::Default,
        () if by_distance.iter().any(|gain| gain.median < LOSS_MAX) => {
            Decision::Undecided(choice, found)
        }
        // One round in eight may have been disturbed.
        () if better + rounds.len().div_ceil(8) < rounds.len() => {
            Decision::Undecided(choice, found)
        }
        () => Decision::Better(choice, found),
    }
}

/// How many times as fast the first one is, over all sizes.
fn gain(own: &[f64], other: &[f64]) -> f64 {
    let logarithms: Vec<f64> =
        own.iter().zip(other).map(|(own, other)| (other / own).ln()).collect();
    (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
}

/// The best size up to which one way is used, and beyond which the other. `default` is that of the library. The choices are
/// 0 and each size but the last. What is decided is about the sizes for which it changes something.
pub(super) fn threshold(short: &Times, long: &Times, sizes: &[u64], default: u64) -> Decision<u64> {
    let choice = |up_to: u64, is_counted: &dyn Fn(u64) -> bool| -> Times {
        let mix = |(short, long): (&Vec<f64>, &Vec<f64>)| -> Vec<f64> {
            let both = short.iter().zip(long).zip(sizes).filter(|(_, size)| is_counted(**size));
            both.map(|((short, long), size)| if *size <= up_to { *short } else { *long }).collect()
        };
        let rounds = short.iter().zip(long);
        rounds.map(|(short, long)| short.iter().zip(long).map(mix).collect()).collect()
    };
    let mut limits: Vec<u64> = vec![default, 0];
    limits.extend(&sizes[..sizes.len().saturating_sub(1)]);
    let choices: Vec<Times> = limits.iter().map(|limit| choice(*limit, &|_| true)).collect();
    let Some(limit) = fastest(&choices, 0).map(|index| limits[index]) else {
        return Decision::Default;
    };
    let is_changed = |size: u64| (size <= limit) != (size <= default);
    match sizes.iter().any(|size| is_changed(*size)) {
        true => decide(limit, &choice(limit, &is_changed), &choice(default, &is_changed)),
        false => Decision::Default,
    }
}

/// How long a wait polls before it sleeps: as long as a wake-up takes. Then it takes at most twice what it would if it knew
/// when it will be woken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spin {
    /// In nanoseconds.
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spin {
    /// Of the wake-ups of each distance, in each round. `None` if there are none.
    pub(super) fn of(wake_ups: &[Vec<f64>]) -> Option<Self> {
        let mut all = wake_ups.concat();
        all.sort_by(f64::total_cmp);
        let (least, most) = (*all.first()?, *all.last()?);
        Some(Self { median: all[all.len() / 2], least, most })
    }

    /// Whether the rounds agree.
    pub(super) fn is_sure(self) -> bool {
        self.most <= 2.0 * self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of one distance, in which each size takes so long, and every other round is slower.
    fn times(sizes: &[f64]) -> Times {
        let round = |slow: f64| sizes.iter().map(|ns| ns * slow).collect();
        vec![[1.0, 1.3, 1.0, 1.2, 1.0, 1.1, 1.0].map(round).to_vec()]
    }

    #[test]
    fn a_threshold_is_where_the_other_way_becomes_better() {
        let sizes = [1024, 2048, 4096, 8192];
        let short = times(&[100.0, 200.0, 400.0, 800.0]);
        let long = times(&[300.0, 300.0, 300.0, 300.0]);
        assert!(
            matches!(threshold(&short, &long, &sizes, 1024), Decision::Better(2048, gain) if gain.median > 1.1)
        );
        assert_eq!(threshold(&short, &long, &sizes, 2048), Decision::Default);
        // It is between the same two sizes.
        assert_eq!(threshold(&short, &long, &sizes, 3000), Decision::Default);
        assert!(matches!(threshold(&long, &long, &sizes, 9), Decision::Default));
        let never = times(&[900.0; 4]);
        assert_eq!(threshold(&never, &short, &sizes, 4096).value(), Some(0));
    }

    #[test]
    fn what_is_better_by_chance_or_at_one_distance_only_is_undecided() {
        let by_chance =
            |gains: [f64; 7]| -> Times { vec![gains.map(|it| vec![100.0 / it]).to_vec()] };
        let default = times(&[100.0]);
        let default = vec![vec![vec![100.0]; default[0].len()]];
        let noisy = by_chance([1.3, 0.9, 1.2, 0.8, 1.1, 0.9, 1.2]);
        assert!(matches!(best(&[default.clone(), noisy], 0), Decision::Undecided(1, _)));
        let sure = by_chance([1.3, 1.1, 1.2, 1.1, 1.1, 0.9, 1.2]);
        assert!(matches!(best(&[default.clone(), sure.clone()], 0), Decision::Better(1, _)));
        let slight = by_chance([1.01; 7]);
        assert_eq!(best(&[default.clone(), slight], 0), Decision::Default);
        let far = by_chance([0.9; 7]);
        let both = |one: &Times, other: &Times| [one.clone(), other.clone()].concat();
        let there = by_chance([1.5; 7]);
        let found = best(&[both(&default, &default), both(&there, &far)], 0);
        assert!(!matches!(found, Decision::Better(..)), "{found:?}");
    }
}
