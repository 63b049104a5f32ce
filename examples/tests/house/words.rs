//! Words that CONTRIBUTING.md (English) tells writers not to use.

use crate::{files, read, root, shown};

/// Lower case, each with the words around it that make it wrong.
const AVOIDED: [&str; 11] = [
    "whoever",
    "whomever",
    "one who",
    "ones who",
    "of whom",
    "from whom",
    "to whom",
    "for whom",
    "with whom",
    "as one finds",
    "has a task",
];

/// The folders whose texts are read.
const FOLDERS: [&str; 5] = ["crates", "docs", "examples", "lab", "proof"];
/// Texts of other people, results that are kept as they were, and this list.
const LEFT_OUT: [&str; 3] = ["docs/results/", "/target/", "tests/house/words.rs"];

/// Whether `text` has these words, not as a part of longer ones.
fn has(text: &str, words: &str) -> bool {
    let is_part = |letter: Option<char>| letter.is_some_and(|it| it.is_alphanumeric() || it == '_');
    text.match_indices(words).any(|(at, found)| {
        !is_part(text[..at].chars().next_back())
            && !is_part(text[at + found.len()..].chars().next())
    })
}

#[test]
fn no_text_has_words_that_make_the_reader_stop() {
    let folders = FOLDERS.map(|folder| root().join(folder));
    let mut all: Vec<_> = folders
        .iter()
        .flat_map(|folder| [files(folder, "rs"), files(folder, "md")].concat())
        .collect();
    all.extend(["README.md", "ARCHITECTURE.md", "PROMISES.md"].map(|name| root().join(name)));
    let mut found = Vec::new();
    for path in all {
        let name = shown(&path);
        if LEFT_OUT.iter().any(|it| name.contains(it)) {
            continue;
        }
        for (number, line) in (1..).zip(read(&path).lines()) {
            let line = line.to_lowercase();
            let words = AVOIDED.iter().filter(|words| has(&line, words));
            found.extend(words.map(|words| format!("{name}:{number}: {words:?}")));
        }
    }
    assert_eq!(found, Vec::<String>::new(), "CONTRIBUTING.md, English, says what to write instead");
}
