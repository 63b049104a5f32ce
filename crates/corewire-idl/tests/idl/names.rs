//! Every name that a file can have gives C that is C++, and Rust that is parsed; `proof/processes` compiles the Rust.

use corewire_idl::{Check, Source, c_header, rust};

use crate::positions::interfaces;

#[test]
fn every_word_in_every_position_is_accepted() {
    for (name, text) in interfaces() {
        let checked = Check::new(Source::new(format!("{name}.if"), text.as_str())).run();
        let (interface, _) = checked.into_result().unwrap_or_else(|all| {
            panic!("{name}: {}", &all.render(false)[..2000.min(all.render(false).len())])
        });
        rust::generate(&interface).unwrap_or_else(|error| panic!("{name}: {error}"));
        c_header::generate(&interface).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
