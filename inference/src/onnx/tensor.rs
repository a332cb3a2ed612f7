//! Reads stored tensors, whichever field of the message carries the elements.

use super::dtype;
use super::external::Location;
use super::proto::TensorProto;
use super::proto::tensor_proto::DataLocation;
use crate::error::{Error, Result};
use lgp_memory::{Buffer, DType, Shape, Tensor};
use std::path::Path;

/// Reads a tensor; `name` is for errors, `base` is the folder of bytes in other files.
pub(crate) fn read(name: &str, proto: &TensorProto, base: Option<&Path>) -> Result<Tensor> {
    read_with(name, proto, None, base)
}

/// Reads a tensor; `raw` is its raw data, if that was taken out of the message.
pub(crate) fn read_with(
    name: &str,
    proto: &TensorProto,
    raw: Option<Buffer>,
    base: Option<&Path>,
) -> Result<Tensor> {
    let fail = |message: String| Error::Tensor { tensor: name.to_owned(), message };
    let dtype = dtype::from_onnx(i64::from(proto.data_type.unwrap_or(0)))
        .map_err(|given| fail(format!("element type {given} is not supported")))?;
    let dims = proto.dims.iter().map(|&d| {
        usize::try_from(d).map_err(|_| fail(format!("dimension {d}, expected 0 or more")))
    });
    let shape = Shape::new(dims.collect::<Result<Vec<usize>>>()?);
    let expected = packed_len(dtype, &shape).map_err(|e| fail(e.to_string()))?;
    if proto.segment.is_some() {
        return Err(fail("segmented tensors are not supported".into()));
    }
    if dtype == DType::Str {
        return strings(proto, shape).map_err(fail);
    }
    let data = if is_external(proto) {
        Location::parse(name, &proto.external_data)?.read(base, expected)?
    } else if let Some(raw) = raw {
        check_len(dtype, &shape, expected, raw.len()).map_err(fail)?;
        raw
    } else if let Some(raw) = &proto.raw_data {
        check_len(dtype, &shape, expected, raw.len()).map_err(fail)?;
        let mut buffer = Buffer::zeroed(expected)?;
        buffer.copy_from_slice(raw);
        buffer
    } else {
        typed(proto, dtype, &shape, expected).map_err(fail)?
    };
    unpacked(dtype, shape, data).map_err(|e| fail(e.to_string()))
}

/// Bytes of a tensor in a file, where elements of fewer than eight bits share a byte.
fn packed_len(dtype: DType, shape: &Shape) -> lgp_memory::Result<usize> {
    // In memory each element has its own bytes, so this length bounds the packed one.
    let len = shape.byte_len(dtype)?;
    Ok(match dtype.bits() {
        2 => len.div_ceil(4),
        4 => len.div_ceil(2),
        _ => len,
    })
}

fn unpacked(dtype: DType, shape: Shape, data: Buffer) -> lgp_memory::Result<Tensor> {
    if dtype.bits() >= 8 {
        return Tensor::from_buffer(dtype, shape, data);
    }
    let mut out = Buffer::zeroed(shape.byte_len(dtype)?)?;
    lgp_memory::unpack(dtype, &data, &mut out);
    Tensor::from_buffer(dtype, shape, out)
}

/// A tensor of texts, which have a field of their own.
fn strings(proto: &TensorProto, shape: Shape) -> Result<Tensor, String> {
    let texts = proto.string_data.iter().map(|bytes| std::str::from_utf8(bytes));
    let texts: Vec<&str> =
        texts.collect::<Result<_, _>>().map_err(|_| "a string is not UTF-8".to_owned())?;
    if shape.elements() != Ok(texts.len()) {
        return Err(format!("{} strings do not fill shape {:?}", texts.len(), shape.dims()));
    }
    Tensor::from_strings(shape, &texts).map_err(|e| e.to_string())
}

/// Whether the elements lie in another file.
pub(crate) fn is_external(proto: &TensorProto) -> bool {
    proto.data_location == Some(DataLocation::External.into())
}

fn check_len(dtype: DType, shape: &Shape, expected: usize, given: usize) -> Result<(), String> {
    if expected == given {
        return Ok(());
    }
    Err(format!("{given} bytes of data, but {dtype} of shape {:?} takes {expected}", shape.dims()))
}

/// Elements from the typed fields, whose entries are numbers or bytes of packed elements.
fn typed(
    proto: &TensorProto,
    dtype: DType,
    shape: &Shape,
    expected: usize,
) -> Result<Buffer, String> {
    // An entry is one part of a complex number, or one byte of packed elements.
    let part = match dtype {
        DType::Complex64 => 4,
        DType::Complex128 => 8,
        other => other.size(),
    };
    let count = match dtype {
        DType::F32 | DType::Complex64 => proto.float_data.len(),
        DType::F64 | DType::Complex128 => proto.double_data.len(),
        DType::I64 => proto.int64_data.len(),
        DType::U32 | DType::U64 => proto.uint64_data.len(),
        _ => proto.int32_data.len(),
    };
    // The message holds `count` numbers of at least this size: no overflow.
    check_len(dtype, shape, expected, count.saturating_mul(part))?;
    let mut out = Buffer::zeroed(expected).map_err(|e| e.to_string())?;
    match dtype {
        DType::F32 | DType::Complex64 => {
            fill(&mut out, &proto.float_data, |v| Some(v.to_ne_bytes()))
        }
        DType::F64 | DType::Complex128 => {
            fill(&mut out, &proto.double_data, |v| Some(v.to_ne_bytes()))
        }
        DType::I64 => fill(&mut out, &proto.int64_data, |v| Some(v.to_ne_bytes())),
        DType::U64 => fill(&mut out, &proto.uint64_data, |v| Some(v.to_ne_bytes())),
        DType::U32 => {
            fill(&mut out, &proto.uint64_data, |v| u32::try_from(v).ok().map(u32::to_ne_bytes))
        }
        DType::I32 => fill(&mut out, &proto.int32_data, |v| Some(v.to_ne_bytes())),
        DType::I16 => {
            fill(&mut out, &proto.int32_data, |v| i16::try_from(v).ok().map(i16::to_ne_bytes))
        }
        // Half-precision numbers travel as their bit patterns.
        DType::U16 | DType::F16 | DType::BF16 => {
            fill(&mut out, &proto.int32_data, |v| u16::try_from(v).ok().map(u16::to_ne_bytes))
        }
        DType::I8 => {
            fill(&mut out, &proto.int32_data, |v| i8::try_from(v).ok().map(i8::to_ne_bytes))
        }
        // So do floats of eight bits. Elements of fewer bits travel as packed bytes.
        DType::U8
        | DType::Bool
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1
        | DType::U4
        | DType::I4
        | DType::U2
        | DType::I2 => {
            fill(&mut out, &proto.int32_data, |v| u8::try_from(v).ok().map(u8::to_ne_bytes))
        }
        other => return Err(format!("{other} has no field for its elements")),
    }
    .map_err(|value| format!("element {value} does not fit {dtype}"))?;
    Ok(out)
}

/// Writes each element's bytes; the error is an element that does not fit.
fn fill<T: Copy + ToString, const N: usize>(
    out: &mut [u8],
    values: &[T],
    bytes: impl Fn(T) -> Option<[u8; N]>,
) -> Result<(), String> {
    for (slot, &value) in out.chunks_exact_mut(N).zip(values) {
        slot.copy_from_slice(&bytes(value).ok_or_else(|| value.to_string())?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::tensor_proto::DataType;
    use lgp_memory::{Complex, Complex64, F8E4M3FN};

    fn proto(data_type: DataType, dims: &[i64]) -> TensorProto {
        TensorProto {
            data_type: Some(data_type.into()),
            dims: dims.to_vec(),
            ..TensorProto::default()
        }
    }

    #[test]
    fn numbers_come_from_the_field_of_their_type() -> Result<()> {
        let t = TensorProto { float_data: vec![1., 2.], ..proto(DataType::Float, &[2]) };
        assert_eq!(read("t", &t, None)?.as_slice::<f32>()?, [1., 2.]);
        let t = TensorProto { int32_data: vec![-3, 4], ..proto(DataType::Int8, &[1, 2]) };
        assert_eq!(read("t", &t, None)?.as_slice::<i8>()?, [-3, 4]);
        let t = TensorProto { int32_data: vec![0x3c00], ..proto(DataType::Float16, &[1]) };
        assert_eq!(read("t", &t, None)?.as_bytes(), 0x3c00u16.to_ne_bytes());
        let t = TensorProto { uint64_data: vec![7], ..proto(DataType::Uint32, &[]) };
        assert_eq!(read("t", &t, None)?.as_slice::<u32>()?, [7]);
        let t = TensorProto { int64_data: vec![-7], ..proto(DataType::Int64, &[1]) };
        assert_eq!(read("t", &t, None)?.as_slice::<i64>()?, [-7]);
        let t = TensorProto { double_data: vec![0.5], ..proto(DataType::Double, &[1]) };
        assert_eq!(read("t", &t, None)?.as_slice::<f64>()?, [0.5]);
        let t = TensorProto { float_data: vec![1., 2.], ..proto(DataType::Complex64, &[1]) };
        assert_eq!(read("t", &t, None)?.as_slice::<Complex64>()?, [Complex { re: 1f32, im: 2. }]);
        let t = TensorProto { int32_data: vec![0x7e], ..proto(DataType::Float8e4m3fn, &[1]) };
        assert_eq!(read("t", &t, None)?.as_slice::<F8E4M3FN>()?[0].to_f32(), 448.);
        Ok(())
    }

    /// Both fields hold the same bytes, the first element in the lowest bits.
    #[test]
    fn elements_of_few_bits_are_unpacked() -> Result<()> {
        type Case = (DataType, &'static [i64], &'static [u8], &'static [u8]);
        let cases: [Case; 5] = [
            (DataType::Int4, &[3], &[0x87, 0x0f], &[7, 0xf8, 0xff]),
            (DataType::Uint4, &[3, 1], &[0xf1, 0x02], &[1, 15, 2]),
            (DataType::Int2, &[5], &[0x39, 0x01], &[1, 0xfe, 0xff, 0, 1]),
            (DataType::Uint2, &[2, 2], &[0x39], &[1, 2, 3, 0]),
            (DataType::Float4e2m1, &[2], &[0xe2], &[2, 14]),
        ];
        for (data_type, dims, packed, want) in cases {
            let raw_data = Some(prost::bytes::Bytes::from_static(packed));
            let raw = read("t", &TensorProto { raw_data, ..proto(data_type, dims) }, None)?;
            assert_eq!(raw.as_bytes(), want, "{data_type:?}");
            let int32_data = packed.iter().map(|&b| b.into()).collect();
            let typed = read("t", &TensorProto { int32_data, ..proto(data_type, dims) }, None)?;
            assert_eq!(typed, raw, "{data_type:?}");
        }
        Ok(())
    }

    #[test]
    fn damaged_tensors_are_named() {
        let raw = |bytes: &'static [u8]| Some(prost::bytes::Bytes::from_static(bytes));
        let cases = [
            (proto(DataType::Float, &[4, 4]), "0 bytes of data, but f32 of shape [4, 4] takes 64"),
            (proto(DataType::Float, &[-1]), "dimension -1, expected 0 or more"),
            (
                proto(DataType::Float, &[1 << 40, 1 << 40]),
                "shape [1099511627776, 1099511627776] has more elements than can be addressed",
            ),
            (
                proto(DataType::Float, &[1 << 40]),
                "0 bytes of data, but f32 of shape [1099511627776] takes 4398046511104",
            ),
            (proto(DataType::String, &[1]), "0 strings do not fill shape [1]"),
            (
                TensorProto { raw_data: raw(&[0, 2]), ..proto(DataType::Bool, &[2]) },
                "bool data has bytes other than 0 and 1",
            ),
            (
                TensorProto { raw_data: raw(&[0; 3]), ..proto(DataType::Float, &[1]) },
                "3 bytes of data, but f32 of shape [1] takes 4",
            ),
            (
                TensorProto { int32_data: vec![300], ..proto(DataType::Uint8, &[1]) },
                "element 300 does not fit u8",
            ),
        ];
        for (proto, message) in cases {
            let error = read("conv1.weight", &proto, None).unwrap_err().to_string();
            assert_eq!(error, format!("tensor 'conv1.weight': {message}"));
        }
    }
}
