//! Any packet is either refused or parsed as a frame. A frame is equal to the frame parsed from its own
//! bytes.

#![no_main]

use corewire_layout::frame::Frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    if let Ok(frame) = Frame::parse(packet) {
        assert_eq!(Frame::parse(&frame.to_bytes()), Ok(frame));
    }
});
