//! Messages from JSON are those of generated code, byte for byte.

use std::sync::Mutex;

use crate::values::Random;
use corewire_bind::{
    CallError, Capabilities, ClientId, Dispatch, Driver, Identity, Incoming, Refusal, Reply, Serve,
    ServerCore,
};
use corewire_idl::form::{Interface, Message};
use corewire_idl::json::{decode, encode};
use corewire_idl::{Check, Source};
use corewire_processes::interfaces::all::{
    Choice, Client, Color, DESCRIPTION, Entry, Nested, Pair, Shape,
};
use corewire_processes::interfaces::{Place, by, newer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

fn interface() -> Interface {
    let text = include_str!("../../if/all.if");
    Check::new(Source::new("all.if", text)).run().into_result().unwrap().0
}

fn runner() -> TestRunner {
    TestRunner::new(Config { failure_persistence: None, ..Config::default() })
}

/// Encodes a call, sends it to generated code, and decodes the reply, which must be what JSON would give.
fn call(client: &Mutex<Client>, all: &Interface, message: &Message, arguments: &Value) -> Value {
    let (request, reply) = (&message.wires[0], &message.wires[1]);
    let bytes = encode(all, message, request, arguments).unwrap().bytes;
    let bytes = client
        .lock()
        .unwrap()
        .as_mut()
        .call(message.ordinal, &bytes, &Capabilities::new(), 1 << 16, None)
        .unwrap();
    let value = decode(all, message, reply, &bytes).unwrap();
    assert_eq!(encode(all, message, reply, &value).unwrap().bytes, bytes.to_vec());
    value
}

// Keeps P160.
#[test]
fn generated_code_understands_messages_from_json_and_answers_with_the_same_bytes() {
    let interface = interface();
    Place::new("json").serve(|domain| {
        let client = Mutex::new(Client::bind(domain, "echo", &by(Driver::Local)).unwrap());
        // What the service answers with: the results, and the arguments that they equal.
        let echoes: &[(&str, &[(&str, &str)])] = &[
            ("structures", &[("h", "g"), ("v", "u")]),
            ("dynamic", &[("reply", "text"), ("fixed", "list"), ("back", "e")]),
            ("perhaps", &[("w", "a"), ("x", "b"), ("y", "c"), ("z", "d")]),
            ("nothing", &[]),
            ("eight", &[("same", "value")]),
            ("wide", &[("u", "a"), ("v", "b"), ("w", "c"), ("x", "d"), ("y", "e"), ("z", "f")]),
            ("type", &[("fn", "match")]),
        ];
        let ran = runner().run(&any::<u64>(), |seed| {
            let mut random = Random::new(seed);
            for (name, same) in echoes {
                let message = interface.message(name).unwrap();
                let given = random.arguments(&interface, message, &message.wires[0]);
                let answer = call(&client, &interface, message, &given);
                prop_assert_eq!(answer.as_object().unwrap().len(), same.len());
                for (result, argument) in *same {
                    prop_assert_eq!(&answer[result], &given[argument]);
                }
            }
            let numbers = interface.message("numbers").unwrap();
            let given = random.arguments(&interface, numbers, &numbers.wires[0]);
            prop_assert_eq!(&call(&client, &interface, numbers, &given)["y"], &given["e"]);
            Ok(())
        });
        ran.unwrap();
        let fails = interface.message("fails").unwrap();
        let fails = |how: i32| call(&client, &interface, fails, &json!({ "how": how }));
        assert_eq!(fails(0), json!({ "fine": 7 }));
        assert_eq!(fails(1), json!({ "error": "NOT_FOUND" }));
        assert_eq!(fails(5), json!({ "error": "DENIED" }));
        assert_eq!(fails(-77), json!({ "error": -77 }));
    });
}

// Keeps P160.
#[test]
fn json_accepts_the_bytes_that_generated_code_accepts() {
    let interface = interface();
    Place::new("json-hostile").serve(|domain| {
        let client = Mutex::new(Client::bind(domain, "echo", &by(Driver::Local)).unwrap());
        let byte = prop_oneof![4 => Just(0_u8), 2 => 0..8_u8, 1 => any::<u8>()];
        let bytes = proptest::collection::vec(byte, 0..400);
        let changes =
            proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4);
        let ran = runner().run(&(any::<u64>(), bytes, changes), |(seed, bytes, changes)| {
            let mut random = Random::new(seed);
            for name in ["numbers", "structures", "dynamic", "perhaps", "fails", "nothing", "type"]
            {
                let message = interface.message(name).unwrap();
                let request = &message.wires[0];
                let given = random.arguments(&interface, message, request);
                let mut changed = encode(&interface, message, request, &given).unwrap().bytes;
                for (at, byte) in &changes {
                    if !changed.is_empty() {
                        let at = at.index(changed.len());
                        changed[at] = *byte;
                    }
                }
                let fixed = usize::try_from(request.layout.fixed_bytes).unwrap().min(bytes.len());
                let cut = changes[0].0.index(changed.len() + 1);
                for bytes in [&bytes[..], &bytes[..fixed], &changed, &changed[..cut]] {
                    let (none, bytes_max) = (Capabilities::new(), 1 << 16);
                    let mut client = client.lock().unwrap();
                    let ended =
                        client.as_mut().call(message.ordinal, bytes, &none, bytes_max, None);
                    let by_json = decode(&interface, message, request, bytes);
                    match (&ended, &by_json) {
                        (Ok(_), Ok(_)) | (Err(CallError::Malformed), Err(_)) => {}
                        other => prop_assert!(false, "{name}: {bytes:?}: {other:?}"),
                    }
                }
            }
            Ok(())
        });
        ran.unwrap();
    });
}

/// Accepts every call of the second interface.
struct Accepts;

impl newer::Service for Accepts {
    fn floats(&mut self, _: f32, _: f64, c: newer::Plain, reply: newer::FloatsReply<'_>) {
        reply.send(1.0, c);
    }

    fn lists(
        &mut self,
        _: Vec<String>,
        _: Vec<newer::Plain>,
        _: newer::Directory,
        t: newer::Tree,
        reply: newer::ListsReply<'_>,
    ) {
        reply.send(&[], &t);
    }

    fn unions(
        &mut self,
        v: newer::Value,
        _: newer::Deep,
        _: Vec<newer::Deep>,
        _: Option<newer::Value>,
        reply: newer::UnionsReply<'_>,
    ) {
        reply.send(&v, &[]);
    }

    fn arrays(
        &mut self,
        _: newer::Words,
        _: newer::Grid,
        _: Option<newer::Grid>,
        _: Vec<newer::Grid>,
        _: Vec<Option<newer::Words>>,
        reply: newer::ArraysReply<'_>,
    ) {
        reply.send(None, None);
    }

    fn keeps(&mut self, _: Option<newer::Tree>, reply: newer::KeepsReply<'_>) {
        reply.send(None);
    }

    fn short(&mut self, _: u8, reply: newer::ShortReply<'_>) {
        reply.send(1);
    }

    fn entries(&mut self, _: &str, _: u8, reply: newer::EntriesReply<'_>) {
        reply.send_all([]);
    }

    fn ticks(&mut self, reply: newer::TicksReply<'_>) {
        reply.send_all([]);
    }

    fn note(&mut self, _: Vec<newer::Value>, _: Option<f32>, _: ClientId) {}
}

// Keeps P160.
#[test]
fn json_accepts_the_newer_constructs_that_generated_code_accepts() {
    let text = include_str!("../../if/newer.if");
    let all = Check::new(Source::new("newer.if", text)).run().into_result().unwrap().0;
    let place = Place::without_monitors("json-newer");
    let mut server = newer::Server::new(&place.domain, "newer", Accepts).unwrap();
    let stopper = server.stopper();
    std::thread::scope(|scope| {
        scope.spawn(move || server.serve().unwrap());
        let bound = newer::Client::bind(&place.domain, "newer", &by(Driver::Local)).unwrap();
        let client = Mutex::new(bound);
        let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
        let ran = runner().run(&(any::<u64>(), changes), |(seed, changes)| {
            let mut random = Random::new(seed);
            for name in ["floats", "lists", "unions", "arrays", "keeps", "short"] {
                let message = all.message(name).unwrap();
                let request = &message.wires[0];
                let given = random.arguments(&all, message, request);
                let right = encode(&all, message, request, &given).unwrap().bytes;
                prop_assert_eq!(&decode(&all, message, request, &right).unwrap(), &given);
                let mut changed = right.clone();
                for (at, byte) in &changes {
                    let at = at.index(changed.len());
                    changed[at] = *byte % 16;
                }
                let cut = changes[0].0.index(changed.len() + 1);
                for bytes in [&right[..], &changed, &changed[..cut]] {
                    let (none, bytes_max) = (Capabilities::new(), 1 << 16);
                    let mut client = client.lock().unwrap();
                    let ended =
                        client.as_mut().call(message.ordinal, bytes, &none, bytes_max, None);
                    match (&ended, &decode(&all, message, request, bytes)) {
                        (Ok(_), Ok(_)) | (Err(CallError::Malformed), Err(_)) => {}
                        other => prop_assert!(false, "{name}: {bytes:?}: {other:?}"),
                    }
                }
            }
            Ok(())
        });
        stopper.stop();
        ran.unwrap();
    });
}

/// Keeps the last message that arrived.
#[derive(Default)]
struct Last(Vec<u8>);

impl Dispatch for Last {
    fn bound(&mut self, _client: ClientId, _identity: Identity) {}

    fn gone(&mut self, _client: ClientId) {}

    fn not_taken(&mut self, _client: ClientId, _ordinal: u16) {}

    fn request(&mut self, _: u16, request: Incoming<'_>, reply: Reply<'_>) -> Result<(), Refusal> {
        self.0 = request.bytes().to_vec();
        reply.send(&[]);
        Ok(())
    }

    fn message(&mut self, _: u16, message: Incoming<'_>, _: ClientId) -> Result<(), Refusal> {
        self.0 = message.bytes().to_vec();
        Ok(())
    }
}

fn pair(random: &mut Random) -> (Pair, Value) {
    let [a, b, c, d] = [0; 4].map(|_: u8| random.next());
    let (left, small) = (a.to_le_bytes(), b.to_le_bytes()[0]);
    let left = i32::from_le_bytes([left[0], left[1], left[2], left[3]]);
    let pair = Pair { left, small, right: c, flag: d.is_multiple_of(2) };
    (pair, json!({ "left": left, "small": small, "right": c, "flag": d.is_multiple_of(2) }))
}

fn pairs(random: &mut Random) -> ([Pair; 3], Value) {
    let all = [0; 3].map(|_: u8| pair(random));
    (all.clone().map(|one| one.0), all.map(|one| one.1).into())
}

fn choice(random: &mut Random) -> (Choice, Value) {
    match random.next() % 4 {
        0 => {
            let (one, value) = pair(random);
            (Choice::Both(one), json!({ "both": value }))
        }
        1 => (Choice::One(7), json!({ "one": 7 })),
        2 => {
            let (all, value) = pairs(random);
            (Choice::Three(all), json!({ "three": value }))
        }
        _ => (Choice::Yes(true), json!({ "yes": true })),
    }
}

fn nested(random: &mut Random) -> (Nested, Value) {
    let (many, values) = pairs(random);
    let (one, value) = pair(random);
    let is_there = random.next().is_multiple_of(2);
    let perhaps = is_there.then_some(one);
    let nested = Nested { r#type: 9, many, paint: Color::Blue, perhaps };
    let value = if is_there { value } else { Value::Null };
    (nested, json!({ "type": 9, "many": values, "paint": "BLUE", "perhaps": value }))
}

fn entry(random: &mut Random) -> (Entry, Value) {
    let (which, value) = choice(random);
    let words = (0..random.next() % 9).map(|word| u16::try_from(word).unwrap()).collect::<Vec<_>>();
    let value = json!({ "name": "é", "words": words, "which": value });
    (Entry { name: "é".to_owned(), words, which }, value)
}

// Keeps P160.
#[test]
fn messages_from_json_have_the_bytes_of_generated_code() {
    let interface = interface();
    let place = Place::new("json-bytes");
    let mut core = ServerCore::new(&place.domain, "raw", Serve::default(), &DESCRIPTION).unwrap();
    let client = std::thread::scope(|scope| {
        let bound = scope.spawn(|| Client::bind(&place.domain, "raw", &by(Driver::Local)).unwrap());
        core.serve_one(None, &mut Last::default()).unwrap();
        bound.join().unwrap()
    });
    let both = Mutex::new((client, core));
    let ran = runner().run(&any::<u64>(), |seed| {
        let (client, core) = &mut *both.lock().unwrap();
        let mut random = Random::new(seed);
        let same = |core: &mut ServerCore, name: &str, arguments: Value| {
            let mut last = Last::default();
            core.serve_one(None, &mut last).unwrap();
            let message = interface.message(name).unwrap();
            let encoded = encode(&interface, message, &message.wires[0], &arguments).unwrap();
            assert_eq!(encoded.bytes, last.0, "{name}: {arguments}");
        };
        let ((first, a), (second, b)) = (nested(&mut random), nested(&mut random));
        let ((left, c), (right, d)) = (choice(&mut random), choice(&mut random));
        let shape = Shape::Unknown(12);
        drop(client.start_structures([first, second], Color::Red, shape, [left, right]).unwrap());
        same(core, "structures", json!({ "g": [a, b], "c": "RED", "s": 12, "u": [c, d] }));

        let list = (0..random.next() % 9).map(|_| pair(&mut random)).collect::<Vec<_>>();
        let (pairs, values) = list.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        let any = (0..random.next() % 5).map(|_| choice(&mut random)).collect::<Vec<_>>();
        let (choices, any) = any.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        let (e, value) = entry(&mut random);
        drop(client.start_dynamic("text", b"bytes", &pairs, &choices, &e).unwrap());
        let arguments =
            json!({ "text": "text", "bytes": "bytes", "list": values, "any": any, "e": value });
        same(core, "dynamic", arguments);

        drop(client.start_perhaps(Some(5), None, Some(b"ab"), Some(&e)).unwrap());
        same(core, "perhaps", json!({ "a": 5, "c": { "hex": "6162" }, "d": value }));
        drop(client.start_perhaps(None, Some("b"), None, None).unwrap());
        same(core, "perhaps", json!([null, "b"]));
        drop(
            client
                .start_numbers(1, 2, 3, u64::MAX, -1, -2, -3, i64::MIN, true, b'j', 4, 5)
                .unwrap(),
        );
        let arguments = json!([1, 2, 3, u64::MAX, -1, -2, -3, i64::MIN, true, "j", 4, 5]);
        same(core, "numbers", arguments);
        client.line(7, "a line").unwrap();
        same(core, "line", json!({ "number": 7, "text": "a line" }));
        Ok(())
    });
    ran.unwrap();
}
