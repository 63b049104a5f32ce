//! Barrelfish's own interface files, if there are any on this machine. They are not part of this repository:
//! `COREWIRE_INTERFACES` names a folder with the folders `if` and `usr` of its tree, or several, separated by colons.

use std::path::Path;

use corewire_idl::{Source, corpus, form::Interface, format, parse};

#[test]
fn all_files_of_a_tree_are_accepted() {
    let Ok(trees) = std::env::var("COREWIRE_INTERFACES") else {
        println!("skipped: COREWIRE_INTERFACES names no tree of interface files");
        return;
    };
    for tree in trees.split(':') {
        let corpus = corpus::check_tree(Path::new(tree)).expect("the tree can be read");
        println!("{tree}: {}", corpus.summary());
        assert_eq!(corpus.passed_count(), corpus.files.len(), "{}", corpus.summary());
        for (_, interface) in corpus.files.iter().flat_map(|file| &file.interfaces) {
            let json = interface.to_json();
            assert_eq!(&Interface::from_json(&json).expect("the form is valid"), interface);
        }
    }
}

#[test]
fn formatting_changes_no_meaning_in_a_tree() {
    let Ok(trees) = std::env::var("COREWIRE_INTERFACES") else {
        println!("skipped: COREWIRE_INTERFACES names no tree of interface files");
        return;
    };
    for tree in trees.split(':') {
        for file in corpus::check_tree(Path::new(tree)).expect("the tree can be read").files {
            let path = Path::new(tree).join(&file.path);
            let source = Source::read(&path).expect("the file can be read");
            let (parsed, _) = parse(source.clone());
            let once = format(source).expect("the file is right");
            let twice = format(Source::new(&file.path, once.clone())).expect("the text is right");
            assert_eq!(once, twice, "{}", file.path);
            let messages = |file: &corewire_idl::syntax::File| {
                file.interface.as_ref().map(|interface| interface.messages.len())
            };
            let (again, _) = parse(Source::new(&file.path, once));
            assert_eq!(messages(&parsed), messages(&again), "{}", file.path);
        }
    }
}
