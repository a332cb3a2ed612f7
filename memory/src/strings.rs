//! The texts of string tensors: a sorted table that elements index.

use crate::error::{Error, Result};
use std::sync::Arc;

/// The distinct texts of a string tensor, sorted. An element is the index of its text, so operators
/// that move elements also move strings, and within one table numbers compare like texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringTable(Arc<[Box<str>]>);

impl StringTable {
    /// The table of some texts, and the index of each text.
    pub(crate) fn of<S: AsRef<str>>(texts: &[S]) -> (Self, Vec<u32>) {
        let mut sorted: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let number = |text: &str| sorted.binary_search(&text).map_or(u32::MAX, number_of);
        let numbers = texts.iter().map(|t| number(t.as_ref())).collect();
        (Self(sorted.iter().map(|&t| Box::from(t)).collect()), numbers)
    }

    /// One table with the texts of all tables.
    #[must_use]
    pub fn merged<'a>(tables: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all: Vec<&str> = Vec::new();
        let mut first: Option<&Self> = None;
        let mut one = true;
        for table in tables {
            one &= first.is_none_or(|f| Arc::ptr_eq(&f.0, &table.0));
            first = first.or(Some(table));
            all.extend(table.0.iter().map(|t| &**t));
        }
        match first {
            Some(table) if one => table.clone(),
            _ => Self::of(&all).0,
        }
    }

    /// The text of an index; empty for an invalid index, as in an element that was never written.
    #[must_use]
    pub fn text(&self, number: u32) -> &str {
        usize::try_from(number).ok().and_then(|n| self.0.get(n)).map_or("", |t| t)
    }

    /// The index of a text.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.0.binary_search_by(|t| (**t).cmp(text)).ok().map(number_of)
    }

    /// Whether both are the same table, and not only equal tables.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Bytes before each packed text: its length.
const LENGTH_BYTES: usize = 4;

/// Texts one after another, each after its length.
pub(crate) fn pack(texts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packed_len(texts));
    for text in texts {
        bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// The size of the packed texts in bytes.
pub(crate) fn packed_len(texts: &[&str]) -> usize {
    texts.iter().map(|text| LENGTH_BYTES + text.len()).sum()
}

/// Unpacks exactly `count` texts.
pub(crate) fn unpack(bytes: &[u8], count: usize) -> Result<Vec<&str>> {
    let odd = |reason: String| Error::Packed { reason };
    if count > bytes.len() / LENGTH_BYTES {
        let given = bytes.len();
        return Err(odd(format!("{count} strings need at least 4 bytes each, given are {given}")));
    }
    let mut rest = bytes;
    let mut texts = Vec::with_capacity(count);
    for at in 0..count {
        let short = || odd(format!("string {at} ends behind the last byte"));
        let (length, behind) = rest.split_first_chunk().ok_or_else(short)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| short())?;
        let (text, behind) = behind.split_at_checked(length).ok_or_else(short)?;
        let text = str::from_utf8(text);
        texts.push(text.map_err(|error| odd(format!("string {at} is not UTF-8: {error}")))?);
        rest = behind;
    }
    match rest.len() {
        0 => Ok(texts),
        left => Err(odd(format!("{left} bytes follow the last of {count} strings"))),
    }
}

fn number_of(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use crate::{DType, Error, Tensor};

    #[test]
    fn numbers_order_as_texts_do() {
        let x = Tensor::from_strings([4], &["b", "", "a", "b"]).unwrap();
        assert_eq!(x.dtype(), DType::Str);
        assert_eq!(x.strings().unwrap(), ["b", "", "a", "b"]);
        let y = Tensor::from_strings([2], &["aa", "b"]).unwrap();
        let table =
            super::StringTable::merged([x.string_table(), y.string_table()].into_iter().flatten());
        let (x, y) = (x.with_table(&table).unwrap(), y.with_table(&table).unwrap());
        assert_eq!(x.strings().unwrap(), ["b", "", "a", "b"]);
        assert_eq!(y.strings().unwrap(), ["aa", "b"]);
        assert_eq!(x.as_bytes()[..4], y.as_bytes()[4..], "equal texts have equal numbers");
    }

    #[test]
    fn strings_are_not_bytes() {
        let bytes = Tensor::from_bytes(DType::Str, [1], &[0; 4]);
        assert!(matches!(bytes, Err(Error::Strings)));
        assert!(Tensor::from_slice([1], &[1u32]).unwrap().strings().is_err());
        assert_eq!(Tensor::zeros(DType::Str, [2]).unwrap().strings().unwrap(), ["", ""]);
        let wide = crate::strings::StringTable::of(&["a", "b"]).0;
        let x = Tensor::from_strings([1], &["b"]).unwrap();
        let same = x.with_table(&wide).unwrap();
        assert_ne!(x.as_bytes(), same.as_bytes());
        assert_eq!(x, same, "equal texts under other numbers");
    }
}
