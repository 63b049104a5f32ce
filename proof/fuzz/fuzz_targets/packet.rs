//! Any bytes are either refused or parsed as a packet of a circuit's control lane. A packet is equal to the packet parsed
//! from its own bytes.

#![no_main]

use corewire_circuit::wire::packet::Packet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = Packet::parse(bytes) {
        assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
    }
});
