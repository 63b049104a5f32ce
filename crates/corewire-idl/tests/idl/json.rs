//! Messages from JSON and back: values, hostile bytes, and what is said about mistakes.

use corewire_idl::form::{Definition, Interface, Message, Type, Wire};
use corewire_idl::json::{CapabilitySource, JsonProblem, decode, encode};
use corewire_idl::{Check, Source, c_header, rust};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::interfaces::interfaces;
use crate::values::Random;

fn interface(text: &str) -> Interface {
    let checked = Check::new(Source::new("some.if", text)).run();
    checked.into_result().unwrap_or_else(|all| panic!("{}", all.render(false))).0
}

/// Puts the numbers that the test gave to capabilities where decoding put their index.
fn renumber(value: &mut Value, sources: &[u32]) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| renumber(one, sources)),
        Value::Object(all) => match all.get("capability").and_then(Value::as_u64) {
            Some(index) if all.len() == 1 => {
                let source = sources[usize::try_from(index).unwrap()];
                all.insert("capability".to_owned(), json!(source));
            }
            _ => all.values_mut().for_each(|one| renumber(one, sources)),
        },
        _ => {}
    }
}

/// What is decoded is what was encoded.
fn keeps(all: &Interface, message: &Message, wire: &Wire, random: &mut Random) {
    let given = random.arguments(all, message, wire);
    let encoded = encode(all, message, wire, &given).unwrap_or_else(|error| panic!("{error}"));
    let layout = &wire.layout;
    assert!(
        (layout.fixed_bytes..=layout.bytes_max)
            .contains(&u32::try_from(encoded.bytes.len()).unwrap())
    );
    let mut decoded = decode(all, message, wire, &encoded.bytes).unwrap();
    let sources = encoded.capabilities.iter().map(|one| match one.source {
        CapabilitySource::Received(source) => source,
        _ => panic!("{one:?}"),
    });
    renumber(&mut decoded, &sources.collect::<Vec<_>>());
    assert_eq!(decoded, given);
    let in_order = message.arguments_of(wire).map(|one| given[&one.name].clone()).collect();
    assert_eq!(encode(all, message, wire, &in_order).unwrap(), encoded);
}

/// Bytes with many zeros and small numbers, so that some of them are nearly right.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(0_u8), 2 => 0..8_u8, 1 => any::<u8>()];
    prop::collection::vec(byte, 0..400)
}

/// Any bytes are refused, or are a value that can be encoded again.
fn bears(all: &Interface, message: &Message, wire: &Wire, bytes: &[u8]) {
    if let Ok(value) = decode(all, message, wire, bytes) {
        let again = encode(all, message, wire, &value).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(decode(all, message, wire, &again.bytes).unwrap(), value);
    }
}

proptest! {
    // Failing inputs are printed; as tests they belong beside the code that was wrong.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // Keeps P160.
    #[test]
    fn what_is_decoded_is_what_was_encoded(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        for all in interfaces() {
            all.wires().for_each(|(message, wire)| keeps(&all, message, wire, &mut random));
        }
    }

    #[test]
    fn values_of_any_interface_are_kept(text in crate::common::text(1), seed in any::<u64>()) {
        let all = interface(&text);
        let mut random = Random::new(seed);
        all.wires().for_each(|(message, wire)| keeps(&all, message, wire, &mut random));
    }

    // Keeps P160.
    #[test]
    fn hostile_bytes_are_refused_or_are_a_value(
        bytes in hostile(),
        seed in any::<u64>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut random = Random::new(seed);
        for all in interfaces() {
            for (message, wire) in all.wires() {
                bears(&all, message, wire, &bytes);
                // A fixed part of the right length, and a right message with one byte changed or cut off.
                let fixed = usize::try_from(wire.layout.fixed_bytes).unwrap();
                bears(&all, message, wire, &bytes[..fixed.min(bytes.len())]);
                let given = random.arguments(&all, message, wire);
                let mut changed = encode(&all, message, wire, &given).unwrap().bytes;
                if !changed.is_empty() {
                    let at = at.index(changed.len());
                    bears(&all, message, wire, &changed[..at]);
                    changed[at] = byte;
                    bears(&all, message, wire, &changed);
                }
            }
        }
    }
}

const ERRORS: &str = r#"edition 1; interface some {
    typedef enum { RED, GREEN } color;
    typedef struct { int32 left; uint8 small; } pair;
    typedef union { pair both; bool yes; } choice;
    typedef pair pairs[2];
    typedef uint8 key[4];
    errors trouble { NOT_FOUND, DENIED = 5 };
    rpc ask @1(in uint8 number, in bool flag, in char letter, in String line[4], in pair p, in pairs two,
        in choice c, in color paint, in key key, in vector<uint16, 2> list, in cap file, in fd other,
        in optional<String[3]> note, out uint32 error) ! trouble;
    message all @2(pair only);
}"#;

fn right() -> Value {
    let pair = json!({ "left": -1, "small": 2 });
    json!({
        "number": "0xff", "flag": true, "letter": "x", "line": "four", "p": pair, "two": [pair, pair],
        "c": { "yes": true }, "paint": "GREEN", "key": { "base64": "AAECAw==" }, "list": [1, "2"],
        "file": null, "other": { "fd": 0 },
    })
}

#[test]
fn mistakes_are_named_with_their_place() {
    let all = interface(ERRORS);
    let ask = all.message("ask").unwrap();
    let fails = |change: &dyn Fn(&mut Value)| {
        let mut arguments = right();
        encode(&all, ask, &ask.wires[0], &arguments).unwrap();
        change(&mut arguments);
        encode(&all, ask, &ask.wires[0], &arguments).unwrap_err().to_string()
    };
    let with = |path: &str, value: Value| {
        fails(&|all: &mut Value| *all.pointer_mut(path).unwrap() = value.clone())
    };
    let added = |name: &str| fails(&|all: &mut Value| all[name] = json!(1));
    let without =
        |name: &str| fails(&|all: &mut Value| drop(all.as_object_mut().unwrap().remove(name)));
    let cases = [
        (without("line"), "line: missing: the type is String[4]"),
        (without("other"), "other: missing: the type is fd"),
        (added("lines"), "no argument is called `lines`: did you mean `line`?"),
        (
            with("/p", json!({ "left": 1, "smal": 2 })),
            "p: no field is called `smal`: did you mean `small`?",
        ),
        (with("/p", json!({ "x": 2 })), "p: no field is called `x`: possible are `left`, `small`"),
        (with("/p", json!({ "left": 1 })), "p.small: missing: the type is uint8"),
        (with("/p", json!([1])), "p: 1 fields: exactly 2 are necessary"),
        (with("/p", json!(7)), "p: 7 where an object or an array of all fields (pair) is due"),
        (with("/number", json!(256)), "number: 256 is out of range: uint8 is from 0 to 255"),
        (with("/number", json!("-1")), "number: -1 is out of range: uint8 is from 0 to 255"),
        (with("/number", json!(1.5)), "number: 1.5 where uint8 is due"),
        (with("/number", json!("+1")), "number: the string \"+1\" where uint8 is due"),
        (with("/flag", json!(1)), "flag: 1 where true or false is due"),
        (
            with("/letter", json!("é")),
            "letter: the string \"é\" where a number or one ASCII character is due",
        ),
        (with("/line", json!("12345")), "line: 5 bytes: at most 4 are possible"),
        (with("/line", json!(5)), "line: 5 where a string is due"),
        (with("/two/1/left", json!(null)), "two[1].left: null where int32 is due"),
        (with("/two", json!([1])), "two: 1 elements: exactly 2 are necessary"),
        (with("/two", json!({})), "two: an object of 0 where an array of 2 is due"),
        (with("/c", json!({})), "c: an object of 0 where an object with one arm of choice is due"),
        (with("/c", json!({ "bath": 1 })), "c: no arm is called `bath`: did you mean `both`?"),
        (
            with("/c", json!({ "both": { "left": 0, "small": -1 } })),
            "c.both.small: -1 is out of range: uint8 is from 0 to 255",
        ),
        (with("/paint", json!("GREN")), "paint: no value is called `GREN`: did you mean `GREEN`?"),
        (with("/paint", json!(7)), "paint: 7 is none of the values of color"),
        (with("/paint", json!([])), "paint: an array of 0 where a value of color is due"),
        (with("/key", json!("abc")), "key: 3 bytes: exactly 4 are necessary"),
        (with("/key", json!({ "hex": "0g" })), "key: not hex: 'g' is not a digit"),
        (with("/key", json!({ "hex": "012" })), "key: not hex: 3 digits: a byte has two"),
        (with("/key", json!({ "base64": "A" })), "key: not base64: "),
        (
            with("/key", json!(true)),
            "key: true where a string, an array of numbers, {\"hex\": \"..\"} or {\"base64\": \"..\"} is due",
        ),
        (
            with("/key", json!([0, 1, 2, 256])),
            "key[3]: 256 is out of range: uint8 is from 0 to 255",
        ),
        (with("/list", json!([1, 2, 3])), "list: 3 elements: at most 2 are possible"),
        (with("/list", json!("ab")), "list: the string \"ab\" where an array is due"),
        (
            with("/file", json!({ "fd": -1 })),
            "file: an object of 1 where a path, {\"fd\": number}, {\"path\": \"..\"} or {\"capability\": number} is due",
        ),
    ];
    for (found, due) in cases {
        assert!(found.starts_with(&format!("ask: {due}")), "{found}\n{due}");
    }
    let fails =
        |arguments: Value| encode(&all, ask, &ask.wires[1], &arguments).unwrap_err().to_string();
    // The argument `error` has taken the usual name.
    assert_eq!(
        fails(json!({ "error_": "DENID" })),
        "reply to ask: no error is called `DENID`: did you mean `DENIED`?"
    );
    assert_eq!(fails(json!({ "error_": 0 })), "reply to ask: 0 is none of the values of trouble");
    assert_eq!(
        fails(json!({ "error_": 5, "error": 1 })),
        "reply to ask: a reply has an error or results, not both"
    );
    assert_eq!(
        fails(json!(7)),
        "reply to ask: 7 where an object or an array of all arguments is due"
    );
    assert_eq!(fails(json!([1, 2])), "reply to ask: 2 arguments: exactly 1 are necessary");
    let long = fails(json!({ "x".repeat(100): 1 }));
    assert!(long.len() < 150, "{long}");
}

#[test]
fn wrong_bytes_are_named_with_their_place() {
    let text = r#"edition 1; interface some {
        typedef enum { RED } color;
        typedef union { uint8 a; } choice;
        message fixed @1(bool flag, color paint, choice c);
        message line @2(String text[4], optional<String[4]> note);
    }"#;
    let all = interface(text);
    let fails = |name: &str, bytes: &[u8]| {
        let message = all.message(name).unwrap();
        decode(&all, message, &message.wires[0], bytes).unwrap_err().to_string()
    };
    let cases = [
        (fails("fixed", &[0; 9]), "fixed: 9 bytes arrived where 10 were due"),
        (fails("fixed", &[0, 0, 0, 0, 0, 0, 0, 0, 2, 0]), "fixed: flag: 2 is no bool"),
        (
            fails("fixed", &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            "fixed: paint: 1 is none of the values of color",
        ),
        (
            fails("fixed", &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0]),
            "fixed: c: 1 is none of the values of choice",
        ),
        (fails("line", &[0; 8]), "line: 8 bytes arrived where at least 9 are necessary"),
        (fails("line", &[5, 0, 0, 0, 0, 0, 0, 0, 0]), "line: text: length 5, but its bound is 4"),
        (
            fails("line", &[2, 0, 0, 0, 0, 0, 0, 0, 0, 65]),
            "line: text: length 2, but only 1 bytes are left",
        ),
        (
            fails("line", &[2, 0, 0, 0, 0, 0, 0, 0, 0, 65, 255]),
            "line: text: not UTF-8 from byte 1 on",
        ),
        (fails("line", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 65]), "line: 1 bytes behind its end"),
        (
            fails("line", &[0, 0, 0, 0, 1, 0, 0, 0, 0, 65]),
            "line: note: length 1, but its bound is 0",
        ),
    ];
    for (found, due) in cases {
        assert_eq!(found, due);
    }
}

#[test]
fn a_reply_is_results_or_an_error() {
    let all = interface(&ERRORS.replace("out uint32 error", "out uint32 x"));
    let ask = all.message("ask").unwrap();
    let reply = |arguments: Value| {
        let encoded = encode(&all, ask, &ask.wires[1], &arguments).unwrap();
        (encoded.bytes.clone(), decode(&all, ask, &ask.wires[1], &encoded.bytes).unwrap())
    };
    let bytes = |error: u8, x: u8| vec![error, 0, 0, 0, x, 0, 0, 0];
    assert_eq!(reply(json!({ "x": 7 })), (bytes(0, 7), json!({ "x": 7 })));
    assert_eq!(reply(json!([7])), (bytes(0, 7), json!({ "x": 7 })));
    let denied = json!({ "error": "DENIED" });
    assert_eq!(reply(denied.clone()), (bytes(5, 0), denied.clone()));
    assert_eq!(reply(json!({ "error": 5 })), (bytes(5, 0), denied));
    assert_eq!(reply(json!({ "error": 9 })), (bytes(9, 0), json!({ "error": 9 })));
}

#[test]
fn capabilities_are_described_in_the_order_in_which_they_travel() {
    let text = r#"edition 1; interface some {
        typedef struct { fd left; cap middle; fd right; } box;
        typedef box boxes[2];
        message all @1(boxes b, optional<fd> more);
    }"#;
    let all = interface(text);
    let message = all.message("all").unwrap();
    let given = json!({
        "b": [
            { "left": "/l0", "middle": null, "right": { "path": "/r0" } },
            { "left": { "fd": 3 }, "middle": "/m1", "right": { "capability": 9 } },
        ],
        "more": "/more",
    });
    let encoded = encode(&all, message, &message.wires[0], &given).unwrap();
    let paths = encoded.capabilities.iter().map(|one| one.path.as_str()).collect::<Vec<_>>();
    assert_eq!(
        paths,
        ["b[0].left", "b[1].left", "b[1].middle", "b[0].right", "b[1].right", "more"]
    );
    assert_eq!(encoded.capabilities[1].source, CapabilitySource::Descriptor(3));
    assert_eq!(encoded.capabilities[2].of.to_string(), "cap");
    assert_eq!(encoded.capabilities[3].source, CapabilitySource::Path("/r0".to_owned()));
    let decoded = decode(&all, message, &message.wires[0], &encoded.bytes).unwrap();
    let is = |index: u32| json!({ "capability": index });
    assert_eq!(decoded["b"][0], json!({ "left": is(0), "middle": null, "right": is(3) }));
    assert_eq!(decoded["b"][1], json!({ "left": is(1), "middle": is(2), "right": is(4) }));
    assert_eq!(decoded["more"], is(5));
}

#[test]
fn windows_are_named_and_come_by_their_index() {
    let all = interface(
        "edition 1; interface some { message all @1(window grid, optional<window> more, uint8 x); }",
    );
    let message = all.message("all").unwrap();
    let both = |given: Value| {
        let encoded = encode(&all, message, &message.wires[0], &given).unwrap();
        let decoded = decode(&all, message, &message.wires[0], &encoded.bytes).unwrap();
        let sources = encoded.capabilities.into_iter().map(|one| {
            assert_eq!(one.of.to_string(), "window");
            (one.path, one.source)
        });
        (encoded.bytes, sources.collect::<Vec<_>>(), decoded)
    };
    let named = |path: &str, name: &str| (path.to_owned(), CapabilitySource::Path(name.to_owned()));
    let (bytes, sources, decoded) = both(json!({ "grid": "g", "more": { "path": "h" }, "x": 7 }));
    assert_eq!((bytes, sources), (vec![1, 7], vec![named("grid", "g"), named("more", "h")]));
    let index = |index: u32| json!({ "capability": index });
    assert_eq!(decoded, json!({ "grid": index(0), "more": index(1), "x": 7 }));
    assert_eq!(both(decoded.clone()).2, decoded);
    let (bytes, sources, decoded) = both(json!({ "grid": "g", "x": 7 }));
    assert_eq!((bytes, sources), (vec![0, 7], vec![named("grid", "g")]));
    assert_eq!(decoded, json!({ "grid": index(0), "more": null, "x": 7 }));
    let missing = encode(&all, message, &message.wires[0], &json!({ "x": 7 })).unwrap_err();
    assert_eq!(missing.to_string(), "all: grid: missing: the type is window");
}

#[test]
fn bytes_and_letters_have_several_forms() {
    let text = "edition 1; interface some {
        typedef char name[6];
        typedef name names[2];
        message all @1(vector<uint8, 8> bytes, vector<char, 8> text, names n, char one, uint64 large, int64 low);
    }";
    let all = interface(text);
    let message = all.message("all").unwrap();
    let both = |given: Value| {
        let encoded = encode(&all, message, &message.wires[0], &given).unwrap();
        decode(&all, message, &message.wires[0], &encoded.bytes).unwrap()
    };
    let given = json!({
        "bytes": "é", "text": { "hex": "4142" }, "n": ["abcdef", [65, "B", 0, 0, 0, 0]], "one": 65,
        "large": u64::MAX, "low": i64::MIN,
    });
    let due = json!({
        "bytes": { "hex": "c3a9" }, "text": "AB", "n": ["abcdef", "AB"], "one": "A", "large": u64::MAX,
        "low": i64::MIN,
    });
    assert_eq!(both(given), due);
    let given = json!({
        "bytes": [1, "0x02"], "text": { "base64": "AA==" }, "n": [{ "hex": "00ff00000000" }, ""], "one": "\u{7f}",
        "large": "0xffffffffffffffff", "low": "-0x8000000000000000",
    });
    let due = json!({
        "bytes": { "hex": "0102" }, "text": { "hex": "00" }, "n": [{ "hex": "00ff00000000" }, ""], "one": 127,
        "large": u64::MAX, "low": i64::MIN,
    });
    assert_eq!(both(given), due);
}

#[test]
fn a_form_that_does_not_agree_with_itself_is_refused() {
    let mut all = interface(
        "edition 1; interface some { typedef struct { uint8 x; } t; message m @1(t a); }",
    );
    let message = all.messages[0].clone();
    let due = |all: &Interface, bytes: &[u8]| {
        let encoded = encode(all, &message, &message.wires[0], &json!([{ "x": 1 }]));
        let decoded = decode(all, &message, &message.wires[0], bytes);
        (encoded.unwrap_err().problem, decoded.unwrap_err().problem)
    };
    all.types[0].definition = Definition::Alias { target: message.arguments[0].of.clone() };
    assert_eq!(due(&all, &[1]), (JsonProblem::Form, JsonProblem::Form));
    all.types.clear();
    assert_eq!(due(&all, &[1]), (JsonProblem::Form, JsonProblem::Form));
}

#[test]
fn types_that_contain_themselves_are_refused_by_every_back_end() {
    let text =
        "edition 1; interface some { typedef struct { uint8 x; } t; typedef union { uint8 y; } u;
        message m @1(t a, u b, vector<t, 2> c); }";
    let own = |all: &Interface, name: &str, wrap: fn(Type) -> Type| {
        let mut all = all.clone();
        let decl = all.types.iter_mut().find(|decl| decl.name == name).unwrap();
        match &mut decl.definition {
            Definition::Struct { fields } | Definition::Union { arms: fields, .. } => {
                fields[0].of = wrap(Type::Named { name: name.to_owned() });
            }
            other => panic!("{other:?}"),
        }
        all
    };
    let all = interface(text);
    let message = &all.messages[0];
    let wire = &message.wires[0];
    for wrong in [
        own(&all, "t", |of| of),
        own(&all, "t", |of| Type::Vector { element: Box::new(of), count_max: 2 }),
        own(&all, "u", |of| of),
    ] {
        let bytes = vec![0; usize::try_from(wire.layout.fixed_bytes).unwrap()];
        assert_eq!(decode(&wrong, message, wire, &bytes).unwrap_err().problem, JsonProblem::Form);
        assert!(rust::generate(&wrong).is_err() || wrong.types[0] == all.types[0]);
        let _ = c_header::generate(&wrong);
    }
}

#[test]
fn a_type_of_a_foreign_form_can_have_the_name_of_another() {
    let text = "edition 1; interface some { typedef struct { uint16 x; bool y; } t;
        message m @1(vector<uint8, 2> a, vector<t, 2> b); }";
    let foreign = interface(text).to_json().replace("\"t\"", "\"uint8\"");
    let all = Interface::from_json(&foreign).unwrap();
    let message = &all.messages[0];
    let given = json!({ "a": { "hex": "0102" }, "b": [{ "x": 3, "y": true }] });
    let encoded = encode(&all, message, &message.wires[0], &given).unwrap();
    assert_eq!(encoded.bytes, [2, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 0, 1]);
    assert_eq!(decode(&all, message, &message.wires[0], &encoded.bytes).unwrap(), given);
}

#[test]
fn an_error_is_told_from_results() {
    let text = "edition 1; interface i { errors e { BAD }; \
                rpc r(in uint8 x, out uint8 error) ! e; rpc s(out uint8 error); }";
    let all = interface(text);
    let of = |name: &str, value| {
        let message = all.message(name).unwrap();
        corewire_idl::json::error(message, &message.wires[1], &value).cloned()
    };
    assert_eq!(of("r", json!({ "error": 1 })), None);
    assert_eq!(of("r", json!({ "error_": "BAD" })), Some(json!("BAD")));
    assert_eq!(of("s", json!({ "error": 1 })), None);
    assert_eq!(all.message_like("rr"), Some("r"));
    assert_eq!(all.message_like("other"), None);
}

// Keeps P174.
#[test]
fn the_text_of_a_form_is_the_same_interface() {
    for all in interfaces() {
        let text = all.to_text();
        assert_eq!(corewire_idl::format(Source::new("a.if", text.as_str())).unwrap(), text);
        let (again, _) = Check::new(Source::new("a.if", text.as_str()))
            .run()
            .into_result()
            .unwrap_or_else(|errors| panic!("{text}\n{}", errors.render(false)));
        assert_eq!((again.hash, again.name.as_str()), (all.hash, all.name.as_str()));
        let facts = |all: &Interface| {
            let docs = all.messages.iter().map(|one| (one.docs.clone(), one.metas.clone()));
            let lengths = all.messages.iter().flat_map(|one| &one.arguments);
            let lengths = lengths.map(|one| one.length_name.clone()).collect::<Vec<_>>();
            let types = all.types.iter().map(|one| (one.docs.clone(), one.definition.clone()));
            let head = (all.docs.clone(), all.description.clone(), all.errors.clone());
            let kinds = all.messages.iter().map(|one| one.kind).collect::<Vec<_>>();
            let all = (docs.collect::<Vec<_>>(), types.collect::<Vec<_>>());
            (head, all, lengths, kinds)
        };
        assert_eq!(facts(&again), facts(&all));
    }
}
