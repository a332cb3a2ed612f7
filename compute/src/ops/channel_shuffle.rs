//! Channels of several groups, interleaved. Not an ONNX operator: a pass replaces a reshape, a
//! transpose and a reshape by it.

use crate::Axes;
use crate::args::{axis, concrete_one, output, required};
use crate::error::{Error, Result};
use crate::movement::around;
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::{Reordered, moved_axis};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// Position `i · groups + g` of the axis is position `g · (length / groups) + i` of the input's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelShuffle {
    /// Axis, negative from the back.
    pub axis: i64,
    /// Groups that the axis consists of.
    pub groups: usize,
}

impl Op for ChannelShuffle {
    fn name(&self) -> &'static str {
        "ChannelShuffle"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        if let Some(dims) = x.sym_shape() {
            let length = &dims[axis(self.axis, dims.len())?];
            if self.groups == 0 || length.known().is_some_and(|n| n % self.groups != 0) {
                let message = format!("{} groups do not divide {length} channels", self.groups);
                return Err(Error::invalid(message));
            }
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[Dim]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
        match axis(self.axis, rank) {
            Ok(own) => Axes::each_but(&[own], inputs, outputs.len()),
            Err(_) => Axes::new(),
        }
    }

    fn moves(&self) -> bool {
        true
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        _: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        inputs.first().copied().flatten().filter(|x| x.rank() == Some(order.len()))?;
        let axis = moved_axis(order, self.axis)?;
        Some(Reordered::first(Self { axis, ..self.clone() }, inputs, 1))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let (_, length, inner) = around(&shape, axis(self.axis, shape.rank())?);
        let mut out = ctx.alloc(dtype, shape)?;
        let (size, each) = (dtype.size(), length / self.groups);
        let (x, block) = (x.as_bytes(), length * inner * size);
        ctx.split(out.as_bytes_mut()?, block.max(1), block, |first, part| {
            for (i, out) in part.chunks_exact_mut(block).enumerate() {
                let x = &x[(first + i) * block..][..block];
                match inner * size {
                    4 => deal::<4>(x.as_chunks().0, out.as_chunks_mut().0, self.groups, each),
                    1 => deal::<1>(x.as_chunks().0, out.as_chunks_mut().0, self.groups, each),
                    width => {
                        for (at, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
                            let from = at % self.groups * each + at / self.groups;
                            out.copy_from_slice(&x[from * width..][..width]);
                        }
                    }
                }
            }
        });
        Ok(vec![out])
    }
}

/// The channels of one pixel.
fn deal<const N: usize>(x: &[[u8; N]], out: &mut [[u8; N]], groups: usize, each: usize) {
    if groups == 2 {
        let (a, b) = x.split_at(each);
        for (out, (a, b)) in out.as_chunks_mut::<2>().0.iter_mut().zip(a.iter().zip(b)) {
            *out = [*a, *b];
        }
        return;
    }
    for (i, out) in out.chunks_exact_mut(groups).enumerate() {
        for (g, out) in out.iter_mut().enumerate() {
            *out = x[g * each + i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{noise, run, t};

    #[test]
    fn channels_are_dealt_out_in_turn() {
        let x = t(&[1, 6], &[0f32, 1., 2., 3., 4., 5.]);
        for (groups, expected) in [(2, [0f32, 3., 1., 4., 2., 5.]), (3, [0., 2., 4., 1., 3., 5.])] {
            let y = run(&ChannelShuffle { axis: 1, groups }, &[&x]);
            assert_eq!(y.as_slice::<f32>().unwrap(), expected);
        }
        for (dims, axis, groups) in [(&[2usize, 6, 3, 2][..], 1, 3), (&[2, 3, 2, 8], -1, 4)] {
            let op = ChannelShuffle { axis, groups };
            let x = noise(dims, 1);
            let complaints = crate::check_facts(&op, &[Some(x.clone())], 1).unwrap();
            assert_eq!(complaints, [] as [&str; 0]);
            // A second shuffle undoes the first.
            let each = dims[if axis == 1 { 1 } else { 3 }] / groups;
            let back = run(&ChannelShuffle { axis, groups: each }, &[&run(&op, &[&x])]);
            assert_eq!(back, x);
        }
        let views = [Some(x.view())];
        let error = ChannelShuffle { axis: 1, groups: 4 }.run(&Context::new(1), &views);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "ChannelShuffle: 4 groups do not divide 6 channels");
    }
}
