//! Which axes are resampled, in which steps, and the work of the steps.

use super::targets::Target;
use super::{CoordinateMode, Resize, ResizeMode};
use crate::args::{axes, optional};
use crate::error::Result;
use crate::op::ValueInfo;
use lgp_memory::Dim;

impl Resize {
    /// The axes that sizes or scales belong to, in their order.
    pub(super) fn named(&self, rank: usize) -> Result<Vec<usize>> {
        match &self.axes {
            Some(named) => axes(named, rank),
            None => Ok((0..rank).collect()),
        }
    }

    /// The axes of an input of these dimensions that are not certain to keep their elements.
    pub(super) fn resampled(
        &self,
        inputs: &[Option<&ValueInfo>],
        dims: &[Dim],
    ) -> Result<Vec<usize>> {
        let targets = match self.coordinates {
            // The region of an axis that keeps its size may be a part of it.
            CoordinateMode::TfCropAndResize => None,
            _ => self.targets(inputs, dims)?,
        };
        let Some(targets) = targets else { return self.named(dims.len()) };
        let changes = |(axis, target): &(usize, Target)| !target.keeps(&dims[*axis]);
        Ok(targets.into_iter().filter(changes).map(|(axis, _)| axis).collect())
    }

    /// The axes whose sizes change, one after the other, each with the number of elements after it.
    pub(super) fn steps(&self, from: &[usize], to: &[usize]) -> Vec<(usize, usize)> {
        let mut dims = from.to_vec();
        let mut steps = Vec::new();
        for axis in self.named(to.len()).unwrap_or_default() {
            if dims[axis] != to[axis] {
                dims[axis] = to[axis];
                steps.push((axis, dims.iter().fold(1, |n: usize, &d| n.saturating_mul(d))));
            }
        }
        steps
    }

    /// The number of products of an element and a weight that are added up.
    pub(super) fn blended(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let taps: u64 = match self.mode {
            ResizeMode::Nearest(_) => return 0,
            ResizeMode::Linear => 2,
            ResizeMode::Cubic { .. } => 4,
        };
        let from = optional(inputs, 0).and_then(|x| x.ty.concrete_shape());
        let to = outputs.first().and_then(|y| y.ty.concrete_shape());
        let (Some(from), Some(to)) = (from, to) else { return 0 };
        self.steps(&from, &to).into_iter().fold(0, |sum: u64, (axis, elements)| {
            // Antialiasing widens a kernel by the factor by which the axis shrinks.
            let wider =
                if self.antialias { from[axis].div_ceil(to[axis].max(1)).max(1) } else { 1 };
            let all = taps.saturating_mul(wider as u64).saturating_mul(elements as u64);
            sum.saturating_add(all)
        })
    }
}

impl Target {
    /// Whether the axis certainly keeps its size.
    fn keeps(&self, dim: &Dim) -> bool {
        match self {
            Self::Scale(scale) => *scale == 1.,
            Self::Size(size) => size == dim && *dim != Dim::Unknown,
            // Its factor follows from the sizes of all axes.
            Self::Fixed(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use crate::ops::{AspectRatio, NearestRounding};
    use crate::testing::{constant, info, t};

    #[test]
    fn axes_of_their_own_size_are_not_resampled() {
        let plain = Resize::default();
        let cropping = Resize { coordinates: CoordinateMode::TfCropAndResize, ..Resize::default() };
        let stretched = Resize { aspect: AspectRatio::NotLarger, ..Resize::default() };
        let last = Resize { axes: Some(vec![-1]), ..cropping.clone() };
        let scales = |scales: &[f32]| constant(t(&[scales.len()], scales));
        for (op, x, scales, sizes, resampled) in [
            (&plain, "f32 n 3 ?", Some(scales(&[1., 2., 1.])), None, vec![1]),
            (&plain, "f32 n 3 ?", None, Some("dims n 4 ?"), vec![1, 2]),
            (&plain, "f32 n 3 8", None, Some("dims m 3 8"), vec![0]),
            (&plain, "f32 n 3", None, Some("i64 2"), vec![0, 1]),
            (&cropping, "f32 n 3", Some(scales(&[1., 1.])), None, vec![0, 1]),
            (&last, "f32 n 3", Some(scales(&[1.])), None, vec![1]),
            (&stretched, "f32 2 3", None, Some("dims 2 3"), vec![0, 1]),
        ] {
            let (x, sizes) = (info(x), sizes.map(info));
            let inputs = [Some(&x), None, scales.as_ref(), sizes.as_ref()];
            let dims = x.sym_shape().unwrap();
            assert_eq!(op.resampled(&inputs, dims).unwrap(), resampled, "{op:?} {x:?}");
        }
    }

    #[test]
    fn what_is_blended() {
        let (x, y) = (info("f32 1 3 8 4"), [info("f32 1 3 4 8")]);
        let of = |mode, antialias| {
            let op = Resize { mode, antialias, ..Resize::default() };
            op.multiply_adds(&[Some(&x)], &y)
        };
        assert_eq!(of(ResizeMode::Nearest(NearestRounding::Floor), false), 0);
        assert_eq!(of(ResizeMode::Linear, false), 2 * (3 * 4 * 4) + 2 * (3 * 4 * 8));
        assert_eq!(of(ResizeMode::Cubic { a: -0.5 }, true), 8 * (3 * 4 * 4) + 4 * (3 * 4 * 8));
    }
}
