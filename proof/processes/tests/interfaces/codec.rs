//! What is received equals what was sent; the bytes are those of the layout; random bytes harm nobody.

use std::sync::Mutex;

use corewire_bind::{
    CallError, Capabilities, ClientId, Dispatch, Driver, Identity, Incoming, Refusal, Reply, Serve,
    ServerCore,
};
use corewire_idl::form::{Interface, LeafRole, Type};
use corewire_idl::{Check, Source};
use corewire_processes::interfaces::all::{
    Choice, Client, Color, DESCRIPTION, Entry, Nested, Pair, Shape,
};
use corewire_processes::interfaces::{DRIVERS, Place, by, pin, sum_of_all};
use proptest::option::of;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn pair() -> impl Strategy<Value = Pair> + Clone {
    (any::<i32>(), any::<u8>(), any::<u64>(), any::<bool>())
        .prop_map(|(left, small, right, flag)| Pair { left, small, right, flag })
}

fn pairs() -> impl Strategy<Value = [Pair; 3]> + Clone {
    (pair(), pair(), pair()).prop_map(|(a, b, c)| [a, b, c])
}

fn color() -> impl Strategy<Value = Color> + Clone {
    prop_oneof![Just(Color::Red), Just(Color::Green), Just(Color::Blue)]
}

fn nested() -> impl Strategy<Value = Nested> + Clone {
    (any::<u16>(), pairs(), color(), of(pair())).prop_map(|(r#type, many, paint, perhaps)| Nested {
        r#type,
        many,
        paint,
        perhaps,
    })
}

fn choice() -> impl Strategy<Value = Choice> + Clone {
    prop_oneof![
        pair().prop_map(Choice::Both),
        any::<u64>().prop_map(Choice::One),
        pairs().prop_map(Choice::Three),
        any::<bool>().prop_map(Choice::Yes),
    ]
}

fn text(bytes_max: usize) -> impl Strategy<Value = String> + Clone {
    proptest::collection::vec(any::<char>(), 0..=bytes_max / 4).prop_map(String::from_iter)
}

fn entry() -> impl Strategy<Value = Entry> + Clone {
    (text(32), proptest::collection::vec(any::<u16>(), 0..=9), choice())
        .prop_map(|(name, words, which)| Entry { name, words, which })
}

fn shape() -> impl Strategy<Value = Shape> + Clone {
    prop_oneof![Just(Shape::Circle), Just(Shape::Square), (4..i32::MAX).prop_map(Shape::Unknown)]
}

#[test]
fn what_is_received_equals_what_was_sent() {
    pin();
    Place::new("codec").serve(|domain| {
        let clients =
            DRIVERS.map(|driver| Mutex::new(Client::bind(domain, "echo", &by(driver)).unwrap()));
        let bytes = |count| proptest::collection::vec(any::<u8>(), 0..=count);
        let list = || proptest::collection::vec(pair(), 0..=8);
        let some = || proptest::collection::vec(choice(), 0..=4);
        let numbers = (
            (any::<u8>(), any::<u16>(), any::<u32>(), any::<u64>()),
            (any::<i8>(), any::<i16>(), any::<i32>(), any::<i64>()),
            (any::<bool>(), any::<u8>(), any::<u32>(), any::<u64>()),
        );
        let fixed = ((nested(), nested()), color(), shape(), (choice(), choice()));
        let dynamic = (text(40), bytes(64), list(), some(), entry());
        let perhaps = (of(any::<u32>()), of(text(40)), of(bytes(16)), of(entry()));
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let ran = runner.run(&(numbers, fixed, dynamic, perhaps), |(n, f, d, p)| {
            for client in &clients {
                let mut client = client.lock().unwrap();
                let ((a, b, c, e), (g, h, i, j), (k, l, m, o)) = n;
                let out = client.numbers(a, b, c, e, g, h, i, j, k, l, m, o).unwrap();
                prop_assert_eq!((out.x, out.y), (sum_of_all(n.0, n.1, n.2), g));
                let (grid, choices) = ([f.0.0, f.0.1], [f.3.0, f.3.1]);
                let out = client.structures(grid, f.1, f.2, choices).unwrap();
                prop_assert_eq!((out.h, out.v), (grid, choices));
                let out = client.dynamic(&d.0, &d.1, &d.2, &d.3, &d.4).unwrap();
                prop_assert_eq!((&out.reply, &out.fixed, &out.back), (&d.0, &d.2, &d.4));
                let out =
                    client.perhaps(p.0, p.1.as_deref(), p.2.as_deref(), p.3.as_ref()).unwrap();
                prop_assert_eq!((&out.w, &out.x, &out.y, &out.z), (&p.0, &p.1, &p.2, &p.3));
            }
            Ok(())
        });
        ran.unwrap();
    });
}

/// Keeps what arrives, and answers with given bytes.
#[derive(Default)]
struct Raw {
    arrived: Vec<(u16, Vec<u8>)>,
    answers: Vec<u8>,
}

impl Dispatch for Raw {
    fn bound(&mut self, _client: ClientId, _identity: Identity) {}

    fn gone(&mut self, _client: ClientId) {}

    fn not_taken(&mut self, _client: ClientId, _ordinal: u16) {}

    fn request(
        &mut self,
        ordinal: u16,
        request: Incoming<'_>,
        reply: Reply<'_>,
    ) -> Result<(), Refusal> {
        self.arrived.push((ordinal, request.bytes().to_vec()));
        reply.send(&self.answers);
        Ok(())
    }

    fn message(&mut self, ordinal: u16, message: Incoming<'_>, _: ClientId) -> Result<(), Refusal> {
        self.arrived.push((ordinal, message.bytes().to_vec()));
        Ok(())
    }
}

/// A client of a service without generated code.
fn bound_to(core: &mut ServerCore, raw: &mut Raw, place: &Place) -> Client {
    std::thread::scope(|scope| {
        let bound = scope.spawn(|| Client::bind(&place.domain, "raw", &by(Driver::Local)).unwrap());
        while !bound.is_finished() {
            core.serve_one(Some(std::time::Duration::from_millis(5)), raw).unwrap();
        }
        bound.join().unwrap()
    })
}

// Keeps P185.
#[test]
fn the_bytes_are_those_of_the_layout() {
    let text = include_str!("../../if/all.if");
    let (interface, _) = Check::new(Source::new("all.if", text)).run().into_result().unwrap();
    let layout = &interface.message("structures").unwrap().wires[0].layout;
    assert!(interface.types.iter().all(|one| !matches!(
        interface.resolve(&Type::Named { name: one.name.clone() }),
        corewire_idl::form::Resolved::Plain(Type::Named { .. })
    )));
    let place = Place::new("layout");
    let mut core = ServerCore::new(&place.domain, "raw", Serve::default(), &DESCRIPTION).unwrap();
    let mut raw = Raw::default();
    let mut client = bound_to(&mut core, &mut raw, &place);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let fixed = ((nested(), nested()), color(), shape(), (any::<u64>(), any::<bool>()));
    let client = Mutex::new((&mut client, &mut core, &mut raw));
    let ran = runner.run(&fixed, |((first, second), c, s, (one, yes))| {
        let (client, core, raw) = &mut *client.lock().unwrap();
        let grid = [first, second];
        let _ = client.start_structures(grid, c, s, [Choice::One(one), Choice::Yes(yes)]).unwrap();
        core.serve_one(None, *raw).unwrap();
        let (_, bytes) = raw.arrived.pop().unwrap();
        // The reference: each number at the place that the layout has for its path.
        let mut due = vec![0; layout.fixed_bytes as usize];
        let mut put = |path: &str, role, index: usize, value: i128| {
            let leaf = layout.leaf(path, role).unwrap_or_else(|| panic!("{path}"));
            let size = leaf.builtin.bytes() as usize;
            let at = leaf.offset as usize + index * size;
            due[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        };
        let put_pair =
            |put: &mut dyn FnMut(&str, LeafRole, usize, i128), path: &str, at, p: Pair| {
                put(&format!("{path}.left"), LeafRole::Value, at, p.left.into());
                put(&format!("{path}.small"), LeafRole::Value, at, p.small.into());
                put(&format!("{path}.right"), LeafRole::Value, at, p.right.into());
                put(&format!("{path}.flag"), LeafRole::Value, at, p.flag.into());
            };
        for (i, one) in grid.iter().enumerate() {
            put("g[].type", LeafRole::Value, i, one.r#type.into());
            put("g[].paint", LeafRole::Enum, i, one.paint.value().into());
            for (j, pair) in one.many.iter().enumerate() {
                put_pair(&mut put, "g[].many[]", 3 * i + j, *pair);
            }
            put("g[].perhaps", LeafRole::Present, i, one.perhaps.is_some().into());
            if let Some(pair) = one.perhaps {
                put_pair(&mut put, "g[].perhaps", i, pair);
            }
        }
        put("c", LeafRole::Enum, 0, c.value().into());
        put("s", LeafRole::Enum, 0, s.value().into());
        put("u[]", LeafRole::Tag, 0, 1);
        put("u[]", LeafRole::Tag, 1, 3);
        let area = layout.leaf("u[]", LeafRole::Area).unwrap().bytes() as usize / 2;
        for (i, byte) in one.to_le_bytes().into_iter().enumerate() {
            put("u[]", LeafRole::Area, i, byte.into());
        }
        put("u[]", LeafRole::Area, area, yes.into());
        prop_assert_eq!(bytes, due);
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn the_description_contains_the_form() {
    let text = include_str!("../../if/all.if");
    let (interface, _) = Check::new(Source::new("all.if", text)).run().into_result().unwrap();
    assert_eq!(Interface::from_json(DESCRIPTION.form).unwrap(), interface);
    assert_eq!(DESCRIPTION.wires.len(), interface.wires().count());
}

/// Bytes with many zeros and small numbers, so that some of them are nearly right.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(0_u8), 2 => 0..8_u8, 1 => any::<u8>()];
    proptest::collection::vec(byte, 0..400)
}

// Keeps P185.
#[test]
fn random_bytes_harm_no_service() {
    Place::new("hostile-service").serve(|domain| {
        let client = Mutex::new(Client::bind(domain, "echo", &by(Driver::Local)).unwrap());
        let mut runner =
            TestRunner::new(Config { failure_persistence: None, cases: 3000, ..Config::default() });
        let ran = runner.run(&(1..25_u16, hostile()), |(ordinal, bytes)| {
            let mut client = client.lock().unwrap();
            // `later` would wait without end.
            if ordinal != 8 {
                let ended =
                    client.as_mut().call(ordinal, &bytes, &Capabilities::new(), 1 << 16, None);
                let is_expected = matches!(
                    ended,
                    Ok(_) | Err(CallError::Malformed | CallError::Unknown | CallError::Dropped)
                );
                prop_assert!(is_expected, "{ended:?}");
            }
            client.as_mut().send(ordinal, &bytes, &Capabilities::new(), None).unwrap();
            Ok(())
        });
        ran.unwrap();
        assert_eq!(client.into_inner().unwrap().eight(3), Ok(3));
    });
}

// Keeps P185.
#[test]
fn random_bytes_harm_no_client() {
    let place = Place::new("hostile-client");
    let mut core = ServerCore::new(&place.domain, "raw", Serve::default(), &DESCRIPTION).unwrap();
    let mut raw = Raw::default();
    let mut client = bound_to(&mut core, &mut raw, &place);
    let outbox = core.outbox();
    let all = Mutex::new((&mut client, &mut core, &mut raw));
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, cases: 2000, ..Config::default() });
    let ran = runner.run(&(hostile(), 1..25_u16), |(bytes, ordinal)| {
        let (client, core, raw) = &mut *all.lock().unwrap();
        raw.answers = bytes;
        let numbers = client.start_numbers(0, 0, 0, 0, 0, 0, 0, 0, false, 0, 0, 0).unwrap();
        let dynamic = client
            .start_dynamic(
                "",
                &[],
                &[],
                &[],
                &Entry { name: String::new(), words: Vec::new(), which: Choice::One(1) },
            )
            .unwrap();
        let perhaps = client.start_perhaps(None, None, None, None).unwrap();
        let fails = client.start_fails(1).unwrap();
        let pair = Pair { left: 0, small: 0, right: 0, flag: false };
        let nested = Nested { r#type: 0, many: [pair; 3], paint: Color::Red, perhaps: None };
        let structures = client
            .start_structures([nested; 2], Color::Red, Shape::Circle, [Choice::One(1); 2])
            .unwrap();
        outbox.send(None, ordinal, 0, vec![raw.answers.clone()], &Capabilities::new()).unwrap();
        let before = raw.arrived.len();
        while raw.arrived.len() < before + 5
            || core.serve_one(Some(std::time::Duration::ZERO), *raw).unwrap()
        {
            core.serve_one(Some(std::time::Duration::from_millis(1)), *raw).unwrap();
        }
        // Right or wrong: what counts is that each ends.
        let _ = numbers.wait(*client);
        let _ = dynamic.wait(*client);
        let _ = perhaps.wait(*client);
        let _ = fails.wait(*client);
        let _ = structures.wait(*client);
        let _ = client.try_event();
        Ok(())
    });
    ran.unwrap();
}
