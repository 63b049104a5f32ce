//! What peers on other hosts cost those on this one: round trips with a peer of this machine, of endpoints with none, one and 64
//! idle peers elsewhere.

use std::path::Path;

use corewire::Wait;

use super::super::prelude::*;
use super::{End, TRIPS, trips};

/// Idle peers on the other host.
const IDLE: [usize; 3] = [0, 1, 64];

/// How it waits, for names of endpoints.
const WAITS: [(&str, Wait); 2] = [("polling", Wait::Spin), ("waiting", Wait::Park)];

/// The side that asks.
pub(super) fn lead(directory: &Path, rounds: u64, report: &mut Report) -> Result<(), Failure> {
    let mut ends = Vec::new();
    for (name, wait) in WAITS {
        for idle in IDLE {
            let mut end = End::create(directory, "a", &format!("{name}-{idle}"), wait)?;
            for number in 0..idle {
                end.endpoint.peer(&format!("idle-{name}-{idle}-{number}@b"))?;
            }
            end.other = Some(end.endpoint.peer(&format!("mate-{name}-{idle}"))?);
            ends.push(end);
        }
    }
    let blocks = alternate(rounds, |_| {
        let mut figures = vec![];
        for end in &mut ends {
            figures.push(trips(TRIPS, || end.ask(8))?);
        }
        Ok::<_, Failure>(figures)
    })?;
    for (index, (name, _)) in WAITS.into_iter().enumerate() {
        let at = IDLE.len() * index;
        let what = if index == 0 { "that poll" } else { "that sleep" };
        let words = format!("8 B there and back on this machine, endpoints {what}");
        report.figure(&format!("near_{name}_us"), &words, blocks.median(at), "us");
        for (more, idle) in IDLE.into_iter().enumerate().skip(1) {
            let words = format!("ratio with {idle} idle elsewhere");
            let key = format!("near_{name}_beside_{idle}_ratio");
            report.ratios(&key, &words, &blocks.ratios(at + more, at));
        }
    }
    Ok(())
}

/// The side that answers, and has the idle ones.
pub(super) struct Follower {
    mates: Vec<End>,
    /// They are there, and do nothing.
    _idle: Vec<End>,
}

impl Follower {
    pub(super) fn create(directory: &Path) -> Result<Self, Failure> {
        let (mut mates, mut all) = (Vec::new(), Vec::new());
        for (name, wait) in WAITS {
            for idle in IDLE {
                mates.push(End::create(directory, "a", &format!("mate-{name}-{idle}"), wait)?);
                for number in 0..idle {
                    let name = format!("idle-{name}-{idle}-{number}");
                    all.push(End::create(directory, "b", &name, Wait::Park)?);
                }
            }
        }
        Ok(Self { mates, _idle: all })
    }

    pub(super) fn follow(mut self, rounds: u64) -> Result<(), Failure> {
        for _ in all(rounds) {
            for mate in &mut self.mates {
                (0..TRIPS).try_for_each(|_| mate.answer(8))?;
            }
        }
        Ok(())
    }
}
