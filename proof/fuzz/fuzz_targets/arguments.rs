//! Any bytes are decoded as a message of an interface with all constructs: refused, or a value that is encoded and
//! decoded again to the same. Any JSON is encoded as arguments: refused, or a message that can be decoded.

#![no_main]

use std::sync::OnceLock;

use corewire_idl::form::Interface;
use corewire_idl::{Check, Source, json};
use libfuzzer_sys::fuzz_target;

const BYTES: &str = include_str!("../../processes/if/all.if");
const NEWER: &str = include_str!("../../processes/if/newer.if");
const CAPABILITIES: &str = "edition 1; interface beside {
    typedef struct { cap maybe; fd always; optional<endpoint> other; optional<window> memory; } box;
    typedef box boxes[2];
    typedef char name[5];
    rpc swap @1(in boxes b, in name n, in optional<client<beside>> c, out vector<char, 9> text, out optional<box> d);
};";

fn interfaces() -> &'static [Interface] {
    static ALL: OnceLock<Vec<Interface>> = OnceLock::new();
    ALL.get_or_init(|| {
        let check = |text: &str| Check::new(Source::new("fuzz.if", text)).run().into_result();
        [BYTES, NEWER, CAPABILITIES].map(|text| check(text).expect("it is right").0).into()
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((first, bytes)) = input.split_first() else { return };
    let wires = || interfaces().iter().flat_map(|one| one.wires().map(move |wire| (one, wire)));
    let chosen = usize::from(*first) % wires().count();
    let Some((interface, (message, wire))) = wires().nth(chosen) else { return };
    if let Ok(value) = json::decode(interface, message, wire, bytes) {
        let encoded =
            json::encode(interface, message, wire, &value).expect("a value that was decoded");
        let again = json::decode(interface, message, wire, &encoded.bytes)
            .expect("a message that was encoded");
        assert_eq!(again, value);
    }
    if let Ok(value) = serde_json::from_slice(bytes)
        && let Ok(encoded) = json::encode(interface, message, wire, &value)
    {
        json::decode(interface, message, wire, &encoded.bytes).expect("a message that was encoded");
    }
});
