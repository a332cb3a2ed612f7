//! One axis that is resized: the positions in the input that its outputs come from.

use super::targets::Target;
use super::{CoordinateMode, NearestRounding};
use crate::error::Result;
use crate::list::list;
use crate::matrix::Real;
use num_traits::cast;

/// One axis that is resized; not empty on either side.
pub(super) struct Line {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) scale: f64,
    /// Start and end of the part that is resized, as fractions of the axis.
    pub(super) crop: Option<(f64, f64)>,
}

/// Two neighbours and the weight of the second.
pub(super) struct Blend<T> {
    pub(super) left: usize,
    pub(super) right: usize,
    pub(super) weight: T,
}

impl Line {
    /// Where output `i` lies in the input.
    pub(super) fn position(&self, mode: CoordinateMode, i: usize) -> f64 {
        let (i, from, to) = (number(i), number(self.from), number(self.to));
        match mode {
            CoordinateMode::HalfPixel => (i + 0.5) / self.scale - 0.5,
            CoordinateMode::PytorchHalfPixel if self.to == 1 => 0.,
            CoordinateMode::PytorchHalfPixel => (i + 0.5) / self.scale - 0.5,
            CoordinateMode::HalfPixelSymmetric => {
                // The scale times the input's size is the output's size before it was rounded.
                let adjustment = to / (self.scale * from);
                let offset = from / 2. * (1. - adjustment);
                offset + (i + 0.5) / self.scale - 0.5
            }
            CoordinateMode::AlignCorners if self.to == 1 => 0.,
            // The output's size before it was rounded decides where the last corner lies.
            CoordinateMode::AlignCorners => i * (from - 1.) / (self.scale * from - 1.),
            CoordinateMode::TfCropAndResize => self.cropped(i).into(),
            CoordinateMode::Asymmetric => i / self.scale,
        }
    }

    /// Where output `i` lies in the input that is cropped, in f32 as in other engines: the rounding
    /// decides which outputs lie outside and which element is the nearest.
    #[allow(clippy::cast_possible_truncation, reason = "positions are f32 here")]
    fn cropped(&self, i: f64) -> f32 {
        let (start, end) = self.crop.unwrap_or((0., 1.));
        let (start, end, i) = (start as f32, end as f32, i as f32);
        let (last, to) = (number(self.from) as f32 - 1., number(self.to) as f32);
        if self.to == 1 {
            0.5 * (start + end) * last
        } else {
            start * last + i * (end - start) * last / (to - 1.)
        }
    }

    /// The outputs that come from outside of the input.
    pub(super) fn outside(&self) -> Result<Vec<usize>> {
        let last = number(self.from - 1);
        let inside = |x: f64| (0. ..=last).contains(&x);
        let at = |&i: &usize| !inside(self.position(CoordinateMode::TfCropAndResize, i));
        let found = (0..self.to).filter(at);
        let mut outside = list(std::iter::repeat_n(0, found.clone().count()))?;
        outside.iter_mut().zip(found).for_each(|(to, at)| *to = at);
        Ok(outside)
    }

    /// A whole position inside the input.
    fn clamped(&self, position: f64) -> usize {
        cast(position.max(0.)).unwrap_or(self.from).min(self.from - 1)
    }

    pub(super) fn nearest(
        &self,
        mode: CoordinateMode,
        rounding: NearestRounding,
    ) -> Result<Vec<usize>> {
        let source = |i| {
            let x = self.position(mode, i);
            self.clamped(match rounding {
                NearestRounding::RoundPreferFloor => (x - 0.5).ceil(),
                NearestRounding::RoundPreferCeil => (x + 0.5).floor(),
                NearestRounding::Floor => x.floor(),
                NearestRounding::Old if self.scale < 1. => x.ceil(),
                NearestRounding::Old => x.floor(),
                NearestRounding::Ceil => x.ceil(),
            })
        };
        list((0..self.to).map(source))
    }

    pub(super) fn linear<T: Real>(&self, mode: CoordinateMode) -> Result<Vec<Blend<T>>> {
        let source = |i| {
            let x = self.position(mode, i).clamp(0., number(self.from - 1));
            let left = self.clamped(x.floor());
            let weight = cast(x - x.floor()).unwrap_or_else(T::zero);
            Blend { left, right: (left + 1).min(self.from - 1), weight }
        };
        list((0..self.to).map(source))
    }
}

/// The factor that maps positions: the given one, or the quotient of the sizes.
pub(super) fn scale(target: &Target, from: usize, to: usize) -> f64 {
    match target {
        Target::Scale(scale) | Target::Fixed(_, scale) => *scale,
        Target::Size(_) => number(to) / number(from),
    }
}

fn number(n: usize) -> f64 {
    cast(n).unwrap_or(f64::INFINITY)
}
