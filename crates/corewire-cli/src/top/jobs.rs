//! MPI jobs.

use std::collections::BTreeMap;

use super::rates::{Endpoint, Rates};

/// An MPI job: the endpoints of its ranks, in the order of the ranks.
pub(super) struct Job<'a> {
    pub(super) number: u32,
    pub(super) ranks: Vec<&'a Endpoint>,
}

impl<'a> Job<'a> {
    pub(super) fn all(endpoints: &'a [Endpoint]) -> Vec<Self> {
        let mut jobs = BTreeMap::<u32, Vec<&Endpoint>>::new();
        for endpoint in endpoints {
            if let Some(job) = endpoint.place.job {
                jobs.entry(job).or_default().push(endpoint);
            }
        }
        let sorted = |(number, mut ranks): (u32, Vec<&'a Endpoint>)| {
            ranks.sort_by_key(|endpoint| (endpoint.place.rank, &endpoint.name));
            Self { number, ranks }
        };
        jobs.into_iter().map(sorted).collect()
    }

    pub(super) fn rates(&self) -> Rates {
        self.ranks.iter().fold(Rates::default(), |sum, endpoint| Rates {
            messages_per_s: sum.messages_per_s + endpoint.rates.messages_per_s,
            bytes_per_s: sum.bytes_per_s + endpoint.rates.bytes_per_s,
            estimated_bytes_per_s: sum.estimated_bytes_per_s + endpoint.rates.estimated_bytes_per_s,
            waits_per_s: sum.waits_per_s + endpoint.rates.waits_per_s,
            wakes_per_s: sum.wakes_per_s + endpoint.rates.wakes_per_s,
        })
    }
}
