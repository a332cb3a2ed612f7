//! Tensor elements as JSON: nested or flat arrays in, flat arrays out.
//!
//! JSON has no numbers for NaN and infinity: they are the strings `"NaN"`, `"Infinity"` and
//! `"-Infinity"`, as in the JSON form of protocol buffers.
#![deny(clippy::as_conversions)]

use super::datatype;
use crate::fault::Fault;
use half::{bf16, f16};
use lgp_sdk::tensor::{DType, Element, Error as TensorError, Tensor};
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Unexpected, Visitor};
use serde::ser::{Error as _, Serialize, SerializeSeq, Serializer};
use serde_json::value::RawValue;
use std::fmt;

/// Parses `data` as a tensor of `dtype` and `shape`.
///
/// Flat arrays are row-major; nested arrays must have the nesting of `shape`. Allocations are
/// bounded by the length of `data`, independent of `shape`.
pub(crate) fn decode(
    input: &str,
    dtype: DType,
    shape: &[usize],
    data: &RawValue,
) -> Result<Tensor, Fault> {
    match dtype {
        DType::Bool => typed::<bool>(input, shape, data),
        DType::U8 => typed::<u8>(input, shape, data),
        DType::U16 => typed::<u16>(input, shape, data),
        DType::U32 => typed::<u32>(input, shape, data),
        DType::U64 => typed::<u64>(input, shape, data),
        DType::I8 => typed::<i8>(input, shape, data),
        DType::I16 => typed::<i16>(input, shape, data),
        DType::I32 => typed::<i32>(input, shape, data),
        DType::I64 => typed::<i64>(input, shape, data),
        DType::F16 => typed::<f16>(input, shape, data),
        DType::BF16 => typed::<bf16>(input, shape, data),
        DType::F32 => typed::<f32>(input, shape, data),
        DType::F64 => typed::<f64>(input, shape, data),
        DType::Str => typed::<String>(input, shape, data),
        other => Err(Fault::unsupported(format!("dtype {other} has no JSON form"))),
    }
}

fn typed<T: JsonElement>(input: &str, shape: &[usize], data: &RawValue) -> Result<Tensor, Fault> {
    let expected = lgp_sdk::tensor::Shape::from(shape)
        .elements()
        .map_err(|e| Fault::bad_input(format!("input '{input}': {e}")))?;
    let capacity = expected.min(data.get().len() / T::TEXT_BYTES_MIN + 1);
    let mut sink =
        Sink::<T> { shape, expected, elements: Vec::with_capacity(capacity), given: 0, leaf: None };
    let mut text = serde_json::Deserializer::from_str(data.get());
    Node { sink: &mut sink, depth: 0 }.deserialize(&mut text).map_err(|e| {
        Fault::bad_input(format!("data of input '{input}': {}", strip_position(&e)))
    })?;
    if sink.given != expected {
        return Err(Fault::bad_input(format!(
            "input '{input}' of shape {shape:?} needs {expected} elements, data has {}",
            sink.given
        )));
    }
    T::tensor(shape, &sink.elements).map_err(|e| Fault::bad_input(format!("input '{input}': {e}")))
}

/// The message without its position, which counts within one input's data, not within the body.
fn strip_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

struct Sink<'a, T> {
    shape: &'a [usize],
    expected: usize,
    elements: Vec<T>,
    /// Scalars seen. Those past `expected` are counted but not kept.
    given: usize,
    /// The depth of the arrays around the scalars, which must be the same for all.
    leaf: Option<usize>,
}

impl<T> Sink<'_, T> {
    fn push<E: serde::de::Error>(&mut self, depth: usize, value: T) -> Result<(), E> {
        let leaf = *self.leaf.get_or_insert(depth);
        let rank = self.shape.len();
        if leaf != depth || (leaf != 1 && leaf != rank) {
            return Err(E::custom(format_args!(
                "data is nested {depth} deep, expected a flat array or {rank} levels as shape {:?} has",
                self.shape
            )));
        }
        if self.given < self.expected {
            self.elements.push(value);
        }
        self.given += 1;
        Ok(())
    }

    fn closed<E: serde::de::Error>(&self, depth: usize, len: usize) -> Result<(), E> {
        let nested = self.leaf.is_some_and(|leaf| leaf > 1);
        match self.shape.get(depth) {
            Some(&expected) if nested && len != expected => Err(E::custom(format_args!(
                "dimension {depth} has {len} entries in data, expected {expected} as in shape {:?}",
                self.shape
            ))),
            _ => Ok(()),
        }
    }
}

struct Node<'a, 's, T> {
    sink: &'a mut Sink<'s, T>,
    depth: usize,
}

impl<'de, T: JsonElement> DeserializeSeed<'de> for Node<'_, '_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<T: JsonElement> Node<'_, '_, T> {
    fn element<E: serde::de::Error>(
        self,
        value: Option<T>,
        given: impl fmt::Display,
    ) -> Result<(), E> {
        match value {
            Some(value) => self.sink.push(self.depth, value),
            None => Err(E::custom(format_args!(
                "{given} is not a value of {}",
                datatype::name(T::DTYPE)
            ))),
        }
    }
}

impl<'de, T: JsonElement> Visitor<'de> for Node<'_, '_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} or an array of them", datatype::name(T::DTYPE))
    }

    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<(), E> {
        self.element(T::from_bool(v), v)
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<(), E> {
        self.element(T::from_u64(v), v)
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<(), E> {
        self.element(T::from_i64(v), v)
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<(), E> {
        self.element(T::from_f64(v), format_args!("{v:?}"))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<(), E> {
        match T::from_str(v) {
            Some(value) => self.sink.push(self.depth, value),
            None => Err(E::invalid_type(Unexpected::Str(v), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        // A flat array is allowed for every rank, so even a scalar's shape allows one level.
        if self.depth >= self.sink.shape.len().max(1) {
            return Err(A::Error::custom(format_args!(
                "data is nested deeper than shape {:?}",
                self.sink.shape
            )));
        }
        let mut len = 0;
        while seq
            .next_element_seed(Node { sink: &mut *self.sink, depth: self.depth + 1 })?
            .is_some()
        {
            len += 1;
        }
        self.sink.closed(self.depth, len)
    }
}

/// An element type with conversions from JSON values; `None` if the value does not fit.
trait JsonElement: Sized {
    const DTYPE: DType;
    /// The fewest bytes of an element and its separator, as text.
    const TEXT_BYTES_MIN: usize = 2;
    fn tensor(shape: &[usize], elements: &[Self]) -> Result<Tensor, TensorError>;
    fn from_bool(_: bool) -> Option<Self> {
        None
    }
    fn from_u64(_: u64) -> Option<Self> {
        None
    }
    fn from_i64(_: i64) -> Option<Self> {
        None
    }
    fn from_f64(_: f64) -> Option<Self> {
        None
    }
    fn from_str(_: &str) -> Option<Self> {
        None
    }
}

macro_rules! numeric {
    () => {
        const DTYPE: DType = <Self as Element>::DTYPE;
        fn tensor(shape: &[usize], elements: &[Self]) -> Result<Tensor, TensorError> {
            Tensor::from_slice(shape, elements)
        }
    };
}

impl JsonElement for String {
    const DTYPE: DType = DType::Str;
    const TEXT_BYTES_MIN: usize = 3;
    fn tensor(shape: &[usize], elements: &[Self]) -> Result<Tensor, TensorError> {
        Tensor::from_strings(shape, elements)
    }
    fn from_str(v: &str) -> Option<Self> {
        Some(v.to_owned())
    }
}

impl JsonElement for bool {
    numeric!();
    fn from_bool(v: bool) -> Option<Self> {
        Some(v)
    }
}

macro_rules! integers {
    ($($t:ty),*) => { $(impl JsonElement for $t {
        numeric!();
        fn from_u64(v: u64) -> Option<Self> { Self::try_from(v).ok() }
        fn from_i64(v: i64) -> Option<Self> { Self::try_from(v).ok() }
    })* };
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

/// The JSON strings for values without JSON numbers.
const NOT_FINITE: [(&str, f64); 3] =
    [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)];

macro_rules! floats {
    ($($t:ty => $round:expr),* $(,)?) => { $(impl JsonElement for $t {
        numeric!();
        fn from_u64(v: u64) -> Option<Self> { JsonElement::from_f64(nearest_u64(v)) }
        fn from_i64(v: i64) -> Option<Self> { JsonElement::from_f64(nearest_i64(v)) }
        fn from_f64(v: f64) -> Option<Self> {
            let rounded: $t = $round(v);
            // JSON numbers are finite, so an infinite result is an overflow.
            rounded.is_finite().then_some(rounded)
        }
        fn from_str(v: &str) -> Option<Self> {
            let value = NOT_FINITE.iter().find(|(name, _)| *name == v)?.1;
            Some($round(value))
        }
    })* };
}
floats!(f16 => f16::from_f64, bf16 => bf16::from_f64, f32 => nearest_f32, f64 => std::convert::identity);

#[expect(clippy::as_conversions, reason = "rounds to nearest; the caller checks range")]
fn nearest_f32(v: f64) -> f32 {
    v as f32
}

#[expect(clippy::as_conversions, reason = "a float input takes the nearest float")]
fn nearest_u64(v: u64) -> f64 {
    v as f64
}

#[expect(clippy::as_conversions, reason = "a float input takes the nearest float")]
fn nearest_i64(v: i64) -> f64 {
    v as f64
}

/// A float in its JSON form.
struct Float<T>(T);

impl<T: Into<f64> + Serialize + Copy> Serialize for Float<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wide: f64 = self.0.into();
        if wide.is_finite() {
            return self.0.serialize(serializer);
        }
        let same = |(_, value): &&(&str, f64)| value.total_cmp(&wide).is_eq();
        // The string drops a NaN's sign and payload.
        let name = NOT_FINITE.iter().find(same).map_or("NaN", |(name, _)| name);
        serializer.serialize_str(name)
    }
}

/// A tensor's elements as a flat, row-major JSON array.
pub(crate) struct Flat<'a>(pub(crate) &'a Tensor);

impl Serialize for Flat<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.dtype() {
            DType::Bool => self.elements::<bool, _, _>(serializer, |v| v),
            DType::U8 => self.elements::<u8, _, _>(serializer, |v| v),
            DType::U16 => self.elements::<u16, _, _>(serializer, |v| v),
            DType::U32 => self.elements::<u32, _, _>(serializer, |v| v),
            DType::U64 => self.elements::<u64, _, _>(serializer, |v| v),
            DType::I8 => self.elements::<i8, _, _>(serializer, |v| v),
            DType::I16 => self.elements::<i16, _, _>(serializer, |v| v),
            DType::I32 => self.elements::<i32, _, _>(serializer, |v| v),
            DType::I64 => self.elements::<i64, _, _>(serializer, |v| v),
            DType::F16 => self.elements::<f16, _, _>(serializer, |v| Float(v.to_f32())),
            DType::BF16 => self.elements::<bf16, _, _>(serializer, |v| Float(v.to_f32())),
            DType::F32 => self.elements::<f32, _, _>(serializer, Float),
            DType::F64 => self.elements::<f64, _, _>(serializer, Float),
            DType::Str => self.0.strings().map_err(S::Error::custom)?.serialize(serializer),
            other => Err(S::Error::custom(format_args!("dtype {other} has no JSON form"))),
        }
    }
}

impl Flat<'_> {
    fn elements<T: Element, J: Serialize, S: Serializer>(
        &self,
        serializer: S,
        widen: impl Fn(T) -> J,
    ) -> Result<S::Ok, S::Error> {
        let elements = self.0.as_slice::<T>().map_err(S::Error::custom)?;
        let mut seq = serializer.serialize_seq(Some(elements.len()))?;
        for &element in elements {
            seq.serialize_element(&widen(element))?;
        }
        seq.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dtype: DType, shape: &[usize], text: &str) -> Result<Tensor, String> {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        decode("x", dtype, shape, &raw).map_err(|f| f.message)
    }

    #[test]
    fn every_dtype_survives_the_round_trip() {
        for (dtype, text) in [
            (DType::Bool, "[true,false]"),
            (DType::U8, "[0,255]"),
            (DType::U16, "[0,65535]"),
            (DType::U32, "[0,4294967295]"),
            (DType::U64, "[0,18446744073709551615]"),
            (DType::I8, "[-128,127]"),
            (DType::I16, "[-32768,32767]"),
            (DType::I32, "[-2147483648,2147483647]"),
            (DType::I64, "[-9223372036854775808,9223372036854775807]"),
            (DType::F16, "[-1.5,65504.0]"),
            (DType::BF16, "[-1.5,256.0]"),
            (DType::F32, "[-0.1,3.4028235e+38]"),
            (DType::F64, "[0.1,2.2250738585072014e-308]"),
            (DType::F32, r#"["Infinity","-Infinity"]"#),
            (DType::F16, r#"["-Infinity",1.0]"#),
            (DType::F64, r#"["Infinity",-0.0]"#),
            (DType::Str, r#"["ein \"Wort\"","\u0000ü"]"#),
        ] {
            let tensor = read(dtype, &[2], text).unwrap_or_else(|e| panic!("{dtype}: {e}"));
            assert_eq!(tensor.dtype(), dtype);
            assert_eq!(serde_json::to_string(&Flat(&tensor)).unwrap(), text, "{dtype}");
        }
    }

    #[test]
    fn nested_and_flat_data_are_the_same_tensor() {
        let flat = read(DType::F32, &[2, 1, 2], "[1,2,3,4]").unwrap();
        assert_eq!(read(DType::F32, &[2, 1, 2], "[[[1,2]],[[3,4]]]").unwrap(), flat);
        let scalar = read(DType::I64, &[], "7").unwrap();
        assert_eq!(read(DType::I64, &[], "[7]").unwrap(), scalar);
        assert_eq!(read(DType::F32, &[0, 3], "[]").unwrap().len(), 0);
    }

    #[test]
    fn what_is_no_number_has_a_name() {
        let text = r#"["NaN","NaN","Infinity",1.0]"#;
        let values = [f32::NAN, -f32::NAN, f32::INFINITY, 1.0];
        let tensor = Tensor::from_slice([4], &values).unwrap();
        assert_eq!(serde_json::to_string(&Flat(&tensor)).unwrap(), text);
        let back = read(DType::F32, &[4], text).unwrap();
        let back = back.as_slice::<f32>().unwrap();
        assert!(back[0].is_nan() && back[1].is_nan() && back[2..] == values[2..], "{back:?}");
    }

    #[test]
    fn wrong_data_names_expected_and_given() {
        let cases: &[(DType, &[usize], &str, &str)] = &[
            (DType::F32, &[2, 2], "[1,2,3]", "of shape [2, 2] needs 4 elements, data has 3"),
            (DType::F32, &[2], "[1,2,3]", "needs 2 elements, data has 3"),
            (DType::F32, &[2, 2], "[[1,2,3],[4]]", "dimension 1 has 3 entries in data, expected 2"),
            (DType::F32, &[1, 2, 2], "[[1,2],[3,4]]", "nested 2 deep, expected a flat array or 3"),
            (DType::F32, &[4], "[[1,2],[3,4]]", "nested deeper than shape [4]"),
            (DType::F32, &[3], "[1,[2],3]", "nested deeper"),
            (DType::F32, &[2, 1], "[1,[2]]", "data is nested 2 deep"),
            (DType::F32, &[1], "[\"a\"]", "invalid type: string \"a\", expected FP32 or an array"),
            (DType::F32, &[1], "[\"nan\"]", "invalid type: string \"nan\", expected FP32"),
            (DType::I32, &[1], "[\"NaN\"]", "invalid type: string \"NaN\", expected INT32"),
            (DType::Str, &[1], "[1]", "1 is not a value of BYTES"),
            (DType::Str, &[1 << 40], "[\"a\"]", "needs 1099511627776 elements, data has 1"),
            (DType::F32, &[1], "[null]", "invalid type: null, expected FP32"),
            (DType::F32, &[1], "[1e39]", "1e39 is not a value of FP32"),
            (DType::F16, &[1], "[70000]", "70000 is not a value of FP16"),
            (DType::U8, &[1], "[256]", "256 is not a value of UINT8"),
            (DType::U8, &[1], "[-1]", "-1 is not a value of UINT8"),
            (DType::I64, &[1], "[1.5]", "1.5 is not a value of INT64"),
            (DType::Bool, &[1], "[1]", "1 is not a value of BOOL"),
            (DType::F32, &[1], "[true]", "true is not a value of FP32"),
            (DType::F32, &[usize::MAX, 2], "[1]", "more elements than can be addressed"),
            (DType::F32, &[1 << 40], "[1]", "needs 1099511627776 elements, data has 1"),
        ];
        for (dtype, shape, text, expected) in cases {
            let message = read(*dtype, shape, text).unwrap_err();
            assert!(message.contains(expected), "{dtype} {shape:?} {text}: {message}");
        }
    }
}
