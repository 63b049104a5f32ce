//! Checks that the documents agree with the source: every `file:function` exists, every linked file
//! exists, README shows the example that is run, and `docs/layout.md` draws the present layout version.

use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENTS: [&str; 18] = [
    "README.md",
    "ARCHITECTURE.md",
    "PROMISES.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/commands.md",
    "docs/costs.md",
    "docs/decisions.md",
    "docs/guide.md",
    "docs/interfaces.md",
    "docs/layout.md",
    "docs/mpi.md",
    "docs/ordering.md",
    "docs/results/README.md",
    "docs/results/promises.md",
    "docs/routing.md",
    "docs/study.md",
    "docs/threats.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The words between backticks in `document`, except in code blocks.
fn quoted(document: &str) -> Vec<String> {
    let text = read(document);
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Splits `crates/x/src/y.rs:Type::function` into file, type and function.
fn reference(word: &str) -> Option<(&str, Option<&str>, &str)> {
    let (file, name) = word.split_once(".rs:")?;
    let file = &word[..file.len() + 3];
    let (of, function) = match name.rsplit_once("::") {
        Some((of, function)) => (Some(of), function),
        None => (None, name),
    };
    Some((file, of, function))
}

fn has_function(text: &str, name: &str) -> bool {
    text.match_indices(&format!("fn {name}"))
        .any(|(at, found)| text[at + found.len()..].starts_with(['(', '<']))
}

fn check_references(document: &str) -> usize {
    let mut count = 0;
    for word in quoted(document) {
        let Some((file, of, function)) = reference(&word) else { continue };
        // Some sites in the table of orderings have only a file name, which may not be unique.
        if !file.contains('/') {
            continue;
        }
        // The other sites in that table have paths relative to the source of one of these crates.
        let crates = ["crates/corewire-ring", "lab/published"];
        let mut sites = crates.map(|name| format!("{name}/src/{file}")).into_iter();
        let site = sites.find(|site| root().join(site).exists());
        let site = site.filter(|_| document == "docs/ordering.md");
        let file = site.as_deref().unwrap_or(file);
        let text = read(file);
        assert!(has_function(&text, function), "{document}: no `fn {function}` in {file}");
        if let Some(of) = of {
            let is_there = text.lines().any(|line| {
                let declares = ["impl", "trait ", "pub trait ", "pub(crate) trait "];
                declares.iter().any(|start| line.starts_with(start)) && line.contains(of)
            });
            assert!(is_there, "{document}: nothing is implemented for {of} in {file}");
        }
        count += 1;
    }
    count
}

// Keeps P41.
#[test]
fn every_function_that_is_named_exists() {
    assert!(check_references("ARCHITECTURE.md") > 50);
    for document in DOCUMENTS {
        check_references(document);
    }
}

#[test]
fn every_file_that_is_named_or_linked_exists() {
    for document in DOCUMENTS {
        let text = read(document);
        let folder = root().join(document).parent().unwrap().to_owned();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let path = folder.join(link.split('#').next().unwrap());
            assert!(path.exists(), "{document} links {link}");
        }
        for word in quoted(document) {
            let file = word.split(':').next().unwrap();
            let starts = ["crates/", "proof/", "lab/", "docs/", "examples/", "scripts/"];
            if starts.iter().any(|start| file.starts_with(start)) && !file.contains([' ', '*']) {
                assert!(root().join(file).exists(), "{document} names {file}");
            }
        }
    }
}

/// Each line of README's program is a line of the example, in the same order.
#[test]
fn no_document_has_the_marks_of_a_merge() {
    for document in DOCUMENTS {
        let text = read(document);
        let is_mark = |line: &&str| ["<<<<<<< ", ">>>>>>> "].iter().any(|it| line.starts_with(it));
        assert_eq!(text.lines().find(is_mark), None, "{document}");
    }
}

// Keeps P41.
#[test]
fn readme_shows_the_example_that_is_run() {
    let (example, readme) = (read("examples/hello.rs"), read("README.md"));
    let code = |line: &str| line.split("//").next().unwrap().trim().to_owned();
    let mut lines = example.lines().map(code);
    let shown = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    for line in shown.lines().map(code).filter(|line| !line.is_empty()) {
        assert!(lines.any(|other| other == line), "examples/hello.rs has no line {line:?} here");
    }
}

#[test]
fn readme_names_the_lowest_rust_that_is_checked() {
    let value = |text: &str| {
        text.lines().find_map(|line| {
            Some(line.strip_prefix("rust-version = \"")?.strip_suffix('"')?.to_owned())
        })
    };
    let of_users = value(&read("Cargo.toml")).unwrap();
    let of_rivals = value(&read("lab/program/Cargo.toml")).unwrap();
    let readme = read("README.md");
    for words in [format!("needs Rust {of_users} or later"), format!("needs Rust {of_rivals}.")] {
        assert!(readme.contains(&words), "README does not say {words:?}");
    }
}

#[test]
fn the_tutorial_shows_the_program_that_is_run() {
    let tutorial = read("docs/interfaces.md");
    let tutorial = tutorial.split("## In Rust\n").nth(1).unwrap();
    assert!(tutorial.contains(&format!("```\n{}```", read("examples/tutorial/calc.if"))));
    let program = read("examples/tutorial/main.rs");
    let (_, program) = program.split_once("\n\n").unwrap();
    assert!(tutorial.contains(&format!("```rust\n{program}```")));
}

#[test]
fn layout_draws_this_version() {
    let source = read("crates/corewire-layout/src/lib.rs");
    let rest = source.split("LAYOUT_VERSION: u32 = ").nth(1).unwrap();
    let version = rest.split(';').next().unwrap();
    assert!(read("docs/layout.md").contains(&format!("layout version {version}.")));
}
