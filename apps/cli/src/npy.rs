//! NumPy's `.npy` files: read into tensors, written from tensors.
//!
//! The files come from anywhere, so nothing is allocated beyond the size of the file itself.

#![deny(clippy::as_conversions)]

use crate::failure::{Failure, Result};
use crate::files;
use lgp_sdk::tensor::{DType, Error as TensorError, Shape, Tensor};
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

/// Reads a tensor: any byte order, C or Fortran order.
///
/// # Errors
/// `file_not_found`, or `npy_invalid` when the file is no array of numbers or booleans.
pub(crate) fn read(path: &Path) -> Result<Tensor> {
    let mut bytes = Vec::new();
    let read = files::open_regular(path)?.read_to_end(&mut bytes);
    read.map_err(|error| Failure::file("read", path, &error))?;
    of_bytes(&bytes, &path.display().to_string())
}

/// The tensor of a `.npy` file's bytes; messages call the file `name`.
///
/// # Errors
/// `npy_invalid`, as [`read`].
pub(crate) fn of_bytes(bytes: &[u8], name: &str) -> Result<Tensor> {
    parse(bytes)
        .map_err(|what| Failure::new("npy_invalid", format!("{name} is not usable: {what}")))
}

/// The header of a `.npy` file, a Python dictionary of three entries.
struct Header {
    dtype: DType,
    /// Whether the byte order is not this machine's.
    swapped: bool,
    fortran_order: bool,
    shape: Shape,
}

impl Header {
    fn parse(text: &str) -> Result<Self, String> {
        let descr = entry(text, "descr")?;
        let kind = descr
            .strip_prefix(['\'', '"'])
            .and_then(|rest| rest.split(['\'', '"']).next())
            .ok_or("it holds records, expected numbers or booleans")?;
        let mut letters = kind.chars();
        let big_endian = match letters.next() {
            Some('<' | '|') => false,
            Some('>') => true,
            Some('=') => cfg!(target_endian = "big"),
            _ => return Err(format!("it holds '{kind}', expected numbers or booleans")),
        };
        let dtype = dtype_of(letters.as_str())
            .ok_or_else(|| format!("it holds '{kind}', expected numbers or booleans"))?;
        let order = entry(text, "fortran_order")?;
        let fortran_order = match (order.starts_with("True"), order.starts_with("False")) {
            (true, false) => true,
            (false, true) => false,
            _ => return Err("fortran_order is neither True nor False".to_owned()),
        };
        let shape = entry(text, "shape")?
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'))
            .ok_or("shape is not a tuple")?
            .0;
        let dims = shape.split(',').map(str::trim).filter(|dim| !dim.is_empty());
        let dims: Vec<usize> = dims
            .map(|dim| dim.parse().map_err(|_| format!("'{dim}' is not a dimension")))
            .collect::<Result<_, _>>()?;
        let swapped = big_endian != cfg!(target_endian = "big");
        Ok(Self { dtype, swapped, fortran_order, shape: Shape::new(dims) })
    }
}

/// The text after a key of the header's dictionary.
fn entry<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let (_, rest) = text.split_once(key).ok_or_else(|| format!("its header has no '{key}'"))?;
    let rest = rest.trim_start_matches(['\'', '"']).trim_start();
    let rest = rest.strip_prefix(':').ok_or_else(|| format!("its header has no '{key}'"))?;
    Ok(rest.trim_start())
}

fn dtype_of(kind: &str) -> Option<DType> {
    Some(match kind {
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "b1" | "?" => DType::Bool,
        _ => return None,
    })
}

/// Splits a file into the header's text and the elements' bytes.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("it does not start like a .npy file")?;
    let truncated = "its header is truncated";
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(truncated)?;
    let (claimed, rest) = match version[0] {
        1 => {
            let (len, rest) = rest.split_first_chunk::<2>().ok_or(truncated)?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
        2 | 3 => {
            let (len, rest) = rest.split_first_chunk::<4>().ok_or(truncated)?;
            (usize::try_from(u32::from_le_bytes(*len)).map_err(|_| truncated)?, rest)
        }
        other => return Err(format!("its format version is {other}, expected 1 to 3")),
    };
    let (head, body) = rest.split_at_checked(claimed).ok_or(truncated)?;
    Ok((std::str::from_utf8(head).map_err(|_| "its header is not text")?, body))
}

fn parse(bytes: &[u8]) -> Result<Tensor, String> {
    let (head, body) = split(bytes)?;
    let Header { dtype, swapped, fortran_order, shape } = Header::parse(head)?;
    let expected = shape.byte_len(dtype).map_err(|error| error.to_string())?;
    if body.len() != expected {
        let (given, dims) = (body.len(), shape.dims());
        return Err(format!("{dtype} of shape {dims:?} takes {expected} bytes, it has {given}"));
    }
    let mut data = Cow::Borrowed(body);
    if swapped {
        data.to_mut().chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    if fortran_order && shape.rank() > 1 {
        data = Cow::Owned(to_row_major(&data, shape.dims(), dtype.size()));
    }
    Tensor::from_bytes(dtype, shape, &data).map_err(|error| error.to_string())
}

/// Reorders column-major elements: walks the output in order and steps through the input.
fn to_row_major(data: &[u8], dims: &[usize], size: usize) -> Vec<u8> {
    // The step in bytes of each axis of the column-major input.
    let mut step = size;
    let steps: Vec<usize> = dims
        .iter()
        .map(|&dim| {
            let this = step;
            step *= dim.max(1);
            this
        })
        .collect();
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0; dims.len()];
    let mut at = 0;
    while out.len() < data.len() {
        out.extend_from_slice(&data[at..at + size]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += steps[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= steps[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    out
}

/// The file of a tensor, in C order. Types that NumPy does not know become wider ones that hold their
/// values, as [`lgp_common::for_numpy`] says.
///
/// # Errors
/// For strings.
pub(crate) fn encode(tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
    let tensor = lgp_common::for_numpy(tensor)?;
    let given = tensor.dtype();
    let descr =
        lgp_common::numpy_name(given).ok_or(TensorError::DType { expected: DType::F32, given })?;
    let dims = tensor.shape().iter().fold(String::new(), |text, dim| text + &format!("{dim}, "));
    let dims =
        if tensor.shape().rank() > 1 { dims.trim_end_matches(", ") } else { dims.trim_end() };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}").into_bytes();
    // The data starts at a multiple of 64 bytes, so that it can be mapped into memory.
    let unpadded = 10 + header.len() + 1;
    header.resize(header.len() + unpadded.next_multiple_of(64) - unpadded, b' ');
    header.push(b'\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    // A tensor would need thousands of dimensions to pass 64 KiB.
    bytes.extend_from_slice(&u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(tensor.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};
    use lgp_memory::F8E4M3FN;

    fn file(descr: &str, fortran: &str, shape: &str, body: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&u16::try_from(header.len()).expect("short").to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn written_tensors_read_back() {
        let tensors = [
            Tensor::from_slice([2, 3], &[1f32, 2., 3., 4., 5., 6.]),
            Tensor::from_slice([3], &[1i64, -2, 3]),
            Tensor::from_slice([2, 0, 2], &[0u8; 0]),
            Tensor::scalar(2.5f64),
            Tensor::from_slice([2], &[true, false]),
            Tensor::from_slice([2], &[f16::from_f32(1.5), f16::NEG_INFINITY]),
        ];
        for tensor in tensors {
            let tensor = tensor.expect("the shape fits");
            let bytes = encode(&tensor).expect("they are no strings");
            let body = split(&bytes).expect("the header is whole").1;
            assert_eq!((bytes.len() - body.len()) % 64, 0, "the data is aligned");
            assert_eq!(parse(&bytes), Ok(tensor));
        }
    }

    #[test]
    fn what_numpy_does_not_know_is_widened() {
        let floats = Tensor::from_slice([2], &[1.5f32, -2.0]).expect("fits");
        let bytes = Tensor::from_slice([2], &[7i8, -2]).expect("fits");
        let f8 = [1.5, -2.].map(|v| F8E4M3FN::from_f32(v, true));
        let i4 = Tensor::from_bytes(DType::I4, [2], bytes.as_bytes());
        for (tensor, wide) in [
            (Tensor::from_slice([2], &[bf16::from_f32(1.5), bf16::from_f32(-2.0)]), &floats),
            (Tensor::from_slice([2], &f8), &floats),
            (i4, &bytes),
        ] {
            let file = encode(&tensor.expect("the shape fits")).expect("it is no string");
            assert_eq!(parse(&file).as_ref(), Ok(wide));
        }
    }

    #[test]
    fn every_dtype_has_a_file() {
        for dtype in DType::ALL {
            let tensor = Tensor::zeros(dtype, [2, 3]).expect("the shape fits");
            assert!(encode(&tensor).is_ok(), "{dtype}");
        }
    }

    #[test]
    fn foreign_orders_are_understood() {
        let big: Vec<u8> = [1i16, 2, 3].iter().flat_map(|v| v.to_be_bytes()).collect();
        assert_eq!(
            parse(&file(">i2", "False", "(3,)", &big)),
            Ok(Tensor::from_slice([3], &[1i16, 2, 3]).expect("fits"))
        );
        // Columns first: element (i, j, k) of shape [2, 3, 2] lies at i + 2j + 6k.
        let expected: Vec<u8> = (0..2u8)
            .flat_map(|i| (0..3u8).flat_map(move |j| (0..2u8).map(move |k| i + 2 * j + 6 * k)))
            .collect();
        let body: Vec<u8> = (0..12).collect();
        assert_eq!(
            parse(&file("|u1", "True", "(2, 3, 2)", &body)),
            Ok(Tensor::from_slice([2, 3, 2], &expected).expect("fits"))
        );
    }

    #[test]
    fn what_is_no_tensor_is_refused() {
        let good = file("<f4", "False", "(2,)", &[0; 8]);
        let mut huge = good.clone();
        huge[6] = 2;
        huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        for (bytes, part) in [
            (Vec::new(), "does not start like"),
            (b"PK\x03\x04".to_vec(), "does not start like"),
            (good[..9].to_vec(), "header is truncated"),
            (good[..30].to_vec(), "header is truncated"),
            (good[..good.len() - 1].to_vec(), "takes 8 bytes, it has 7"),
            ([good.clone(), vec![0]].concat(), "takes 8 bytes, it has 9"),
            (huge, "header is truncated"),
            (file("<f4", "False", "(99999999999, 99999999999)", &[]), "more elements"),
            (file("<c8", "False", "(1,)", &[0; 8]), "expected numbers or booleans"),
            (file("|O", "False", "(1,)", &[0; 8]), "expected numbers or booleans"),
            (file("|b1", "False", "(1,)", &[7]), "bool"),
            (file("<f4", "False", "(-1,)", &[]), "not a dimension"),
            (file("<f4", "Maybe", "(1,)", &[0; 4]), "neither True nor False"),
            (file("<f4", "True", "7", &[0; 4]), "not a tuple"),
        ] {
            let error = parse(&bytes).expect_err("the bytes are no tensor");
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
    }
}
