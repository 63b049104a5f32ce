//! The configurations that the tests explore.

use crate::senders::configuration::Configuration;
use crate::senders::configuration::Send::{Batch, Message};

/// The configurations that take half a minute in all.
#[must_use]
pub fn quick() -> Vec<Configuration> {
    let world = Configuration::new;
    vec![
        world("messages, 2 slots", 2, &[2, 2], 1).kills(2),
        world("messages, 2 receivers", 2, &[2, 1], 2),
        world("late cursors", 3, &[2, 2], 1).runs(1).lazy(),
        world("run, 1 receiver", 4, &[0, 2], 1).plan(0, &[Batch(2), Message, Message]),
        world("runs of both", 4, &[0, 0], 1)
            .plan(0, &[Batch(2), Message])
            .plan(1, &[Batch(2), Batch(2)]),
        world("run over a run of one that left", 3, &[0, 0], 1)
            .plan(0, &[Message, Batch(2)])
            .plan(1, &[Batch(2)]),
        world("run over the first of a run", 3, &[0, 1], 1).plan(0, &[Message, Batch(2), Batch(2)]),
        world("run of 3 in a lap", 3, &[0, 1], 1).runs(3).plan(0, &[Message, Message, Batch(3)]),
        world("run over messages", 3, &[2, 0], 1).plan(1, &[Message, Batch(2), Message]).kills(2),
        world("late cursors, runs", 3, &[0, 1], 1).lazy().plan(0, &[Batch(2), Batch(2)]),
        world("no receiver", 2, &[2, 2], 0).kills(2),
        world("no receiver, runs", 2, &[0, 0], 0)
            .plan(0, &[Batch(2), Message])
            .plan(1, &[Batch(2), Message]),
        world("no receiver, run over messages", 2, &[2, 0], 0).plan(1, &[Batch(2), Batch(2)]),
        world("no receiver, runs of 3", 3, &[2, 0], 0)
            .runs(3)
            .plan(1, &[Message, Batch(2), Batch(3)]),
        world("no receiver, runs that cross", 3, &[0, 0], 0)
            .plan(0, &[Batch(2), Batch(2), Batch(2), Batch(2)])
            .plan(1, &[Message, Message]),
        world("no receiver, runs of 3, 3 senders", 3, &[0, 1, 1], 0)
            .runs(3)
            .plan(0, &[Batch(2), Batch(3)]),
        world("shared tail", 3, &[0, 0], 0)
            .hint()
            .plan(0, &[Batch(2), Batch(2)])
            .plan(1, &[Message, Batch(2)]),
        world("shared tail, 1 receiver", 2, &[0, 2], 1).hint().plan(0, &[Batch(2), Message]),
        world("shared tail, late receiver", 2, &[0, 1], 0)
            .rows(2, 1)
            .hint()
            .joiner()
            .plan(0, &[Batch(2), Message])
            .kills(0),
        world("late receiver", 2, &[2, 1], 0).rows(2, 1).joiner(),
        world("late receiver, runs", 2, &[0, 1], 0)
            .rows(2, 1)
            .joiner()
            .plan(0, &[Batch(2), Message]),
        world("join beside a receiver", 2, &[1, 2], 1).joiner().rows(2, 2).kills(0),
        world("two joins, one row", 2, &[0, 3], 0).joiner().joiner().rows(2, 1).kills(1),
        world("evict", 2, &[2, 2], 1).evict(),
        world("evict, runs", 4, &[0, 2], 1).evict().plan(0, &[Batch(2), Message, Message]),
        world("evict and join", 2, &[3], 1).joiner().rows(1, 1).evict().kills(2),
        world("evict and join, late cursors", 2, &[5], 1)
            .runs(1)
            .joiner()
            .rows(1, 1)
            .evict()
            .lazy(),
        world("late sender", 2, &[1, 1, 1], 1).late_sender(2).rows(2, 1),
        world("late sender, runs", 2, &[0, 2, 1], 1).plan(0, &[Batch(2)]).late_sender(2).rows(2, 1),
        world("late senders", 2, &[1, 1, 1], 1).late_sender(1).late_sender(2).rows(2, 1).kills(2),
        world("leaver and joiner", 2, &[2, 1], 1).leaver(0).joiner().rows(2, 1).kills(0),
        world("leaver", 2, &[2, 2], 1).leaver(0),
        world("leaver of two", 2, &[2], 2).leaver(0),
    ]
}

/// Larger configurations: 40 million states, two or three minutes, and a gigabyte of memory.
#[must_use]
pub fn full() -> Vec<Configuration> {
    let world = Configuration::new;
    vec![
        world("full: messages, 3 senders", 2, &[1, 1, 1], 1).kills(3),
        world("full: messages, 4 slots", 4, &[3, 3], 1).kills(2),
        world("full: 2 receivers, 2 deaths", 2, &[2, 2], 2).kills(2),
        world("full: runs of 3", 6, &[0, 0], 1)
            .runs(3)
            .plan(0, &[Batch(3), Message, Batch(2)])
            .plan(1, &[Message, Batch(3), Message])
            .kills(2),
        world("full: runs of 3, 4 slots", 4, &[0, 0], 1)
            .runs(3)
            .plan(0, &[Batch(3), Batch(2), Batch(3)])
            .plan(1, &[Message, Batch(2), Batch(2)])
            .kills(2),
        world("full: no receiver, 3 senders", 4, &[0, 0, 2], 0)
            .plan(0, &[Batch(2), Message])
            .plan(1, &[Batch(2), Message, Message])
            .kills(3),
        world("full: no receiver, runs that cross", 3, &[0, 0], 0)
            .runs(3)
            .plan(0, &[Batch(2), Batch(3), Batch(2), Batch(3)])
            .plan(1, &[Message, Batch(2), Message])
            .kills(2),
        world("full: shared tail, 3 senders", 3, &[0, 0, 1], 0)
            .hint()
            .plan(0, &[Batch(2), Batch(2)])
            .plan(1, &[Message, Batch(2)]),
        world("full: shared tail, late receiver", 2, &[0, 1], 0)
            .rows(2, 1)
            .hint()
            .joiner()
            .plan(0, &[Batch(2), Batch(2), Message]),
        world("full: join beside a receiver", 2, &[1, 2], 1).joiner().rows(2, 2),
        world("full: two joins", 2, &[2, 2], 0).joiner().joiner().rows(2, 1),
        world("full: evict and join", 2, &[2, 1], 1).joiner().rows(2, 2).evict().kills(0),
        world("full: evict, 2 receivers", 2, &[2, 1], 2).evict(),
        world("full: evict, runs, late sender", 2, &[0, 2, 1], 1)
            .plan(0, &[Batch(2)])
            .late_sender(2)
            .rows(2, 1)
            .evict()
            .kills(2),
        world("full: evict and join, runs", 2, &[0, 1], 1)
            .plan(0, &[Batch(2), Batch(2)])
            .joiner()
            .rows(2, 1)
            .evict(),
        world("full: late senders, runs of 3", 3, &[0, 0, 1], 1)
            .runs(3)
            .plan(0, &[Batch(3), Message])
            .plan(1, &[Batch(2)])
            .late_sender(1)
            .late_sender(2)
            .rows(2, 1)
            .kills(2),
        world("full: leaver and joiner", 2, &[2, 1], 1).leaver(0).joiner().rows(2, 1),
    ]
}
