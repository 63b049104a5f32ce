//! Formats figures for readers, and chooses the ticks of an axis.

use std::fmt::Display;

/// The quantity on an axis or of a figure, which determines its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// The size of a message.
    Bytes,
    /// Receivers or senders.
    Count,
    /// Messages per second.
    Rate,
    /// Bytes per second.
    ByteRate,
    /// One throughput divided by another.
    Factor,
    /// A time.
    Nanoseconds,
}

impl Quantity {
    /// The figure as the label of a tick: short, because there are many ticks.
    pub(crate) fn tick(self, figure: f64) -> String {
        match self {
            Self::Bytes => binary(figure),
            Self::Count => round(figure),
            Self::Rate => decimal(figure),
            Self::ByteRate => format!("{}B/s", decimal_with_gap(figure)),
            Self::Factor => format!("{}\u{d7}", round(figure)),
            Self::Nanoseconds => nanoseconds(figure),
        }
    }
}

/// A size: `48 B`, `10 KiB`.
#[expect(clippy::cast_precision_loss, reason = "messages are far smaller than 2^52 bytes")]
pub(crate) fn bytes(figure: u64) -> String {
    binary(figure as f64)
}

/// Messages per second: `12.3 M/s`.
pub(crate) fn rate(figure: f64) -> String {
    format!("{}/s", decimal(figure))
}

/// A time, in the unit that makes it shortest.
pub(crate) fn nanoseconds(figure: f64) -> String {
    let (scale, unit) = match figure {
        f if f < 1e3 => (1.0, "ns"),
        f if f < 1e6 => (1e3, "\u{b5}s"),
        f if f < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", round(figure / scale))
}

/// The difference as the paper gives it: +46 %; from twice as much on, also as a factor.
pub(crate) fn gain(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    let sign = if percent < 0.0 { "\u{2212}" } else { "+" };
    let size = percent.abs();
    let size = if size < 9.95 { format!("{size:.1}") } else { grouped(size) };
    if ratio < 2.0 {
        format!("{sign}{size} %")
    } else {
        format!("{sign}{size} % ({} times)", round(ratio))
    }
}

/// Three significant digits, without trailing zeros after the decimal point.
pub(crate) fn round(figure: f64) -> String {
    let size = figure.abs();
    let text = match size {
        s if s < 0.0005 => return "0".to_owned(),
        s if s < 0.995 => format!("{figure:.3}"),
        s if s < 9.995 => format!("{figure:.2}"),
        s if s < 99.95 => format!("{figure:.1}"),
        _ => return grouped(figure),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `1 receiver`, `3 receivers`.
pub(crate) fn plural(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {one}{ending}")
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The ticks of a logarithmic axis: powers of ten, with 2 and 5 between them where there is room.
pub(crate) fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    if !low.is_normal() || !high.is_finite() {
        return Vec::new();
    }
    let decades = (high / low).log10();
    let steps: &[f64] = if decades < 3.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut ticks = Vec::new();
    let mut power = 10_f64.powf(low.log10().floor());
    while power <= high && ticks.len() < 64 {
        ticks.extend(steps.iter().map(|step| step * power).filter(|t| (low..=high).contains(t)));
        power *= 10.0;
    }
    ticks
}

fn binary(figure: f64) -> String {
    let (scale, unit) = match figure {
        f if f < 1024.0 => (1.0, "B"),
        f if f < 1_048_576.0 => (1024.0, "KiB"),
        f if f < 1_073_741_824.0 => (1_048_576.0, "MiB"),
        _ => (1_073_741_824.0, "GiB"),
    };
    let scaled = figure / scale;
    // 100 000 000 bytes, for example, are not a round number of KiB.
    let text = if scaled < 1000.0 { round(scaled) } else { format!("{scaled:.0}") };
    format!("{text} {unit}")
}

fn decimal(figure: f64) -> String {
    decimal_with_gap(figure).trim_end().to_owned()
}

fn decimal_with_gap(figure: f64) -> String {
    let (scale, unit) = match figure {
        f if f < 999.5 => (1.0, ""),
        f if f < 999.5e3 => (1e3, "k"),
        f if f < 999.5e6 => (1e6, "M"),
        f if f < 999.5e9 => (1e9, "G"),
        _ => (1e12, "T"),
    };
    format!("{} {unit}", round(figure / scale))
}

fn grouped(figure: f64) -> String {
    let digits = format!("{:.0}", figure.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        // A thin space between groups of digits, at which no line breaks.
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if figure < 0.0 { format!("\u{2212}{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(bytes(1), "1 B");
        assert_eq!(bytes(10_240), "10 KiB");
        assert_eq!(bytes(104_857_600), "100 MiB");
        assert_eq!(rate(12_345.0), "12.3 k/s");
        assert_eq!(Quantity::Rate.tick(1e8), "100 M");
        assert_eq!(Quantity::ByteRate.tick(5e9), "5 GB/s");
        assert_eq!(Quantity::Factor.tick(0.2), "0.2\u{d7}");
        assert_eq!(nanoseconds(1500.0), "1.5 \u{b5}s");
        assert_eq!(gain(1.46), "+46 %");
        assert_eq!(gain(0.923), "\u{2212}7.7 %");
        assert_eq!(gain(6.15), "+515 % (6.15 times)");
        assert_eq!(plural(1, "receiver"), "1 receiver");
        assert_eq!(plural(3, "receiver"), "3 receivers");
    }

    #[test]
    fn an_axis_has_ticks_at_any_span() {
        assert_eq!(log_ticks(0.7, 5.5), [1.0, 2.0, 5.0]);
        assert!(log_ticks(1.0, 1e9).len() >= 8);
    }
}
