//! What two versions of an interface do not agree on, in words.

use corewire_idl::form::{Interface, Message};
use corewire_idl::{Effect, diff};

/// What lets a service refuse a client: changes of messages that do not understand each other. A message that one side lacks
/// does not, nor a constant.
pub(super) fn conflicts(mut theirs: Interface, mut own: Interface) -> Vec<String> {
    let (their_messages, own_messages) = (theirs.messages.clone(), own.messages.clone());
    keep_conflicts(&mut theirs, &own_messages);
    keep_conflicts(&mut own, &their_messages);
    let breaks = |change: &corewire_idl::Change| change.effect == Effect::Breaks;
    let changes = diff(&theirs, &own).changes.into_iter().filter(breaks);
    changes.map(|change| change.message).collect()
}

fn keep_conflicts(form: &mut Interface, others: &[Message]) {
    form.constants.clear();
    // The numbers of others are compared by nobody.
    form.errors.retain(|set| set.detailed);
    form.messages.retain(|own| others.iter().any(|other| is_conflict(own, other)));
}

fn is_conflict(own: &Message, other: &Message) -> bool {
    let [is_named, is_numbered] = [own.name == other.name, own.ordinal == other.ordinal];
    if !is_named || !is_numbered {
        return is_named || is_numbered;
    }
    own.wires.iter().any(|wire| {
        let other = other.wires.iter().find(|other| other.name == wire.name);
        !other.is_some_and(|other| {
            wire.hash == other.hash
                || wire.earlier.iter().any(|earlier| earlier.hash == other.hash)
                || other.earlier.iter().any(|earlier| earlier.hash == wire.hash)
        })
    })
}
