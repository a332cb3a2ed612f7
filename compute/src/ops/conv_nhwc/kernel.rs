//! The loops of channels-last convolution for each width of vectors.

pub(crate) mod depthwise;
pub(crate) mod element;
#[allow(clippy::needless_range_loop, reason = "rows and columns of a tile are indices")]
pub(crate) mod exact;
pub(crate) mod gather;
#[allow(clippy::needless_range_loop, reason = "taps and outputs are indices")]
pub(crate) mod grouped;
#[allow(clippy::needless_range_loop, reason = "a tile of registers is clearest by its indices")]
pub(crate) mod tile;
pub(crate) mod vector;
#[allow(clippy::needless_range_loop, reason = "rows and columns of a tile are indices")]
pub(crate) mod winograd;

use crate::epilogue::Activation;
use half::bf16;
use std::marker::PhantomData;

/// Packed columns come in registers of so many, whatever the machine's own width.
pub(crate) const LANE: usize = 16;
/// The most rows (pixels) that a block takes; [`Width::rows`] is the number.
pub(crate) const GROUP_ROWS: usize = 18;
/// Products between two visits of the result: the rows of a block with so many fill about half of a
/// first-level cache of 32 KiB.
pub(crate) const DEPTH: usize = 256;
/// Distance of a tile's rows: an odd number of cache lines, so that the rows do not compete for
/// the same sets, and at least a register longer than [`DEPTH`].
pub(crate) const ROW: usize = DEPTH + LANE;

/// The instructions of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// Plain Rust.
    Portable,
    /// AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 with products of pairs of bf16.
    #[cfg(target_arch = "x86_64")]
    Bf16,
}

/// What is done to complete sums. Null pointers mean that there is nothing to add.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    /// One a column.
    pub(crate) bias: *const f32,
    /// Laid out as the result.
    pub(crate) residual: *const f32,
    /// The same in bf16.
    pub(crate) residual_bf16: *const bf16,
    /// Where results go as bf16, laid out as the result is; null where they stay f32. Read by
    /// products of bf16 alone.
    pub(crate) out_bf16: *mut bf16,
    /// Lower bound.
    pub(crate) low: f32,
    /// Upper bound.
    pub(crate) high: f32,
    /// What is no clamp.
    pub(crate) activation: Option<Activation>,
    pub(crate) borrowed: PhantomData<&'a f32>,
}

impl Epilogue<'_> {
    /// Whether results or residuals are bf16.
    pub(crate) fn has_bf16(&self) -> bool {
        !self.residual_bf16.is_null() || !self.out_bf16.is_null()
    }

    /// The same for a result that begins `column` columns and `element` elements later.
    ///
    /// # Safety
    /// Both lie inside bias and residual.
    pub(crate) unsafe fn at(self, column: usize, element: usize) -> Self {
        // A null pointer stays one: where an operand is absent, so are its elements.
        let present = |here: bool, n: usize| if here { n } else { 0 };
        // SAFETY: as the caller promises.
        unsafe {
            Self {
                bias: self.bias.add(present(!self.bias.is_null(), column)),
                residual: self.residual.add(present(!self.residual.is_null(), element)),
                residual_bf16: self
                    .residual_bf16
                    .add(present(!self.residual_bf16.is_null(), element)),
                out_bf16: self.out_bf16.add(present(!self.out_bf16.is_null(), element)),
                ..self
            }
        }
    }
}

impl Width {
    /// Rows of a block, whole tiles: one of 14 rows where there are 32 registers for it, three of 6 elsewhere.
    pub(crate) fn rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Bf16 => 14,
            _ => GROUP_ROWS,
        }
    }

    /// Computes a block of products.
    ///
    /// # Safety
    /// The block's pointers are valid for what its fields say, `c` exclusively; the machine has
    /// these instructions.
    pub(crate) unsafe fn tile(self, block: &tile::Block<'_>) {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Self::Portable => tile::portable(block),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => tile::avx2(block),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => tile::avx512(block),
                #[cfg(target_arch = "x86_64")]
                Self::Bf16 => tile::bf16(block),
            }
        }
    }

    /// Runs a body compiled for these instructions; it must be `#[inline(always)]` throughout.
    ///
    /// # Safety
    /// The machine has them.
    #[inline(always)]
    pub(crate) unsafe fn body<B: Body>(self, body: B) {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Self::Portable => body.run::<vector::Four>(),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => avx2(body),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 | Self::Bf16 => avx512(body),
            }
        }
    }
}

/// A loop for any width of vectors.
pub(crate) trait Body {
    /// # Safety
    /// What the body's own fields promise; the CPU features of `V` are enabled in the caller.
    unsafe fn run<V: vector::Vector>(self);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<B: Body>(body: B) {
    // SAFETY: as the caller promises; the features are enabled here.
    unsafe { body.run::<std::arch::x86_64::__m256>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn avx512<B: Body>(body: B) {
    // SAFETY: as the caller promises; the features are enabled here.
    unsafe { body.run::<std::arch::x86_64::__m512>() }
}
