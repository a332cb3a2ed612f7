//! Adds blocks up to an image.

use crate::Axes;
use crate::args::{concrete_one, float, optional, output, rank, required};
use crate::error::{Error, Result};
use crate::index::strides;
use crate::number::{Number, with_type};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Col2Im`: inputs x `[n, c · elements of a block, blocks]`, the image's and the block's spatial
/// sizes (i64); output `[n, c, image …]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Col2Im {
    /// Distance between elements of a block on each axis; 1 when empty.
    pub dilations: Vec<usize>,
    /// Padding around the image: all begins, then all ends; 0 when empty.
    pub pads: Vec<usize>,
    /// Distance between blocks on each axis; 1 when empty.
    pub strides: Vec<usize>,
}

/// One axis of the image.
struct Axis {
    image: usize,
    block: usize,
    dilation: usize,
    begin: usize,
    stride: usize,
    /// Number of places that a block can take.
    places: usize,
}

impl Col2Im {
    fn windows(&self, image: &[Dim], block: &[Dim]) -> Result<Option<Vec<Axis>>> {
        let r = image.len();
        let wrong = |why: &str| Err(Error::invalid(why.to_owned()));
        if block.len() != r {
            return wrong(&format!("{} block sizes, expected {r}", block.len()));
        }
        let fits = |list: &[usize], n: usize| list.is_empty() || list.len() == n;
        if !fits(&self.dilations, r) || !fits(&self.strides, r) || !fits(&self.pads, 2 * r) {
            return wrong(&format!("dilations, strides or pads are not for {r} axes"));
        }
        let get = |list: &[usize], i: usize, or: usize| list.get(i).copied().unwrap_or(or);
        let mut axes = Vec::with_capacity(r);
        for i in 0..r {
            let (Some(image), Some(block)) = (image[i].known(), block[i].known()) else {
                return Ok(None);
            };
            let (dilation, stride) = (get(&self.dilations, i, 1), get(&self.strides, i, 1));
            let (begin, end) = (get(&self.pads, i, 0), get(&self.pads, r + i, 0));
            let reach = block.checked_sub(1).and_then(|n| n.checked_mul(dilation)?.checked_add(1));
            let room = image.checked_add(begin).and_then(|n| n.checked_add(end));
            let rest = room.zip(reach).and_then(|(room, reach)| room.checked_sub(reach));
            let Some(rest) = rest.filter(|_| stride > 0) else {
                return wrong(&format!("a block of {block} has no place on an axis of {image}"));
            };
            axes.push(Axis { image, block, dilation, begin, stride, places: rest / stride + 1 });
        }
        Ok(Some(axes))
    }
}

impl Op for Col2Im {
    fn name(&self) -> &'static str {
        "Col2Im"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        rank("x", x, 3)?;
        let (image, block) = (required(inputs, 1)?, required(inputs, 2)?);
        rank("the image's sizes", image, 1)?;
        rank("the block's sizes", block, 1)?;
        let (Some(image), Some(block)) = (image.target_shape()?, block.target_shape()?) else {
            return Ok(output(x.ty.dtype, None));
        };
        let axes = self.windows(&image, &block)?;
        let (Some([n, rows, blocks]), Some(axes)) = (x.sym_shape(), axes) else {
            let mut shape = vec![Dim::Unknown; 2];
            shape.extend(image);
            return Ok(output(x.ty.dtype, Some(shape)));
        };
        let of = |f: fn(&Axis) -> usize| axes.iter().try_fold(1usize, |n, a| n.checked_mul(f(a)));
        let (elements, places) = (of(|a| a.block), of(|a| a.places));
        if blocks.known().is_some() && blocks.known() != places {
            let message = format!("x has {blocks} blocks, expected {places:?}");
            return Err(Error::invalid(message));
        }
        let c = match (rows.known(), elements) {
            (Some(rows), Some(k)) if k > 0 && rows % k == 0 => Dim::Known(rows / k),
            (None, Some(_)) => Dim::Unknown,
            _ => {
                let message = format!("axis 1 is {rows}, expected a multiple of {elements:?}");
                return Err(Error::invalid(message));
            }
        };
        let mut shape = vec![n.clone(), c];
        shape.extend(image);
        Ok(output(x.ty.dtype, Some(shape)))
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        Axes::new().each([(0, 0)], [(0, 0)])
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        optional(inputs, 0).map_or(0, |x| crate::cost::elements(x))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let sizes = |i: usize| -> Result<Vec<Dim>> {
            let sizes = crate::index::ints("sizes", required(inputs, i)?)?;
            Ok(sizes.into_iter().map(|n| Dim::Known(usize::try_from(n).unwrap_or(0))).collect())
        };
        let axes = self.windows(&sizes(1)?, &sizes(2)?)?;
        let axes = axes.ok_or_else(|| Error::unsupported("sizes that are not known"))?;
        let mut out = ctx.alloc(dtype, shape.clone())?;
        let plane: usize = shape[2..].iter().product();
        let elements: usize = axes.iter().map(|a| a.block).product();
        let blocks = x.shape()[2];
        with_type!(dtype, real T => {
            let x = x.as_slice::<T>()?;
            let cost = elements.saturating_mul(blocks).saturating_mul(8);
            ctx.split(out.as_mut_slice::<T>()?, plane, cost, |first, part| {
                for (i, part) in part.chunks_exact_mut(plane).enumerate() {
                    let x = &x[(first + i) * elements * blocks..][..elements * blocks];
                    part.fill(T::ZERO);
                    for (at, x) in x.iter().enumerate() {
                        if let Some(to) = target(&axes, at / blocks, at % blocks) {
                            part[to] = Number::add(part[to], *x);
                        }
                    }
                }
            });
            Ok(())
        })?;
        Ok(vec![out])
    }
}

/// Where element `k` of the block at place `place` lies in the image; `None` in the padding.
fn target(axes: &[Axis], mut k: usize, mut place: usize) -> Option<usize> {
    let steps = strides(&axes.iter().map(|a| a.image).collect::<Vec<_>>());
    let mut to = 0;
    for (axis, step) in axes.iter().zip(steps).rev() {
        let at = place % axis.places * axis.stride + k % axis.block * axis.dilation;
        (k, place) = (k / axis.block, place / axis.places);
        to += at.checked_sub(axis.begin).filter(|&at| at < axis.image)? * step;
    }
    Some(to)
}
