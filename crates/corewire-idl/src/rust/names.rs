//! Names in generated code.

use std::collections::HashSet;

use proc_macro2::{Ident, Span};

/// Gives each name once.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    pub(super) fn reserved(names: &[&str]) -> Self {
        Self(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// This name, or with as many underscores behind it as it needs to be new.
    pub(super) fn give(&mut self, name: &str) -> Ident {
        let mut name = speakable(name);
        while !self.0.insert(name.clone()) {
            name.push('_');
        }
        ident(&name)
    }

    /// A name for several items at once, all of which are new; with a number behind it if it must be.
    pub(super) fn give_all(&mut self, stem: &str, forms: &[fn(&str) -> String]) -> String {
        let stem = &speakable(stem);
        // A number, since something follows: the compiler warns of two underscores in a row.
        let numbered = (2..).map(|number| format!("{stem}{number}"));
        let mut stems = std::iter::once(stem.to_owned()).chain(numbered);
        let is_new = |stem: &String| !forms.iter().any(|form| self.0.contains(&form(stem)));
        let stem = stems.find(is_new).unwrap_or_else(|| stem.clone());
        self.0.extend(forms.iter().map(|form| form(&stem)));
        stem
    }
}

/// A name that Rust has no raw identifier for, with an underscore behind it.
fn speakable(name: &str) -> String {
    match name {
        "self" | "super" | "crate" | "Self" | "_" => format!("{name}_"),
        _ => name.to_owned(),
    }
}

/// An identifier. A keyword of any edition becomes a raw one, or gets an underscore where Rust has no raw one.
pub(super) fn ident(name: &str) -> Ident {
    let name = speakable(name);
    match syn::parse_str::<Ident>(&name) {
        // A keyword since edition 2024.
        Ok(_) if name == "gen" => Ident::new_raw(&name, Span::call_site()),
        Ok(ident) => ident,
        Err(_) => Ident::new_raw(&name, Span::call_site()),
    }
}

/// `readBlock`, `read_block` and `READ_BLOCK` as `read_block`.
pub(super) fn snake(name: &str) -> String {
    let letters = name.chars().collect::<Vec<_>>();
    let mut out = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| letters[before]);
        let is_start = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                let next = letters.get(index + 1).is_some_and(char::is_ascii_lowercase);
                before.is_ascii_lowercase() || (next && before.is_ascii_uppercase())
            });
        if is_start {
            out.push('_');
        }
        // The compiler warns of two underscores in a row.
        if *letter != '_' || before != Some('_') {
            out.push(letter.to_ascii_lowercase());
        }
    }
    // Something may follow.
    out.truncate(out.trim_end_matches('_').len());
    if out.is_empty() { "underscore".to_owned() } else { out }
}

/// The same as `ReadBlock`.
pub(super) fn camel(name: &str) -> String {
    let mut out = String::new();
    for word in snake(name).split('_').filter(|word| !word.is_empty()) {
        // `a1_2` must not become `A12`, which `a12` becomes.
        if out.ends_with(|last: char| last.is_ascii_digit())
            && word.starts_with(|first: char| first.is_ascii_digit())
        {
            out.push('_');
        }
        let mut letters = word.chars();
        out.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        out.push_str(letters.as_str());
    }
    if out.starts_with(|first: char| first.is_ascii_digit()) { format!("N{out}") } else { out }
}

/// The same as `READ_BLOCK`.
pub(super) fn screaming(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

#[cfg(test)]
#[path = "../../tests/common/words.rs"]
mod words;

#[cfg(test)]
mod tests {
    use super::*;

    // Keeps P237.
    #[test]
    fn all_pairs_of_words_have_two_names() {
        let words = words::words();
        let forms: &[fn(&str) -> String] = &[str::to_owned, |stem| format!("try_{stem}")];
        for style in [snake, camel, screaming] {
            let words = words.iter().map(|word| style(word)).collect::<Vec<_>>();
            for (at, left) in words.iter().enumerate() {
                for right in &words[at + 1..] {
                    let mut names = Names::reserved(&["bind"]);
                    let both = [left, right].map(|word| names.give(word));
                    assert_ne!(both[0], both[1], "{left} {right}");
                    let mut stems = Names::default();
                    let both = [left, right].map(|word| stems.give_all(word, forms));
                    let all = both.iter().flat_map(|stem| forms.iter().map(|form| form(stem)));
                    let unique = all.map(|name| ident(&name).to_string()).collect::<HashSet<_>>();
                    assert_eq!(unique.len(), 4, "{left} {right}");
                }
            }
        }
    }

    #[test]
    fn names_become_rust() {
        assert_eq!(snake("getARPEntry"), "get_arp_entry");
        assert_eq!(camel("net_ARP"), "NetArp");
        assert_eq!(screaming("maxLength"), "MAX_LENGTH");
        assert_eq!(ident("type").to_string(), "r#type");
        assert_eq!(ident("self").to_string(), "self_");
        let mut names = Names::reserved(&["bind"]);
        assert_eq!(names.give("bind").to_string(), "bind_");
    }
}
