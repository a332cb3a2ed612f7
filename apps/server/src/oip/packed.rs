//! Tensors from their raw bytes.
#![deny(clippy::as_conversions)]

use super::datatype;
use crate::fault::Fault;
use lgp_memory::Buffer;
use lgp_sdk::tensor::{DType, Shape, Tensor};

/// Makes a tensor from its raw bytes.
pub(super) fn binary(
    name: &str,
    dtype: DType,
    shape: &[usize],
    bytes: &[u8],
) -> Result<Tensor, Fault> {
    check_len(name, dtype, shape, bytes.len())?;
    Tensor::from_packed(dtype, shape, bytes).map_err(|error| at_fault(name, &error))
}

/// Makes a tensor that takes over the bytes. `dtype` must not be strings.
pub(super) fn numbers(
    name: &str,
    dtype: DType,
    shape: &[usize],
    bytes: Buffer,
) -> Result<Tensor, Fault> {
    check_len(name, dtype, shape, bytes.len())?;
    Tensor::from_buffer(dtype, shape, bytes).map_err(|error| at_fault(name, &error))
}

fn check_len(name: &str, dtype: DType, shape: &[usize], bytes: usize) -> Result<(), Fault> {
    let expected = Shape::from(shape).byte_len(dtype).map_err(|error| at_fault(name, &error))?;
    // Each string carries its own length.
    if dtype == DType::Str || expected == bytes {
        return Ok(());
    }
    let datatype = datatype::name(dtype);
    let what =
        format!("{bytes} bytes of data, but {datatype} of shape {shape:?} takes {expected} bytes");
    Err(Fault::bad_input(format!("input '{name}' has {what}")))
}

fn at_fault(name: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::bad_input(format!("input '{name}': {error}"))
}
