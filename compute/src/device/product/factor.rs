//! Operands of products: how their elements are stored and loaded.

use super::Parameters;
use crate::device::kernel::{Argument, Kernel, c_type, load};
use lgp_memory::DType;

/// An operand of a product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factor {
    /// Where it is.
    pub argument: Argument,
    /// The type of its elements.
    pub dtype: DType,
    /// Whether neighbours in memory follow each other along the sum, not along its other side.
    pub along: bool,
    /// The zero point that is subtracted from its elements, if they are integers.
    pub zero: Option<Zero>,
    /// The factors of its elements, if the product is of floats.
    pub scale: Option<Scale>,
}

/// The zero points of an operand of integers, of its dtype.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zero {
    /// Where it is.
    pub argument: Argument,
    /// Whether there is one for each row of the left operand, or column of the right one.
    pub each: bool,
}

/// Factors of an operand's elements, f32.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scale {
    /// One for all, or one for each row of the left operand or column of the right one.
    Sides { argument: Argument, each: bool },
    /// One for each block of elements of few bits.
    Blocks(Blocks),
}

/// A right operand that lies along the sum, with elements packed as in [`crate::ops::UnpackBits`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    /// The scales.
    pub scale: Argument,
    /// The zero point of each block: f32, or packed as the elements are. If absent, the middle of
    /// an element's range.
    pub zero: Option<(Argument, DType)>,
    /// Bits of an element: 2, 4 or 8.
    pub bits: usize,
    /// Elements of a block.
    pub block: usize,
}

impl Factor {
    /// An operand without zero points and scales.
    pub(crate) fn plain(argument: Argument, dtype: DType, along: bool) -> Self {
        Self { argument, dtype, along, zero: None, scale: None }
    }

    /// How many elements are loaded at once from rows or columns of `side` and `k` elements.
    pub(super) fn width(&self, side: usize, k: usize) -> usize {
        let length = if self.along { k } else { side };
        if length > 0 && length.is_multiple_of(4) { 4 } else { 1 }
    }

    /// Bytes of `count` elements.
    pub(super) fn bytes(&self, count: usize) -> usize {
        match self.scale {
            Some(Scale::Blocks(Blocks { bits, .. })) => count * bits / 8,
            _ => count * self.dtype.size(),
        }
    }

    /// The expression of the element at `place`, of row or column `side`; declares the parameters
    /// that it reads.
    pub(super) fn load(&self, name: &str, parameters: &mut Parameters) -> Option<String> {
        let ty = c_type(self.dtype)?;
        parameters.add(&format!("GLOBAL const {ty} *{name}"), self.argument);
        let mut element = load(self.dtype, name, "(place)");
        if let Some(Scale::Blocks(blocks)) = self.scale {
            parameters.add(&format!("GLOBAL const float *{name}_scale"), blocks.scale);
            if let Some((argument, dtype)) = blocks.zero {
                parameters.add(&format!("GLOBAL const {} *{name}_zero", c_type(dtype)?), argument);
            }
            let given = blocks.given(name);
            return Some(format!("block_element({given}side, (place) - (side) * k)"));
        }
        if let Some(zero) = self.zero {
            parameters.add(&format!("GLOBAL const {ty} *{name}_zero"), zero.argument);
            let at = if zero.each { "side" } else { "0" };
            element = format!("(i16)({element} - {name}_zero[{at}])");
        }
        if let Some(Scale::Sides { argument, each }) = self.scale {
            parameters.add(&format!("GLOBAL const float *{name}_scale"), argument);
            let at = if each { "side" } else { "0" };
            element = format!("((float){element} * {name}_scale[{at}])");
        }
        Some(element)
    }

    /// The statement that loads `width` elements; the macro `element` loads one.
    pub(super) fn vector(&self, element: &str, name: &str, width: usize) -> String {
        match (self.scale, self.dtype) {
            _ if width == 1 => format!("(to)[at] = {element}(from, side)"),
            (Some(Scale::Blocks(blocks)), _) => {
                format!(
                    "block_vector((to) + (at), {}side, (from) - (side) * k)",
                    blocks.given(name)
                )
            }
            (None, DType::F32) => format!("unpack4((to) + (at), load4({name}, from))"),
            _ => {
                let side = if self.along { "side" } else { "(side) + i_" };
                let each = format!("(to)[(at) + i_] = {element}((from) + i_, {side})");
                format!("for (u32 i_ = 0; i_ < {width}; i_++) {each}")
            }
        }
    }

    /// The kernel, with constants for how blocks are packed.
    pub(super) fn define_blocks(&self, kernel: Kernel, k: usize) -> Kernel {
        let Some(Scale::Blocks(Blocks { zero, bits, block, .. })) = self.scale else {
            return kernel;
        };
        let count = k.div_ceil(block);
        let (zeros, at) = match zero {
            None => ("", format!("{}.0f", 1u32 << (bits - 1))),
            Some((_, DType::F32)) => {
                ("GLOBAL const float *zero,", format!("zero[(side) * {count}u + (block)]"))
            }
            Some(_) => {
                let row = (count * bits).div_ceil(8);
                let at = format!("(float)bits_at(zero + (side) * {row}u, block)");
                ("GLOBAL const u8 *zero,", at)
            }
        };
        kernel
            .define("BLOCK_BITS", bits)
            .define("BLOCK_SIZE", block)
            .define("BLOCKS", count)
            .define("BLOCK_ZEROS", zeros)
            .define("BLOCK_ZERO(side, block)", at)
    }
}

impl Blocks {
    /// The first arguments of the functions in `blocks.h`, for the operand `name`.
    fn given(&self, name: &str) -> String {
        let zero = self.zero.map(|_| format!("{name}_zero, ")).unwrap_or_default();
        format!("{name}, {name}_scale, {zero}")
    }
}
