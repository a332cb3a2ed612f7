//! Sliding windows, which convolution and pooling share.

mod facts;

use crate::error::{Error, Result};
use lgp_memory::Dim;
use std::ops::Range;

pub(crate) use facts::{channel_axes, image_axes, multiply_adds};

/// Padding around the spatial axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pads {
    /// The padding before each axis, then the padding after each axis; empty means no padding.
    Explicit(Vec<usize>),
    /// The padding for an output of `ceil(input / stride)`; an odd padding has its rest at the end.
    SameUpper,
    /// The padding for an output of `ceil(input / stride)`; an odd padding has its rest at the
    /// beginning.
    SameLower,
}

impl Default for Pads {
    fn default() -> Self {
        Self::Explicit(Vec::new())
    }
}

/// A window's attributes on one spatial axis, before the input's size is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    pads: AxisPads,
    ceil: bool,
}

#[derive(Debug, Clone, Copy)]
enum AxisPads {
    Explicit(usize, usize),
    Same { upper: bool },
}

/// Checks a window's attributes against the number of spatial axes.
pub(crate) fn specs(
    kernel: &[usize],
    strides: &[usize],
    dilations: &[usize],
    pads: &Pads,
    ceil: bool,
) -> Result<Vec<Spec>> {
    let rank = kernel.len();
    let strides = per_axis("strides", strides, rank, 1)?;
    let dilations = per_axis("dilations", dilations, rank, 1)?;
    let explicit = match pads {
        Pads::Explicit(p) => per_axis("pads", p, 2 * rank, 0)?,
        _ => Vec::new(),
    };
    for (what, values) in
        [("kernel", kernel), ("strides", &strides[..]), ("dilations", &dilations[..])]
    {
        if values.contains(&0) {
            return Err(Error::invalid(format!("{what} is {values:?}, expected no 0")));
        }
    }
    Ok((0..rank)
        .map(|axis| Spec {
            kernel: kernel[axis],
            stride: strides[axis],
            dilation: dilations[axis],
            pads: match pads {
                Pads::Explicit(_) => AxisPads::Explicit(explicit[axis], explicit[rank + axis]),
                Pads::SameUpper => AxisPads::Same { upper: true },
                Pads::SameLower => AxisPads::Same { upper: false },
            },
            ceil,
        })
        .collect())
}

/// An attribute with one entry for each axis, or the default for all axes where it is empty.
pub(crate) fn per_axis(
    what: &str,
    values: &[usize],
    expected: usize,
    default: usize,
) -> Result<Vec<usize>> {
    match values.len() {
        0 => Ok(vec![default; expected]),
        n if n == expected => Ok(values.to_vec()),
        n => Err(Error::invalid(format!("{what} has {n} entries, expected {expected}"))),
    }
}

impl Spec {
    /// The axis for an input of a given size.
    pub(crate) fn axis(&self, input: usize) -> Result<Axis> {
        let Self { kernel, stride, dilation, .. } = *self;
        let overflow = || Error::invalid("a window with its padding overflows");
        let reach = (kernel - 1).checked_mul(dilation).ok_or_else(overflow)?;
        let reach = reach.checked_add(1).ok_or_else(overflow)?;
        let (begin, end, output) = match self.pads {
            AxisPads::Same { upper } => {
                let output = input.div_ceil(stride);
                let span = output.saturating_sub(1).checked_mul(stride).ok_or_else(overflow)?;
                let span = span.checked_add(reach).ok_or_else(overflow)?;
                let total = span.saturating_sub(input);
                let small = total / 2;
                let begin = if upper { small } else { total - small };
                (begin, total - begin, output)
            }
            AxisPads::Explicit(begin, end) => {
                let padded = input.checked_add(begin).and_then(|n| n.checked_add(end));
                let padded = padded.ok_or_else(overflow)?;
                let Some(free) = padded.checked_sub(reach) else {
                    // In ceil mode a window may reach beyond the padding by less than a stride.
                    if self.ceil && reach - padded < stride && input + begin > 0 {
                        return Ok(Axis { input, output: 1, kernel, stride, dilation, begin, end });
                    }
                    return Err(Error::invalid(format!(
                        "a window of {reach} does not fit an input of {padded} with padding"
                    )));
                };
                let mut output = free / stride + 1;
                // In ceil mode a window must begin inside the input or the padding before the
                // input.
                if self.ceil && free % stride != 0 && output * stride < input + begin {
                    output += 1;
                }
                (begin, end, output)
            }
        };
        Ok(Axis { input, output, kernel, stride, dilation, begin, end })
    }

    /// The output's size for an input that may be symbolic.
    pub(crate) fn output(&self, input: &Dim) -> Result<Dim> {
        let Dim::Known(n) = *input else {
            // The output has the input's symbol only where the window keeps every size.
            let keeps = match self.pads {
                AxisPads::Same { .. } => self.stride == 1,
                AxisPads::Explicit(begin, end) => {
                    self.stride == 1
                        && begin.checked_add(end) == (self.kernel - 1).checked_mul(self.dilation)
                }
            };
            return Ok(if keeps { input.clone() } else { Dim::Unknown });
        };
        Ok(Dim::Known(self.axis(n)?.output))
    }
}

/// A window on one spatial axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

impl Axis {
    /// An axis of size 1 with a window of 1, which fills up a lower rank.
    pub(crate) const UNIT: Self =
        Self { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, begin: 0, end: 0 };

    /// The outputs whose tap `k` falls inside the input.
    pub(crate) fn valid(&self, k: usize) -> Range<usize> {
        let shift = k * self.dilation;
        let first = self.begin.saturating_sub(shift).div_ceil(self.stride);
        let last = match (self.input + self.begin).checked_sub(shift + 1) {
            Some(room) => room / self.stride + 1,
            None => 0,
        };
        let last = last.min(self.output);
        first.min(last)..last
    }

    /// The input position of tap `k` of output `o`, for pairs that fall inside the input.
    pub(crate) fn at(&self, o: usize, k: usize) -> usize {
        o * self.stride + k * self.dilation - self.begin
    }

    /// The taps of output `o` that fall inside the input.
    pub(crate) fn taps(&self, o: usize) -> Range<usize> {
        let start = o * self.stride;
        let first = self.begin.saturating_sub(start).div_ceil(self.dilation);
        let last = match (self.input + self.begin).checked_sub(start + 1) {
            Some(room) => room / self.dilation + 1,
            None => 0,
        };
        let last = last.min(self.kernel);
        first.min(last)..last
    }

    /// Whether each output has one tap, at its own position: kernel 1, stride 1, no padding.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.kernel == 1 && self.stride == 1 && self.begin == 0 && self.end == 0
    }
}

/// Up to three axes as exactly three, with [`Axis::UNIT`] in front.
pub(crate) fn three(axes: &[Axis]) -> Result<[Axis; 3]> {
    let mut out = [Axis::UNIT; 3];
    let Some(new) = 3usize.checked_sub(axes.len()) else {
        return Err(Error::unsupported(format!("{} spatial axes", axes.len())));
    };
    out[new..].copy_from_slice(axes);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// `valid` and `taps` agree with testing every pair.
        #[test]
        fn ranges_agree_with_enumeration(
            input in 1usize..12, kernel in 1usize..5, stride in 1usize..4, dilation in 1usize..4,
            begin in 0usize..5, end in 0usize..5, ceil: bool, same in 0usize..3,
        ) {
            let pads = match same {
                0 => Pads::Explicit(vec![begin, end]),
                1 => Pads::SameUpper,
                _ => Pads::SameLower,
            };
            let spec = specs(&[kernel], &[stride], &[dilation], &pads, ceil).unwrap()[0];
            let Ok(axis) = spec.axis(input) else {
                let beyond = (kernel - 1) * dilation + 1 - (input + begin + end);
                let refused = if ceil { stride } else { 1 };
                prop_assert!(beyond >= refused);
                return Ok(());
            };
            for k in 0..kernel {
                for o in 0..axis.output {
                    let at = (o * stride + k * dilation).checked_sub(axis.begin);
                    let inside = at.is_some_and(|at| at < input);
                    prop_assert_eq!(axis.valid(k).contains(&o), inside);
                    prop_assert_eq!(axis.taps(o).contains(&k), inside);
                    if inside {
                        prop_assert_eq!(Some(axis.at(o, k)), at);
                    }
                }
            }
        }
    }

    #[test]
    fn output_sizes() {
        // (input, kernel, stride, dilation, pads, ceil) -> output
        for (i, k, s, d, p, ceil, out) in [
            (224, 7, 2, 1, (3, 3), false, Some(112)),
            (112, 3, 2, 1, (1, 1), false, Some(56)),
            (112, 3, 2, 1, (0, 0), true, Some(56)),
            (4, 2, 3, 1, (0, 0), true, Some(2)),
            (2, 1, 3, 1, (0, 1), true, Some(1)),
            (2, 3, 2, 1, (0, 0), true, Some(1)),
            (2, 4, 2, 1, (0, 0), true, None),
            (0, 3, 9, 1, (0, 1), true, None),
            (5, 3, 1, 2, (0, 0), false, Some(1)),
            (4, 3, 1, 2, (0, 0), false, None),
            (1, 1, 1, 1, (usize::MAX, 1), false, None),
            (9, usize::MAX, 1, usize::MAX, (0, 0), false, None),
        ] {
            let pads = Pads::Explicit(vec![p.0, p.1]);
            let spec = specs(&[k], &[s], &[d], &pads, ceil).unwrap()[0];
            assert_eq!(spec.axis(i).ok().map(|a| a.output), out, "{i} {k} {s} {d} {p:?}");
        }
    }

    #[test]
    fn hostile_attributes_are_errors() {
        let none = Pads::default();
        for (kernel, strides, dilations, pads, message) in [
            (vec![0], vec![], vec![], none.clone(), "kernel is [0], expected no 0"),
            (vec![1], vec![0], vec![], none.clone(), "strides is [0], expected no 0"),
            (vec![1], vec![], vec![0], none.clone(), "dilations is [0], expected no 0"),
            (vec![1], vec![1, 1], vec![], none, "strides has 2 entries, expected 1"),
            (vec![1], vec![], vec![], Pads::Explicit(vec![1]), "pads has 1 entries, expected 2"),
        ] {
            let error = specs(&kernel, &strides, &dilations, &pads, false).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
