//! Plain text as HTML or SVG.

/// Escapes text for HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_after_digit = false;
    for (at, letter) in text.char_indices() {
        match letter {
            // A number and its unit stay on one line.
            ' ' if is_after_digit && begins_with_unit(&text[at + 1..]) => {
                escaped.push('\u{a0}');
            }
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
        is_after_digit = letter.is_ascii_digit();
    }
    escaped
}

fn begins_with_unit(text: &str) -> bool {
    let word = text.split([' ', ',', ';', '.', ')', ':']).next().unwrap_or_default();
    let units = [
        "B", "kB", "MB", "KiB", "MiB", "GiB", "k/s", "M/s", "G/s", "ns", "\u{b5}s", "ms", "s", "%",
    ];
    units.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_html_and_units_stay_with_their_numbers() {
        assert_eq!(escape("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
        assert_eq!(escape("2 nodes, 64 B, 9 %"), "2 nodes, 64\u{a0}B, 9\u{a0}%");
    }
}
