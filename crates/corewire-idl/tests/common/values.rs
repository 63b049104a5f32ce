//! Random arguments of any message, as JSON in the form in which they are decoded.

use corewire_idl::form::{Builtin, Definition, Interface, Message, Resolved, Type, Wire};
use serde_json::{Map, Value, json};

/// Random numbers from a seed (SplitMix64).
pub(crate) struct Random {
    state: u64,
    capabilities: u32,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, capabilities: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end as u64)).unwrap()
    }

    /// A number of these bits, often a small or the largest one.
    fn bits(&mut self, bytes: u32) -> u64 {
        let all = self.next() >> (64 - 8 * bytes);
        match self.below(4) {
            0 => all % 5,
            1 => u64::MAX >> (64 - 8 * bytes),
            _ => all,
        }
    }

    fn text(&mut self, bytes_max: usize) -> String {
        let mut text = String::new();
        for _ in 0..self.below(12) {
            let letter = ['a', 'Z', '0', ' ', '"', 'é', '€', '𝄞', '\n'][self.below(9)];
            if text.len() + letter.len_utf8() <= bytes_max {
                text.push(letter);
            }
        }
        text
    }

    /// All arguments of a message.
    pub(crate) fn arguments(&mut self, all: &Interface, message: &Message, wire: &Wire) -> Value {
        let arguments = message.arguments_of(wire);
        let values = arguments.map(|one| (one.name.clone(), self.value(all, &one.of)));
        Value::Object(values.collect())
    }

    pub(crate) fn value(&mut self, all: &Interface, of: &Type) -> Value {
        let declared = match all.resolve(of) {
            Resolved::Plain(of) => return self.plain(all, of),
            Resolved::Declared(declared) => declared,
        };
        match &declared.definition {
            Definition::Struct { fields } => {
                let values = fields.iter().map(|one| (one.name.clone(), self.value(all, &one.of)));
                Value::Object(values.collect())
            }
            Definition::Union { arms, .. } => {
                let arm = &arms[self.below(arms.len())];
                Value::Object(Map::from_iter([(arm.name.clone(), self.value(all, &arm.of))]))
            }
            Definition::Enum { flexible, values } => {
                let number = i32::try_from(self.below(1000)).unwrap() - 500;
                let is_known = values.iter().any(|one| one.value == number);
                match *flexible && !is_known && self.below(2) == 0 {
                    true => json!(number),
                    false => json!(values[self.below(values.len())].name),
                }
            }
            Definition::Array { element, count } => {
                let count = usize::try_from(*count).unwrap();
                match byte(all, element) {
                    Some(of) => self.bytes(of, count, count),
                    None => (0..count).map(|_| self.value(all, element)).collect(),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn plain(&mut self, all: &Interface, of: &Type) -> Value {
        match of {
            Type::Builtin { builtin: Builtin::Bool } => json!(self.below(2) == 0),
            Type::Builtin { builtin: Builtin::Char } => {
                let byte = u8::try_from(self.bits(1)).unwrap();
                let is_text = matches!(byte, b' '..=b'~' | b'\n' | b'\t');
                if is_text { json!(char::from(byte).to_string()) } else { json!(byte) }
            }
            Type::Builtin { builtin: Builtin::Float32 } => {
                let number = f32::from_bits(u32::try_from(self.bits(4)).unwrap());
                self.float(number.is_nan(), number.is_infinite(), number < 0.0, || {
                    json!(number.to_string().parse::<f64>().unwrap())
                })
            }
            Type::Builtin { builtin: Builtin::Float64 } => {
                let number = f64::from_bits(self.bits(8));
                self.float(number.is_nan(), number.is_infinite(), number < 0.0, || json!(number))
            }
            Type::Builtin { builtin } => {
                let bits = self.bits(builtin.bytes());
                match builtin.is_signed() {
                    true => {
                        let shift = 64 - 8 * builtin.bytes();
                        json!((bits << shift).cast_signed() >> shift)
                    }
                    false => json!(bits),
                }
            }
            Type::String { bytes_max } => json!(self.text(usize::try_from(*bytes_max).unwrap())),
            Type::Vector { element, count_max } => {
                let count = self.below(usize::try_from(*count_max).unwrap().min(9) + 1);
                match byte(all, element) {
                    Some(of) => self.bytes(of, count, 0),
                    None => (0..count).map(|_| self.value(all, element)).collect(),
                }
            }
            Type::Optional { of } => match self.below(3) {
                0 => Value::Null,
                _ => self.value(all, of),
            },
            Type::Capability { capability } if capability.is_nullable() && self.below(2) == 0 => {
                Value::Null
            }
            _ => {
                self.capabilities += 1;
                json!({ "capability": self.capabilities + 100 })
            }
        }
    }

    /// A number as JSON has it, which has no infinities and nothing of a NaN.
    fn float(
        &mut self,
        is_nan: bool,
        is_infinite: bool,
        is_negative: bool,
        number: impl FnOnce() -> Value,
    ) -> Value {
        match (is_nan, is_infinite) {
            (true, _) => json!("NaN"),
            (_, true) if is_negative => json!("-Infinity"),
            (_, true) => json!("Infinity"),
            _ => number(),
        }
    }

    /// `padded` is the number of bytes of a fixed array.
    fn bytes(&mut self, of: Builtin, count: usize, padded: usize) -> Value {
        if of == Builtin::Char && self.below(2) == 0 {
            return json!(self.text(count.max(padded)));
        }
        // The first byte is in no text.
        let hex =
            |at: usize| if at == 0 { "ff".to_owned() } else { format!("{:02x}", self.bits(1)) };
        match (of, count) {
            (Builtin::Char, 0) => json!(""),
            _ => json!({ "hex": (0..count).map(hex).collect::<String>() }),
        }
    }
}

fn byte(all: &Interface, of: &Type) -> Option<Builtin> {
    match all.resolve(of) {
        Resolved::Plain(Type::Builtin { builtin: of @ (Builtin::Uint8 | Builtin::Char) }) => {
            Some(*of)
        }
        _ => None,
    }
}
