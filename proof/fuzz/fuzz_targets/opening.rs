//! Any bytes are either refused, wait for more, or are what a side of a connection between hosts says at its beginning: a preface,
//! an answer or a hello. What was read is equal to what is read from its own bytes.

#![no_main]

use corewire_layout::net::{Answer, Hello, Preface};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((preface, used))) = Preface::parse(bytes) {
        assert_eq!(preface.to_bytes(), &bytes[..used]);
    }
    if let Ok(Some((hello, used))) = Hello::parse(bytes) {
        assert_eq!(hello.to_bytes(), &bytes[..used]);
    }
    if let Ok(Some(answer)) = Answer::parse(bytes) {
        assert!(bytes.starts_with(&answer.to_bytes()));
    }
    // What is refused stays so, and what waits is not refused before.
    for length in 0..bytes.len() {
        let part = &bytes[..length];
        assert!(Preface::parse(part).is_ok() || Preface::parse(bytes).is_err());
        assert!(Hello::parse(part).is_ok() || Hello::parse(bytes).is_err());
        assert!(Answer::parse(part).is_ok() || Answer::parse(bytes).is_err());
    }
});
