//! The declarations and the paths of a module's source.

use std::collections::BTreeSet;

/// A module, as far as its imports need it.
#[derive(Default)]
pub(super) struct Module<'a> {
    /// The names of its parts in other files.
    pub(super) declared: Vec<&'a str>,
    /// Its parts in the same file, by name.
    pub(super) inline: Vec<(&'a str, Module<'a>)>,
    /// The names of its items.
    pub(super) items: BTreeSet<&'a str>,
    pub(super) uses: Vec<Use<'a>>,
    /// The paths in its code.
    pub(super) paths: Vec<Vec<&'a str>>,
}

/// A name that `use` brings into a module.
pub(super) struct Use<'a> {
    /// `*` for all names of a module.
    pub(super) name: &'a str,
    pub(super) path: Vec<&'a str>,
}

/// Keywords before the name of an item.
const ITEMS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];

/// Reads the tokens of a module.
pub(super) fn read<'a>(tokens: &[&'a str]) -> Module<'a> {
    let mut module = Module::default();
    let (mut at, mut depth) = (0, 0);
    while let Some(&token) = tokens.get(at) {
        let rest = tokens.get(at..).unwrap_or_default();
        at += match (token, nth(rest, 1), nth(rest, 2)) {
            ("#", "[" | "!", _) => attribute(rest),
            ("mod", name, ";") if is_name(name) => {
                module.declared.push(name);
                3
            }
            ("mod", name, "{") if is_name(name) => {
                let body = rest.get(2..).unwrap_or_default();
                let length = block(body);
                let inner = body.get(1..length.saturating_sub(1)).unwrap_or_default();
                module.inline.push((name, read(inner)));
                2 + length
            }
            ("use", next, _) if is_name(next) || ["::", "{"].contains(&next) => {
                1 + tree(rest.get(1..).unwrap_or_default(), &[], &mut module.uses)
            }
            (_, "::", name) if is_name(token) && is_name(name) => {
                let before = tokens.get(..at).unwrap_or_default();
                let path = path(rest);
                let length = 2 * path.len() - 1;
                if !before.ends_with(&["::"]) && !before.ends_with(&["pub", "(", "in"]) {
                    module.paths.push(path);
                }
                length
            }
            _ => {
                if depth == 0 && ITEMS.contains(&token) {
                    let mut names = rest.iter().skip(1).filter(|it| !["mut", "!"].contains(it));
                    module.items.extend(names.next().filter(|name| is_name(name)));
                }
                depth += i32::from(token == "{") - i32::from(token == "}");
                1
            }
        };
    }
    module
}

fn nth<'a>(tokens: &[&'a str], at: usize) -> &'a str {
    tokens.get(at).copied().unwrap_or_default()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// The tokens of an attribute, with the item after it where that item is for tests only.
fn attribute(tokens: &[&str]) -> usize {
    let brackets = usize::from(nth(tokens, 1) == "!") + 1;
    let mut length = brackets + block(tokens.get(brackets..).unwrap_or_default());
    let test = [&["cfg", "(", "test", ")"][..], &["cfg", "(", "all", "(", "test"]];
    let within = tokens.get(brackets + 1..).unwrap_or_default();
    // A module elsewhere has no name by which its file is found.
    let elsewhere = within.starts_with(&["path"]);
    if elsewhere || test.iter().any(|test| within.starts_with(test)) {
        while nth(tokens, length) == "#" {
            length += 1 + block(tokens.get(length + 1..).unwrap_or_default());
        }
        length += item(tokens.get(length..).unwrap_or_default());
    }
    length
}

/// The tokens of a block in brackets, the brackets included.
fn block(tokens: &[&str]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The tokens of an item or of a field: to its body's end, or to its semicolon or comma.
fn item(tokens: &[&str]) -> usize {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            "{" => return at + block(tokens.get(at..).unwrap_or_default()),
            "(" | "[" => at += block(tokens.get(at..).unwrap_or_default()),
            ";" | "," => return at + 1,
            // The end of what has the item.
            ")" | "]" | "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// The path at the beginning of these tokens.
fn path<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut path: Vec<&str> = tokens.first().copied().into_iter().collect();
    for pair in tokens.get(1..).unwrap_or_default().chunks_exact(2) {
        match pair {
            ["::", name] if is_name(name) => path.push(name),
            _ => break,
        }
    }
    path
}

/// Reads one tree of `use`, after the path `before`; answers its length.
fn tree<'a>(tokens: &[&'a str], before: &[&'a str], uses: &mut Vec<Use<'a>>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        match nth(tokens, at) {
            "{" => {
                at += 1;
                while !["}", ""].contains(&nth(tokens, at)) {
                    at += tree(tokens.get(at..).unwrap_or_default(), &path, uses);
                    at += usize::from(nth(tokens, at) == ",");
                }
                return at + 1;
            }
            "*" => {
                uses.push(Use { name: "*", path });
                return at + 1;
            }
            "::" => at += 1,
            name if is_name(name) => {
                // `self` in a list is the module before the list.
                if name != "self" || path.is_empty() {
                    path.push(name);
                }
                at += 1;
                if nth(tokens, at) == "::" {
                    continue;
                }
                let mut name = path.last().copied().unwrap_or_default();
                if nth(tokens, at) == "as" {
                    name = nth(tokens, at + 1);
                    at += 2;
                }
                uses.push(Use { name, path });
                return at;
            }
            // No tree begins so; one token further the reader goes on.
            _ => return at + 1,
        }
    }
}
