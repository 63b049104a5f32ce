//! Every kill point of every operation of the shared channel.

#![cfg(corewire_kill)]

use corewire_kill::engine::Engine;
use corewire_kill::shared::Shared;

#[test]
fn every_kill_point_of_a_shared_channel_leaves_the_others_whole() {
    let counts = Engine::<Shared>::new(None).run(false);
    let counts = counts.unwrap_or_else(|found| panic!("{}", found.0));
    let points: u64 = counts.iter().map(|count| count.points).sum();
    println!("kill points of a shared channel: {points}, in {} cases", counts.len());
    assert!(points >= 2000, "only {points} kill points");
}
