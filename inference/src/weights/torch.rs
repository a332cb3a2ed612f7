//! The part that both PyTorch formats share: from views of storages to places in the file.

use super::entry::{Encoding, Entry, contiguous};
use super::pickle::{Item, Node, Storage, View, flatten, run};
use super::{Contents, Fail};
use std::ops::Range;

/// Runs the pickle at `start` of `bytes` and finds its tensors. `places` gives the place of each
/// storage in the file, from the end of the pickle.
pub(super) fn contents(
    bytes: &[u8],
    start: usize,
    places: impl FnOnce(usize) -> Result<Places, Fail>,
) -> Result<Contents, Fail> {
    let (heap, root, end) = run(bytes, start)?;
    let places = places(end)?;
    let mut contents = Contents::default();
    for (name, item) in flatten(&heap, root)? {
        match item {
            Item::Note(text) => drop(contents.metadata.insert(name, text)),
            Item::Tensor(view) => {
                let Node::Storage(storage) = heap.get(view.storage) else {
                    return Err(Fail::Bad(format!("tensor '{name}' has no storage")));
                };
                let key = heap.text(storage.key).unwrap_or_default();
                let entry = entry(view, storage, key, &places)
                    .map_err(|message| format!("tensor '{name}': {message}"))?;
                contents.entries.insert(name, entry);
            }
        }
    }
    Ok(contents)
}

/// The place of each storage in the file, by its key.
pub(super) type Places = std::collections::HashMap<String, Range<usize>>;

fn entry(view: &View, storage: &Storage, key: &str, places: &Places) -> Result<Entry, String> {
    let View { dtype, offset, shape, strides, .. } = view;
    let elements = storage.elements;
    let place = places.get(key).ok_or_else(|| format!("no storage '{key}' in the file"))?;
    // A storage of bytes can be a view of any type.
    let unit = storage.dtype.map_or(1, lgp_memory::DType::size);
    let end = storage.offset.checked_add(elements).and_then(|n| n.checked_mul(unit));
    if end.is_none_or(|end| end > place.len()) {
        let len = place.len();
        return Err(format!("storage '{key}' has {len} bytes, expected {elements} elements"));
    }
    let skipped = storage.offset.checked_mul(unit);
    let skipped = skipped.zip(offset.checked_mul(dtype.size())).and_then(|(a, b)| a.checked_add(b));
    let start = skipped.and_then(|skipped| place.start.checked_add(skipped));
    let start = start.filter(|&start| start <= place.end || shape.contains(&0));
    let start = start.ok_or_else(|| format!("offset {offset} is beyond storage '{key}'"))?;
    let (dtype, shape) = (*dtype, shape.clone());
    // Strides of dimensions with one element are arbitrary.
    let row_major = contiguous(&shape);
    let same = strides.len() == shape.len()
        && shape.iter().zip(strides).zip(&row_major).all(|((&d, a), b)| d == 1 || a == b);
    if same || shape.contains(&0) {
        let elements = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
        let len = elements.and_then(|n| n.checked_mul(dtype.size()));
        let end = len.and_then(|len| start.checked_add(len)).filter(|&end| end <= place.end);
        if let Some(end) = end {
            return Ok(Entry { dtype, shape, range: start..end, encoding: Encoding::Plain });
        }
        if shape.contains(&0) {
            return Ok(Entry { dtype, shape, range: 0..0, encoding: Encoding::Plain });
        }
        let len = place.len();
        return Err(format!("{dtype} of shape {shape:?} passes the {len} bytes of '{key}'"));
    }
    let encoding = Encoding::Strided(strides.clone());
    Ok(Entry { dtype, shape, range: start..place.end, encoding })
}
