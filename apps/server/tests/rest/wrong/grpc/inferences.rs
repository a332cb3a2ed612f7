//! Inference requests with one wrong field.

use crate::grpc::request;
use lgp_server::inference::infer_parameter::ParameterChoice;
use lgp_server::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use lgp_server::inference::*;
use std::collections::HashMap;

pub(super) fn good() -> ModelInferRequest {
    request("relu", [1.0, 2.0])
}

pub(super) fn input(change: impl FnOnce(&mut InferInputTensor)) -> ModelInferRequest {
    let mut message = good();
    change(&mut message.inputs[0]);
    message
}

pub(super) fn parameters(name: &str, value: ParameterChoice) -> HashMap<String, InferParameter> {
    [(name.to_owned(), InferParameter { parameter_choice: Some(value) })].into()
}

fn output(name: &str, parameters: HashMap<String, InferParameter>) -> ModelInferRequest {
    let asked = InferRequestedOutputTensor { name: name.to_owned(), parameters };
    ModelInferRequest { outputs: vec![asked], ..good() }
}

fn raw(all: &[usize]) -> ModelInferRequest {
    let raw_input_contents = all.iter().map(|&bytes| vec![0; bytes].into()).collect();
    ModelInferRequest { raw_input_contents, ..good() }
}

fn contents(contents: InferTensorContents, keep_raw: bool) -> ModelInferRequest {
    let mut message = input(|input| input.contents = Some(contents));
    if !keep_raw {
        message.raw_input_contents.clear();
    }
    message
}

/// Each request, with a part of its error message.
pub(super) fn inferences() -> Vec<(ModelInferRequest, &'static str)> {
    use ParameterChoice::{BoolParam as B, DoubleParam as D, Int64Param as I, StringParam as S};
    let text = |text: &str| text.to_owned();
    let of_request =
        |name, value| ModelInferRequest { parameters: parameters(name, value), ..good() };
    let of_input = |name, value| input(move |input| input.parameters = parameters(name, value));
    let model = |name: &str| ModelInferRequest { model_name: text(name), ..good() };
    let version = |version: &str| ModelInferRequest { model_version: text(version), ..good() };
    let shape = |shape: &[i64]| input(|input| input.shape = shape.to_vec());
    let none = InferTensorContents::default;
    let y = |name, value| output("y", parameters(name, value));
    let mut twice = output("y", HashMap::new());
    twice.outputs.push(twice.outputs[0].clone());
    let mut two = good();
    two.inputs.push(two.inputs[0].clone());
    two.raw_input_contents.push(two.raw_input_contents[0].clone());
    vec![
        (model(""), "model name"),
        (model("re\nlu"), "model name"),
        (model("re\0lu"), "model name"),
        (model("../relu"), "model name"),
        (model(&"x".repeat(100_000)), "model name"),
        (version("0"), "version"),
        (version("-1"), "version"),
        (version("1.5"), "version"),
        (version("18446744073709551616"), "version"),
        (version(&"1".repeat(100_000)), "version"),
        (of_request("priority", I(-1)), "priority"),
        (of_request("priority", D(1.5)), "priority"),
        (of_request("priority", B(true)), "priority"),
        (of_request("priority", S("x".repeat(100_000))), "priority"),
        (of_request("timeout", S(text("1"))), "timeout"),
        (of_request("binary_data_output", I(1)), "binary_data_output"),
        (ModelInferRequest { inputs: Vec::new(), ..raw(&[]) }, "'x' is missing"),
        (two, "twice"),
        (input(|input| input.name = text("")), "unknown"),
        (input(|input| input.name = text("x\n")), "unknown"),
        (input(|input| input.name = "x".repeat(100_000)), "unknown"),
        (input(|input| input.datatype = text("")), "datatype"),
        (input(|input| input.datatype = text("fp32")), "datatype"),
        (input(|input| input.datatype = "x".repeat(100_000)), "datatype"),
        (input(|input| input.datatype = text("INT32")), "datatype"),
        (shape(&[]), "shape []"),
        (shape(&[-1, 2]), "shape [-1, 2]"),
        (shape(&[i64::MIN, 2]), "shape"),
        (shape(&[i64::MAX, i64::MAX]), "input 'x'"),
        (shape(&[1 << 32, 1 << 32]), "input 'x'"),
        (shape(&[0, 2]), "shape [0, 2]"),
        (shape(&[2, 1]), "shape [2, 1]"),
        (shape(&[1; 17]), "17 dimensions"),
        (shape(&vec![1; 1_000_000]), "1000000 dimensions"),
        (raw(&[7]), "7 bytes"),
        (raw(&[9]), "9 bytes"),
        (raw(&[0]), "0 bytes"),
        (raw(&[8, 8]), "2 entries for 1 inputs"),
        (raw(&[]), "0 bytes"),
        (contents(none(), false), "have 0"),
        (contents(none(), true), "expected one of"),
        (contents(InferTensorContents { int_contents: vec![1, 2], ..none() }, false), "have 0"),
        (contents(InferTensorContents { fp32_contents: vec![1.0], ..none() }, false), "have 1"),
        (contents(InferTensorContents { fp32_contents: vec![1.0; 3], ..none() }, false), "have 3"),
        (of_input("shared_memory_region", I(3)), "shared_memory_region"),
        (of_input("shared_memory_region", S(text("r"))), "shared_memory_byte_size"),
        (of_input("shared_memory_byte_size", S(text("8"))), "shared_memory_byte_size"),
        (of_input("shared_memory_offset", I(-8)), "shared_memory_offset"),
        (output("", HashMap::new()), "output '' is unknown"),
        (output("y\0", HashMap::new()), "is unknown"),
        (output(&"y".repeat(100_000), HashMap::new()), "is unknown"),
        (twice, "twice"),
        (y("classification", I(-1)), "classification"),
        (y("classification", S(text("1"))), "classification"),
        (y("binary_data", I(1)), "binary_data"),
        (y("shared_memory_region", B(true)), "shared_memory_region"),
        (y("shared_memory_offset", D(0.5)), "shared_memory_offset"),
    ]
}
