//! Python's pickles, as far as a dictionary of tensors needs them. Nothing is executed: a short
//! table has the calls that rebuild tensors, and any other name is an error.

mod calls;
mod flatten;
mod machine;

pub(super) use flatten::{Item, flatten};
pub(super) use machine::run;

use lgp_memory::DType;
use std::ops::Range;

/// Every tensor stores its shape: with higher ranks, a short pickle could fill the memory.
const RANK_MAX: usize = 8;

/// A value's number in the [`Heap`].
type Id = u32;

/// A global that a pickle may name.
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
    /// The storage's key in the file.
    pub(super) key: Id,
    /// The element type; `None` for bytes.
    pub(super) dtype: Option<DType>,
    /// The number of elements that the pickle states.
    pub(super) elements: usize,
    /// The storage's first element within the bytes of the key.
    pub(super) offset: usize,
}

/// A tensor as the pickle describes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) storage: Id,
    pub(super) dtype: DType,
    /// The number of elements before the first one.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// A value. Values refer to each other by number, so a value that contains itself is neither
/// followed endlessly nor leaked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// The text's range in the pickle.
    Text(Range<usize>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage(Box<Storage>),
    Tensor(Box<View>),
    /// A value that no tensor depends on.
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
        // The heap hands out the numbers and never shrinks.
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

    /// The value as a list of at most `RANK_MAX` sizes.
    fn sizes(&self, id: Id) -> Option<Vec<usize>> {
        let items = self.sequence(id).filter(|items| items.len() <= RANK_MAX)?;
        items.iter().map(|&id| self.size(id)).collect()
    }
}
