//! Files of a crate that need each other in a circle can only be read together. A file needs another one if it names what
//! is defined there, by an import or by a path; what a module only passes on (`pub use`) is found where it is defined.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

use crate::{files, read, root};

/// How many circles there may be in all crates.
const CIRCLES_MAX: usize = 6;
/// How many files may be in one.
const FILES_MAX: usize = 4;

/// A module that is a file: the names on the way to it.
type Module = Vec<String>;

/// What a file names.
#[derive(Default)]
struct Names {
    /// Paths that it needs: of imports that it does not pass on, and in code.
    needed: Vec<Vec<String>>,
    /// What each imported name stands for.
    imported: BTreeMap<String, Vec<String>>,
}

impl Names {
    fn of(text: &str) -> Self {
        let mut names = Self::default();
        names.visit_file(&syn::parse_file(text).unwrap());
        names
    }

    fn import(&mut self, tree: &UseTree, before: &[String], passes_on: bool) {
        let with = |name: String| [before, &[name]].concat();
        let (path, alias) = match tree {
            UseTree::Path(path) => {
                return self.import(&path.tree, &with(path.ident.to_string()), passes_on);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, before, passes_on));
            }
            UseTree::Glob(_) => (before.to_vec(), None),
            UseTree::Name(name) if name.ident == "self" => {
                (before.to_vec(), before.last().cloned())
            }
            UseTree::Name(name) => (with(name.ident.to_string()), Some(name.ident.to_string())),
            UseTree::Rename(name) if name.ident == "self" => {
                (before.to_vec(), Some(name.rename.to_string()))
            }
            UseTree::Rename(name) => (with(name.ident.to_string()), Some(name.rename.to_string())),
        };
        if let Some(alias) = alias {
            self.imported.insert(alias, path.clone());
        }
        if !passes_on {
            self.needed.push(path);
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let says_test = |attribute: &Attribute| {
        let meta = attribute.meta.require_list();
        attribute.path().is_ident("cfg")
            && meta.is_ok_and(|meta| meta.tokens.to_string().contains("test"))
    };
    attributes.iter().any(says_test)
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if is_for_tests(&module.attrs) => {}
            Item::Use(import) => {
                let passes_on = !matches!(import.vis, Visibility::Inherited);
                self.import(&import.tree, &[], passes_on);
            }
            item => syn::visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        if names.len() > 1 && ["crate", "super"].contains(&names[0].as_str()) {
            self.needed.push(names);
        }
        syn::visit::visit_path(self, path);
    }
}

/// The files of a crate, and what each names.
struct Crate(BTreeMap<Module, Names>);

impl Crate {
    fn of(source: &Path) -> Self {
        let module = |path: &Path| {
            let path = path.strip_prefix(source).unwrap().with_extension("");
            let mut module: Module =
                path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
                module.pop();
            }
            module
        };
        let all = files(source, "rs").into_iter().filter(|path| !path.ends_with("tests.rs"));
        Self(all.map(|path| (module(&path), Names::of(&read(&path)))).collect())
    }

    /// The file in which something is defined that `from` names by this path; `None` if it is not in this crate.
    fn find(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let mut at = match path.first()?.as_str() {
            "crate" => Module::new(),
            "self" => from.clone(),
            "super" => from.split_last()?.1.to_vec(),
            child => {
                if !self.0.contains_key(&[&from[..], &[child.to_owned()]].concat()) {
                    return None;
                }
                return self.descend(from.clone(), path, depth);
            }
        };
        let mut rest = &path[1..];
        while let Some(("super", further)) = rest.split_first().map(|(name, more)| (&**name, more))
        {
            at.pop()?;
            rest = further;
        }
        self.descend(at, rest, depth)
    }

    fn descend(&self, mut at: Module, mut rest: &[String], depth: usize) -> Option<Module> {
        while let Some((name, further)) = rest.split_first() {
            let child = [&at[..], std::slice::from_ref(name)].concat();
            if !self.0.contains_key(&child) {
                break;
            }
            (at, rest) = (child, further);
        }
        let names = self.0.get(&at)?;
        match rest.first().and_then(|name| names.imported.get(name)) {
            // A chain of names, each of which stands for the next one.
            Some(path) if depth < 16 => self.find(&at, path, depth + 1),
            _ => Some(at),
        }
    }

    /// Which files each file needs.
    fn needs(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |(module, names): (&'_ Module, &'_ Names)| {
            let found = names.needed.iter().filter_map(|path| self.find(module, path, 0));
            found.filter(|found| found != module).collect()
        };
        self.0.iter().map(|(module, names)| (module, of((module, names)))).collect()
    }

    /// Files that need each other, by whatever way.
    fn circles(&self) -> Vec<Vec<Module>> {
        let needs = self.needs();
        let reached = |from: &Module| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = next.pop() {
                for needed in &needs[&module] {
                    if reached.insert(needed.clone()) {
                        next.push(needed.clone());
                    }
                }
            }
            reached
        };
        let reached: BTreeMap<_, _> =
            self.0.keys().map(|module| (module, reached(module))).collect();
        let mut circles = BTreeSet::new();
        for (module, others) in &reached {
            if others.contains(*module) {
                let is_of = |other: &&&Module| {
                    others.contains(**other) && reached[*other].contains(*module)
                };
                circles.insert(
                    reached.keys().filter(is_of).map(|it| (*it).clone()).collect::<Vec<_>>(),
                );
            }
        }
        circles.into_iter().collect()
    }
}

#[test]
fn few_files_need_each_other() {
    let (mut count, mut list) = (0, String::new());
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        for circle in Crate::of(&folder.join("src")).circles() {
            count += 1;
            let names: Vec<_> = circle.iter().map(|module| module.join("/")).collect();
            writeln!(list, "{}: {}", folder.display(), names.join(", ")).unwrap();
            assert!(
                names.len() <= FILES_MAX,
                "more than {FILES_MAX} files need each other:\n{list}"
            );
        }
    }
    println!("{list}");
    assert!(count <= CIRCLES_MAX, "more than {CIRCLES_MAX} circles of files:\n{list}");
}

#[test]
fn a_circle_is_found_through_what_modules_pass_on() {
    let names = |text: &str| Names::of(text);
    let module =
        |name: &str| name.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    let files: [(Module, &str); 4] = [
        (module(""), "mod a; mod b; pub use a::One;"),
        (module("a"), "use crate::b::Two; pub struct One;"),
        (module("b"), "mod c; fn f(_: crate::One) {} pub use self::c::Two;"),
        (module("b/c"), "#[cfg(test)] mod tests { use crate::a::One; } pub struct Two;"),
    ];
    let all = Crate(files.map(|(module, text)| (module, names(text))).into());
    assert_eq!(all.circles(), Vec::<Vec<Module>>::new());
    let mut all = all;
    all.0.insert(module("b/c"), names("use super::super::a::One; pub struct Two(One);"));
    assert_eq!(all.circles(), [[module("a"), module("b/c")]]);
}
