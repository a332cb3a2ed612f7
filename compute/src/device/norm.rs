//! Normalising lines to zero mean and unit variance, on devices.

use super::kernel::{Argument, Call, Kernel, c_type, load};
use super::launches::Launches;
use super::lines::kernel_of_lines;
use super::pointwise::places;
use crate::args::optional;
use crate::op::ValueInfo;
use lgp_memory::{DType, Shape};

const BODY: &str =
    concat!(include_str!("lines.h"), include_str!("moments.h"), include_str!("norm.cl"));
const PART: &str =
    concat!(include_str!("lines.h"), include_str!("moments.h"), include_str!("norm_part.cl"));

/// Work-groups that keep a card busy: fewer lines are shared by several.
const GROUPS: usize = 144;
/// Elements of a line that are worth a work-group of their own.
const SHARE_MIN: usize = 4096;
/// The numbers of work-groups that may be worth sharing a line.
const SPLITS: [usize; 4] = [1, 4, 16, 64];

/// A norm of input 0 by lines of neighbouring elements, with the scale as input 1 and a bias as
/// input 2, which may be absent.
#[derive(Debug)]
pub(crate) struct Norm<'a> {
    /// Elements of a line.
    pub line: usize,
    /// Whether the mean is subtracted; if not, the mean square takes the variance's place.
    pub centred: bool,
    /// Added to the variance before the square root.
    pub epsilon: f32,
    /// The assignment of scale and bias to elements.
    pub parameters: Parameters<'a>,
}

/// The assignment of parameters to elements.
#[derive(Debug)]
pub(crate) enum Parameters<'a> {
    /// Tensors that broadcast to a line of these dimensions.
    Line(&'a [usize]),
    /// One for each of `channels` channels; a line has `per_line` of them, of `plane` elements
    /// each.
    Channels { channels: usize, per_line: usize, plane: usize },
}

impl Norm<'_> {
    /// The launches. `None` for types that kernels lack.
    pub(crate) fn launches(
        &self,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Launches> {
        self.divided(self.splits(outputs)?, inputs, outputs)
    }

    /// The launches of every schedule that is worth measuring; [`Norm::launches`] come first.
    pub(crate) fn schedules(
        &self,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Vec<Launches> {
        let Some(best) = self.splits(outputs) else { return Vec::new() };
        let worth =
            |splits: &usize| *splits != best && (*splits == 1 || self.line / *splits >= SHARE_MIN);
        let all = std::iter::once(best).chain(SPLITS.into_iter().filter(worth));
        all.filter_map(|splits| self.divided(splits, inputs, outputs)).collect()
    }

    /// The number of work-groups that share a line.
    fn splits(&self, outputs: &[ValueInfo]) -> Option<usize> {
        let count = outputs.first()?.ty.concrete_shape()?.elements().ok()?;
        let lines = count.checked_div(self.line).unwrap_or(0).max(1);
        Some((GROUPS / lines).min(self.line / SHARE_MIN).max(1))
    }

    /// The launches with about so many work-groups for a line.
    fn divided(
        &self,
        splits: usize,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Launches> {
        let [output] = outputs else { return None };
        let dtype = output.ty.dtype;
        let x = output.ty.concrete_shape()?;
        let count = x.elements().ok()?;
        if count == 0 {
            return Some(Launches::default());
        }
        let lines = count.checked_div(self.line)?;
        let share = self.line.div_ceil(splits);
        let splits = self.line.div_ceil(share);
        let of_shares = [lines.checked_mul(splits)?, share, 1];
        let (mut kernel, groups) = kernel_of_lines("norm_lines", BODY, of_shares);
        let mut arguments = vec![Argument::Input(0)];
        let mut declared = String::new();
        for (i, pointer, name) in [(1, "scale", "SCALE(line, j)"), (2, "bias", "BIAS(line, j)")] {
            let Some(parameter) = optional(inputs, i) else {
                kernel = kernel.define(name, "0.0f");
                continue;
            };
            declared += &format!("GLOBAL const {} *{pointer}, ", c_type(dtype)?);
            arguments.push(Argument::Input(i));
            let place = self.place(&parameter.ty.concrete_shape()?)?;
            kernel = kernel.define(name, load(dtype, pointer, &place));
        }
        let (channels, per_line, plane) = match self.parameters {
            Parameters::Line(_) => (1, 1, self.line),
            Parameters::Channels { channels, per_line, plane } => (channels, per_line, plane),
        };
        if splits > 1 {
            declared += "GLOBAL const float *parts, ";
            arguments.push(Argument::Scratch(0));
        }
        arguments.push(Argument::Output(0));
        for size in [self.line, channels, per_line, plane, share] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        arguments.push(Argument::F32(self.epsilon));
        let kernel = kernel.define("PARAMETERS", declared).storing(dtype)?;
        let kernel = self.reading(kernel, dtype, splits);
        let (flops, bytes) =
            (7 * count as u64, 2 * output.ty.concrete_shape()?.byte_len(dtype).ok()?);
        let bytes = bytes as u64;
        let call = Call { kernel, groups: [groups, 1, 1], arguments, flops, bytes };
        if splits == 1 {
            return Some(call.into());
        }
        let (kernel, groups) = kernel_of_lines("norm_part", PART, of_shares);
        let kernel = self.reading(kernel, dtype, splits).define("STORED", c_type(dtype)?);
        let mut arguments = vec![Argument::Input(0), Argument::Scratch(0)];
        for size in [self.line, share] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let (flops, bytes) = (flops / 2, bytes / 2);
        let part = Call { kernel, groups: [groups, 1, 1], arguments, flops, bytes };
        let scratch = vec![of_shares[0].checked_mul(8)?];
        Some(Launches { calls: vec![part, call], scratch, ..Launches::default() })
    }

    /// The kernel, with how it reads lines.
    fn reading(&self, kernel: Kernel, dtype: DType, splits: usize) -> Kernel {
        kernel
            .define("SPLITS", splits)
            .define("CENTRED", u8::from(self.centred))
            .define("LOAD(i)", load(dtype, "x", "(i)"))
    }

    /// The expression of a parameter's index.
    fn place(&self, shape: &Shape) -> Option<String> {
        match self.parameters {
            Parameters::Line(dims) => places(dims, &[shape.dims()], "(j)")?.pop(),
            Parameters::Channels { channels, per_line, .. } => Some(match shape.dims() {
                [length] if *length == channels => "CHANNEL(line, j)".to_owned(),
                _ => format!("CHANNEL(line, j) / {per_line}u"),
            }),
        }
    }
}
