//! Floating-point numbers, which JSON has only in part: no infinities, and nothing of a NaN.

use serde_json::{Value, json};

use super::{JsonProblem, values};
use crate::form::Builtin;

const FORMS: &str = "a number, \"NaN\", \"Infinity\", \"-Infinity\", or {\"bits\": number}";

/// The bits of a number, which travel; of a `float32` the lower half.
pub(super) fn read(of: Builtin, value: &Value) -> Result<u64, JsonProblem> {
    let due = || JsonProblem::kind(value, format!("a {} ({FORMS})", of.as_str()));
    let number = match value {
        Value::Number(number) => number.as_f64().ok_or_else(due)?,
        Value::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => return Err(due()),
        },
        Value::Object(all) if all.len() == 1 => {
            let bits = all.get("bits").ok_or_else(due)?;
            let bits = values::number(bits_of(of), bits)?;
            return u64::try_from(bits).map_err(|_| due());
        }
        _ => return Err(due()),
    };
    if of == Builtin::Float64 {
        return Ok(number.to_bits());
    }
    let near = narrow(number);
    match near.is_infinite() && number.is_finite() {
        true => Err(JsonProblem::FloatRange { found: value.to_string() }),
        false => Ok(near.to_bits().into()),
    }
}

/// A number from its bits.
pub(super) fn show(of: Builtin, bits: u64) -> Value {
    let (number, usual) = match u32::try_from(bits) {
        Ok(bits) if of == Builtin::Float32 => {
            let number = f32::from_bits(bits);
            (shortest(number), f32::NAN.to_bits() == bits)
        }
        _ => (f64::from_bits(bits), f64::NAN.to_bits() == bits),
    };
    match number {
        _ if number.is_nan() && usual => json!("NaN"),
        _ if number.is_nan() => {
            let width = usize::try_from(2 * of.bytes()).unwrap_or(16);
            json!({ "bits": format!("0x{bits:0width$x}") })
        }
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        number => json!(number),
    }
}

/// The number that has fewest digits of those that become this one: 0.1, not 0.10000000149011612.
fn shortest(number: f32) -> f64 {
    let text = number.to_string().parse::<f64>();
    text.ok().filter(|text| narrow(*text).to_bits() == number.to_bits()).unwrap_or(number.into())
}

/// The nearest number of 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "rounds, as IEEE 754 says")]
const fn narrow(number: f64) -> f32 {
    number as f32
}

/// The type of the bits.
const fn bits_of(of: Builtin) -> Builtin {
    if of.bytes() == 4 { Builtin::Uint32 } else { Builtin::Uint64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_shown_and_read_with_its_bits() {
        let mut bits = 1_u64;
        for _ in 0..1_000_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let half = bits & 0xffff_ffff;
            assert_eq!(read(Builtin::Float64, &show(Builtin::Float64, bits)), Ok(bits));
            assert_eq!(read(Builtin::Float32, &show(Builtin::Float32, half)), Ok(half));
        }
    }

    #[test]
    fn what_json_has_no_number_for_is_named() {
        let show32 = |number: f32| show(Builtin::Float32, number.to_bits().into()).to_string();
        assert_eq!(show32(0.1), "0.1");
        assert_eq!(show32(-0.0), "-0.0");
        assert_eq!(show32(f32::NAN), "\"NaN\"");
        assert_eq!(show32(f32::NEG_INFINITY), "\"-Infinity\"");
        assert_eq!(show32(f32::from_bits(0x7fa0_0001)), "{\"bits\":\"0x7fa00001\"}");
        let read = |value| read(Builtin::Float32, &value).map_err(|error| error.to_string());
        assert_eq!(read(json!(1)), Ok(0x3f80_0000));
        assert_eq!(read(json!({ "bits": "0x7fa00001" })), Ok(0x7fa0_0001));
        assert_eq!(
            read(json!(1e39)).unwrap_err(),
            "1e+39 is out of range: float32 is from -3.4028235e38 to 3.4028235e38"
        );
        let error = read(json!("1.5")).unwrap_err();
        assert_eq!(error, format!("the string \"1.5\" where a float32 ({FORMS}) is due"));
    }
}
