//! PyTorch before 1.6: several pickles, then the storages' bytes.

use super::bytes::Cursor;
use super::pickle::{Item, Node, flatten, run};
use super::torch::{Places, contents};
use super::{Contents, Fail, Format};
use std::collections::HashMap;

pub(super) const FORMAT: Format = Format { name: "PyTorch before 1.6", detect, read };

/// A pickle of protocol 2 that holds the format's number, 0x1950a86a20f9469cfc6c.
const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
const PROTOCOL: i64 = 1001;

fn detect(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

fn read(bytes: &[u8]) -> Result<Contents, Fail> {
    let (heap, protocol, end) = run(bytes, MAGIC.len())?;
    if *heap.get(protocol) != Node::Int(PROTOCOL) {
        return Err(Fail::Bad(format!("its protocol is not {PROTOCOL}")));
    }
    let (heap, system, end) = run(bytes, end)?;
    let big_endian = flatten(&heap, system)?.into_iter().any(|(name, item)| {
        name == "little_endian" && matches!(item, Item::Note(text) if text != "true")
    });
    if big_endian {
        return Err(Fail::from("its numbers are big-endian, expected little-endian"));
    }
    let units = units(bytes, end)?;
    contents(bytes, end, |end| places(bytes, end, &units))
}

/// Bytes of an element of each storage, which only the pickle of the tensors tells.
fn units(bytes: &[u8], start: usize) -> Result<HashMap<String, usize>, Fail> {
    let (heap, ..) = run(bytes, start)?;
    let storages = heap.storages().filter_map(|storage| {
        let unit = storage.dtype.map_or(1, lgp_memory::DType::size);
        heap.text(storage.key).map(|key| (key.to_owned(), unit))
    });
    Ok(storages.collect())
}

/// The list of keys, then a count of elements and the elements of each.
fn places(bytes: &[u8], end: usize, units: &HashMap<String, usize>) -> Result<Places, Fail> {
    let (heap, keys, end) = run(bytes, end)?;
    let mut cursor = Cursor::new(bytes);
    cursor.skip(end)?;
    let mut places = Places::new();
    let Node::List(keys) = heap.get(keys) else {
        return Err(Fail::from("it has no list of storages"));
    };
    for &key in keys {
        let key = heap.text(key).ok_or("a storage's key is no text")?;
        let unit = units.get(key).ok_or_else(|| format!("nobody uses storage '{key}'"))?;
        let len = cursor.count()?.checked_mul(*unit);
        let len = len.ok_or_else(|| format!("storage '{key}' is too large"))?;
        places.insert(key.to_owned(), cursor.skip(len)?);
    }
    Ok(places)
}
