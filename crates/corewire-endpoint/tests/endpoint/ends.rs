//! Engines over the transport in memory.

use corewire_endpoint::in_memory::{InMemory, Network};
use corewire_endpoint::{Budget, Engine, Seed};
use corewire_layout::name::ChannelName;

pub(crate) type Ends = Vec<Engine<InMemory>>;

/// Engines whose peers have each other's numbers.
pub(crate) fn ends(network: &Network, count: usize, budget: usize) -> Ends {
    let join = |number: usize| {
        let name = ChannelName::new(&format!("end-{number}")).unwrap();
        Engine::new(network.join(name), Budget::new(budget, 4), Seed(3))
    };
    let mut ends: Ends = (0..count).map(join).collect();
    settle(&mut ends);
    ends
}

/// Lets them make progress until nothing happens any more.
pub(crate) fn settle(ends: &mut [Engine<InMemory>]) {
    let mut quiet = 0;
    while quiet < 30 {
        quiet += 1;
        for end in &mut *ends {
            if end.progress(None).unwrap() {
                quiet = 0;
            }
        }
    }
}
