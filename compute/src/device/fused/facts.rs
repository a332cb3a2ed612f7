//! The facts of fused operators, from the facts of each operator.

use super::Fused;
use crate::op::{Op, ValueInfo};
use crate::{Axes, Axis, AxisKind};
use lgp_memory::Dim;

impl Fused {
    /// The base's axes as axes of the fused operator, where steps keep the shape of the base's
    /// result.
    pub(super) fn axes_of_base(
        &self,
        base: &dyn Op,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Axes> {
        let (own, extra) = inputs.split_at(self.own(inputs.len()).ok()?);
        let result = self.types(inputs).ok()?.into_iter().next()?;
        let shape = result.ty.shape.as_ref().filter(|shape| !shape.0.contains(&Dim::Unknown))?;
        if Some(shape) != outputs.first()?.ty.shape.as_ref() {
            return None;
        }
        // To the steps the base's result is an input like the others.
        let read: Vec<_> = std::iter::once(Some(&result)).chain(extra.iter().copied()).collect();
        let steps = Axes::elementwise(&read, outputs);
        let axes = base.axes(own, std::slice::from_ref(&result));
        let axes = axes.iter().filter_map(|axis| {
            let Some(at) = axis.in_output(0) else {
                return (axis.kind != AxisKind::Each).then(|| axis.clone());
            };
            let beside = steps.of_output(0, at)?.inputs.iter().filter(|(i, _)| *i > 0);
            let beside = beside.map(|&(i, own_axis)| (i - 1 + own.len(), own_axis));
            joined(axis, beside, inputs, result.dim(at)?)
        });
        Some(axes.fold(Axes::new(), |all, axis| all.with(axis.kind, axis.inputs, axis.outputs)))
    }
}

/// An axis of the base as an axis of the fused operator. `beside` are the steps' inputs that have
/// this axis, each with the axis's number in that input. `length` is the axis's length in the
/// output.
fn joined(
    axis: &Axis,
    beside: impl Iterator<Item = (usize, usize)>,
    inputs: &[Option<&ValueInfo>],
    length: &Dim,
) -> Option<Axis> {
    let mut joined = axis.clone();
    for (input, own_axis) in beside {
        let own = inputs.get(input).copied().flatten()?.dim(own_axis)?;
        match axis.kind {
            AxisKind::Each => joined.inputs.push((input, own_axis)),
            // The input is the same at every position.
            _ if *own == Dim::Known(1) => {}
            AxisKind::All if own == length => joined.inputs.push((input, own_axis)),
            // A step reads the input at the output's positions, but the base at others.
            _ => return None,
        }
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AxisKind::{All, Each};
    use crate::device::{Operand, Step};
    use crate::ops::{Binary, BinaryKind, MatMul, Pool, PoolKind, Softmax};
    use crate::testing::info;
    use std::sync::Arc;

    /// A base, with the number of its inputs, to whose result one more input is added; without a
    /// base, a sum of two inputs.
    fn plus(base: Option<(Arc<dyn Op>, usize)>) -> Fused {
        let operands = vec![Some(Operand::Input(0)), Some(Operand::Input(1))];
        Fused::new(base, vec![Step { op: Arc::new(Binary::new(BinaryKind::Add)), operands }])
    }

    fn facts(op: &Fused, inputs: &[&str]) -> (Vec<Axis>, u64) {
        let inputs: Vec<ValueInfo> = inputs.iter().map(|text| info(text)).collect();
        let inputs: Vec<Option<&ValueInfo>> = inputs.iter().map(Some).collect();
        let outputs = op.infer(&inputs).unwrap();
        let axes = op.axes(&inputs, &outputs).iter().cloned().collect();
        (axes, op.multiply_adds(&inputs, &outputs))
    }

    fn axis(kind: AxisKind, inputs: &[(usize, usize)], outputs: &[(usize, usize)]) -> Axis {
        Axis { kind, inputs: inputs.to_vec(), outputs: outputs.to_vec() }
    }

    #[test]
    fn steps_alone_are_elementwise() {
        let each = |at| axis(Each, &[(0, at), (1, at)], &[(0, at)]);
        assert_eq!(facts(&plus(None), &["f32 2 3", "f32 2 3"]), (vec![each(0), each(1)], 6));
    }

    #[test]
    fn what_steps_read_has_the_axes_of_the_result() {
        let product = plus(Some((Arc::new(MatMul), 2)));
        let inner = axis(All, &[(0, 1), (1, 0)], &[]);
        let columns = axis(Each, &[(1, 1), (2, 0)], &[(0, 1)]);
        let rows = axis(Each, &[(0, 0)], &[(0, 0)]);
        let inputs = ["f32 2 5", "f32 5 3", "f32 3"];
        assert_eq!(facts(&product, &inputs), (vec![inner, rows, columns], 2 * 5 * 3 + 6));

        let softmax = Softmax { axis: -1, log: false, flatten: false };
        let softmax = plus(Some((Arc::new(softmax), 1)));
        let rows = axis(Each, &[(0, 0), (1, 0)], &[(0, 0)]);
        let all = |inputs: &[(usize, usize)]| vec![rows.clone(), axis(All, inputs, &[(0, 1)])];
        assert_eq!(facts(&softmax, &["f32 n 3", "f32 n 3"]).0, all(&[(0, 1), (1, 1)]));
        assert_eq!(facts(&softmax, &["f32 n 3", "f32 n 1"]).0, all(&[(0, 1)]));
        // A result that grows has other axes than the base's.
        assert!(facts(&softmax, &["f32 1 3", "f32 2 3"]).0.is_empty());
    }

    #[test]
    fn windows_are_those_of_the_base_alone() {
        let pool = Pool {
            kind: PoolKind::Max,
            kernel: vec![3],
            strides: Vec::new(),
            pads: crate::window::Pads::SameUpper,
            dilations: Vec::new(),
            ceil_mode: false,
        };
        let pool = plus(Some((Arc::new(pool), 1)));
        let window = AxisKind::Window { stride: 1, before: 1, extent: 3 };
        let window = axis(window, &[(0, 2)], &[(0, 2)]);
        let each = |at| axis(Each, &[(0, at), (1, at)], &[(0, at)]);
        let (axes, work) = facts(&pool, &["f32 2 3 8", "f32 2 3 8"]);
        assert_eq!((axes, work), (vec![each(0), each(1)], 3 * 48 + 48));
        let (axes, _) = facts(&pool, &["f32 2 3 8", "f32 2 3 1"]);
        assert_eq!(axes, [each(0), each(1), window]);
    }
}
