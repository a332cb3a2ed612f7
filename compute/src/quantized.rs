//! Shared parts of quantised dtypes: their ranges, and the scale of each element.

use crate::args::axis;
use crate::error::{Error, Result};
use crate::op::ValueInfo;
use crate::reorder::moved_axis;
use lgp_memory::{DType, TensorView};
use std::borrow::Cow;

/// The least and the largest value of a quantised dtype.
pub(crate) fn range(dtype: DType) -> Option<(i32, i32)> {
    Some(match dtype {
        DType::I8 => (-128, 127),
        DType::U8 => (0, 255),
        DType::I16 => (-32768, 32767),
        DType::U16 => (0, 65535),
        DType::I4 => (-8, 7),
        DType::U4 => (0, 15),
        DType::I2 => (-2, 1),
        DType::U2 => (0, 3),
        _ => return None,
    })
}

/// Whether a dtype is a float that values can be quantised to; quantising rounds as a cast does.
pub(crate) fn small_float(dtype: DType) -> bool {
    use DType::{F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ};
    matches!(dtype, F4E2M1 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ)
}

/// The meaning of a tensor of bytes as numbers: `(q − zero) · scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quant {
    /// i8 or u8.
    pub dtype: DType,
    /// The step between neighbouring numbers.
    pub scale: f32,
    /// The byte that stands for 0.
    pub zero: i32,
}

impl Quant {
    /// The byte that turns a byte of this dtype into u8 by xor, and u8 into this dtype.
    pub(crate) fn flip(self) -> u8 {
        if self.dtype == DType::I8 { 0x80 } else { 0 }
    }

    /// The zero point of the tensor as u8.
    pub(crate) fn unsigned_zero(self) -> i32 {
        if self.dtype == DType::I8 { self.zero + 128 } else { self.zero }
    }

    /// The u8 byte that a number is quantised to.
    pub(crate) fn unsigned(self, x: f32) -> i32 {
        let q = (x / self.scale).clamp(-1e6, 1e6).round_ties_even();
        #[allow(clippy::cast_possible_truncation, reason = "clamped before")]
        (q as i32 + self.unsigned_zero()).clamp(0, 255)
    }

    /// Fails unless this describes bytes with a sensible scale.
    pub(crate) fn check(self) -> Result<()> {
        let in_range = matches!(self.dtype, DType::I8 | DType::U8)
            && range(self.dtype).is_some_and(|(low, high)| (low..=high).contains(&self.zero));
        if in_range && self.scale.is_normal() && self.scale > 0. {
            return Ok(());
        }
        Err(Error::unsupported(format!("{self:?}")))
    }
}

/// The elements of a weight as i8 around 0. All its zero points must be the middle of the range.
pub(crate) fn centred<'a>(weight: &TensorView<'a>, zero: &[i32]) -> Result<Cow<'a, [i8]>> {
    let (middle, centred) = match weight.dtype() {
        DType::I8 => (0, Cow::Borrowed(weight.as_slice()?)),
        DType::U8 => {
            let moved = weight.as_slice::<u8>()?.iter().map(|w| (w ^ 0x80).cast_signed());
            (128, moved.collect())
        }
        other => return Err(Error::unsupported(format!("weights of dtype {other}"))),
    };
    if zero.iter().all(|&z| z == middle) {
        Ok(centred)
    } else {
        Err(Error::unsupported(format!("zero points of weights other than {middle}")))
    }
}

/// The elements of an integer tensor as i32, for zero points and weights.
pub(crate) fn widened(x: &TensorView<'_>) -> Result<Vec<i32>> {
    Ok(match x.dtype() {
        DType::I8 => x.as_slice::<i8>()?.iter().map(|&q| q.into()).collect(),
        DType::U8 => x.as_slice::<u8>()?.iter().map(|&q| q.into()).collect(),
        DType::I16 => x.as_slice::<i16>()?.iter().map(|&q| q.into()).collect(),
        DType::U16 => x.as_slice::<u16>()?.iter().map(|&q| q.into()).collect(),
        DType::I32 => x.as_slice::<i32>()?.to_vec(),
        // Each element takes a byte in memory.
        DType::I4 | DType::I2 => x.as_bytes().iter().map(|q| q.cast_signed().into()).collect(),
        DType::U4 | DType::U2 => x.as_bytes().iter().map(|&q| q.into()).collect(),
        other => return Err(Error::unsupported(format!("dtype {other}"))),
    })
}

/// The scale of each element. The tensor is `outer` times `along` lines of `inner` elements, and
/// neighbouring lines may share their scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granularity {
    pub(crate) outer: usize,
    pub(crate) along: usize,
    pub(crate) inner: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tensor,
    Axis,
    Blocks(usize),
}

impl Granularity {
    /// From the shapes of a tensor and its scales. With a `block` of 0 the shapes give the block.
    pub(crate) fn new(x: &[usize], scale: &[usize], at: i64, block: usize) -> Result<Self> {
        let elements = x.iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let single = scale.iter().all(|&d| d == 1);
        if scale.is_empty() || single && (scale.len() == 1 || scale.len() != x.len()) {
            return Ok(Self { outer: 1, along: 1, inner: elements, kind: Kind::Tensor });
        }
        let at = axis(at, x.len())?;
        let (outer, along, inner) = crate::movement::around(x, at);
        let wrong = |expected: String| {
            let message = format!(
                "the scale has shape {scale:?}, expected {expected} for an input of shape {x:?}"
            );
            Error::invalid(message)
        };
        if scale.len() == 1 && (x.len() != 1 || block == 0) {
            if scale[0] != along {
                return Err(wrong(format!("[{along}]")));
            }
            return Ok(Self { outer, along, inner, kind: Kind::Axis });
        }
        let others = scale.len() == x.len()
            && scale.iter().zip(x).enumerate().all(|(i, (s, x))| i == at || s == x);
        let blocks = scale.get(at).copied().unwrap_or(0);
        let size = if block == 0 { along.div_ceil(blocks.max(1)) } else { block };
        if !others || size == 0 || along.div_ceil(size) != blocks {
            return Err(wrong(format!("one scale for {block} elements along axis {at}")));
        }
        Ok(Self { outer, along, inner, kind: Kind::Blocks(size) })
    }

    /// The number of an element's scale.
    pub(crate) fn scale(&self, at: usize) -> usize {
        let scales = self.scales(at / self.inner);
        if scales.len() == 1 { scales.start } else { scales.start + at % self.inner }
    }

    /// The number of element `i`'s scale as an expression of kernels, and the values of `inner`,
    /// `along` and `block` in it.
    pub(crate) fn expression(&self) -> (&'static str, [usize; 3]) {
        let sizes = |block| [self.inner, self.along, block];
        match self.kind {
            Kind::Tensor => ("0", sizes(1)),
            Kind::Axis => ("(i) / inner % along", sizes(1)),
            Kind::Blocks(size) => (
                "((i) / inner / along * ((along + block - 1) / block) \
                 + (i) / inner % along / block) * inner + (i) % inner",
                sizes(size),
            ),
        }
    }

    /// The numbers of a line's scales: one for all its elements, or one for each.
    pub(crate) fn scales(&self, line: usize) -> std::ops::Range<usize> {
        match self.kind {
            Kind::Tensor => 0..1,
            Kind::Axis => {
                let at = line % self.along;
                at..at + 1
            }
            Kind::Blocks(size) => {
                let (outer, at) = (line / self.along, line % self.along);
                let start = (outer * self.along.div_ceil(size) + at / size) * self.inner;
                start..start + self.inner
            }
        }
    }
}

/// The axis of the scales once the axes of x, the first input, are in `order`. `None` unless the
/// second input has one scale for each position of `axis`, without blocks.
pub(crate) fn moved_scales(
    order: &[usize],
    axis: i64,
    block: usize,
    inputs: &[Option<&ValueInfo>],
) -> Option<i64> {
    let rank = |i: usize| inputs.get(i).copied().flatten().and_then(ValueInfo::rank);
    let fits = block == 0 && rank(0) == Some(order.len()) && rank(1) == Some(1);
    moved_axis(order, axis).filter(|_| fits)
}

/// Fails unless a zero point has its scale's shape, where both shapes are known.
pub(crate) fn same_shape(scale: &ValueInfo, zero: &ValueInfo) -> Result<()> {
    let (Some(scale), Some(zero)) = (scale.ty.concrete_shape(), zero.ty.concrete_shape()) else {
        return Ok(());
    };
    // Shapes of one element agree at any rank.
    if scale == zero || scale.iter().chain(zero.iter()).all(|&d| d == 1) {
        return Ok(());
    }
    let message =
        format!("the zero point has shape {:?}, expected {:?}", zero.dims(), scale.dims());
    Err(Error::invalid(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a line has one range of scales")]
    fn scales_of_lines() {
        let of = |x: &[usize], scale: &[usize], axis, block| {
            let g = Granularity::new(x, scale, axis, block).unwrap();
            (0..g.outer * g.along).map(|line| g.scales(line)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[2, 3], &[], 1, 0), [0..1]);
        assert_eq!(of(&[2, 3], &[1], 1, 0), [0..1]);
        assert_eq!(of(&[2, 2], &[2], -1, 0), [0..1, 1..2, 0..1, 1..2]);
        assert_eq!(of(&[2, 2], &[2], 0, 0), [0..1, 1..2]);
        assert_eq!(of(&[3, 2], &[2, 2], 0, 2), [0..2, 0..2, 2..4]);
        for (x, scale, axis, block) in
            [(&[2, 3][..], &[2][..], 1, 0), (&[3, 2], &[2, 2], 0, 1), (&[3], &[3], 1, 0)]
        {
            assert!(Granularity::new(x, scale, axis, block).is_err(), "{x:?} {scale:?}");
        }
    }
}
