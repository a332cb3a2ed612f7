//! How an operator's outputs follow from its inputs, axis by axis.

use crate::op::ValueInfo;
use lgp_memory::Dim;

/// How positions of the outputs along an axis depend on positions of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisKind {
    /// Each position of the outputs follows from the same position of the inputs that have the
    /// axis, by the same function at every position. An input of length 1 along the axis is
    /// broadcast to outputs of another length. Every output has the axis.
    Each,
    /// All positions take part in every result, in any order: the inner axis of a product, the axis
    /// of a sum, of a norm or of a softmax. Outputs that have the axis are reordered as the inputs
    /// are; outputs that do not have it stay the same, up to rounding.
    All,
    /// Position `o` of the outputs follows from those positions `o · stride - before` to
    /// `o · stride - before + extent - 1` that the input has.
    Window {
        /// Positions of the input from one result to the next.
        stride: usize,
        /// Positions of padding before the input's first position.
        before: usize,
        /// Positions that one window spans, gaps of a dilation included.
        extent: usize,
    },
    /// Another input's numbers, which are indices, pick positions of the input.
    Picked {
        /// The input of indices, i32 or i64; negative ones count from the end.
        by: usize,
    },
}

/// One axis, and which inputs and outputs have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// How outputs depend on inputs along the axis.
    pub kind: AxisKind,
    /// Pairs of an input and the input's axis. Absent inputs, and inputs without the axis, are left
    /// out.
    pub inputs: Vec<(usize, usize)>,
    /// Pairs of an output and the output's axis.
    pub outputs: Vec<(usize, usize)>,
}

impl Axis {
    /// The number of this axis in an input.
    #[must_use]
    pub fn in_input(&self, input: usize) -> Option<usize> {
        self.inputs.iter().find(|(i, _)| *i == input).map(|(_, axis)| *axis)
    }

    /// The number of this axis in an output.
    #[must_use]
    pub fn in_output(&self, output: usize) -> Option<usize> {
        self.outputs.iter().find(|(o, _)| *o == output).map(|(_, axis)| *axis)
    }
}

/// The known axes of an operator. Nothing is known of an axis that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Axes(Vec<Axis>);

impl Axes {
    /// No known axes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an axis of this kind.
    #[must_use]
    pub fn with(
        mut self,
        kind: AxisKind,
        inputs: impl IntoIterator<Item = (usize, usize)>,
        outputs: impl IntoIterator<Item = (usize, usize)>,
    ) -> Self {
        let (inputs, outputs) = (inputs.into_iter().collect(), outputs.into_iter().collect());
        self.0.push(Axis { kind, inputs, outputs });
        self
    }

    /// Adds an axis whose positions are independent of each other.
    #[must_use]
    pub fn each(
        self,
        inputs: impl IntoIterator<Item = (usize, usize)>,
        outputs: impl IntoIterator<Item = (usize, usize)>,
    ) -> Self {
        self.with(AxisKind::Each, inputs, outputs)
    }

    /// Adds an axis all positions of which take part in every result.
    #[must_use]
    pub fn all(
        self,
        inputs: impl IntoIterator<Item = (usize, usize)>,
        outputs: impl IntoIterator<Item = (usize, usize)>,
    ) -> Self {
        self.with(AxisKind::All, inputs, outputs)
    }

    /// The axes of an operator whose inputs broadcast to the outputs' shape by numpy's rules, and
    /// whose elements each follow from the inputs' elements at the same place. Empty where a rank
    /// is unknown.
    #[must_use]
    pub fn elementwise(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Self {
        let ranks: Option<Vec<Option<usize>>> = inputs
            .iter()
            .map(|input| match input {
                None => Some(None),
                Some(info) => Some(Some(info.rank()?)),
            })
            .collect();
        let (Some(ranks), Some(rank)) = (ranks, outputs.first().and_then(ValueInfo::rank)) else {
            return Self::new();
        };
        (0..rank).fold(Self::new(), |axes, axis| {
            let own = ranks
                .iter()
                .enumerate()
                .filter_map(|(i, own)| Some((i, (axis + (*own)?).checked_sub(rank)?)));
            axes.each(own, (0..outputs.len()).map(|o| (o, axis)))
        })
    }

    /// The axes of input 0 without those in `other`, for an operator whose every output has them in
    /// the same places. The positions along each axis are independent of each other.
    #[must_use]
    pub fn each_but(other: &[usize], inputs: &[Option<&ValueInfo>], outputs: usize) -> Self {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank);
        (0..rank.unwrap_or(0))
            .filter(|axis| !other.contains(axis))
            .fold(Self::new(), |axes, axis| axes.each([(0, axis)], (0..outputs).map(|o| (o, axis))))
    }

    /// The axes of an operator whose output has the input's elements in the same order under
    /// another shape. An axis of one shape is an axis of the other if both have the same length and
    /// as many elements before or after them. Axes that are merged or split are left out, and so
    /// are axes of length 1 where one shape has more of them.
    #[must_use]
    pub fn reshaped(input: &ValueInfo, output: &ValueInfo) -> Self {
        let (Some(from), Some(to)) = (input.sym_shape(), output.sym_shape()) else {
            return Self::new();
        };
        let mut free: Vec<usize> = (0..to.len()).collect();
        (0..from.len()).fold(Self::new(), |axes, i| {
            match free.iter().position(|&j| lines_up((from, i), (to, j))) {
                Some(at) => axes.each([(0, i)], [(0, free.remove(at))]),
                None => axes,
            }
        })
    }

    /// The axes.
    pub fn iter(&self) -> impl Iterator<Item = &Axis> {
        self.0.iter()
    }

    /// The axis that is axis `axis` of an output.
    #[must_use]
    pub fn of_output(&self, output: usize, axis: usize) -> Option<&Axis> {
        self.iter().find(|it| it.outputs.contains(&(output, axis)))
    }

    /// The axis that is axis `axis` of an input.
    #[must_use]
    pub fn of_input(&self, input: usize, axis: usize) -> Option<&Axis> {
        self.iter().find(|it| it.inputs.contains(&(input, axis)))
    }

    /// For an operator of one output that only reorders the axes of input 0: the input's axis for
    /// each axis of the output. `None` for other operators.
    #[must_use]
    pub fn permutation(&self, rank: usize) -> Option<Vec<usize>> {
        let order: Vec<usize> = (0..rank)
            .map(|axis| {
                let own = self.of_output(0, axis)?;
                (own.kind == AxisKind::Each).then(|| own.in_input(0)).flatten()
            })
            .collect::<Option<_>>()?;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.iter().copied().eq(0..rank).then_some(order)
    }
}

/// Whether axis `i` of a shape is axis `j` of another shape of the same elements.
fn lines_up((from, i): (&[Dim], usize), (to, j): (&[Dim], usize)) -> bool {
    let (before, after) = ([&from[..i], &to[..j]], [&from[i + 1..], &to[j + 1..]]);
    let alike = |[a, b]: [&[Dim]; 2]| size(a).is_some_and(|a| size(b) == Some(a));
    let fixed = |[a, b]: [&[Dim]; 2]| size(a).is_some_and(|a| a.1.is_empty() && size(b) == Some(a));
    match (&from[i], &to[j]) {
        (Dim::Known(1), Dim::Known(1)) => {
            let [a, b] = before.map(|dims| ones(dims.iter().rev()));
            let [c, d] = after.map(|dims| ones(dims.iter()));
            a == b && c == d && (alike(before) || alike(after))
        }
        (Dim::Known(a), Dim::Known(b)) => a == b && (alike(before) || alike(after)),
        (Dim::Known(_), _) | (_, Dim::Known(_)) => false,
        (a, b) if a == b && *a != Dim::Unknown => alike(before) || alike(after),
        // All other lengths are known and agree, so these two are equal.
        _ => fixed(before) && fixed(after),
    }
}

/// The number of elements of some dimensions, as a factor and symbols. `None` for an unknown
/// dimension and for no elements, which both leave the place of an axis open.
fn size(dims: &[Dim]) -> Option<(usize, Vec<&str>)> {
    let (mut factor, mut symbols) = (1usize, Vec::new());
    for dim in dims {
        match dim {
            Dim::Known(n) => factor = factor.checked_mul(*n)?,
            Dim::Symbol(name) => symbols.push(&**name),
            Dim::Unknown => return None,
        }
    }
    symbols.sort_unstable();
    (factor > 0).then_some((factor, symbols))
}

/// How many dimensions at the beginning are 1.
fn ones<'a>(dims: impl Iterator<Item = &'a Dim>) -> usize {
    dims.take_while(|dim| **dim == Dim::Known(1)).count()
}

impl ValueInfo {
    /// The rank, where it is known.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.ty.shape.as_ref().map(lgp_memory::SymShape::rank)
    }

    /// A dimension, where the rank is known.
    #[must_use]
    pub fn dim(&self, axis: usize) -> Option<&Dim> {
        self.ty.shape.as_ref()?.0.get(axis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::info;

    #[test]
    fn axes_outlive_a_reshape() {
        type Case<'a> = (&'a str, &'a str, &'a [(usize, usize)]);
        let cases: [Case<'_>; 12] = [
            ("n 12 8", "n 96", &[(0, 0)]),
            ("n s 96", "n s 12 8", &[(0, 0), (1, 1)]),
            ("n s 8", "? 8", &[(2, 1)]),
            ("2 3 7 4 5", "6 7 20", &[(2, 1)]),
            ("4 6", "6 4", &[]),
            ("? 5 1 1", "? 5", &[(0, 0), (1, 1)]),
            ("? n", "? n", &[(1, 1)]),
            ("1 1 3", "1 3", &[(2, 1)]),
            ("n 1 6", "n 1 2 3", &[(0, 0), (1, 1)]),
            ("2 3 1 4", "6 1 4", &[(2, 1), (3, 2)]),
            ("0 3 5", "0 5 3", &[(0, 0)]),
            ("", "1 1", &[]),
        ];
        for (from, to, expected) in cases {
            let axes = Axes::reshaped(&info(&format!("f32 {from}")), &info(&format!("f32 {to}")));
            let want =
                expected.iter().fold(Axes::new(), |axes, (i, j)| axes.each([(0, *i)], [(0, *j)]));
            assert_eq!(axes, want, "{from} to {to}");
        }
    }
}
