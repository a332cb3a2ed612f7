//! The graph of imports between the files of each crate.

use super::items::{self, Module};
use super::tokens::tokens;
use std::collections::{BTreeMap, BTreeSet};

/// The names that each file imports, by the file that defines them.
pub(super) type Imports<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<&'a str>>>;

/// Names that lead to other names, one after another: more are a name that leads to itself.
const STEPS_MAX: usize = 12;

/// The imports of every crate among these files, given by path and text.
pub(super) fn imports<'a>(texts: &BTreeMap<&'a str, &'a str>) -> Imports<'a> {
    let mut imports = Imports::new();
    for (&path, &text) in texts {
        let folder = path.strip_suffix("/lib.rs").or_else(|| path.strip_suffix("/main.rs"));
        let Some(folder) = folder.filter(|folder| folder.ends_with("/src")) else { continue };
        let mut modules = Modules { texts, all: Vec::new() };
        let place =
            Place { names: Vec::new(), file: path, folder: folder.to_owned(), parent: None };
        modules.add(place, items::read(&tokens(text)));
        modules.connect(&mut imports);
    }
    imports
}

/// Where a module is.
struct Place<'a> {
    /// Its name, after those of the modules around it.
    names: Vec<&'a str>,
    file: &'a str,
    /// The folder of its parts.
    folder: String,
    parent: Option<usize>,
}

struct Node<'a> {
    place: Place<'a>,
    module: Module<'a>,
    children: BTreeMap<&'a str, usize>,
}

/// What a path leads to.
#[derive(Clone, Copy)]
enum Found {
    Module(usize),
    /// An item of this module.
    Item(usize),
    /// An item of another crate, or a local name.
    Outside,
}

/// The modules of a crate, of which the first is the crate itself.
struct Modules<'a, 'b> {
    texts: &'b BTreeMap<&'a str, &'a str>,
    all: Vec<Node<'a>>,
}

impl<'a> Modules<'a, '_> {
    /// Adds a module with those within it; answers its number.
    fn add(&mut self, place: Place<'a>, mut module: Module<'a>) -> usize {
        let at = self.all.len();
        let (names, file, folder) = (place.names.clone(), place.file, place.folder.clone());
        let inline = std::mem::take(&mut module.inline);
        let declared = module.declared.clone();
        self.all.push(Node { place, module, children: BTreeMap::new() });
        let within = |name, file| {
            let names = names.iter().copied().chain([name]).collect();
            Place { names, file, folder: format!("{folder}/{name}"), parent: Some(at) }
        };
        for (name, part) in inline {
            let part = self.add(within(name, file), part);
            self.all[at].children.insert(name, part);
        }
        for name in declared {
            let files = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            let mut found = files.iter().filter_map(|file| self.texts.get_key_value(file.as_str()));
            let Some((&file, &text)) = found.next() else { continue };
            let part = self.add(within(name, file), items::read(&tokens(text)));
            self.all[at].children.insert(name, part);
        }
        at
    }

    /// Adds the imports between files of which neither is a part of the other.
    fn connect(&self, imports: &mut Imports<'a>) {
        let mut names: BTreeMap<&str, &[&str]> = BTreeMap::new();
        for node in &self.all {
            names.entry(node.place.file).or_insert(&node.place.names);
        }
        for (at, node) in self.all.iter().enumerate() {
            let from = node.place.file;
            let used = node.module.uses.iter().map(|it| (it.name == "*", &it.path));
            for (whole, path) in used.chain(node.module.paths.iter().map(|path| (false, path))) {
                let target = match self.resolve(at, path, 0) {
                    Found::Item(target) => target,
                    Found::Module(target) if whole => target,
                    _ => continue,
                };
                let to = self.all[target].place.file;
                let (one, other) = (names[from], names[to]);
                if !one.starts_with(other) && !other.starts_with(one) {
                    let name = if whole { "*" } else { path.last().copied().unwrap_or_default() };
                    imports.entry(from).or_default().entry(to).or_default().insert(name);
                }
            }
        }
    }

    /// What a path in a module leads to.
    fn resolve(&self, from: usize, path: &[&'a str], steps: usize) -> Found {
        let Some((head, mut rest)) = path.split_first() else { return Found::Module(from) };
        if steps > STEPS_MAX {
            return Found::Outside;
        }
        let parent = |at: usize| self.all[at].place.parent.unwrap_or_default();
        let mut at = match *head {
            "crate" => 0,
            "self" => from,
            "super" => parent(from),
            _ => return self.find(from, path, steps).unwrap_or(Found::Outside),
        };
        while let Some(("super", further)) = rest.split_first().map(|(first, it)| (*first, it)) {
            (at, rest) = (parent(at), further);
        }
        // A name that no declaration shows comes from a macro of the module.
        self.find(at, rest, steps).unwrap_or(Found::Item(at))
    }

    /// What a path leads to from a module's own names on; `None` if the module has no such name.
    fn find(&self, at: usize, path: &[&'a str], steps: usize) -> Option<Found> {
        let Some((name, rest)) = path.split_first() else { return Some(Found::Module(at)) };
        let Node { module, children, .. } = &self.all[at];
        if let Some(&child) = children.get(name) {
            return Some(self.find(child, rest, steps).unwrap_or(Found::Item(child)));
        }
        if module.items.contains(name) {
            return Some(Found::Item(at));
        }
        let mut named = module.uses.iter().filter(|it| it.name == *name).peekable();
        if named.peek().is_some() {
            let mut found = named.map(|it| match self.resolve(at, &it.path, steps + 1) {
                Found::Module(target) => {
                    self.find(target, rest, steps + 1).unwrap_or(Found::Item(target))
                }
                found => found,
            });
            let inside = found.find(|found| !matches!(found, Found::Outside));
            return Some(inside.unwrap_or(Found::Outside));
        }
        module.uses.iter().filter(|it| it.name == "*").find_map(|it| {
            match self.resolve(at, &it.path, steps + 1) {
                Found::Module(target) if target != at && steps < STEPS_MAX => {
                    self.find(target, path, steps + 1)
                }
                _ => None,
            }
        })
    }
}
