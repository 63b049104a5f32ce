//! The kinds of messages of `newer`, with their earlier versions. Below the module of the generated code, whose functions
//! are private.

use corewire_bind::{EncodeError, Form, codec};

use super::*;
use crate::{Any, Counted, Kind, Random};

type Encoded = Result<(), EncodeError>;
type Tree4 = (Vec<String>, Vec<Plain>, Directory, Tree);
type Unions4 = (Value, Deep, Vec<Deep>, Option<Value>);
type Arrays5 = (Words, Grid, Option<Grid>, Vec<Grid>, Vec<Option<Words>>);

fn any<T: Any>(random: &mut Random) -> T {
    T::any(random)
}

fn words(random: &mut Random) -> Words {
    random.array(|random| random.text(12))
}

fn grid(random: &mut Random) -> Grid {
    random.array(any)
}

fn float(random: &mut Random) -> f64 {
    f64::from_bits(random.number())
}

fn result<T>(random: &mut Random, value: impl FnOnce(&mut Random) -> T) -> Result<T, Failure> {
    if random.flag() { Ok(value(random)) } else { Err(any(random)) }
}

/// A reply with an error, as `fail` of a reply makes it.
fn failed(out: &mut Vec<u8>, fixed_bytes: usize, at: usize, error: &Failure) -> Encoded {
    codec::begin(out, fixed_bytes);
    codec::put_i32(out, at, if error.value() == 0 { -1 } else { error.value() });
    error.encode(out)
}

fn plain<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) -> Encoded {
    out.extend_from_slice(&bytes);
    Ok(())
}

fn any_unions(random: &mut Random) -> Unions4 {
    (any(random), any(random), random.list(3, any), random.maybe(any))
}

fn any_arrays_reply(random: &mut Random) -> ArraysOutput {
    ArraysOutput { back: random.maybe(grid), files: random.maybe(|random| random.list(5, any)) }
}

fn any_keeps_call(random: &mut Random) -> (Option<Tree>,) {
    (random.maybe(any),)
}

fn any_note(random: &mut Random) -> (Vec<Value>, Option<f32>) {
    (random.list(7, any), random.maybe(|random| float(random) as f32))
}

fn any_keeps_reply(random: &mut Random) -> Result<Option<Deep>, Failure> {
    result(random, |random| random.maybe(any))
}

fn put_unions(form: Form, out: &mut Vec<u8>, (v, d, list, o): &Unions4) -> Encoded {
    encode_unions_call(form, out, v, d, list, o.as_ref())
}

fn put_arrays_reply(form: Form, out: &mut Vec<u8>, value: &ArraysOutput) -> Encoded {
    encode_arrays_reply(form, out, value.back.as_ref(), value.files.as_deref())
}

fn put_keeps_call(form: Form, out: &mut Vec<u8>, (t,): &(Option<Tree>,)) -> Encoded {
    encode_keeps_call(form, out, t.as_ref())
}

fn put_note(form: Form, out: &mut Vec<u8>, (values, rate): &(Vec<Value>, Option<f32>)) -> Encoded {
    encode_note(form, out, values, *rate)
}

fn put_keeps_reply(
    form: Form,
    out: &mut Vec<u8>,
    value: &Result<Option<Deep>, Failure>,
) -> Encoded {
    let fixed_bytes = if form == Form::Current { 22 } else { 4 };
    match value {
        Ok(d) => encode_keeps_reply(form, out, d.as_ref()),
        Err(error) => failed(out, fixed_bytes, 0, error),
    }
}

/// All kinds of messages.
pub(crate) fn kinds() -> Vec<Kind> {
    use Counted::{All, AllButDetails, Nothing};
    const NOW: Form = Form::Current;
    const FIRST: Form = Form::Earlier(0);
    const SECOND: Form = Form::Earlier(1);
    let mut kinds = vec![
        Kind::new(
            "floats_call",
            Nothing,
            |random| (float(random) as f32, float(random), any::<Plain>(random)),
            |out, (a, b, c)| plain(out, encode_floats_call(*a, *b, *c)),
            |bytes, _| decode_floats_call(bytes),
        ),
        Kind::new(
            "floats_reply",
            Nothing,
            |random| FloatsOutput { x: float(random), y: any(random) },
            |out, value| plain(out, encode_floats_reply(value.x, value.y)),
            |bytes, _| decode_floats_reply(bytes),
        ),
        Kind::new(
            "lists_call",
            All,
            |random| -> Tree4 {
                (
                    random.list(10, |random| random.text(64)),
                    random.list(4, any),
                    random.list(5, any),
                    any(random),
                )
            },
            |out, (names, plains, all, t)| encode_lists_call(out, names, plains, all, t),
            decode_lists_call,
        ),
        Kind::new(
            "lists_reply",
            All,
            |random| ListsOutput {
                back: random.list(10, |random| random.text(64)),
                u: any(random),
            },
            |out, value| encode_lists_reply(out, &value.back, &value.u),
            decode_lists_reply,
        ),
        Kind::new(
            "unions_reply",
            All,
            |random| UnionsOutput { w: any(random), back: random.list(3, any) },
            |out, value| encode_unions_reply(out, &value.w, &value.back),
            decode_unions_reply,
        ),
        Kind::new(
            "arrays_call",
            All,
            |random| -> Arrays5 {
                let some = |random: &mut Random| random.maybe(words);
                (
                    words(random),
                    grid(random),
                    random.maybe(grid),
                    random.list(2, grid),
                    random.list(3, some),
                )
            },
            |out, (w, g, h, many, some)| encode_arrays_call(out, w, g, h.as_ref(), many, some),
            decode_arrays_call,
        ),
        Kind::new(
            "short_call",
            Nothing,
            |random| (random.number() as u8,),
            |out, (a,)| plain(out, encode_short_call(*a)),
            |bytes, _| decode_short_call(bytes),
        ),
        Kind::new(
            "short_reply",
            Nothing,
            |random| result(random, Random::number),
            |out, value| match value {
                Ok(b) => encode_short_reply(out, *b),
                Err(error) => failed(out, 12, 8, error),
            },
            |bytes, _| decode_short_reply(bytes),
        ),
        Kind::new(
            "entries_call",
            Nothing,
            |random| (random.text(30), random.number() as u8),
            |out, (path, depth)| encode_entries_call(out, path, *depth),
            |bytes, _| decode_entries_call(bytes).map(|(path, depth)| (path.to_owned(), depth)),
        ),
        Kind::new(
            "entries_reply",
            Nothing,
            |random| result(random, |_| ()),
            |out, value| match value {
                Ok(()) => encode_entries_reply(out),
                Err(error) => failed(out, 4, 0, error),
            },
            |bytes, _| decode_entries_reply(bytes),
        ),
        Kind::new(
            "entries_part",
            Nothing,
            |random| EntriesOutput { e: any(random), level: random.number() as u32 },
            |out, value| encode_entries_part(out, &value.e, value.level),
            |bytes, _| decode_entries_part(bytes),
        ),
        Kind::new(
            "ticks_call",
            Nothing,
            |_| (),
            |out, ()| plain(out, encode_ticks_call()),
            |bytes, _| decode_ticks_call(bytes),
        ),
        Kind::new(
            "ticks_reply",
            Nothing,
            |_| (),
            |out, ()| plain(out, encode_ticks_reply()),
            |bytes, _| decode_ticks_reply(bytes),
        ),
        Kind::new(
            "ticks_part",
            Nothing,
            Random::number,
            |out, time| encode_ticks_part(out, *time),
            |bytes, _| decode_ticks_part(bytes),
        ),
        Kind::new(
            "changed",
            All,
            |random| (random.list(5, any::<Entry>), float(random)),
            |out, (now, at)| encode_changed(out, now, *at),
            decode_changed,
        ),
    ];
    macro_rules! versions {
        ($($form:ident),*: $name:literal, $counted:expr, $any:expr, $encode:expr, $decode:expr) => {
            $(kinds.push(Kind::new(
                concat!($name, " ", stringify!($form)),
                $counted,
                $any,
                |out, value| $encode($form, out, value),
                |bytes, memory_max| $decode($form, bytes, memory_max),
            ));)*
        };
    }
    versions!(NOW, FIRST: "unions_call", All, any_unions, put_unions, decode_unions_call);
    versions!(NOW, FIRST, SECOND: "arrays_reply", All, any_arrays_reply, put_arrays_reply, decode_arrays_reply);
    versions!(NOW, FIRST: "keeps_call", All, any_keeps_call, put_keeps_call, decode_keeps_call);
    versions!(NOW, FIRST: "keeps_reply", AllButDetails, any_keeps_reply, put_keeps_reply, decode_keeps_reply);
    versions!(NOW, FIRST: "note", All, any_note, put_note, decode_note);
    kinds
}
