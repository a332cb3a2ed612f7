//! Outputs in answers, reduced while reading to a digest: outputs of 200 MB must not be held.

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use std::fmt;

/// The number of elements that are kept, enough for all of the bundled model's.
const KEPT: usize = 16;

/// An output.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Output {
    pub(super) name: String,
    pub(super) data: Data,
}

/// Elements, reduced to their count, a digest of all in order, and the first ones.
#[derive(Clone, PartialEq, Default)]
pub(super) struct Data {
    count: u64,
    digest: u64,
    pub(super) first: Vec<f64>,
}

impl Data {
    /// The reduced form of whole numbers.
    pub(super) fn whole(numbers: impl Iterator<Item = u64>) -> Self {
        let mut data = Self::default();
        numbers.for_each(|number| data.take(number, f64::from_bits(number)));
        data.first.clear();
        data
    }

    fn take(&mut self, bits: u64, value: f64) {
        if self.first.len() < KEPT {
            self.first.push(value);
        }
        self.count += 1;
        self.digest = (self.digest ^ bits).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// Whether these are the same elements.
    pub(super) fn same(&self, other: &Self) -> bool {
        (self.count, self.digest) == (other.count, other.digest)
    }

    /// The number of elements.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements {:016x} {:?}", self.count, self.digest, self.first)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements)
    }
}

struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a flat array of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Data, A::Error> {
        let mut data = Data::default();
        while let Some(Element(bits, value)) = elements.next_element()? {
            data.take(bits, value);
        }
        Ok(data)
    }
}

/// An element's bits and value. An integer never has the bits of the same float.
struct Element(u64, f64);

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Number)
    }
}

struct Number;

impl Visitor<'_> for Number {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Element, E> {
        Ok(Element(number, number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Element, E> {
        Ok(Element(number.cast_unsigned(), number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Element, E> {
        Ok(Element(number.to_bits(), number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Data> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn elements_are_known_by_value_and_place() {
        let data = read("[1,2,3]").unwrap();
        assert!(data.same(&Data::whole(1..=3)) && data.count() == 3);
        assert_eq!(data.first, [1.0, 2.0, 3.0]);
        for other in ["[1,3,2]", "[1,2]", "[1,2,3,0]", "[1,2,4]", "[1,2,3.5]", "[]"] {
            assert!(!read(other).unwrap().same(&data), "{other}");
        }
        for none in ["[1,null]", "[[1]]", "\"1\"", "null"] {
            assert!(read(none).is_none(), "{none}");
        }
        let long = Data::whole(0..1000);
        assert!(!long.same(&Data::whole((0..999).chain([0]))));
    }
}
