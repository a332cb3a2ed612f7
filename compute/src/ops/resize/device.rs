//! Resampling on devices. Places are fractions of whole numbers there, so that the choice of the
//! nearest element is exact.

use super::targets::Target;
use super::{CoordinateMode, NearestRounding, Resize, ResizeMode};
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, groups};
use crate::op::ValueInfo;
use lgp_memory::DType;
use num_traits::cast;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &Resize,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, y) = (optional(inputs, 0)?, outputs.first()?);
    let (dtype, from, to) = (x.ty.dtype, x.ty.concrete_shape()?, y.ty.concrete_shape()?);
    let is_float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let linear = match op.mode {
        ResizeMode::Nearest(_) => false,
        ResizeMode::Linear => is_float.then_some(true).filter(|_| !op.antialias)?,
        ResizeMode::Cubic { .. } => return None,
    };
    if linear && op.exclude_outside || from.contains(&0) || to.contains(&0) {
        return None;
    }
    // Only the last three axes change; the axes before them are planes.
    let rank = from.rank();
    let first = rank.saturating_sub(3);
    let mut lines = [Line { from: 1, to: 1, place: Place::SAME }; 3];
    for axis in first..rank {
        let place = Place::SAME;
        lines[axis + 3 - rank] = Line { from: from[axis], to: to[axis], place };
    }
    let known = x.sym_shape()?.to_vec();
    for (axis, target) in op.targets(inputs, &known).ok()?? {
        let (from, to) = (from[axis], to[axis]);
        let place = Place::new(op, &target, from, to)?;
        if axis >= first {
            lines[axis + 3 - rank] = Line { from, to, place };
        } else if place != Place::SAME {
            return None;
        }
    }
    let mut kernel = Kernel::new("resize", include_str!("resize.cl"), [GROUP, 1, 1])
        .elements(dtype)?
        .define("LINEAR", usize::from(linear))
        .define("DEEP", usize::from(lines[0].place != Place::SAME));
    for (line, name) in lines.iter().zip(["D", "H", "W"]) {
        let Place { step, start, parts } = line.place.within(line.from, line.to)?;
        kernel = kernel
            .define(&format!("PLACE_{name}(i)"), format!("((i) * {step} + ({start}))"))
            .define(&format!("PARTS_{name}"), parts);
    }
    let planes: usize = from[..first].iter().product();
    let sizes = lines.iter().map(|line| line.from).chain(lines.iter().map(|line| line.to));
    let mut arguments = vec![Argument::Input(0), Argument::Output(0)];
    for size in std::iter::once(planes).chain(sizes) {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let count: usize = to.iter().product();
    let bytes = from.byte_len(dtype).ok()? + to.byte_len(dtype).ok()?;
    let flops = if linear { 9 * count as u64 } else { 0 };
    let groups = [groups(count, GROUP), 1, 1];
    Some(Call { kernel, groups, arguments, flops, bytes: bytes as u64 }.into())
}

/// An axis.
#[derive(Debug, Clone, Copy)]
struct Line {
    from: usize,
    to: usize,
    place: Place,
}

/// Where output `i` lies in the input: at `(i · step + start) / parts`, rounded down for the
/// nearest element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    step: i64,
    start: i64,
    parts: i64,
}

impl Place {
    const SAME: Self = Self { step: 1, start: 0, parts: 1 };

    /// `None` for cropping, and for scales that are no small fractions.
    fn new(op: &Resize, target: &Target, from: usize, to: usize) -> Option<Self> {
        let (p, q) = match *target {
            Target::Size(_) => (to, from),
            Target::Scale(scale) | Target::Fixed(_, scale) => fraction(scale, from, to)?,
        };
        if from == to && p == q {
            return Some(Self::SAME);
        }
        let whole = |n: usize| i64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let [from, to, p, q] = [from, to, p, q].map(whole);
        let only = Self { step: 0, start: 0, parts: 1 };
        let exact = match op.coordinates {
            CoordinateMode::PytorchHalfPixel | CoordinateMode::AlignCorners if to == 1 => only,
            CoordinateMode::HalfPixel | CoordinateMode::PytorchHalfPixel => {
                Self { step: 2 * q, start: q - p, parts: 2 * p }
            }
            // For the nearest element, the rounding of the CPU's offset would decide.
            CoordinateMode::HalfPixelSymmetric if op.mode == ResizeMode::Linear => {
                let start = from.checked_mul(p)?.checked_sub(to.checked_mul(q)?)?;
                Self { step: 2 * q, start: start + q - p, parts: 2 * p }
            }
            CoordinateMode::AlignCorners => {
                let parts = p.checked_mul(from)?.checked_sub(q).filter(|parts| *parts > 0)?;
                Self { step: (from - 1).checked_mul(q)?, start: 0, parts }
            }
            CoordinateMode::Asymmetric => Self { step: q, start: 0, parts: p },
            CoordinateMode::HalfPixelSymmetric | CoordinateMode::TfCropAndResize => return None,
        };
        let Self { step, start, parts } = exact;
        let up = Self { start: start + parts - 1, ..exact };
        let doubled = |start| Self { step: 2 * step, start, parts: 2 * parts };
        Some(match op.mode {
            ResizeMode::Nearest(NearestRounding::Ceil) => up,
            ResizeMode::Nearest(NearestRounding::Old) if p < q => up,
            ResizeMode::Nearest(NearestRounding::RoundPreferFloor) => {
                doubled(2 * start + parts - 1)
            }
            ResizeMode::Nearest(NearestRounding::RoundPreferCeil) => doubled(2 * start + parts),
            _ => exact,
        })
    }

    /// The same place, if numerators stay within 32 bits.
    fn within(self, from: usize, to: usize) -> Option<Self> {
        let [from, to] = [i64::try_from(from).ok()?, i64::try_from(to).ok()?];
        let last = self.step.checked_mul(to)?.checked_add(self.start.abs())?;
        i32::try_from(last.max(self.parts.checked_mul(from)?)).ok()?;
        Some(self)
    }
}

/// A scale as a fraction: of the two sizes where it is their quotient, or by a power of two.
fn fraction(scale: f64, from: usize, to: usize) -> Option<(usize, usize)> {
    if cast::<_, f64>(from)? * scale == cast::<_, f64>(to)? {
        return Some((to, from));
    }
    let whole = |q: &usize| cast::<_, f64>(*q).is_some_and(|q| (scale * q).fract() == 0.);
    let q = (0..12).map(|bits| 1usize << bits).find(whole)?;
    Some((cast(scale * cast::<_, f64>(q)?)?, q))
}
