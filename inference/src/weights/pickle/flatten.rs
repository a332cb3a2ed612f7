//! Nested dictionaries and lists as one list of names.

use super::{Heap, Id, Node, View};
use crate::weights::Fail;

/// More than the depth of any checkpoint.
const DEPTH_MAX: usize = 32;

/// Bytes of all names together for each byte of the pickle: inner names repeat the outer ones.
const NAME_GROWTH: usize = 16;

/// A named value of a dictionary.
pub(crate) enum Item<'h> {
    Tensor(&'h View),
    /// A number or text.
    Note(String),
}

/// All named values below `root`. A name has the keys of all levels, joined by dots.
pub(crate) fn flatten<'h>(heap: &'h Heap<'_>, root: Id) -> Result<Vec<(String, Item<'h>)>, Fail> {
    let visits = heap.pickle.len();
    let mut walk = Walk { heap, visits, names: visits.saturating_mul(NAME_GROWTH), items: vec![] };
    walk.visit(String::new(), root, 0)?;
    Ok(walk.items)
}

struct Walk<'h, 'a> {
    heap: &'h Heap<'a>,
    /// Values that may still be visited: a value in several places counts in each.
    visits: usize,
    /// Bytes that names and notes may still take.
    names: usize,
    items: Vec<(String, Item<'h>)>,
}

impl<'h> Walk<'h, '_> {
    fn visit(&mut self, name: String, id: Id, depth: usize) -> Result<(), Fail> {
        if depth > DEPTH_MAX {
            return Err(Fail::Bad(format!("dictionaries nest more than {DEPTH_MAX} deep")));
        }
        let budget = || Fail::from("dictionaries hold each other more often than the file is long");
        self.visits = self.visits.checked_sub(1).ok_or_else(budget)?;
        self.names = self.names.checked_sub(name.len()).ok_or_else(budget)?;
        let note = match self.heap.get(id) {
            Node::Tensor(view) => {
                let name = if name.is_empty() { "tensor".to_owned() } else { name };
                self.items.push((name, Item::Tensor(view)));
                return Ok(());
            }
            Node::Dict(pairs) => {
                for &(key, value) in pairs {
                    // Other keys, such as tuples, are no names of tensors.
                    if let Some(key) = self.key(key) {
                        self.visit(join(&name, &key), value, depth + 1)?;
                    }
                }
                return Ok(());
            }
            Node::List(items) | Node::Tuple(items) => {
                for (i, &item) in items.iter().enumerate() {
                    self.visit(join(&name, &i.to_string()), item, depth + 1)?;
                }
                return Ok(());
            }
            Node::Int(value) => value.to_string(),
            Node::Float(value) => value.to_string(),
            Node::Bool(value) => value.to_string(),
            Node::Text(_) => self.heap.text(id).unwrap_or_default().to_owned(),
            _ => return Ok(()),
        };
        self.names = self.names.checked_sub(note.len()).ok_or_else(budget)?;
        self.items.push((name, Item::Note(note)));
        Ok(())
    }

    fn key(&self, id: Id) -> Option<String> {
        match self.heap.get(id) {
            Node::Int(value) => Some(value.to_string()),
            _ => self.heap.text(id).map(str::to_owned),
        }
    }
}

fn join(outer: &str, inner: &str) -> String {
    if outer.is_empty() { inner.to_owned() } else { format!("{outer}.{inner}") }
}
