//! Weights that are stored in blocks of a few bits.

mod device;
mod format;
#[cfg(test)]
mod tests;

use crate::args::{optional, output, rank, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::Decoder;
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

pub use format::UnpackBits;

impl UnpackBits {
    /// Fails unless the attributes and the numbers of elements fit each other.
    pub(crate) fn check(&self, inputs: &[Option<TensorView<'_>>]) -> Result<()> {
        let elements = |given: usize, per: usize, what: &str| {
            let expected = self.n.checked_mul(per);
            if expected == Some(given) {
                return Ok(());
            }
            Err(Error::invalid(format!("{what} have {given} elements, expected {expected:?}")))
        };
        let bytes = self.block.saturating_mul(self.bits).div_ceil(8);
        let packed = required(inputs, 0)?;
        elements(packed.len(), self.blocks().saturating_mul(bytes), "packed weights")?;
        elements(required(inputs, 1)?.len(), self.blocks(), "scales")?;
        match optional(inputs, 2) {
            Some(zero) if zero.dtype() == DType::U8 => {
                let row = self.blocks().saturating_mul(self.bits).div_ceil(8);
                elements(zero.len(), row, "packed zero points")
            }
            Some(zero) => elements(zero.len(), self.blocks(), "zero points"),
            None => Ok(()),
        }
    }

    /// Element `i` of packed elements.
    fn element(&self, bytes: &[u8], i: usize) -> u8 {
        let bit = i * self.bits;
        let mask = u8::try_from((1u32 << self.bits) - 1).unwrap_or(u8::MAX);
        (bytes[bit / 8] >> (bit % 8)) & mask
    }

    /// A zero point for each block of each column: those of a checked input, or the middle of the
    /// range.
    pub(crate) fn zeros(&self, zero: Option<&TensorView<'_>>) -> Result<Vec<f32>> {
        let blocks = self.blocks();
        Ok(match zero {
            None => vec![f32::from(1u8 << (self.bits - 1)); self.n * blocks],
            Some(zero) if zero.dtype() == DType::F32 => zero.as_slice::<f32>()?.to_vec(),
            Some(zero) => {
                let row = (blocks * self.bits).div_ceil(8).max(1);
                let rows = zero.as_slice::<u8>()?.chunks_exact(row);
                let row = |row| (0..blocks).map(move |b| f32::from(self.element(row, b)));
                rows.flat_map(row).collect()
            }
        })
    }
}

impl Op for UnpackBits {
    fn name(&self) -> &'static str {
        "MatMulNBits"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        if !matches!(self.bits, 2 | 4 | 8) || self.block == 0 || !self.block.is_multiple_of(8) {
            let (bits, block) = (self.bits, self.block);
            return Err(Error::unsupported(format!("{bits} bits in blocks of {block}")));
        }
        let (packed, scales) = (required(inputs, 0)?, required(inputs, 1)?);
        rank("the packed weight", packed, 3)?;
        let zero = optional(inputs, 2).map_or(DType::U8, |z| z.ty.dtype);
        if packed.ty.dtype != DType::U8
            || scales.ty.dtype != DType::F32
            || !matches!(zero, DType::U8 | DType::F32)
        {
            let (packed, scales) = (packed.ty.dtype, scales.ty.dtype);
            let message = format!("weights {packed}, scales {scales}, zero points {zero}");
            return Err(Error::unsupported(message));
        }
        Ok(output(DType::F32, Some(vec![Dim::Known(self.k), Dim::Known(self.n)])))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn decodes(&self) -> Option<Decoder> {
        Some(Decoder::Unpacks(self.clone()))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = crate::args::concrete_one(self, inputs)?;
        self.check(inputs)?;
        let packed = required(inputs, 0)?.as_slice::<u8>()?;
        let scales = required(inputs, 1)?.as_slice::<f32>()?;
        let mut out = ctx.alloc(dtype, shape)?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        let blocks = self.blocks();
        let zeros = self.zeros(optional(inputs, 2))?;
        let bytes = self.block * self.bits / 8;
        ctx.split(out.as_mut_slice::<f32>()?, self.n, self.n * 8, |first, part| {
            for (i, row) in part.chunks_exact_mut(self.n).enumerate() {
                let (block, at) = ((first + i) / self.block, (first + i) % self.block);
                for (column, out) in row.iter_mut().enumerate() {
                    let group = column * blocks + block;
                    let q = self.element(&packed[group * bytes..][..bytes], at);
                    *out = (f32::from(q) - zeros[group]) * scales[group];
                }
            }
        });
        Ok(vec![out])
    }
}
