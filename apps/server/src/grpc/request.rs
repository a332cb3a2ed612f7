//! An inference request over gRPC: raw bytes for all inputs, or typed elements.
#![deny(clippy::as_conversions)]

use super::proto::infer_parameter::ParameterChoice;
use super::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use super::proto::{InferParameter, InferTensorContents, ModelInferRequest};
use crate::fault::Fault;
use crate::oip::{self, Data, Given, InferRequest, Inputs, Output, Parameters};
use crate::sequences::Asked;
use crate::shared_memory::{Shared, Taken};
use axum::body::Bytes;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Element, NamedTensor, Shape, Tensor};
use serde_json::Value;
use std::collections::HashMap;

/// Bytes of each string's length prefix in raw contents.
const LENGTH_BYTES: usize = 4;

/// Parses a request for a model with these inputs and outputs.
pub(crate) fn read(
    message: ModelInferRequest,
    shared: Option<&Shared>,
    expected: &[ValueSpec],
    outputs: &[ValueSpec],
) -> Result<InferRequest, Fault> {
    let mut regions = Regions { shared, taken: Taken::default() };
    let inputs = inputs(&message, expected, &mut regions)?;
    let given = Given {
        id: Some(message.id).filter(|id| !id.is_empty()),
        parameters: parameters(message.parameters),
        inputs,
        asked: message.outputs.into_iter().map(output).collect(),
        room: regions.taken.room,
    };
    let request = InferRequest::new(given, shared, outputs)?;
    oip::check_all(expected, &request.inputs)?;
    Ok(request)
}

/// The regions that a request may use, and the room that its inputs take.
struct Regions<'a> {
    shared: Option<&'a Shared>,
    taken: Taken,
}

impl Regions<'_> {
    /// Before strings are parsed: checks that the model takes strings here, and takes room for those in the
    /// contents, or for as many as the raw bytes can hold.
    fn check_strings(
        &mut self,
        input: &InferInputTensor,
        expected: &[ValueSpec],
        bytes: usize,
    ) -> Result<(), Fault> {
        if oip::parse_datatype(&input.name, &input.datatype)? != DType::Str {
            return Ok(());
        }
        let shape = shape(input)?;
        oip::check_declared(expected, (&input.name, DType::Str, &shape))?;
        let Some(shared) = self.shared else { return Ok(()) };
        let typed = input.contents.as_ref().map_or(0, |contents| contents.bytes_contents.len());
        let raw = Shape::from(shape).elements().unwrap_or(usize::MAX).min(bytes / LENGTH_BYTES);
        self.taken.strings(shared, typed.max(raw))
    }
}

/// The number of a message's inputs in shared memory.
pub(super) fn places(message: &ModelInferRequest) -> usize {
    let inputs = message.inputs.iter();
    inputs.filter(|input| input.parameters.contains_key("shared_memory_region")).count()
}

/// The sequence of a message, if any.
pub(super) fn sequence(message: &ModelInferRequest) -> Result<Option<Asked>, Fault> {
    let names = ["sequence_id", "sequence_start", "sequence_end"].into_iter();
    let named = names.filter_map(|name| {
        let found = message.parameters.get(name)?;
        Some((name.to_owned(), value(found.clone())))
    });
    Asked::of(&named.collect())
}

/// Parameters in the form that both protocols share.
fn parameters(given: HashMap<String, InferParameter>) -> Parameters {
    given.into_iter().map(|(name, parameter)| (name, value(parameter))).collect()
}

fn value(parameter: InferParameter) -> Value {
    match parameter.parameter_choice {
        None => Value::Null,
        Some(ParameterChoice::BoolParam(value)) => value.into(),
        Some(ParameterChoice::Int64Param(value)) => value.into(),
        Some(ParameterChoice::Uint64Param(value)) => value.into(),
        Some(ParameterChoice::DoubleParam(value)) => value.into(),
        Some(ParameterChoice::StringParam(value)) => value.into(),
    }
}

fn output(asked: InferRequestedOutputTensor) -> Output {
    Output { name: asked.name, parameters: Some(parameters(asked.parameters)) }
}

/// The inputs of a message. Inputs in shared memory have no raw contents.
fn inputs(
    message: &ModelInferRequest,
    expected: &[ValueSpec],
    regions: &mut Regions<'_>,
) -> Result<Inputs, Fault> {
    let (inputs, all) = (&message.inputs, &message.raw_input_contents);
    let mut raw = all.iter();
    let mut read = Inputs::default();
    for input in inputs {
        let parameters = parameters(input.parameters.clone());
        if let Some((shared, slot)) = oip::slot(&input.name, &parameters, regions.shared)? {
            regions.check_strings(input, expected, slot.bytes())?;
            let data = shared.read(&slot, &mut regions.taken)?;
            read.push(tensor(input, Some(&data))?);
            continue;
        }
        let raw =
            if all.is_empty() { None } else { Some(raw.next().ok_or_else(|| count(message))?) };
        regions.check_strings(input, expected, raw.map_or(0, Bytes::len))?;
        read.push(tensor(input, raw.map(|raw| &raw[..]))?);
    }
    match raw.next() {
        None => Ok(read),
        Some(_) => Err(count(message)),
    }
}

fn count(message: &ModelInferRequest) -> Fault {
    Fault::bad_input(format!(
        "raw_input_contents has {} entries for {} inputs, expected one for each that is not in shared \
         memory, or none",
        message.raw_input_contents.len(),
        message.inputs.len()
    ))
}

fn shape(input: &InferInputTensor) -> Result<Vec<usize>, Fault> {
    let InferInputTensor { name, shape, .. } = input;
    oip::check_rank(name, shape.len())?;
    let read = shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    read.map_err(|_| {
        Fault::bad_input(format!("input '{name}' has shape {shape:?}, expected sizes from 0"))
    })
}

fn tensor(input: &InferInputTensor, raw: Option<&[u8]>) -> Result<Data, Fault> {
    let name = &input.name;
    let dtype = oip::parse_datatype(name, &input.datatype)?;
    let shape = shape(input)?;
    match (raw, &input.contents) {
        (Some(raw), None) => Data::binary(name, dtype, &shape, raw),
        (None, Some(contents)) if dtype == DType::Str => {
            Data::of(name, &shape, contents.bytes_contents.clone())
        }
        (None, Some(contents)) => {
            let tensor = typed(name, dtype, &shape, contents)?;
            Ok(Data::Tensor(NamedTensor::new(name.clone(), tensor)))
        }
        // An empty tensor has neither.
        (None, None) => Data::binary(name, dtype, &shape, &[]),
        (Some(_), Some(_)) => Err(Fault::bad_input(format!(
            "input '{name}' has contents, and the request has raw_input_contents, expected one of \
             them"
        ))),
    }
}

/// A tensor from typed elements, which protobuf widens to its next larger type.
fn typed(
    name: &str,
    dtype: DType,
    shape: &[usize],
    contents: &InferTensorContents,
) -> Result<Tensor, Fault> {
    match dtype {
        DType::Bool => narrow(name, shape, &contents.bool_contents, |&value| Some(value)),
        DType::U8 => {
            narrow(name, shape, &contents.uint_contents, |&value| u8::try_from(value).ok())
        }
        DType::U16 => {
            narrow(name, shape, &contents.uint_contents, |&value| u16::try_from(value).ok())
        }
        DType::U32 => narrow(name, shape, &contents.uint_contents, |&value| Some(value)),
        DType::U64 => narrow(name, shape, &contents.uint64_contents, |&value| Some(value)),
        DType::I8 => narrow(name, shape, &contents.int_contents, |&value| i8::try_from(value).ok()),
        DType::I16 => {
            narrow(name, shape, &contents.int_contents, |&value| i16::try_from(value).ok())
        }
        DType::I32 => narrow(name, shape, &contents.int_contents, |&value| Some(value)),
        DType::I64 => narrow(name, shape, &contents.int64_contents, |&value| Some(value)),
        DType::F32 => narrow(name, shape, &contents.fp32_contents, |&value| Some(value)),
        DType::F64 => narrow(name, shape, &contents.fp64_contents, |&value| Some(value)),
        other => Err(Fault::bad_input(format!(
            "input '{name}' of dtype {other} has no typed contents, expected raw_input_contents"
        ))),
    }
}

fn check_count(name: &str, shape: &[usize], given: usize) -> Result<(), Fault> {
    let expected = Shape::from(shape).elements();
    let expected = expected.map_err(|e| Fault::bad_input(format!("input '{name}': {e}")))?;
    if expected != given {
        return Err(Fault::bad_input(format!(
            "input '{name}' of shape {shape:?} needs {expected} elements, its contents of that type \
             have {given}"
        )));
    }
    Ok(())
}

fn narrow<W, T: Element>(
    name: &str,
    shape: &[usize],
    given: &[W],
    fits: impl Fn(&W) -> Option<T>,
) -> Result<Tensor, Fault> {
    check_count(name, shape, given.len())?;
    let elements: Option<Vec<T>> = given.iter().map(fits).collect();
    let elements = elements.ok_or_else(|| {
        Fault::bad_input(format!("input '{name}' has an element that its datatype does not hold"))
    })?;
    Tensor::from_slice(shape, &elements)
        .map_err(|error| Fault::bad_input(format!("input '{name}': {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(datatype: &str, shape: &[i64]) -> InferInputTensor {
        InferInputTensor {
            name: "x".to_owned(),
            datatype: datatype.to_owned(),
            shape: shape.to_vec(),
            ..InferInputTensor::default()
        }
    }

    #[test]
    fn typed_and_raw_elements_are_the_same_tensor() {
        let contents = InferTensorContents {
            bool_contents: vec![true, false],
            int_contents: vec![-1, 2],
            int64_contents: vec![-1, 2],
            uint_contents: vec![1, 2],
            uint64_contents: vec![1, 2],
            fp32_contents: vec![-1.5, f32::INFINITY],
            fp64_contents: vec![-1.5, 2.0],
            bytes_contents: vec!["ab".into(), "".into()],
        };
        for (datatype, sent) in [
            ("BOOL", vec![1, 0]),
            ("INT8", vec![255, 2]),
            ("INT16", vec![255, 255, 2, 0]),
            ("INT32", vec![255, 255, 255, 255, 2, 0, 0, 0]),
            ("INT64", [(-1i64).to_le_bytes(), 2i64.to_le_bytes()].concat()),
            ("UINT8", vec![1, 2]),
            ("UINT16", vec![1, 0, 2, 0]),
            ("UINT32", vec![1, 0, 0, 0, 2, 0, 0, 0]),
            ("UINT64", [1u64.to_le_bytes(), 2u64.to_le_bytes()].concat()),
            ("FP32", [(-1.5f32).to_le_bytes(), f32::INFINITY.to_le_bytes()].concat()),
            ("FP64", [(-1.5f64).to_le_bytes(), 2f64.to_le_bytes()].concat()),
            ("BYTES", [&[2, 0, 0, 0], &b"ab"[..], &[0; 4]].concat()),
        ] {
            let typed =
                InferInputTensor { contents: Some(contents.clone()), ..input(datatype, &[2]) };
            let typed = tensor(&typed, None).and_then(Data::tensor).expect(datatype);
            let raw = tensor(&input(datatype, &[2]), Some(&sent));
            let raw = raw.and_then(Data::tensor).expect(datatype);
            assert_eq!(typed.tensor, raw.tensor, "{datatype}");
            assert_eq!(typed.tensor.packed().into_owned(), sent, "{datatype}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let ints = |values: &[i32]| {
            Some(InferTensorContents { int_contents: values.to_vec(), ..Default::default() })
        };
        let texts = |texts: &[&'static [u8]]| {
            let bytes_contents = texts.iter().map(|text| Bytes::from_static(text)).collect();
            Some(InferTensorContents { bytes_contents, ..Default::default() })
        };
        for (given, raw, part) in [
            (input("FP32", &[2]), Some(&[0u8; 7][..]), "takes 8 bytes"),
            (input("BYTES", &[2]), Some(&[0; 5][..]), "at least 4 bytes each"),
            (
                InferInputTensor { contents: texts(&[b"a"]), ..input("BYTES", &[2]) },
                None,
                "needs 2",
            ),
            (
                InferInputTensor { contents: texts(&[&[255]]), ..input("BYTES", &[1]) },
                None,
                "UTF-8",
            ),
            (input("FP32", &[-1]), Some(&[][..]), "sizes from 0"),
            (input("FP32", &[i64::MAX, 8]), Some(&[][..]), "input 'x'"),
            (input("FP32", &[1; 17]), Some(&[][..]), "17 dimensions"),
            (input("FP32", &[2]), None, "takes 8 bytes"),
            (input("FP99", &[2]), None, "unknown datatype"),
            (InferInputTensor { contents: ints(&[1]), ..input("INT8", &[2]) }, None, "needs 2"),
            (
                InferInputTensor { contents: ints(&[1, 300]), ..input("INT8", &[2]) },
                None,
                "not hold",
            ),
            (InferInputTensor { contents: ints(&[1, 2]), ..input("FP32", &[2]) }, None, "have 0"),
            (
                InferInputTensor { contents: ints(&[1, 2]), ..input("FP16", &[2]) },
                None,
                "raw_input",
            ),
            (
                InferInputTensor { contents: ints(&[1]), ..input("INT8", &[1]) },
                Some(&[1][..]),
                "one of",
            ),
        ] {
            let fault = tensor(&given, raw).and_then(Data::tensor).expect_err(part);
            assert!(fault.message.contains(part), "{}", fault.message);
        }
        let message = ModelInferRequest {
            inputs: vec![input("UINT8", &[1])],
            raw_input_contents: vec![vec![1].into(), vec![2].into()],
            ..ModelInferRequest::default()
        };
        let mut none = Regions { shared: None, taken: Taken::default() };
        assert!(
            inputs(&message, &[], &mut none)
                .expect_err("two")
                .message
                .contains("2 entries for 1 inputs")
        );
    }
}
