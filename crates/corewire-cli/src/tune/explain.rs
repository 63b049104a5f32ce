//! What becomes of a message of a size, with the choices that this process follows.

use std::fmt::Write;

use corewire::{Tuning, TuningInUse};

use crate::units::size;

/// Longer messages do not fit in the slots of a ring.
const SLOTS_BYTES: u64 = 160;

pub(super) fn text(bytes: u64, in_use: &TuningInUse) -> String {
    let tuning = &in_use.tuning;
    let mut text =
        format!("A message of {} between two endpoints, with their defaults:\n", size(bytes));
    let mut line = |words: String| _ = writeln!(text, "- {words}");
    let (cells, cell_bytes) = tuning.cells();
    if bytes <= SLOTS_BYTES {
        line(format!("is in the ring itself, as is every message of up to {SLOTS_BYTES} B"));
    } else {
        if bytes <= tuning.in_place_up_to() {
            line(format!(
                "stays in the sender's heap, where the receiver reads it, if that one grants it \
                 (in_place_up_to_bytes = {})",
                tuning.in_place_up_to()
            ));
        }
        if bytes <= tuning.offered_above() {
            let else_ = if bytes <= tuning.in_place_up_to() { "else " } else { "" };
            line(format!(
                "{else_}is copied through cells, {cells} of {} (offered_above_bytes = {})",
                size(cell_bytes),
                tuning.offered_above()
            ));
        }
        if bytes > tuning.offered_above().min(tuning.offered_if_scarce_above()) {
            let when = match bytes > tuning.offered_above() {
                true => format!("offered_above_bytes = {}", tuning.offered_above()),
                false => format!(
                    "if the cells have no room: offered_if_scarce_above_bytes = {}",
                    tuning.offered_if_scarce_above()
                ),
            };
            line(format!("stays in the sender's memory until it is received ({when})"));
            line(match bytes >= tuning.both_sides_from() {
                true => format!(
                    "is copied by the receiver, and by the sender while that one is in a call \
                     (both_sides_from_bytes = {})",
                    tuning.both_sides_from()
                ),
                false => format!(
                    "is copied by the receiver alone (both_sides_from_bytes = {})",
                    tuning.both_sides_from()
                ),
            });
        }
    }
    for (reader, words) in [
        ("peer", "for another core"),
        ("own", "for this core"),
        ("nobody", "for nobody soon, as of long puts to a window"),
    ] {
        let routine =
            usize::try_from(bytes).ok().and_then(|bytes| tuning.copy_routine(reader, bytes));
        line(format!("a copy of so many bytes {words}: {}", routine.unwrap_or("library")));
    }
    let default = Tuning::default();
    text.push_str(&match (&in_use.path, &in_use.problem) {
        (Some(path), None) if *tuning == default => {
            format!("{} changes nothing: these are the defaults.\n", path.display())
        }
        (Some(path), None) => format!("{} says so, with the reasons.\n", path.display()),
        (Some(path), Some(problem)) => {
            format!("These are the defaults: {} is not used: {problem}\n", path.display())
        }
        (None, _) => "These are the defaults: this machine is not tuned.\n".to_owned(),
    });
    text
}
