//! Files that are longer than one sitting.

use crate::{files, read, root, shown};

/// A file of more lines says at its head why it is not divided.
const LINES_MAX: usize = 600;
const WHY: &str = "//! More than 600 lines, because ";

#[test]
fn the_head_of_a_long_file_says_why_it_is_not_divided() {
    let folders = ["crates", "examples", "lab", "proof"].map(|folder| root().join(folder));
    let mut found = Vec::new();
    for path in folders.iter().flat_map(|folder| files(folder, "rs")) {
        let (name, text) = (shown(&path), read(&path));
        let is_long = text.lines().count() > LINES_MAX && !name.contains("/target/");
        let head = text.lines().take_while(|line| line.starts_with("//!"));
        let says_why = head.into_iter().any(|line| line.starts_with(WHY));
        if is_long != says_why && !name.contains("/target/") {
            found.push(format!("{name}: {} lines", text.lines().count()));
        }
    }
    assert_eq!(found, Vec::<String>::new(), "divide them, or say {WHY:?}...");
}
