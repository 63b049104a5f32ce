//! Sizes and numbers in the form that people write and read.

use corewire::ChannelName;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The largest message for which a command creates a channel.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 256 * MIB;

/// Parses the bytes of one message: 1 to 256 MiB, such as `65536`, `64K` or `1M`.
pub(crate) fn message_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    if !(1..=MESSAGE_BYTES_MAX).contains(&bytes) {
        return Err(format!("{text:?} is not from 1 byte to {}", size(MESSAGE_BYTES_MAX)));
    }
    usize::try_from(bytes).map_err(|error| error.to_string())
}

/// Parses a number of bytes, with `K`, `M` or `G` for the powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "k" | "KiB" => KIB,
        "M" | "m" | "MiB" => MIB,
        "G" | "g" | "GiB" => GIB,
        other => return Err(format!("unknown unit {other:?}: use K, M or G")),
    };
    let number: u64 = digits.parse().map_err(|_| "a number of bytes is needed".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "a number of bytes has at most 64 bits".to_owned())
}

/// Parses the name of a channel.
pub(crate) fn channel_name(text: &str) -> Result<ChannelName, String> {
    ChannelName::new(text).map_err(|error| error.to_string())
}

/// Formats a size of memory: `64 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        GIB.. => (GIB, "GiB"),
        MIB.. => (MIB, "MiB"),
        KIB.. => (KIB, "KiB"),
        _ => return format!("{bytes} B"),
    };
    if bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        format!("{:.1} {name}", bytes as f64 / unit as f64)
    }
}

/// Formats a number with separators between thousands: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time in nanoseconds with two or three digits: `850 ns`, `40 us`, `1.2 ms`, `12 s`.
pub(crate) fn time(nanoseconds: u64) -> String {
    let (unit, name) = match nanoseconds {
        1_000_000_000.. => (1e9, "s"),
        1_000_000.. => (1e6, "ms"),
        1_000.. => (1e3, "us"),
        _ => return format!("{nanoseconds} ns"),
    };
    let scaled = nanoseconds as f64 / unit;
    let decimals = usize::from(scaled < 9.95);
    format!("{scaled:.decimals$} {name}")
}

/// `count` of something: `1 receiver`, `3 receivers`.
pub(crate) fn counted(count: usize, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

/// Text from outside, such as a file name, with control characters made visible.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(parse_bytes("65536"), Ok(65536));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("1MiB"), Ok(1 << 20));
        for bad in ["", "K", "-1", "1.5M", "1T", "99999999999G", "1 K"] {
            assert!(parse_bytes(bad).is_err(), "{bad:?}");
        }
        assert!(message_bytes("0").is_err());
        assert!(message_bytes("257M").is_err());
        assert_eq!(size(65536), "64 KiB");
        assert_eq!(size(1000), "1000 B");
        assert_eq!(size(1_500_000), "1.4 MiB");
    }

    #[test]
    fn times_have_two_or_three_digits() {
        for (nanoseconds, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.0 us"),
            (40_400, "40 us"),
            (9_940_000, "9.9 ms"),
            (9_960_000, "10 ms"),
            (12_000_000_000, "12 s"),
        ] {
            assert_eq!(time(nanoseconds), text);
        }
    }

    #[test]
    fn thousands_have_separators() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\nb\u{1b}"), "a\\nb\\u{1b}");
    }
}
