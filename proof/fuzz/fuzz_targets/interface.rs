//! Any bytes are read as an interface file: refused with diagnostics that can be shown, or accepted. What is accepted
//! can be formatted without changing its meaning, and its form can be read back.

#![no_main]

use corewire_idl::{Check, Source, form::Interface, format};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let checked = Check::new(Source::from_bytes("fuzz.if", bytes)).run();
    let _ = checked.diagnostics.render(false);
    let formatted = format(Source::from_bytes("fuzz.if", bytes));
    if let Some(interface) = checked.interface {
        let text = formatted.expect("what is right can be formatted");
        assert_eq!(format(Source::new("fuzz.if", text.clone())).ok(), Some(text.clone()));
        let again = Check::new(Source::new("fuzz.if", text)).run();
        assert_eq!(again.interface.as_ref(), Some(&interface));
        assert_eq!(Interface::from_json(&interface.to_json()).ok(), Some(interface));
    }
    if let Ok(json) = std::str::from_utf8(bytes) {
        let _ = Interface::from_json(json);
    }
});
