//! Python's pickles, as far as a dictionary of tensors needs them. Nothing is executed: a call is
//! looked up in a short table of what rebuilds tensors, and any other name is an error.

mod calls;
mod flatten;
mod machine;

pub(super) use flatten::{Item, flatten};
pub(super) use machine::run;

use lgp_memory::DType;
use std::ops::Range;

/// Every tensor keeps its shape: a higher rank would let a short pickle fill the memory.
const RANK_MAX: usize = 8;

/// A value's number in the [`Heap`].
type Id = u32;

/// Something that a pickle may name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Global {
    OrderedDict,
    Size,
    Device,
    Set,
    Encode,
    RebuildTensor,
    RebuildTensorV3,
    RebuildParameter,
    /// An element type, or the storage of such elements; `None` for bytes.
    Storage(Option<DType>),
    DType(DType),
}

/// The bytes of one or more tensors.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Storage {
    /// What the file calls it.
    pub(super) key: Id,
    /// Its elements; `None` for bytes.
    pub(super) dtype: Option<DType>,
    /// The elements that it should have.
    pub(super) elements: usize,
    /// Where it begins within the bytes of the key, in elements.
    pub(super) offset: usize,
}

/// A tensor as the pickle describes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) storage: Id,
    pub(super) dtype: DType,
    /// Elements before the first.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// A value. Values refer to each other by number, so that those which contain themselves are
/// neither followed without end nor leaked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Where the text lies in the pickle.
    Text(Range<usize>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage(Box<Storage>),
    Tensor(Box<View>),
    /// Something that no tensor depends on.
    Other,
}

/// Every value of a pickle.
#[derive(Debug)]
pub(super) struct Heap<'a> {
    pickle: &'a [u8],
    nodes: Vec<Node>,
    /// Items that may still be copied from one value into another.
    copies: usize,
}

impl<'a> Heap<'a> {
    pub(super) fn get(&self, id: Id) -> &Node {
        // Numbers are handed out by the heap, which only grows.
        usize::try_from(id).ok().and_then(|id| self.nodes.get(id)).unwrap_or(&Node::Other)
    }

    /// The value's text, if it is one.
    pub(super) fn text(&self, id: Id) -> Option<&'a str> {
        let Node::Text(range) = self.get(id) else { return None };
        std::str::from_utf8(self.pickle.get(range.clone())?).ok()
    }

    /// The value as a size.
    pub(super) fn size(&self, id: Id) -> Option<usize> {
        let Node::Int(value) = self.get(id) else { return None };
        usize::try_from(*value).ok()
    }

    /// Every storage.
    pub(super) fn storages(&self) -> impl Iterator<Item = &Storage> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Storage(storage) => Some(storage.as_ref()),
            _ => None,
        })
    }

    fn sequence(&self, id: Id) -> Option<&[Id]> {
        match self.get(id) {
            Node::Tuple(items) | Node::List(items) => Some(items),
            _ => None,
        }
    }

    /// The value as a list of sizes, of which a tensor has a few.
    fn sizes(&self, id: Id) -> Option<Vec<usize>> {
        let items = self.sequence(id).filter(|items| items.len() <= RANK_MAX)?;
        items.iter().map(|&id| self.size(id)).collect()
    }
}
