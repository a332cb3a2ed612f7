//! Operators on tensors whose axes lie in another order, such as images whose channels come last.

use crate::axes::{Axes, AxisKind};
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::Transpose;
use crate::rewrite::{Hints, Operand, Step, operands};
use lgp_memory::{Dim, Tensor};

type Make<'a> = Box<dyn FnOnce(Hints) -> Result<Vec<Step>> + 'a>;

/// An operator on reordered tensors, as [`Op::reordered`] answers it.
pub struct Reordered<'a> {
    /// Whether each input is reordered.
    pub inputs: Vec<bool>,
    /// Whether each output is reordered.
    pub outputs: Vec<bool>,
    /// Whether its kernels are faster on reordered tensors and so worth a reordering. Other
    /// operators only follow their neighbours' order.
    pub is_faster: bool,
    make: Make<'a>,
}

impl std::fmt::Debug for Reordered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { inputs, outputs, is_faster, .. } = self;
        write!(f, "Reordered {{ {inputs:?} -> {outputs:?}, is_faster: {is_faster} }}")
    }
}

impl<'a> Reordered<'a> {
    /// An operator that only follows its neighbours' order. The last step of `make` makes the
    /// outputs.
    #[must_use]
    pub fn new(
        inputs: Vec<bool>,
        outputs: Vec<bool>,
        make: impl FnOnce(Hints) -> Result<Vec<Step>> + 'a,
    ) -> Self {
        Self { inputs, outputs, is_faster: false, make: Box::new(make) }
    }

    /// Another operator that reads input 0 reordered and the other inputs in plain order, and whose
    /// outputs are all reordered.
    #[must_use]
    pub fn first(op: impl Op, inputs: &[Option<&ValueInfo>], outputs: usize) -> Self {
        let operands = operands(inputs);
        let first = (0..inputs.len()).map(|i| i == 0).collect();
        Self::new(first, vec![true; outputs], |_| Ok(vec![Step::new(op, operands)]))
    }

    /// As [`Reordered::first`], with operands of its own and one output.
    #[must_use]
    pub fn with(op: impl Op, given: usize, operands: Vec<Operand>) -> Self {
        let first = (0..given).map(|i| i == 0).collect();
        Self::new(first, vec![true], |_| Ok(vec![Step::new(op, operands)]))
    }

    /// The same, worth reordering for.
    #[must_use]
    pub fn faster(self) -> Self {
        Self { is_faster: true, ..self }
    }

    /// The steps that compute the operator, in order.
    ///
    /// # Errors
    /// Out of memory for weights that are laid out anew.
    pub fn steps(self, hints: Hints) -> Result<Vec<Step>> {
        (self.make)(hints)
    }
}

/// Takes images `[n, c, h, w]` to `[n, h, w, c]`.
pub const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];

/// The new place of an axis in tensors that `order` reorders: axis `i` of a reordered tensor is
/// axis `order[i]` of the tensor. A negative axis counts from the back.
#[must_use]
pub fn moved_axis(order: &[usize], axis: i64) -> Option<i64> {
    let rank = i64::try_from(order.len()).ok()?;
    let axis = usize::try_from(if axis < 0 { axis.checked_add(rank)? } else { axis }).ok()?;
    i64::try_from(order.iter().position(|&old| old == axis)?).ok()
}

/// A constant in the form that broadcasts to reordered tensors; `None` for a constant of higher
/// rank.
#[must_use]
pub fn moved_constant(order: &[usize], tensor: &Tensor) -> Option<Tensor> {
    let missing = order.len().checked_sub(tensor.shape().rank())?;
    let dims: Vec<usize> = vec![1; missing].into_iter().chain(tensor.shape().to_vec()).collect();
    let plain = tensor.reshape(dims).ok()?;
    let op = Transpose { perm: Some(order.to_vec()) };
    op.run(&Context::new(1), &[Some(plain.view())]).ok()?.pop()
}

/// The form of an operator whose axes are all [`AxisKind::Each`] and in the same place in inputs
/// and outputs: the operator itself in any order.
pub(crate) fn elementwise<'a>(
    axes: &Axes,
    order: &[usize],
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Reordered<'a>> {
    let rank = order.len();
    let mut reordered = vec![false; inputs.len()];
    let mut operands = Vec::with_capacity(inputs.len());
    let is_each =
        |o: usize, axis: usize| axes.of_output(o, axis).is_some_and(|it| it.kind == AxisKind::Each);
    let same = outputs
        .iter()
        .enumerate()
        .all(|(o, info)| info.rank() == Some(rank) && (0..rank).all(|axis| is_each(o, axis)));
    if !same {
        return None;
    }
    for (i, input) in inputs.iter().enumerate() {
        let Some(info) = input else {
            operands.push(Operand::Absent);
            continue;
        };
        let own = info.rank()?;
        let single = info.ty.shape.as_ref()?.0.iter().all(|dim| *dim == Dim::Known(1));
        let is_aligned = (0..rank).all(|axis| {
            let it = axes.of_output(0, axis);
            it.and_then(|it| it.in_input(i)) == (axis + own).checked_sub(rank)
        });
        operands.push(match &info.constant {
            _ if single && own < rank => Operand::Input(i),
            _ if !is_aligned => return None,
            Some(constant) if constant.len() == 1 => Operand::Input(i),
            Some(constant) => Operand::Constant(moved_constant(order, constant)?),
            None if own == rank => {
                reordered[i] = true;
                Operand::Input(i)
            }
            None => return None,
        });
    }
    if !reordered.contains(&true) {
        return None;
    }
    let make = |_| Ok(vec![Step::same(operands)]);
    Some(Reordered::new(reordered, vec![true; outputs.len()], make))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Binary, BinaryKind, Softmax};
    use lgp_memory::{DType, Shape, TensorType};

    const LAST: [usize; 4] = [0, 2, 3, 1];

    fn info(dims: &[usize]) -> ValueInfo {
        ValueInfo::of(TensorType::concrete(DType::F32, &Shape::from(dims)))
    }

    #[test]
    fn axes_and_constants_move_with_the_order() {
        assert_eq!([0, 1, 2, -1].map(|axis| moved_axis(&LAST, axis)), [0, 3, 1, 2].map(Some));
        assert_eq!(moved_axis(&LAST, 4), None);
        let c = Tensor::from_slice([3, 1, 2], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
        let moved = moved_constant(&LAST, &c).unwrap();
        assert_eq!(moved.shape().dims(), [1, 1, 2, 3]);
        assert_eq!(moved.as_slice::<f32>().unwrap(), [1., 3., 5., 2., 4., 6.]);
    }

    #[test]
    fn elementwise_operators_work_in_any_order() {
        let add = Binary::new(BinaryKind::Add);
        let (x, row, scalar) = (info(&[2, 3, 4, 5]), info(&[5]), info(&[]));
        let out = [x.clone()];
        let both = add.reordered(&LAST, &[Some(&x), Some(&x)], &out).unwrap();
        assert_eq!((both.inputs, both.outputs), (vec![true, true], vec![true]));
        let one = add.reordered(&LAST, &[Some(&scalar), Some(&x)], &out).unwrap();
        assert_eq!(one.inputs, [false, true]);
        assert!(add.reordered(&LAST, &[Some(&x), Some(&row)], &out).is_none());
        let weights = Tensor::from_slice([5], &[1f32; 5]).unwrap();
        let row = ValueInfo { constant: Some(weights), ..row };
        let steps = add.reordered(&LAST, &[Some(&x), Some(&row)], &out).unwrap();
        let steps = steps.steps(Hints::default()).unwrap();
        let Operand::Constant(moved) = &steps[0].inputs[1] else { panic!("it is a constant") };
        assert_eq!(moved.shape().dims(), [1, 1, 5, 1]);
        let softmax = Softmax { axis: 1, log: false, flatten: false };
        let steps = softmax.reordered(&LAST, &[Some(&x)], &out).unwrap();
        let steps = steps.steps(Hints::default()).unwrap();
        let moved = Softmax { axis: 3, ..softmax };
        assert_eq!(format!("{:?}", steps[0].op), format!("{:?}", Some(moved)));
    }
}
