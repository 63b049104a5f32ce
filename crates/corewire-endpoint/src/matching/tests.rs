use super::*;

const PEERS: [Peer; 2] = [Peer::new(0, 1), Peer::new(1, 1)];

fn matching(budget_bytes: usize) -> Matching {
    Matching::new(Budget::new(budget_bytes, 2), Seed(7))
}

fn message(source: Peer, tag: u64, total: u64, is_held: bool) -> Unexpected {
    let envelope = Envelope::tagged(tag);
    Unexpected { total, is_held, ..Unexpected::arrived(source, envelope, KeptBytes::default()) }
}

#[test]
fn claimed_messages_are_hidden_from_every_index() {
    let mut matching = matching(1 << 20);
    let keys: Vec<Key> =
        (0..30).map(|tag| matching.keep(message(PEERS[0], tag % 3, 8, false))).collect();
    assert_eq!(matching.find(&Selector::tag(1)).unwrap().0, keys[1]);
    matching.claim(keys[1]);
    assert_eq!(matching.find(&Selector::tag(1)).unwrap().0, keys[4]);
    assert!(matching.give_back(keys[1]));
    assert_eq!(matching.find(&Selector::tag(1)).unwrap().0, keys[1]);
    assert_eq!(matching.find(&Selector::tag(1).from(PEERS[1])).map(|found| found.0), None);
    assert_eq!(matching.all_of(&Selector::any()), keys);
}

#[test]
fn the_budget_comes_back() {
    let mut matching = matching(2000);
    let id = matching.keep(message(PEERS[0], 1, 800, false));
    let held = matching.keep(message(PEERS[0], 1, 800, true));
    assert_eq!(matching.next_to_fetch(0, |_| false), None);
    assert_eq!(matching.next_to_fetch(0, |_| true), Some((held, PEERS[0])));
    matching.take(id).unwrap();
    assert_eq!(matching.next_to_fetch(0, |_| false), Some((held, PEERS[0])));
    matching.fetch(held);
    assert!(!matching.budget.has_room(0, 100));
    assert_eq!(matching.held_of(PEERS[0]), None);
}
