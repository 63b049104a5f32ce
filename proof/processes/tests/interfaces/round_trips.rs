//! All messages with random arguments, by each driver: what is received equals what was sent.

use corewire_processes::interfaces::{DRIVERS, Place, all_round_trip, newer_round_trip, pin};

/// How often each message is sent.
const COUNT: u32 = 1000;

// Keeps P185.
#[test]
fn what_is_received_equals_what_was_sent() {
    pin();
    for (driver, seed) in DRIVERS.into_iter().zip(1..) {
        let place = Place::new(&format!("round-trip-{driver}"));
        let compared = all_round_trip::run(&place.domain, driver, COUNT, seed)
            + newer_round_trip::run(&place.domain, driver, COUNT, seed);
        println!("{driver}: {compared} messages");
    }
}
