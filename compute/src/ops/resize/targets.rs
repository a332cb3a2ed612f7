//! What the axes are resized to.

use super::{AspectRatio, Resize};
use crate::args::{ints_or, optional};
use crate::error::{Error, Result};
use crate::op::ValueInfo;
use lgp_memory::Dim;

/// The size or the factor that an axis is resized to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Target {
    /// A factor; the size is rounded down.
    Scale(f64),
    /// A size.
    Size(Dim),
    /// A size in proportion, and the factor that it comes from.
    Fixed(usize, f64),
}

impl Resize {
    /// The axes that are resized, with their targets; `None` while a target is unknown.
    pub(super) fn targets(
        &self,
        inputs: &[Option<&ValueInfo>],
        dims: &[Dim],
    ) -> Result<Option<Vec<(usize, Target)>>> {
        let rank = dims.len();
        let named = self.named(rank)?;
        let targets: Vec<Target> = if let Some(sizes) = nonempty(optional(inputs, 3)) {
            match ints_or("sizes", Some(&sizes), None)? {
                Some(Some(ints)) if ints.iter().any(|&n| n < 0) => {
                    let message = format!("the sizes are {ints:?}, expected no negative one");
                    return Err(Error::invalid(message));
                }
                _ => {}
            }
            let Some(contents) = sizes.contents() else { return Ok(None) };
            contents.into_iter().map(Target::Size).collect()
        } else if let Some(scales) = nonempty(optional(inputs, 2)) {
            let Some(constant) = &scales.constant else { return Ok(None) };
            scaled(constant.as_slice::<f32>()?)?
        } else if let Some(scales) = &self.scales {
            scaled(scales)?
        } else {
            return Err(Error::invalid("scales and sizes are both missing"));
        };
        if targets.len() != named.len() {
            let message = format!("{} scales or sizes, expected {}", targets.len(), named.len());
            return Err(Error::invalid(message));
        }
        let targets: Vec<_> = named.into_iter().zip(targets).collect();
        Ok(if self.aspect == AspectRatio::Stretch {
            Some(targets)
        } else {
            self.in_proportion(targets, dims)
        })
    }

    /// The targets with the same factor for all axes, where all have sizes. `None` while a size is
    /// unknown.
    fn in_proportion(
        &self,
        targets: Vec<(usize, Target)>,
        dims: &[Dim],
    ) -> Option<Vec<(usize, Target)>> {
        let wide = |dim: &Dim| num_traits::cast::<_, f64>(dim.known()?);
        let mut factor: Option<f64> = None;
        for (axis, target) in &targets {
            let Target::Size(size) = target else { return Some(targets) };
            let own = wide(size)? / wide(&dims[*axis])?;
            factor = Some(factor.map_or(own, |f| match self.aspect {
                AspectRatio::NotLarger => f.min(own),
                _ => f.max(own),
            }));
        }
        let factor = factor?;
        let fixed = |(axis, _): (usize, Target)| {
            let size = floored(dims[axis].known()?, factor, 0.5)?;
            Some((axis, Target::Fixed(size, factor)))
        };
        targets.into_iter().map(fixed).collect()
    }
}

impl Target {
    /// The size that an axis of this size gets.
    pub(super) fn output(&self, dim: &Dim) -> Result<Dim> {
        match (self, dim) {
            (Self::Size(size), _) => Ok(size.clone()),
            (Self::Fixed(size, _), _) => Ok(Dim::Known(*size)),
            (Self::Scale(scale), dim) if *scale == 1. => Ok(dim.clone()),
            // The exact product is rounded down, as in ONNX's reference: 10 · 0.7f32 is less than
            // 7. ONNX Runtime rounds the product to f32 first, which gives 7.
            (Self::Scale(scale), Dim::Known(n)) => {
                let size = floored(*n, *scale, 0.).map(Dim::Known);
                size.ok_or_else(|| Error::invalid(format!("{n} times {scale} overflows")))
            }
            _ => Ok(Dim::Unknown),
        }
    }
}

/// Older exporters write an empty tensor for an absent input.
fn nonempty<'a>(input: Option<&&'a ValueInfo>) -> Option<&'a ValueInfo> {
    input.copied().filter(|info| info.sym_shape() != Some(&[Dim::Known(0)]))
}

fn scaled(scales: &[f32]) -> Result<Vec<Target>> {
    let scale = |&s: &f32| {
        if s > 0. && s.is_finite() {
            return Ok(Target::Scale(s.into()));
        }
        let message = format!("the scales are {scales:?}, expected positive numbers");
        Err(Error::invalid(message))
    };
    scales.iter().map(scale).collect()
}

/// `n · scale + more`, rounded down.
fn floored(n: usize, scale: f64, more: f64) -> Option<usize> {
    num_traits::cast((num_traits::cast::<_, f64>(n)? * scale + more).floor())
}
