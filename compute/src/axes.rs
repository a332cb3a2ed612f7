//! How an operator's outputs follow from its inputs, axis by axis.

use crate::op::ValueInfo;
use lgp_memory::Dim;

/// What positions along an axis have to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisKind {
    /// Each position of the outputs follows from the same position of the inputs that have the
    /// axis, by the same function at every position. An input whose length is 1 there, where the
    /// outputs' is another, is broadcast. Every output has the axis.
    Each,
    /// All positions take part in every result, in any order: the inner axis of a product, the axis
    /// of a sum, of a norm or of a softmax. Outputs that have the axis are reordered as the inputs
    /// are; outputs that do not have it stay the same, up to rounding.
    All,
    /// Position `o` of the outputs follows from the positions `o · stride - before` to
    /// `o · stride - before + extent - 1` of the input, those that exist.
    Window {
        /// Positions of the input from one result to the next.
        stride: usize,
        /// Positions of padding before the input's first.
        before: usize,
        /// Positions that a result follows from, gaps of a dilation included.
        extent: usize,
    },
    /// Positions of the input that are picked by another input's numbers, which count them.
    Picked {
        /// The input of numbers, i32 or i64; negative ones count from the end.
        by: usize,
    },
}

/// One axis: where inputs and outputs have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// What its positions have to do with each other.
    pub kind: AxisKind,
    /// Pairs of an input and the input's axis. Absent inputs, and inputs that do not have it, are
    /// not named.
    pub inputs: Vec<(usize, usize)>,
    /// Pairs of an output and the output's axis.
    pub outputs: Vec<(usize, usize)>,
}

impl Axis {
    /// Which axis of an input this is.
    #[must_use]
    pub fn in_input(&self, input: usize) -> Option<usize> {
        self.inputs.iter().find(|(i, _)| *i == input).map(|(_, axis)| *axis)
    }

    /// Which axis of an output this is.
    #[must_use]
    pub fn in_output(&self, output: usize) -> Option<usize> {
        self.outputs.iter().find(|(o, _)| *o == output).map(|(_, axis)| *axis)
    }
}

/// What is known of an operator's axes. Of an axis that is not named nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Axes(Vec<Axis>);

impl Axes {
    /// Nothing is known yet.
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

    /// Adds an axis whose positions know nothing of each other.
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

    /// Of an operator whose outputs have the shape to which its inputs broadcast, by numpy's rules:
    /// each element follows from the inputs' elements at its place. Nothing where a rank is unknown.
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

    /// Of an operator that treats every axis of input 0 but those in `other` alike: each of them is
    /// the same axis of every output, and its positions know nothing of each other.
    #[must_use]
    pub fn each_but(other: &[usize], inputs: &[Option<&ValueInfo>], outputs: usize) -> Self {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank);
        (0..rank.unwrap_or(0))
            .filter(|axis| !other.contains(axis))
            .fold(Self::new(), |axes, axis| axes.each([(0, axis)], (0..outputs).map(|o| (o, axis))))
    }

    /// Of an operator whose output has the input's elements in the same order, under another shape:
    /// axes of one length that have as many elements before them, or after them, in both shapes.
    /// Axes that are merged or split are left out, and lengths of 1 where one shape has more.
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

    /// The axis that is this one of an output.
    #[must_use]
    pub fn of_output(&self, output: usize, axis: usize) -> Option<&Axis> {
        self.iter().find(|it| it.outputs.contains(&(output, axis)))
    }

    /// The axis that is this one of an input.
    #[must_use]
    pub fn of_input(&self, input: usize, axis: usize) -> Option<&Axis> {
        self.iter().find(|it| it.inputs.contains(&(input, axis)))
    }

    /// Of an operator of one output that only reorders axes of input 0: for each axis of the output,
    /// which axis of the input it is.
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

/// Whether axis `i` of a shape is axis `j` of another that the same elements have.
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
        // All other lengths are known: so much is left for both.
        _ => fixed(before) && fixed(after),
    }
}

/// How many elements dimensions hold: a factor and symbols. `None` where an unknown one or none at
/// all leaves open where an axis stands.
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

/// How many lengths of 1 come first.
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
