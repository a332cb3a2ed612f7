//! ONNX's numbers for element types.

use super::proto::tensor_proto::DataType;
use lgp_memory::DType;

/// Each dtype beside its ONNX number.
const TABLE: [(DType, DataType); 26] = [
    (DType::F16, DataType::Float16),
    (DType::BF16, DataType::Bfloat16),
    (DType::F32, DataType::Float),
    (DType::F64, DataType::Double),
    (DType::I8, DataType::Int8),
    (DType::I16, DataType::Int16),
    (DType::I32, DataType::Int32),
    (DType::I64, DataType::Int64),
    (DType::U8, DataType::Uint8),
    (DType::U16, DataType::Uint16),
    (DType::U32, DataType::Uint32),
    (DType::U64, DataType::Uint64),
    (DType::Bool, DataType::Bool),
    (DType::F8E4M3FN, DataType::Float8e4m3fn),
    (DType::F8E4M3FNUZ, DataType::Float8e4m3fnuz),
    (DType::F8E5M2, DataType::Float8e5m2),
    (DType::F8E5M2FNUZ, DataType::Float8e5m2fnuz),
    (DType::F8E8M0, DataType::Float8e8m0),
    (DType::F4E2M1, DataType::Float4e2m1),
    (DType::I4, DataType::Int4),
    (DType::U4, DataType::Uint4),
    (DType::I2, DataType::Int2),
    (DType::U2, DataType::Uint2),
    (DType::Complex64, DataType::Complex64),
    (DType::Complex128, DataType::Complex128),
    (DType::Str, DataType::String),
];

/// The dtype of an ONNX number; the error names a type that has no dtype here.
pub(crate) fn from_onnx(code: i64) -> Result<DType, String> {
    let data_type = i32::try_from(code).ok().and_then(|c| DataType::try_from(c).ok());
    let Some(data_type) = data_type else {
        return Err(format!("number {code}"));
    };
    TABLE
        .iter()
        .find(|(_, t)| *t == data_type)
        .map(|(d, _)| *d)
        .ok_or_else(|| data_type.as_str_name().to_lowercase())
}

/// The ONNX number of a type given by name, as in the first opsets.
pub(crate) fn number(name: &str) -> Option<i64> {
    DataType::from_str_name(name).map(|t| i64::from(i32::from(t)))
}

/// The ONNX number of a dtype.
pub(crate) fn to_onnx(dtype: DType) -> Option<i32> {
    TABLE.iter().find(|(d, _)| *d == dtype).map(|(_, t)| i32::from(*t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_number_and_comes_back() {
        for dtype in DType::ALL {
            assert_eq!(from_onnx(to_onnx(dtype).unwrap().into()), Ok(dtype));
        }
        assert_eq!(from_onnx(8), Ok(DType::Str));
        assert_eq!(from_onnx(1 << 40), Err("number 1099511627776".into()));
    }
}
