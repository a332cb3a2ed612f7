//! Positions in tensors: row-major strides, walks over all positions of a shape, and indices from
//! tensors.

use crate::error::{Error, Result};
use lgp_memory::{DType, TensorView};

/// Elements between neighbours along each axis of a row-major tensor. The strides of a tensor
/// without elements may saturate, because they address nothing.
pub(crate) fn strides(dims: &[usize]) -> Vec<usize> {
    let mut out = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        out[axis - 1] = dims[axis].saturating_mul(out[axis]);
    }
    out
}

/// Calls `f` with the offset, by `strides`, of each position in `dims`, in row-major order.
pub(crate) fn each(dims: &[usize], strides: &[usize], mut f: impl FnMut(usize)) {
    if dims.contains(&0) {
        return;
    }
    let mut at = vec![0usize; dims.len()];
    let mut offset = 0;
    loop {
        f(offset);
        let mut axis = dims.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            offset += strides[axis];
            if at[axis] < dims[axis] {
                break;
            }
            offset -= strides[axis] * dims[axis];
            at[axis] = 0;
        }
    }
}

/// The elements of an i32 or i64 tensor.
pub(crate) fn ints(what: &str, x: &TensorView<'_>) -> Result<Vec<i64>> {
    match x.dtype() {
        DType::I32 => Ok(x.as_slice::<i32>()?.iter().map(|&n| n.into()).collect()),
        DType::I64 => Ok(x.as_slice::<i64>()?.to_vec()),
        other => Err(Error::invalid(format!("{what} has dtype {other}, expected i64"))),
    }
}

/// Fails unless the dtype can hold indices.
pub(crate) fn index_dtype(what: &str, dtype: DType) -> Result<()> {
    if matches!(dtype, DType::I32 | DType::I64) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} has dtype {dtype}, expected i64")))
}

/// The position of an index, which is negative from the back, from the front of an axis.
pub(crate) fn position(index: i64, size: usize) -> Result<usize> {
    let signed = i64::try_from(size).unwrap_or(i64::MAX);
    usize::try_from(if index < 0 { index.saturating_add(signed) } else { index })
        .ok()
        .filter(|&p| p < size)
        .ok_or_else(|| Error::invalid(format!("index {index} is outside an axis of size {size}")))
}

/// Copies runs of `size` bytes to consecutive places of `out`. `from` has the number of each run in
/// `x`.
pub(crate) fn pick(size: usize, x: &[u8], from: &[usize], out: &mut [u8]) {
    fn each<const N: usize>(x: &[u8], from: &[usize], out: &mut [u8]) {
        let (x, out) = (x.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
        out.iter_mut().zip(from).for_each(|(out, &at)| *out = x[at]);
    }
    match size {
        0 => {}
        1 => each::<1>(x, from, out),
        2 => each::<2>(x, from, out),
        4 => each::<4>(x, from, out),
        8 => each::<8>(x, from, out),
        _ => {
            for (out, &at) in out.chunks_exact_mut(size).zip(from) {
                out.copy_from_slice(&x[at * size..][..size]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_walked_in_order() {
        let mut seen = Vec::new();
        each(&[2, 3], &[3, 1], |o| seen.push(o));
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
        seen.clear();
        each(&[3, 2], &[1, 3], |o| seen.push(o));
        assert_eq!(seen, [0, 3, 1, 4, 2, 5]);
        each(&[2, 0], &[0, 1], |_| unreachable!());
        seen.clear();
        each(&[], &[], |o| seen.push(o));
        assert_eq!((seen, strides(&[2, 3, 4])), (vec![0], vec![12, 4, 1]));
    }
}
