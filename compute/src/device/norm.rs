//! Normalising lines to zero mean and unit variance, on devices.

use super::kernel::{Argument, Call, c_type, load};
use super::launches::Launches;
use super::lines::kernel_of_lines;
use super::pointwise::places;
use crate::args::optional;
use crate::op::ValueInfo;
use lgp_memory::Shape;

const BODY: &str = concat!(include_str!("lines.h"), include_str!("norm.cl"));

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
        let [output] = outputs else { return None };
        let dtype = output.ty.dtype;
        let x = output.ty.concrete_shape()?;
        let count = x.elements().ok()?;
        if count == 0 {
            return Some(Launches::default());
        }
        let lines = count.checked_div(self.line)?;
        let (mut kernel, groups) = kernel_of_lines("norm_lines", BODY, [lines, self.line, 1]);
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
        arguments.push(Argument::Output(0));
        for size in [self.line, channels, per_line, plane] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        arguments.push(Argument::F32(self.epsilon));
        let kernel = kernel
            .define("PARAMETERS", declared)
            .define("CENTRED", u8::from(self.centred))
            .define("LOAD(i)", load(dtype, "x", "(i)"))
            .storing(dtype)?;
        let (flops, bytes) =
            (7 * count as u64, 2 * output.ty.concrete_shape()?.byte_len(dtype).ok()?);
        Some(Call { kernel, groups: [groups, 1, 1], arguments, flops, bytes: bytes as u64 }.into())
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
