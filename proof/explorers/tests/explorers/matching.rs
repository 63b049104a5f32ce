//! The programs on every transport.

use corewire::{Domain, Endpoint, Peer};
use corewire_endpoint::in_memory::{InMemory, Network};
use corewire_endpoint::{Budget, Engine, Grants, Seed, Transport};
use corewire_explorers::matching::beside::Beside;
use corewire_explorers::matching::party::Party;
use corewire_explorers::matching::programs::{Ends, SMALL_BUDGET, run_all};
use corewire_explorers::matching::told::Told;
use corewire_layout::name::ChannelName;

const LARGE_BUDGET: usize = usize::MAX / 2;

/// A domain in a directory of its own, which is removed at the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(test: &str) -> (Self, Domain) {
        let path = std::env::temp_dir().join(format!("corewire-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let domain = Domain::open_at(&path).unwrap();
        (Self(path), domain)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn endpoints(domain: &Domain, budget: Option<usize>, senders: usize) -> Ends<Endpoint> {
    let name = |index: usize| format!("e{index}");
    let mut endpoints: Vec<_> = (0..senders)
        .map(|index| {
            let builder = domain.endpoint(&name(index));
            match budget {
                // The model knows nothing of messages that cost no budget.
                Some(bytes) => builder.budget(bytes).grants(0).create().unwrap(),
                None => builder.create().unwrap(),
            }
        })
        .collect();
    let to_first = endpoints.iter_mut().map(|it| it.peer(&name(0)).unwrap()).collect();
    let sources = (0..senders).map(|it| endpoints[0].peer(&name(it)).unwrap()).collect();
    Ends { endpoints, to_first, sources }
}

fn engine<T: Transport>(transport: T, budget: usize) -> Engine<T> {
    Engine::new(transport, Budget::new(budget, 4), Seed(1))
}

/// The peer of an engine that has this name.
fn peer<T: Transport>(engine: &mut Engine<T>, name: &str) -> Peer {
    let named = engine.peers().find(|&peer| engine.name_of(peer).unwrap().as_str() == name);
    named.expect("it has joined")
}

fn join(network: &Network, index: usize) -> InMemory {
    network.join(ChannelName::new(&format!("m{index}")).unwrap())
}

fn in_memory(seed: u64, budget: usize, senders: usize) -> Ends<Engine<InMemory>> {
    // Where the budget runs out, a message that is left with its sender lies in the queue as a whole: then
    // a receive that does not wait gets it.
    let (slots, fragment_bytes) = if budget == SMALL_BUDGET { (4096, 256) } else { (4, 64) };
    in_network(&Network::new(seed, slots, fragment_bytes), budget, senders)
}

fn in_network(network: &Network, budget: usize, senders: usize) -> Ends<Engine<InMemory>> {
    let mut endpoints: Vec<_> =
        (0..senders).map(|index| engine(join(network, index), budget)).collect();
    endpoints.iter_mut().for_each(|it| it.handle_notices().unwrap());
    let to_first = endpoints.iter_mut().map(|it| peer(it, "m0")).collect();
    let sources = (0..senders).map(|it| peer(&mut endpoints[0], &format!("m{it}"))).collect();
    Ends { endpoints, to_first, sources }
}

// Keeps P68.
#[test]
fn every_receive_gets_the_message_that_is_its_own() {
    let (_scratch, domain) = Scratch::new("matching");
    // The endpoint itself, and two others.
    run_all(&mut endpoints(&domain, None, 3), LARGE_BUDGET);
}

#[test]
fn the_same_where_the_budget_runs_out() {
    let (_scratch, domain) = Scratch::new("matching-budget");
    run_all(&mut endpoints(&domain, Some(SMALL_BUDGET), 1), SMALL_BUDGET);
}

// Keeps P101.
#[test]
fn the_same_in_memory() {
    run_all(&mut in_memory(0, LARGE_BUDGET, 3), LARGE_BUDGET);
    run_all(&mut in_memory(0, SMALL_BUDGET, 1), SMALL_BUDGET);
}

// Keeps P68.
#[test]
fn the_same_where_anything_that_may_happen_does() {
    run_all(&mut in_memory(0x5eed, LARGE_BUDGET, 3), LARGE_BUDGET);
    run_all(&mut in_memory(0x5eed, SMALL_BUDGET, 1), SMALL_BUDGET);
}

fn told<P: Party>(ends: Ends<P>) -> Ends<Told<P>> {
    let Ends { endpoints, to_first, sources } = ends;
    Ends { endpoints: endpoints.into_iter().map(Told::new).collect(), to_first, sources }
}

// Keeps P228.
#[test]
fn the_same_where_ends_are_told() {
    let (_scratch, domain) = Scratch::new("matching-told");
    run_all(&mut told(endpoints(&domain, None, 3)), LARGE_BUDGET);
    for seed in [0, 0x5eed] {
        run_all(&mut told(in_memory(seed, LARGE_BUDGET, 3)), LARGE_BUDGET);
        run_all(&mut told(in_memory(seed, SMALL_BUDGET, 1)), SMALL_BUDGET);
        let network = Network::new(seed, 4, 64).with_offers();
        run_all(&mut told(in_network(&network, LARGE_BUDGET, 3)), LARGE_BUDGET);
    }
}

// Keeps P110.
#[test]
fn the_same_where_messages_are_offered() {
    for seed in [0, 0x5eed] {
        let network = Network::new(seed, 4, 64).with_offers();
        run_all(&mut in_network(&network, LARGE_BUDGET, 3), LARGE_BUDGET);
    }
}

#[test]
fn the_same_where_messages_stay_with_their_senders() {
    for seed in [0, 0x5eed] {
        for refuses in [false, true] {
            let network = Network::new(seed, 4, 64).with_offers();
            let mut ends = in_network(&network, LARGE_BUDGET, 3);
            let grant = |engine: Engine<_>| engine.with_grants(Grants::new(1 << 20, 4, refuses));
            ends.endpoints = ends.endpoints.into_iter().map(grant).collect();
            run_all(&mut ends, LARGE_BUDGET);
        }
    }
}

// Keeps P101.
#[test]
fn the_same_with_two_transports_in_one_endpoint() {
    let (_scratch, domain) = Scratch::new("matching-beside");
    let network = Network::new(0, 4, 64);
    let Ends { endpoints, to_first, mut sources } = endpoints(&domain, None, 3);
    let mut endpoints: Vec<_> = (0..3)
        .zip(endpoints)
        .map(|(index, endpoint)| {
            let other = join(&network, index);
            endpoint.into_engine().map_transport(|rings| Beside::new(rings, other))
        })
        .collect();
    endpoints.iter_mut().for_each(|it| it.handle_notices().unwrap());
    // The first two talk through rings, the third one in memory.
    let last = peer(&mut endpoints[2], "m0");
    sources[2] = peer(&mut endpoints[0], "m2");
    let to_first = vec![to_first[0], to_first[1], last];
    run_all(&mut Ends { endpoints, to_first, sources }, LARGE_BUDGET);
}
