//! Tensors in frames: descriptions in the header, raw little-endian bytes in the body.

use crate::proto::frame::{BODY_BYTES_MAX, FrameError};
use crate::proto::message::TensorMeta;
use bytes::Bytes;
use lgp_memory::{Buffer, DType, NamedTensor, Shape, Tensor};

/// Most tensors in one frame.
pub(crate) const TENSORS_MAX: usize = 1024;
/// Most dimensions of one tensor.
pub(crate) const RANK_MAX: usize = 32;

/// Element types on the wire. A code is never given to another type.
const CODES: [(u8, DType); 26] = [
    (1, DType::F16),
    (2, DType::BF16),
    (3, DType::F32),
    (4, DType::F64),
    (5, DType::I8),
    (6, DType::I16),
    (7, DType::I32),
    (8, DType::I64),
    (9, DType::U8),
    (10, DType::U16),
    (11, DType::U32),
    (12, DType::U64),
    (13, DType::Bool),
    (14, DType::F8E4M3FN),
    (15, DType::F8E4M3FNUZ),
    (16, DType::F8E5M2),
    (17, DType::F8E5M2FNUZ),
    (18, DType::F8E8M0),
    (19, DType::F4E2M1),
    (20, DType::I4),
    (21, DType::U4),
    (22, DType::I2),
    (23, DType::U2),
    (24, DType::Complex64),
    (25, DType::Complex128),
    // Its first dimension on the wire is the number of bytes of its texts.
    (26, DType::Str),
];

/// The wire's code of an element type; 0 is none.
pub(crate) fn code_of(dtype: DType) -> u8 {
    CODES.iter().find(|(_, d)| *d == dtype).map_or(0, |(code, _)| *code)
}

/// The element type of a code.
pub(crate) fn dtype_of(code: u8) -> Option<DType> {
    CODES.iter().find(|(c, _)| *c == code).map(|(_, dtype)| *dtype)
}

fn tensors_error(reason: impl Into<String>) -> FrameError {
    FrameError::Tensors { reason: reason.into() }
}

/// Describes tensors for the header of a frame whose body they are. Returns the descriptions and
/// the bytes of the body.
pub fn describe(tensors: &[NamedTensor]) -> Result<(Vec<TensorMeta>, usize), FrameError> {
    let (metas, given) = describe_any(tensors)?;
    if given > BODY_BYTES_MAX {
        return Err(FrameError::TooLong { what: "body", given, limit: BODY_BYTES_MAX });
    }
    Ok((metas, given))
}

/// The same for tensors that may be longer than a body.
pub(crate) fn describe_any(
    tensors: &[NamedTensor],
) -> Result<(Vec<TensorMeta>, usize), FrameError> {
    if tensors.len() > TENSORS_MAX {
        let given = tensors.len();
        return Err(tensors_error(format!("{given} tensors, at most {TENSORS_MAX} are accepted")));
    }
    let mut body = 0usize;
    let mut metas = Vec::with_capacity(tensors.len());
    for NamedTensor { name, tensor } in tensors {
        let (dtype, rank) = (tensor.dtype(), tensor.shape().rank());
        let code = CODES.iter().find(|(_, d)| *d == dtype).map(|(code, _)| *code);
        let code =
            code.ok_or_else(|| tensors_error(format!("{name:?}: no wire code for {dtype}")))?;
        if rank > RANK_MAX {
            let what = format!("{name:?} has rank {rank}, at most {RANK_MAX} is accepted");
            return Err(tensors_error(what));
        }
        let wide = |&d: &usize| u64::try_from(d).unwrap_or(u64::MAX);
        let bytes = tensor.packed_len();
        let packed = (dtype == DType::Str).then_some(&bytes);
        let shape = packed.into_iter().chain(tensor.shape().iter()).map(wide).collect();
        metas.push(TensorMeta { name: name.clone(), dtype: code, shape });
        body = body.saturating_add(bytes);
    }
    Ok((metas, body))
}

/// A tensor that is about to be read.
#[derive(Debug)]
pub struct Planned {
    name: String,
    dtype: DType,
    shape: Shape,
    /// Bytes that follow for it.
    pub bytes: usize,
}

/// Checks descriptions against the body's length before anything is allocated.
pub fn plan(metas: Vec<TensorMeta>, body_bytes: usize) -> Result<Vec<Planned>, FrameError> {
    let (planned, left) = plan_first(metas, body_bytes)?;
    if left > 0 {
        return Err(tensors_error(format!("{left} bytes of the body belong to none of them")));
    }
    Ok(planned)
}

/// The same where more follows in the body; returns how many bytes.
pub(crate) fn plan_first(
    metas: Vec<TensorMeta>,
    body_bytes: usize,
) -> Result<(Vec<Planned>, usize), FrameError> {
    if metas.len() > TENSORS_MAX {
        let given = metas.len();
        return Err(tensors_error(format!("{given} tensors, at most {TENSORS_MAX} are accepted")));
    }
    let mut left = body_bytes;
    let mut planned = Vec::with_capacity(metas.len());
    for TensorMeta { name, dtype: code, shape } in metas {
        let dtype = CODES
            .iter()
            .find(|(c, _)| *c == code)
            .map(|(_, dtype)| *dtype)
            .ok_or_else(|| tensors_error(format!("element type {code} is not known")))?;
        let is_packed = dtype == DType::Str;
        let rank = shape.len().saturating_sub(usize::from(is_packed));
        if rank > RANK_MAX {
            return Err(tensors_error(format!("rank {rank}, at most {RANK_MAX} is accepted")));
        }
        let dims: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
        let mut dims = dims.map_err(|e| tensors_error(e.to_string()))?;
        let packed = match is_packed {
            true if dims.is_empty() => return Err(tensors_error("strings without their length")),
            true => Some(dims.remove(0)),
            false => None,
        };
        let shape = Shape::new(dims);
        let least = shape.byte_len(dtype).map_err(|e| tensors_error(e.to_string()))?;
        let bytes = packed.unwrap_or(least);
        if bytes < least {
            let dims = shape.dims();
            return Err(tensors_error(format!("{bytes} bytes of strings of shape {dims:?}")));
        }
        left = left.checked_sub(bytes).ok_or_else(|| {
            tensors_error(format!("they take more than the body's {body_bytes} bytes"))
        })?;
        planned.push(Planned { name, dtype, shape, bytes });
    }
    Ok((planned, left))
}

impl Planned {
    /// Memory for the tensor's bytes.
    ///
    /// Large blocks come zeroed from the system, which backs them only as they are written: a
    /// peer that states a large body and sends none costs address space, not memory.
    pub fn buffer(&self) -> Result<Buffer, FrameError> {
        Buffer::zeroed(self.bytes).map_err(|e| tensors_error(e.to_string()))
    }

    /// The tensor, once its buffer is filled.
    pub fn finish(self, buffer: Buffer) -> Result<NamedTensor, FrameError> {
        let tensor = match self.dtype {
            DType::Str => Tensor::from_packed(self.dtype, self.shape, &buffer),
            _ => Tensor::from_buffer(self.dtype, self.shape, buffer),
        };
        let tensor = tensor.map_err(|e| tensors_error(format!("{:?}: {e}", self.name)))?;
        Ok(NamedTensor::new(self.name, tensor))
    }
}

/// A tensor's bytes for sending, shared with the tensor unless they have to be packed.
pub(crate) fn share(tensor: &Tensor) -> Bytes {
    if tensor.dtype() == DType::Str {
        return tensor.packed().into_owned().into();
    }
    struct Owner(Tensor);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }
    Bytes::from_owner(Owner(tensor.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, tensor: lgp_memory::Result<Tensor>) -> NamedTensor {
        NamedTensor::new(name, tensor.expect("small"))
    }

    #[test]
    fn every_dtype_survives_the_trip() {
        let tensors: Vec<_> = DType::ALL
            .into_iter()
            .map(|d| named(d.name(), Tensor::zeros(d, [2, 3])))
            .chain([
                named("scalar", Tensor::scalar(1.5f32)),
                named("empty", Tensor::zeros(DType::F32, [0, 7])),
                named("values", Tensor::from_slice([3], &[1i64, -2, 3])),
                named("texts", Tensor::from_strings([3], &["ü", "", "a longer one"])),
                named("no text", Tensor::from_strings::<&str>([0, 2], &[])),
            ])
            .collect();
        let (metas, body_bytes) = describe(&tensors).expect("small");
        let body: Vec<u8> = tensors.iter().flat_map(|t| share(&t.tensor)).collect();
        assert_eq!(body.len(), body_bytes);
        let mut rest = body.as_slice();
        for (planned, expected) in plan(metas, body_bytes).expect("own").into_iter().zip(&tensors) {
            let (mine, others) = rest.split_at(planned.bytes);
            let mut buffer = planned.buffer().expect("small");
            buffer.copy_from_slice(mine);
            assert_eq!(&planned.finish(buffer).expect("own"), expected);
            rest = others;
        }
    }

    #[test]
    fn descriptions_that_do_not_fit_the_body_are_refused() {
        let meta =
            |dtype, shape: &[u64]| TensorMeta { name: "x".into(), dtype, shape: shape.to_vec() };
        let cases = [
            (vec![meta(3, &[2])], 7, "tensors: they take more than the body's 7 bytes"),
            (vec![meta(3, &[2])], 9, "tensors: 1 bytes of the body belong to none of them"),
            (vec![meta(3, &[1]), meta(3, &[1])], 4, "tensors: they take more than"),
            (vec![meta(0, &[1])], 1, "tensors: element type 0 is not known"),
            (vec![meta(3, &[u64::MAX])], 4, "tensors: shape"),
            (vec![meta(3, &[1 << 40, 1 << 40])], 4, "tensors: shape"),
            (vec![meta(3, &[1; 33])], 4, "tensors: rank 33, at most 32 is accepted"),
            (vec![meta(26, &[])], 4, "tensors: strings without their length"),
            (vec![meta(26, &[7, 2])], 7, "tensors: 7 bytes of strings of shape"),
            (vec![meta(26, &[9, 2])], 8, "tensors: they take more than"),
            (vec![meta(26, &[u64::MAX, 2])], 8, "tensors: they take more than"),
            (vec![meta(26, &[4, u64::MAX])], 8, "tensors: shape"),
            (vec![meta(3, &[0]); 1025], 0, "tensors: 1025 tensors, at most 1024 are accepted"),
        ];
        for (metas, body, expected) in cases {
            let message = plan(metas, body).expect_err(expected).to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn a_bool_that_is_neither_is_refused() {
        let meta = TensorMeta { name: "mask".into(), dtype: 13, shape: vec![1] };
        let planned = plan(vec![meta], 1).expect("fits").remove(0);
        let mut buffer = planned.buffer().expect("small");
        buffer[0] = 2;
        assert!(planned.finish(buffer).is_err());
    }
}
