//! Circles of imports: files of a crate of which none can be read, tested or moved without the
//! others.
//!
//! A file imports another file if it has a path to an item of that file: in `use`, or in its code
//! from `crate`, `self`, `super`, a module or an imported name on. Re-exports are followed to the
//! file that defines the item. An import of a module alone does not count, but paths through that
//! name do. Imports between a module and the modules within it do not count, because a parent
//! declares its parts. Code under `cfg(test)`, modules with `#[path]`, macros and calls of methods
//! are not seen.

mod graph;
mod items;
mod table;
mod tokens;

use super::File;
use graph::Imports;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use table::{CIRCLES, Circle};

/// The file with the table of accepted circles.
const TABLE: &str = "xtask/src/tidy/circles/table.rs";
/// The most circles that the table may list, so that a new one is broken rather than listed.
const CIRCLES_MAX: usize = 10;

/// Complaints about circles that are not listed, about listed imports that close none, and about a
/// table that is too long.
pub(super) fn check(files: &[File]) -> Vec<String> {
    complaints(files, CIRCLES)
}

fn complaints(files: &[File], listed: &[Circle]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    let texts = rust.map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let all = graph::imports(&texts);
    let mut others = all.clone();
    let mut closing = Vec::new();
    for circle in listed {
        for (from, to) in circle.closed_by {
            let (from, to) =
                (format!("{}/{from}", circle.source), format!("{}/{to}", circle.source));
            let exists = all.get(from.as_str()).is_some_and(|it| it.contains_key(to.as_str()));
            if let Some(targets) = others.get_mut(from.as_str()) {
                targets.remove(to.as_str());
            }
            closing.push((from, to, exists, circle.reason));
        }
    }
    let mut complaints: Vec<String> =
        circles(&others).iter().map(|circle| describe(circle, &others)).collect();
    // Each listed import must close a circle alone, or it need not be listed.
    for (from, to, exists, reason) in closing {
        if !exists || !reached(&others, &to).contains(from.as_str()) {
            let told = format!("{from}: its import of {to} closes no circle");
            complaints.push(format!("{told}, but is listed in {TABLE}: {reason}"));
        }
    }
    if listed.len() > CIRCLES_MAX {
        complaints.push(format!(
            "{TABLE} lists {} circles, expected at most {CIRCLES_MAX}: break one by moving what its \
             files share into a file of its own, and take it off the list",
            listed.len()
        ));
    }
    complaints
}

/// The files that a file imports.
fn targets<'a>(imports: &Imports<'a>, from: &str) -> Vec<&'a str> {
    imports.get(from).map_or_else(Vec::new, |targets| targets.keys().copied().collect())
}

/// The files that a file imports, directly or through others.
fn reached<'a>(imports: &Imports<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = targets(imports, from);
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(targets(imports, file));
        }
    }
    found
}

/// A shortest circle of each group of files that import each other.
fn circles<'a>(imports: &Imports<'a>) -> Vec<Vec<&'a str>> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut circles = Vec::new();
    for &file in imports.keys() {
        let reach = reached(imports, file);
        if seen.contains(file) || !reach.contains(file) {
            continue;
        }
        seen.extend(reach.into_iter().filter(|other| reached(imports, other).contains(file)));
        circles.push(shortest(imports, file));
    }
    circles
}

/// The shortest way from a file on a circle back to that file.
fn shortest<'a>(imports: &Imports<'a>, file: &'a str) -> Vec<&'a str> {
    let mut before: BTreeMap<&str, &'a str> = BTreeMap::new();
    let mut open = VecDeque::from([file]);
    while let Some(from) = open.pop_front() {
        for to in targets(imports, from) {
            if let Entry::Vacant(entry) = before.entry(to) {
                entry.insert(from);
                open.push_back(to);
            }
        }
    }
    let mut way = vec![file];
    while let Some(&from) = way.last().and_then(|at| before.get(*at)) {
        way.push(from);
        if from == file {
            break;
        }
    }
    way.reverse();
    way
}

fn describe(circle: &[&str], imports: &Imports<'_>) -> String {
    let mut text = String::new();
    for (from, to) in circle.iter().zip(circle.iter().skip(1)) {
        let names = imports.get(*from).and_then(|targets| targets.get(*to));
        let names: Vec<&str> = names.into_iter().flatten().copied().collect();
        text += &format!("{from} imports {} of {to}, ", names.join(" and "));
    }
    format!("{text}a circle: move what they share, or list the import that closes it in {TABLE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files, with the parent modules `lib` and `a`.
    fn complaints_of(files: &[(&str, &str)], listed: &[Circle]) -> Vec<String> {
        let roots = [("lib.rs", "mod a; mod b; mod c;\npub use b::Two;\n")];
        let of = |(path, text): &(&str, &str)| File {
            path: format!("x/src/{path}"),
            text: (*text).to_owned(),
        };
        let files: Vec<File> = roots.iter().chain(files).map(of).collect();
        complaints(&files, listed)
    }

    #[test]
    fn circles_are_found_however_their_files_are_named() {
        let back = ("b.rs", "use crate::c::Three;\npub struct Two(Three);\n");
        for (c, is_circle) in [
            ("pub struct Three;", false),
            ("use crate::b::Two;\npub struct Three;", true),
            ("use super::{b::{self, Two as Other}};\npub struct Three;", true),
            ("pub struct Three(crate::Two);", true),
            ("use crate::b;\npub struct Three;", false),
            ("use crate::b;\npub struct Three(b::Two);", true),
            ("use crate::*;\npub struct Three(Two);", false),
            ("use crate::b::*;\npub struct Three;", true),
            ("// use crate::b::Two;\npub struct Three;", false),
            ("const TEXT: &str = \"crate::b::Two\"; pub struct Three;", false),
            ("pub struct Three;\n#[cfg(test)]\nmod tests { use crate::b::Two; }", false),
            ("pub(in crate::b) struct Three;", false),
            ("pub struct Three; mod inner { use super::super::b::Two; }", true),
        ] {
            let found = complaints_of(&[back, ("c.rs", c)], &[]);
            assert_eq!(found.len(), usize::from(is_circle), "{c}: {found:?}");
        }
    }

    #[test]
    fn parents_and_their_parts_may_know_each_other() {
        let parts = [
            (
                "a.rs",
                "mod part; mod other; use part::One; pub use other::Kept; pub struct All(One);",
            ),
            ("a/part.rs", "use super::All; pub struct One;"),
        ];
        let apart = ("a/other.rs", "pub struct Kept;");
        assert_eq!(complaints_of(&[parts[0], parts[1], apart], &[]), Vec::<String>::new());
        // A re-export of the parent is not an item of the parent.
        let user = ("a/part.rs", "use super::Kept; pub struct One;");
        let circle = ("a/other.rs", "use super::part::One; pub struct Kept(One);");
        let found = complaints_of(&[parts[0], user, circle], &[]);
        assert!(
            found.len() == 1 && found[0].contains("imports Kept of x/src/a/other.rs"),
            "{found:?}"
        );
    }

    #[test]
    fn a_listed_import_must_close_a_circle() {
        const LISTED: &[Circle] =
            &[Circle { source: "x/src", closed_by: &[("c.rs", "b.rs")], reason: "tested" }];
        let back = ("b.rs", "use crate::c::Three;\npub struct Two(Three);\n");
        let closing = ("c.rs", "use crate::b::Two;\npub struct Three;");
        assert_eq!(complaints_of(&[back, closing], LISTED), Vec::<String>::new());
        let gone = [("b.rs", "pub struct Two;\n"), ("c.rs", "pub struct Three;")];
        for files in [[back, gone[1]], [gone[0], closing], gone] {
            let found = complaints_of(&files, LISTED);
            assert!(found.len() == 1 && found[0].contains("closes no circle"), "{found:?}");
        }
    }

    #[test]
    fn at_most_ten_circles_are_listed() {
        const LISTED: Circle = Circle { source: "x/src", closed_by: &[], reason: "tested" };
        const MANY: &[Circle] = &[LISTED; CIRCLES_MAX + 1];
        assert_eq!(complaints_of(&[], &MANY[..CIRCLES_MAX]), Vec::<String>::new());
        let found = complaints_of(&[], MANY);
        assert!(found.len() == 1 && found[0].contains("lists 11 circles"), "{found:?}");
    }
}
