//! Accepts only JSON objects for structs. Serde would also accept arrays with the fields in order, so that `[]`
//! would pass for a body with optional fields only.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::fmt;

/// A deserializer that refuses arrays for structs, at any depth.
pub(super) struct Objects<D>(pub(super) D);

/// Wraps a visitor, with the same rule.
struct Told<V>(V);

/// Wraps a visitor of structs. Its messages omit the struct's name, which senders do not know.
struct Fields<V>(V);

/// Wraps the access to nested values, with the same rule.
struct Inside<A>(A);

macro_rules! as_they_are {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Told(visitor))
        }
    )* };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Objects<D> {
    type Error = D::Error;

    as_they_are! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq
        deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Fields(visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Told(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Told(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, Told(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, len, Told(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Told(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! told {
    ($($method:ident: $value:ty,)*) => { $(
        fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )* };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Told<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    told! {
        visit_bool: bool,
        visit_i64: i64,
        visit_i128: i128,
        visit_u64: u64,
        visit_u128: u128,
        visit_f64: f64,
        visit_str: &str,
        visit_borrowed_str: &'de str,
        visit_string: String,
        visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8],
        visit_byte_buf: Vec<u8>,
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Objects(from))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Objects(from))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Inside(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Inside(members))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Inside(variant))
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Fields<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Inside(members))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Inside<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Objects(from))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Inside<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Inside(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Inside<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Inside(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Inside<A> {
    type Error = A::Error;
    type Variant = Inside<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        self.0.variant_seed(seed).map(|(value, variant)| (value, Inside(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Inside<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Inside(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Told(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Told(visitor))
    }
}

#[cfg(test)]
mod tests {
    use crate::extract::parse;
    use serde::Deserialize;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(default)]
    struct Leaf {
        n: u8,
    }

    impl Default for Leaf {
        fn default() -> Self {
            Self { n: 7 }
        }
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Tree<'a> {
        leaf: Leaf,
        may_be: Option<Leaf>,
        all: Vec<Leaf>,
        named: BTreeMap<String, Leaf>,
        pair: (u8, Leaf),
        kind: Option<Kind>,
        #[serde(borrow)]
        raw: Option<&'a RawValue>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Plain,
        Leafy(Leaf),
    }

    #[test]
    fn objects_are_read_as_they_were() {
        let text =
            br#"{"leaf":{"n":1},"may_be":{},"all":[{"n":2}],"named":{"a":{"n":3}},"pair":[1,{}],
            "kind":{"leafy":{"n":4}},"raw":[ 1e400 ],"other":[{}]}"#;
        let tree: Tree<'_> = parse(text).expect("it is right");
        assert_eq!(
            (tree.leaf.n, tree.may_be, tree.all),
            (1, Some(Leaf { n: 7 }), vec![Leaf { n: 2 }])
        );
        assert_eq!((tree.named["a"].n, tree.pair.1.n), (3, 7));
        assert_eq!(tree.kind, Some(Kind::Leafy(Leaf { n: 4 })));
        assert_eq!(tree.raw.map(RawValue::get), Some("[ 1e400 ]"));
        assert_eq!(
            parse::<Tree<'_>>(br#"{"kind":"plain"}"#).expect("it is").kind,
            Some(Kind::Plain)
        );
    }

    #[test]
    fn what_is_expected_is_said_without_types_of_rust() {
        let fault = parse::<Leaf>(br#"{"n":"a"}"#).expect_err("it is no number");
        let why = "n: invalid type: string \"a\", expected a whole number";
        assert!(fault.message.contains(why), "{}", fault.message);
    }

    #[test]
    fn an_array_is_no_object() {
        for (text, place) in [
            (&b"[]"[..], "expected an object"),
            (br#"{"leaf":[]}"#, "leaf: "),
            (br#"{"may_be":[1]}"#, "may_be: "),
            (br#"{"all":[[1]]}"#, "all[0]: "),
            (br#"{"named":{"a":[]}}"#, "named.a: "),
            (br#"{"pair":[1,[]]}"#, "pair[1]: "),
            (br#"{"kind":{"leafy":[]}}"#, "kind.leafy: "),
        ] {
            let fault = parse::<Tree<'_>>(text).expect_err(place);
            assert!(fault.message.contains(place), "{}", fault.message);
            let why = "invalid type: sequence, expected an object";
            assert!(fault.message.contains(why), "{}", fault.message);
        }
    }
}
