//! The format of weights in blocks of a few bits.

use lgp_memory::DType;

/// The weight of ONNX Runtime's `MatMulNBits`, as f32 of shape `[k, n]`.
///
/// Inputs: the packed rows (u8, `[n, blocks, bytes of a block]`, the first element in the lowest
/// bits), scales (f32, `n · blocks`), zero points (optional; packed like a row, u8, or f32).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackBits {
    /// Rows of the product's inner dimension.
    pub k: usize,
    /// Columns.
    pub n: usize,
    /// Bits of an element: 2, 4 or 8.
    pub bits: usize,
    /// Elements along k that share a scale.
    pub block: usize,
}

impl UnpackBits {
    pub(super) fn blocks(&self) -> usize {
        self.k.div_ceil(self.block)
    }

    /// Whether the numbers of packed bytes, scales and zero points (of a dtype) are as expected.
    pub(crate) fn fits(&self, given: [usize; 2], zero: Option<(DType, usize)>) -> bool {
        let all = |per: usize| self.n.checked_mul(per);
        let bytes = self.block.saturating_mul(self.bits) / 8;
        let row = self.blocks().saturating_mul(self.bits).div_ceil(8);
        let zeros = zero.is_none_or(|(dtype, count)| {
            all(if dtype == DType::U8 { row } else { self.blocks() }) == Some(count)
        });
        let packed = self.blocks().checked_mul(bytes).and_then(all);
        zeros && given.map(Some) == [packed, all(self.blocks())]
    }
}
