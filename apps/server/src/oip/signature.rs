//! Compares a request's inputs with the model's; every mismatch names both.

use super::blobs::Inputs;
use super::datatype;
use crate::fault::Fault;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Dim, NamedTensor, Shape, SymShape};
use std::collections::HashMap;

/// The compared properties of an input.
struct Seen<'a> {
    name: &'a str,
    dtype: DType,
    dims: &'a [usize],
}

impl<'a> From<&'a NamedTensor> for Seen<'a> {
    fn from(input: &'a NamedTensor) -> Self {
        let NamedTensor { name, tensor, .. } = input;
        Self { name, dtype: tensor.dtype(), dims: tensor.shape().dims() }
    }
}

/// Checks names, dtypes, ranks and dimensions; equal symbols must have equal sizes.
pub(crate) fn check(specs: &[ValueSpec], inputs: &[NamedTensor]) -> Result<(), Fault> {
    compare(specs, &inputs.iter().map(Seen::from).collect::<Vec<_>>())
}

/// Like [`check`], for inputs that may include non-text elements.
pub(crate) fn check_all(specs: &[ValueSpec], inputs: &Inputs) -> Result<(), Fault> {
    let blobs = inputs.blobs.iter();
    let blobs = blobs.map(|b| Seen { name: &b.name, dtype: DType::Str, dims: &b.shape });
    compare(specs, &inputs.tensors.iter().map(Seen::from).chain(blobs).collect::<Vec<_>>())
}

/// Like [`check`], for one input whose elements are not parsed yet.
pub(crate) fn check_declared(
    specs: &[ValueSpec],
    (name, dtype, dims): (&str, DType, &[usize]),
) -> Result<(), Fault> {
    let spec = specs.iter().find(|s| s.name == name).ok_or_else(|| unknown(name, specs))?;
    check_one(spec, &Seen { name, dtype, dims }, &mut HashMap::new())
}

fn unknown(name: &str, specs: &[ValueSpec]) -> Fault {
    let known = names(specs);
    Fault::bad_input(format!("input '{name}' is unknown, the model has {known}"))
}

fn compare(specs: &[ValueSpec], inputs: &[Seen<'_>]) -> Result<(), Fault> {
    for (i, input) in inputs.iter().enumerate() {
        if !specs.iter().any(|s| s.name == input.name) {
            return Err(unknown(input.name, specs));
        }
        if inputs[..i].iter().any(|other| other.name == input.name) {
            return Err(Fault::bad_input(format!("input '{}' is given twice", input.name)));
        }
    }
    let mut symbols = HashMap::new();
    for spec in specs {
        let input = inputs.iter().find(|i| i.name == spec.name).ok_or_else(|| {
            Fault::bad_input(format!(
                "input '{}' is missing, the model needs {}",
                spec.name,
                names(specs)
            ))
        })?;
        check_one(spec, input, &mut symbols)?;
    }
    Ok(())
}

fn check_one<'a>(
    spec: &'a ValueSpec,
    input: &Seen<'_>,
    symbols: &mut HashMap<&'a str, usize>,
) -> Result<(), Fault> {
    let name = &spec.name;
    let given = input.dtype;
    if given != spec.ty.dtype {
        return Err(Fault::bad_input(format!(
            "input '{name}' has datatype {}, expected {}",
            datatype::name(given),
            datatype::name(spec.ty.dtype)
        )));
    }
    let Some(expected) = &spec.ty.shape else { return Ok(()) };
    let shape = input.dims;
    if shape.len() != expected.rank() {
        return Err(Fault::bad_input(format!(
            "input '{name}' has rank {} (shape {shape:?}), expected rank {} (shape {expected})",
            shape.len(),
            expected.rank()
        )));
    }
    for (axis, (dim, &size)) in expected.0.iter().zip(shape).enumerate() {
        let wanted = match dim {
            Dim::Known(n) => *n,
            Dim::Symbol(symbol) => *symbols.entry(symbol).or_insert(size),
            Dim::Unknown => size,
        };
        if wanted != size {
            return Err(Fault::bad_input(format!(
                "input '{name}' has shape {shape:?}, expected {expected} with {wanted} at dimension \
                 {axis}"
            )));
        }
    }
    Ok(())
}

/// The shape of a raw body that is a single element.
pub(crate) fn shape_of_one(spec: &ValueSpec) -> Result<Vec<usize>, Fault> {
    let Some(shape) = &spec.ty.shape else { return Ok(vec![1]) };
    let ones: Vec<usize> = shape.0.iter().map(|dim| dim.known().unwrap_or(1)).collect();
    match ones.iter().all(|&dim| dim == 1) {
        true => Ok(ones),
        false => Err(Fault::bad_input(format!(
            "input '{}' is {}, but a raw body is one element: send JSON with binary_data_size",
            spec.name, spec.ty
        ))),
    }
}

/// The shape of a raw body of numbers: the model's, with its one open dimension computed from the length.
pub(crate) fn shape_of_raw(spec: &ValueSpec, bytes: usize) -> Result<Shape, Fault> {
    let unclear = || {
        Fault::bad_input(format!(
            "input '{}' is {}, so a raw body does not tell its shape: send JSON with \
             binary_data_size",
            spec.name, spec.ty
        ))
    };
    let dims = &spec.ty.shape.as_ref().ok_or_else(unclear)?.0;
    let open: Vec<usize> = (0..dims.len()).filter(|&i| dims[i].known().is_none()).collect();
    let fixed: Shape = dims.iter().map(|d| d.known().unwrap_or(1)).collect::<Vec<_>>().into();
    let unit = fixed.byte_len(spec.ty.dtype).map_err(|_| unclear())?;
    let mut shape = fixed.dims().to_vec();
    match open.as_slice() {
        [] if unit == bytes => {}
        [axis] if unit > 0 && bytes.is_multiple_of(unit) => shape[*axis] = bytes / unit,
        [_, _, ..] => return Err(unclear()),
        _ => {
            return Err(Fault::bad_input(format!(
                "input '{}' is {}, which takes {}{unit} bytes, but the raw body has {bytes}",
                spec.name,
                spec.ty,
                if open.is_empty() { "" } else { "a multiple of " }
            )));
        }
    }
    Ok(shape.into())
}

/// The names of a model's inputs or outputs, for messages.
pub(crate) fn names(specs: &[ValueSpec]) -> String {
    let names: Vec<String> = specs.iter().map(|s| format!("'{}'", s.name)).collect();
    names.join(", ")
}

/// Dimensions in the protocol's form: −1 for an open one.
pub(crate) fn wire_dims(shape: Option<&SymShape>) -> Vec<i64> {
    let dims = shape.map(|s| s.0.as_slice()).unwrap_or_default();
    dims.iter().map(|d| d.known().and_then(|n| i64::try_from(n).ok()).unwrap_or(-1)).collect()
}
