//! Reads sparse tensors, stored as values and their positions, as dense ones.

use super::proto::SparseTensorProto;
use super::tensor;
use crate::error::{Error, Result};
use lgp_memory::{DType, Shape, Tensor};
use std::path::Path;

/// A sparse tensor may have this many elements for each value that the file holds, and
/// [`ELEMENTS_BESIDE`] more: a small file must not ask for much memory.
const ELEMENTS_PER_VALUE: usize = 4096;
const ELEMENTS_BESIDE: usize = 1 << 16;

/// Reads a sparse tensor as a dense one; the rest is zero.
pub(crate) fn read(name: &str, proto: &SparseTensorProto, base: Option<&Path>) -> Result<Tensor> {
    let fail = |message: String| Error::Tensor { tensor: name.to_owned(), message };
    let (Some(values), Some(indices)) = (&proto.values, &proto.indices) else {
        return Err(fail("a sparse tensor lacks values or indices".into()));
    };
    let values = tensor::read(name, values, base)?;
    let indices = tensor::read(name, indices, base)?;
    let dims = proto.dims.iter().map(|&d| {
        usize::try_from(d).map_err(|_| fail(format!("dimension {d}, expected 0 or more")))
    });
    let shape = Shape::new(dims.collect::<Result<Vec<usize>>>()?);
    let elements = shape.elements().map_err(|e| fail(e.to_string()))?;
    let most = values.len().saturating_mul(ELEMENTS_PER_VALUE).saturating_add(ELEMENTS_BESIDE);
    if elements > most {
        return Err(fail(format!(
            "{elements} elements with {} stored, expected at most {most}",
            values.len()
        )));
    }
    let at = positions(&indices, values.len(), &shape).map_err(fail)?;
    let mut out = Tensor::zeros(values.dtype(), shape)?;
    let size = values.dtype().size();
    let bytes = out.as_bytes_mut()?;
    for (at, value) in at.into_iter().zip(values.as_bytes().chunks_exact(size)) {
        if let Some(slot) = bytes.get_mut(at * size..(at + 1) * size) {
            slot.copy_from_slice(value);
        }
    }
    Ok(out)
}

/// The row-major position of each value. The file gives it, or a coordinate for each axis.
fn positions(indices: &Tensor, count: usize, shape: &Shape) -> Result<Vec<usize>, String> {
    let rank = shape.rank();
    let dims = indices.shape().dims();
    if indices.dtype() != DType::I64 || (dims != [count] && dims != [count, rank]) {
        return Err(format!(
            "indices are {} {dims:?}, expected i64 [{count}] or [{count}, {rank}]",
            indices.dtype()
        ));
    }
    let given = indices.as_slice::<i64>().map_err(|e| e.to_string())?;
    let inside = |i: i64, size: usize| {
        usize::try_from(i)
            .ok()
            .filter(|&i| i < size)
            .ok_or_else(|| format!("index {i} is outside a size of {size}"))
    };
    if dims.len() == 1 {
        let elements = shape.elements().map_err(|e| e.to_string())?;
        return given.iter().map(|&i| inside(i, elements)).collect();
    }
    if rank == 0 {
        return Ok(vec![0; count.min(1)]);
    }
    let position = |coordinates: &[i64]| {
        coordinates.iter().zip(shape.dims()).try_fold(0, |at, (&i, &size)| {
            // A position is below the element count, because each coordinate is inside its axis.
            inside(i, size).map(|i| at * size + i)
        })
    };
    given.chunks_exact(rank).map(position).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::TensorProto;
    use crate::onnx::proto::tensor_proto::DataType;

    fn sparse(dims: &[i64], values: &[f32], index_dims: &[i64], at: &[i64]) -> Result<Tensor> {
        let values = TensorProto {
            data_type: Some(DataType::Float.into()),
            dims: vec![i64::try_from(values.len()).unwrap()],
            float_data: values.to_vec(),
            ..TensorProto::default()
        };
        let indices = TensorProto {
            data_type: Some(DataType::Int64.into()),
            dims: index_dims.to_vec(),
            int64_data: at.to_vec(),
            ..TensorProto::default()
        };
        let proto =
            SparseTensorProto { values: Some(values), indices: Some(indices), dims: dims.to_vec() };
        read("w", &proto, None)
    }

    #[test]
    fn values_go_where_their_indices_say() -> Result<()> {
        let want = Tensor::from_slice([2, 3], &[0f32, 5., 0., 0., 0., 6.])?;
        assert_eq!(sparse(&[2, 3], &[5., 6.], &[2], &[1, 5])?, want);
        assert_eq!(sparse(&[2, 3], &[5., 6.], &[2, 2], &[0, 1, 1, 2])?, want);
        assert_eq!(sparse(&[4], &[], &[0], &[])?, Tensor::zeros(DType::F32, [4])?);
        Ok(())
    }

    #[test]
    fn damaged_ones_are_refused() {
        for (made, message) in [
            (sparse(&[2], &[1.], &[1], &[2]), "index 2 is outside a size of 2"),
            (sparse(&[2, 2], &[1.], &[1, 2], &[0, -1]), "index -1 is outside a size of 2"),
            (sparse(&[2], &[1.], &[2], &[0, 1]), "indices are i64 [2], expected i64 [1] or [1, 1]"),
            (
                sparse(&[1 << 40], &[1.], &[1], &[0]),
                "1099511627776 elements with 1 stored, expected at most 69632",
            ),
            (sparse(&[0], &[1.], &[1, 1], &[0]), "index 0 is outside a size of 0"),
        ] {
            assert_eq!(made.unwrap_err().to_string(), format!("tensor 'w': {message}"));
        }
        let empty = read("w", &SparseTensorProto::default(), None).unwrap_err().to_string();
        assert_eq!(empty, "tensor 'w': a sparse tensor lacks values or indices");
    }
}
