//! Ranks of MPI jobs. The libfabric provider names the endpoints of a rank `mpi-JOB-RANK-NUMBER`; the job is the process
//! that started the rank.

use serde::Serialize;

/// The rank that an endpoint belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Place {
    /// The process that started the ranks of the job; `None` for an endpoint that no rank has made.
    pub(crate) job: Option<u32>,
    pub(crate) rank: Option<u32>,
}

impl Place {
    /// The place of the endpoint `name`.
    pub(crate) fn of(name: &str) -> Self {
        let mut parts = name.split('-');
        let (Some("mpi"), Some(job), Some(rank), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Self::default();
        };
        let [job, rank, number] = [job, rank, number].map(|part| part.parse().ok());
        match number {
            Some(_) if job.is_some() && rank.is_some() => Self { job, rank },
            _ => Self::default(),
        }
    }

    /// Labels of a metric, with a comma before each.
    pub(crate) fn labels(self) -> String {
        match (self.job, self.rank) {
            (Some(job), Some(rank)) => format!(",job=\"{job}\",rank=\"{rank}\""),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_ranks_are_told_from_others() {
        let place = Place::of("mpi-4711-3-0");
        assert_eq!((place.job, place.rank), (Some(4711), Some(3)));
        assert_eq!(place.labels(), ",job=\"4711\",rank=\"3\"");
        for other in ["server", "fi-1-2", "mpi-1-2", "mpi-a-1-2", "mpi-1-2-x", "mpi-1-2-3-4"] {
            assert_eq!(Place::of(other), Place::default(), "{other}");
        }
        assert_eq!(Place::default().labels(), "");
    }
}
