//! The protocol's names of element types.

use crate::fault::Fault;
use lgp_sdk::tensor::DType;

/// The name of dtypes that the protocol lacks.
const UNNAMED: &str = "UNSUPPORTED";

/// The dtypes of the protocol.
fn named() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().chain([DType::Str]).filter(|&d| name(d) != UNNAMED)
}

/// The protocol's name of a dtype: `FP32`, `UINT8`, `BOOL`.
pub(crate) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "BOOL",
        DType::U8 => "UINT8",
        DType::U16 => "UINT16",
        DType::U32 => "UINT32",
        DType::U64 => "UINT64",
        DType::I8 => "INT8",
        DType::I16 => "INT16",
        DType::I32 => "INT32",
        DType::I64 => "INT64",
        DType::F16 => "FP16",
        DType::BF16 => "BF16",
        DType::F32 => "FP32",
        DType::F64 => "FP64",
        DType::Str => "BYTES",
        // The protocol has no names for the rest, so they cannot be sent.
        _ => UNNAMED,
    }
}

/// The name of a dtype in Triton's model configuration: `TYPE_FP32`, `TYPE_STRING`.
pub(crate) fn config_name(dtype: DType) -> String {
    match dtype {
        DType::Str => "TYPE_STRING".to_owned(),
        other => format!("TYPE_{}", name(other)),
    }
}

/// The dtype with this protocol name.
pub(crate) fn parse(input: &str, datatype: &str) -> Result<DType, Fault> {
    named().find(|&d| name(d) == datatype).ok_or_else(|| {
        let known: Vec<&str> = named().map(name).collect();
        Fault::bad_input(format!(
            "input '{input}' has unknown datatype '{datatype}', expected one of {}",
            known.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_name_that_reads_back() {
        for dtype in named() {
            assert_eq!(parse("x", name(dtype)), Ok(dtype));
        }
    }

    #[test]
    fn other_names_are_refused() {
        for given in ["STRING", "float32", "fp32", "", UNNAMED] {
            assert_eq!(parse("x", given).unwrap_err().status, 400, "{given}");
        }
    }
}
