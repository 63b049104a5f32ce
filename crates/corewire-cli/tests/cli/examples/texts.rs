//! Finds the examples: lines of a shell that run `corewire`, in help texts and in code blocks of documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An example as a reader sees it.
pub(super) struct Shown {
    /// The help text or the document.
    pub(super) place: String,
    /// A line or, of a block that starts processes in the background, all its lines. A line of a block that also
    /// shows what is printed begins with `$ `.
    pub(super) script: String,
    /// What is printed, if the document shows it.
    pub(super) output: Option<String>,
}

/// All examples.
pub(super) fn all() -> Vec<Shown> {
    let mut found = Vec::new();
    of_help(&mut Vec::new(), &mut found);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from).to_vec();
    documents.extend(
        files(&root, "docs", "md").into_iter().filter(|path| !path.starts_with("docs/results")),
    );
    let sources = ["crates", "examples"].into_iter().flat_map(|folder| files(&root, folder, "rs"));
    for path in documents.into_iter().chain(sources) {
        let text = fs::read_to_string(root.join(&path)).unwrap();
        let place = path.display().to_string();
        match path.extension().is_some_and(|it| it == "rs") {
            true => of_document(&place, &documentation(&text), &mut found),
            false => of_document(&place, &text, &mut found),
        }
    }
    found
}

/// The files below a folder of the repository that end with `.ending`.
fn files(root: &Path, folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The examples in the help of a command, and in that of its commands.
fn of_help(command: &mut Vec<String>, found: &mut Vec<Shown>) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_corewire"));
    // No line is wrapped.
    let done = program.args(&*command).arg("--help").env("COLUMNS", "1000").output().unwrap();
    // A `corewire-lab` without rivals has no studies.
    if !done.status.success() && command.first().is_some_and(|first| first == "study") {
        return;
    }
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    let help = String::from_utf8(done.stdout).unwrap();
    let mut lines = help.lines();
    let mut commands = Vec::new();
    while let Some(line) = lines.next() {
        let block = lines.clone().take_while(|line| !line.is_empty());
        match line {
            "Commands:" => {
                let names = block.filter_map(|line| line.strip_prefix("  "));
                let names = names.filter(|line| !line.starts_with(' '));
                commands.extend(names.filter_map(|line| line.split(' ').next().map(str::to_owned)));
            }
            "Examples:" | "Example:" => {
                let place = ["corewire", &command.join(" "), "--help"].join(" ");
                let block = block.collect::<Vec<_>>().join("\n");
                of_block(&place, &block, found);
            }
            _ => {}
        }
    }
    for name in commands {
        command.push(name);
        of_help(command, found);
        command.pop();
    }
}

/// The comments of a source file that are documentation.
fn documentation(source: &str) -> String {
    let text = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or(line.strip_prefix("//!")).unwrap_or_default();
        [text.strip_prefix(' ').unwrap_or(text), "\n"].concat()
    };
    source.lines().map(text).collect()
}

fn of_document(place: &str, text: &str, found: &mut Vec<Shown>) {
    let mut block: Option<(bool, String)> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), block.take()) {
            // Drawings.
            (Some(language), None) => block = Some((language == "text", String::new())),
            (Some(_), Some((true, _))) => {}
            (Some(_), Some((false, lines))) => of_block(place, &lines, found),
            (None, Some((is_text, lines))) => block = Some((is_text, lines + line + "\n")),
            (None, None) => {}
        }
    }
}

fn of_block(place: &str, block: &str, found: &mut Vec<Shown>) {
    let mut add = |script: &str, output: Option<&str>| {
        if runs_corewire(script) {
            // A clone has no program in `PATH`.
            let script = script.replace("target/release/corewire", "corewire");
            found.push(Shown {
                place: place.to_owned(),
                script,
                output: output.map(str::to_owned),
            });
        }
    };
    if block.starts_with("$ ") {
        for part in ["\n", block].concat().split("\n$ ").skip(1) {
            let (script, output) = part.split_once('\n').unwrap_or((part, ""));
            add(&["$ ", script].concat(), Some(output));
        }
        return;
    }
    let block = block.replace("\\\n", "");
    let lines = block.lines().map(|line| without_comment(line).trim());
    let lines = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>();
    match lines.iter().any(|line| line.ends_with('&')) {
        true => add(&lines.join("\n"), None),
        false => lines.iter().for_each(|line| add(line, None)),
    }
}

/// The line up to a `#` that begins a comment of the shell.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, letter) in line.char_indices() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if open == letter => quote = None,
            ('#', None) if before == ' ' => return &line[..at],
            _ => {}
        }
        before = letter;
    }
    line
}

/// Whether a command of the script is `corewire`.
fn runs_corewire(script: &str) -> bool {
    script.split(['|', '&', ';', '(', '\n']).any(|command| {
        let mut words = command.split_whitespace().skip_while(|word| *word == "$");
        words.next().is_some_and(|word| word == "corewire" || word.ends_with("/corewire"))
            && words.next().is_none_or(|word| word.starts_with(|it: char| it.is_ascii_lowercase()))
    })
}

#[test]
fn examples_are_found_in_all_forms_that_documents_have() {
    let document = "text\n```\ntail -f '# 1' | target/release/corewire send a # b\ncargo add corewire\n\
                    corewire = 1\n```\n```text\ncorewire draws --> lines\n```\n```\ncorewire a &\nb\n```\n\
                    ```\n$ corewire c\nd\n$ corewire e\n```\n";
    let mut found = Vec::new();
    of_document("", document, &mut found);
    let found: Vec<_> = found.iter().map(|it| (it.script.as_str(), it.output.as_deref())).collect();
    let expected = [
        ("tail -f '# 1' | corewire send a", None),
        ("corewire a &\nb", None),
        ("$ corewire c", Some("d")),
        ("$ corewire e", Some("")),
    ];
    assert_eq!(found, expected);
}
