//! The labels of orderings are the same in the rings' source, in `docs/ordering.md` and among the
//! mutants. Only `sync.rs` and its variants for tests name atomics.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Rust file below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The label at the start of `text` (letters, then digits), if `end` follows it.
fn label(text: &str, end: &str) -> Option<String> {
    let label: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
    let is_label = label.starts_with(|c: char| c.is_ascii_uppercase())
        && label.ends_with(|c: char| c.is_ascii_digit());
    (is_label && text[label.len()..].starts_with(end)).then_some(label)
}

/// Every file that may contain a label.
fn sources_of_the_rings() -> Vec<PathBuf> {
    let folders = ["crates/corewire-ring/src", "lab/published/src"];
    folders.iter().flat_map(|folder| sources(&root().join(folder))).collect()
}

/// The labels of the orderings that a file's code makes.
fn labels_of(text: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    // Examples in documentation are not sites.
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    for line in code {
        for (start, end) in [("order!(", ":"), ("fence_at!(", ":"), ("is_weakened(\"", "\")")] {
            labels.extend(line.split(start).skip(1).filter_map(|rest| label(rest, end)));
        }
    }
    labels
}

fn labels_of_the_source() -> BTreeSet<String> {
    let texts = sources_of_the_rings().into_iter().map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| labels_of(&text)).collect()
}

/// The rows of the table: label and model.
fn rows_of_the_table() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("docs/ordering.md")).unwrap();
    let row = |line: &str| {
        let label = label(line.strip_prefix("| ")?, " |")?;
        let model = line.trim_end_matches(" |").rsplit("| ").next()?.trim_matches('`');
        Some((label, model.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

// Keeps P38.
#[test]
fn every_label_has_one_row_and_its_mutant() {
    let rows = rows_of_the_table();
    let labels: BTreeSet<String> = rows.iter().map(|(label, _)| label.clone()).collect();
    assert_eq!(labels.len(), rows.len(), "a label has two rows");
    assert_eq!(labels, labels_of_the_source());
    let models: String = sources(&root().join("proof/models/tests"))
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for (label, model) in rows {
        let mutant = format!("mutant_{}: {label} => {model};", label.to_lowercase());
        assert!(models.contains(&mutant), "there is no `{mutant}`");
    }
}

#[test]
fn every_label_is_explained_at_a_site() {
    let text: String =
        sources_of_the_rings().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    for label in labels_of_the_source() {
        assert!(text.contains(&format!("ORDER({label})")), "no comment `ORDER({label})`");
    }
}

/// The paths that the head of a file names in its last sentence, `Proofs: ...`.
fn proofs_of(text: &str) -> BTreeSet<String> {
    let head: Vec<_> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let head = head.concat();
    let proofs = head.rsplit_once(" Proofs: ").map_or("", |(_, proofs)| proofs);
    proofs.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_file_with_an_ordering_names_its_proofs() {
    let models = sources(&root().join("proof/models/tests"));
    let models: Vec<_> =
        models.iter().map(|path| (path, fs::read_to_string(path).unwrap())).collect();
    for path in sources(&root().join("crates/corewire-ring/src")) {
        let (shown, text) = (path.display(), fs::read_to_string(&path).unwrap());
        let proofs = proofs_of(&text);
        for proof in &proofs {
            assert!(root().join(proof).is_file(), "{shown} names {proof}, which is not there");
        }
        for label in labels_of(&text) {
            let mutant = format!("mutant_{}: {label} ", label.to_lowercase());
            let model = models.iter().find(|(_, text)| text.contains(&mutant));
            let (model, _) = model.unwrap_or_else(|| panic!("{label} has no mutant"));
            let model = model.strip_prefix(root()).unwrap().to_str().unwrap();
            assert!(proofs.contains(model), "the head of {shown} does not name {model}: {label}");
        }
    }
}

// Keeps P40.
#[test]
fn only_sync_names_atomics() {
    let houses = ["crates", "lab"].map(|house| fs::read_dir(root().join(house)).unwrap());
    for krate in houses.into_iter().flatten() {
        let folder = krate.unwrap().path().join("src");
        for path in sources(&folder) {
            // The variants of `sync.rs` for tests.
            if ["sync.rs", "sync_kill.rs", "sync_steps.rs", "sync_reported.rs"]
                .iter()
                .any(|face| path.ends_with(face))
            {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for name in ["core::sync::atomic", "std::sync::atomic", "loom::sync::atomic"] {
                assert!(!text.contains(name), "{} names {name}", path.display());
            }
        }
    }
}
