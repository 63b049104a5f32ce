//! Elements of variable size, limits, details of errors.

use super::*;

/// A message that is a vector of vectors of strings, of at most 100 each.
fn decoded(message: &[u8], memory_max: usize) -> Result<Vec<Vec<String>>, DecodeError> {
    let (mut reader, _) = Reader::limited::<4>("m", message, memory_max)?;
    let all = reader.each(0, "m: all", 100, 4, |reader, _| {
        reader.each(0, "m: all", 100, 4, |reader, _| reader.owned_str(0, "m: all", 100))
    })?;
    reader.finish()?;
    Ok(all)
}

fn encoded(all: &[Vec<String>]) -> Vec<u8> {
    let mut message = Vec::new();
    begin(&mut message, 4);
    put_each(&mut message, 0, "m", all, 100, 4, |out, base, one| {
        put_each(out, base, "m", one, 100, 4, |out, base, text| put_str(out, base, "m", text, 100))
    })
    .unwrap();
    message
}

fn problem(message: &[u8], memory_max: usize) -> String {
    decoded(message, memory_max).unwrap_err().to_string()
}

#[test]
fn elements_have_their_parts_behind_them() {
    let all = vec![vec!["a".to_owned(), String::new()], vec![], vec!["bcd".to_owned()]];
    let message = encoded(&all);
    let due = [
        &[3, 0, 0, 0][..],
        &[2, 0, 0, 0, 1, 0, 0, 0, b'a', 0, 0, 0, 0],
        &[0, 0, 0, 0],
        &[1, 0, 0, 0, 3, 0, 0, 0, b'b', b'c', b'd'],
    ];
    assert_eq!(message, due.concat());
    assert_eq!(decoded(&message, usize::MAX), Ok(all));
    for length in 0..message.len() {
        assert!(decoded(&message[..length], usize::MAX).is_err());
    }
}

#[test]
fn numbers_of_elements_are_refused_before_memory_is_allocated() {
    assert_eq!(problem(&101_u32.to_le_bytes(), 0), "m: all: length 101, but its bound is 100");
    let message = [2, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(problem(&message, 0), "m: all: length 2, but only 4 bytes are left");
    let inner = [1, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(problem(&inner, 10_000), "m: all: length 100, but only 4 bytes are left");
}

// Keeps P235.
#[test]
fn what_is_decoded_has_a_limit_that_is_counted_before() {
    let all = vec![vec!["x".repeat(10); 10]; 10];
    let message = encoded(&all);
    let (vector, string) = (size_of::<Vec<String>>(), size_of::<String>());
    let memory = 10 * vector + 100 * string + 100 * 10;
    assert_eq!(decoded(&message, memory), Ok(all));
    let error = "m: all: decoded, the message takes more than";
    for memory_max in [0, 10 * vector - 1, memory / 2, memory - 1] {
        assert!(problem(&message, memory_max).starts_with(error));
    }
}

#[test]
fn any_bytes_are_values_or_refused() {
    let good = encoded(&vec![vec!["abc".to_owned(); 3]; 3]);
    crate::random::bytes(|bytes| {
        let kept = bytes.first().map_or(0, |first| usize::from(*first) % (good.len() + 1));
        let message = [&good[..kept], bytes].concat();
        if let Ok(all) = decoded(&message, 4096) {
            assert_eq!(encoded(&all), message);
        }
        let _ = details("m", bytes);
    });
}

// Keeps P236.
#[test]
fn details_of_errors_that_are_not_known_are_passed() {
    let mut message = vec![7];
    let begin = begin_details(&mut message);
    message.extend([1, 2, 3]);
    end_details(&mut message, begin);
    assert_eq!(message, [7, 3, 0, 0, 0, 1, 2, 3]);
    assert_eq!(details("m", &message[1..]), Ok(&[1, 2, 3][..]));
    let said = |bytes: &[u8]| details("m", bytes).unwrap_err().to_string();
    assert_eq!(said(&[0, 0]), "m: 2 bytes arrived where at least 4 are necessary");
    assert_eq!(said(&[2, 0, 0, 0, 1]), "m: length 2, but only 1 bytes are left");
    let long = [&4097_u32.to_le_bytes()[..], &[0; 4097]].concat();
    assert_eq!(said(&long), "m: length 4097, but its bound is 4096");
}
