//! Barrelfish's own interface files, if there are any on this machine. They are not part of this repository:
//! `COREWIRE_INTERFACES` names a folder with the folders `if` and `usr` of its tree, or several, separated by colons.

use std::path::Path;

use corewire_idl::{corpus, form::Interface};

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
