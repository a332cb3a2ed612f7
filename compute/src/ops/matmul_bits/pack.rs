//! Packs weights as they are stored in models.

use super::layout::{Layout, Zeros};
use super::{MatMulBits, NAME};
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::gemm::PANEL;
use crate::ops::UnpackBits;
use lgp_memory::{DType, Tensor, TensorView};

/// A weight as the packing reads it.
struct Stored<'a, W, S, Z> {
    layout: Layout,
    /// The word of a column and a line.
    word: W,
    /// The scale of a column and a block.
    scale: S,
    /// The zero point of a column and a block.
    zero: &'a Z,
}

impl<W, S, Z> Stored<'_, W, S, Z>
where
    W: Fn(usize, usize) -> u32,
    S: Fn(usize, usize) -> f32,
    Z: Fn(usize, usize) -> f32,
{
    /// The words of all panels. Columns that are missing in the last panel are zeros.
    fn packed(&self) -> Result<Tensor> {
        let layout = &self.layout;
        let (k, n) = (layout.k, layout.n);
        let too_large = || Error::invalid(format!("a weight of {k} x {n} is too large"));
        let mut packed = Tensor::zeros(DType::U32, [layout.words().ok_or_else(too_large)?])?;
        let size = layout.panel_words();
        if size == 0 {
            return Ok(packed);
        }
        let panels = packed.as_mut_slice::<u32>()?.chunks_exact_mut(size);
        for (panel, words) in panels.enumerate() {
            let first = panel * PANEL;
            let columns = PANEL.min(n - first);
            for (block, words) in words.chunks_mut(layout.block_words()).enumerate() {
                let (head, lines) = words.split_at_mut(layout.head());
                for j in 0..columns {
                    self.head(first + j, block, j, head);
                }
                for (line, words) in lines.chunks_exact_mut(PANEL).enumerate() {
                    let line = block * layout.block_lines() + line;
                    for (j, to) in words.iter_mut().take(columns).enumerate() {
                        *to = (self.word)(first + j, line);
                    }
                }
            }
        }
        Ok(packed)
    }

    /// Writes the scale and the zero point of a column, which is number `j` of its panel.
    fn head(&self, column: usize, block: usize, j: usize, head: &mut [u32]) {
        head[j] = (self.scale)(column, block).to_bits();
        match self.layout.zeros {
            Zeros::Middle => {}
            Zeros::Floats => head[PANEL + j] = (self.zero)(column, block).to_bits(),
            Zeros::Bytes => {
                let mut four = head[PANEL + j / 4].to_ne_bytes();
                four[j % 4] = (self.zero)(column, block) as u8;
                head[PANEL + j / 4] = u32::from_ne_bytes(four);
            }
        }
    }
}

impl MatMulBits {
    fn of(layout: &Layout) -> Self {
        let Layout { k, n, bits, block, zeros } = *layout;
        Self { k, n, bits, block, zeros, activation: Activation::None }
    }

    /// Packs the inputs of an [`UnpackBits`]: the packed rows, scales and zero points. `None` where
    /// blocks are no whole words.
    ///
    /// # Errors
    /// Inputs that do not fit, or out of memory.
    pub fn pack(
        format: &UnpackBits,
        inputs: &[Option<TensorView<'_>>],
    ) -> Result<Option<(Self, Tensor)>> {
        let packed = pack_bits(format, inputs);
        packed.map_err(|error| error.of(NAME))
    }

    /// Packs a weight of bytes `[k, n]` that stands for `(w − zero) · scale`, with scales and zero
    /// points of one element or of one for each column. `None` for other weights.
    ///
    /// # Errors
    /// Out of memory.
    pub fn pack_bytes(
        weight: &TensorView<'_>,
        scale: &TensorView<'_>,
        zero: Option<&TensorView<'_>>,
    ) -> Result<Option<(Self, Tensor)>> {
        let packed = pack_bytes(weight, scale, zero);
        packed.map_err(|error| error.of(NAME))
    }
}

fn pack_bits(
    format: &UnpackBits,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Option<(MatMulBits, Tensor)>> {
    format.check(inputs)?;
    let &UnpackBits { k, n, bits, block } = format;
    if !matches!(bits, 2 | 4 | 8) || !(block * bits).is_multiple_of(32) || block == 0 {
        return Ok(None);
    }
    let bytes = crate::args::required(inputs, 0)?.as_slice::<u8>()?;
    let scales = crate::args::required(inputs, 1)?.as_slice::<f32>()?;
    let blocks = k.div_ceil(block);
    let zero_points = format.zeros(crate::args::optional(inputs, 2))?;
    let zeros = match crate::args::optional(inputs, 2).map(|zero| zero.dtype()) {
        None => Zeros::Middle,
        Some(DType::U8) => Zeros::Bytes,
        Some(_) => Zeros::Floats,
    };
    let mut layout = Layout { k, n, bits, block, zeros };
    if zero_points.iter().all(|&zero| zero == layout.middle()) {
        layout.zeros = Zeros::Middle;
    }
    let row = blocks * (block * bits / 8);
    let word = |column: usize, line: usize| {
        let four = bytes[column * row + line * 4..].first_chunk::<4>();
        four.map_or(0, |four| u32::from_le_bytes(*four))
    };
    let scale = |column: usize, at: usize| scales[column * blocks + at];
    let zero = |column: usize, at: usize| zero_points[column * blocks + at];
    let stored = Stored { layout, word, scale, zero: &zero };
    Ok(Some((MatMulBits::of(&layout), stored.packed()?)))
}

fn pack_bytes(
    weight: &TensorView<'_>,
    scale: &TensorView<'_>,
    zero: Option<&TensorView<'_>>,
) -> Result<Option<(MatMulBits, Tensor)>> {
    let &[k, n] = weight.shape().dims() else { return Ok(None) };
    let signed = weight.dtype() == DType::I8;
    let same = zero.is_none_or(|zero| zero.dtype() == weight.dtype());
    let sized = |x: &TensorView<'_>| x.len() == 1 || (x.len() == n && x.shape().rank() == 1);
    let fits = scale.dtype() == DType::F32 && sized(scale) && zero.is_none_or(sized);
    if !(signed || weight.dtype() == DType::U8) || !same || !fits || k == 0 {
        return Ok(None);
    }
    // A signed byte becomes an unsigned one whose middle stands for 0.
    let unsigned = |bytes: &TensorView<'_>| -> Result<Vec<u8>> {
        Ok(match signed {
            true => bytes.as_slice::<i8>()?.iter().map(|b| b.cast_unsigned() ^ 128).collect(),
            false => bytes.as_slice::<u8>()?.to_vec(),
        })
    };
    let bytes = unsigned(weight)?;
    let scales = scale.as_slice::<f32>()?;
    let zero_points = match zero {
        Some(zero) => unsigned(zero)?,
        None => vec![if signed { 128 } else { 0 }],
    };
    let is_middle = zero_points.iter().all(|&zero| zero == 128);
    let zeros = if is_middle { Zeros::Middle } else { Zeros::Bytes };
    let layout = Layout { k, n, bits: 8, block: k.next_multiple_of(4), zeros };
    let word = |column: usize, line: usize| {
        let at = |i: usize| bytes.get((line * 4 + i) * n + column).copied().unwrap_or(0);
        u32::from_le_bytes(std::array::from_fn(at))
    };
    let scale = |column: usize, _| scales[if scales.len() == 1 { 0 } else { column }];
    let zero =
        |column: usize, _| f32::from(zero_points[if zero_points.len() == 1 { 0 } else { column }]);
    let stored = Stored { layout, word, scale, zero: &zero };
    Ok(Some((MatMulBits::of(&layout), stored.packed()?)))
}
