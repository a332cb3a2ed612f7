//! The types in which operators answer what they become when a graph is compiled.

use crate::epilogue::Activation;
use crate::isa::Isa;
use crate::op::{Op, ValueInfo};
use crate::ops::UnpackBits;
use lgp_memory::{DType, Tensor};
use std::sync::Arc;

/// How the operators that replace others will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// The widest vector instructions that kernels may use; `None` allows all of the machine's.
    pub isa: Option<Isa>,
    /// Products may be rounded to bf16, where the machine has instructions for it.
    pub bf16: bool,
    /// The operators run on a device, whose kernels differ from the CPU's.
    pub on_device: bool,
}

/// An input of a step.
#[derive(Debug, Clone)]
pub enum Operand {
    /// An optional input that is absent.
    Absent,
    /// An input of the operator that the steps replace.
    Input(usize),
    /// A tensor that was made for the step.
    Constant(Tensor),
    /// The result of an earlier step, by the step's number.
    Made(usize),
}

/// One of the operators that replace an operator.
#[derive(Debug, Clone)]
pub struct Step {
    /// The operator; `None` is the operator that the steps replace.
    pub op: Option<Arc<dyn Op>>,
    /// The operator's inputs.
    pub inputs: Vec<Operand>,
}

impl Step {
    /// A step with another operator.
    #[must_use]
    pub fn new(op: impl Op, inputs: Vec<Operand>) -> Self {
        Self { op: Some(Arc::new(op)), inputs }
    }

    /// A step with the operator itself.
    #[must_use]
    pub fn same(inputs: Vec<Operand>) -> Self {
        Self { op: None, inputs }
    }
}

/// All inputs as the operands of a step, in their order.
#[must_use]
pub fn operands(inputs: &[Option<&ValueInfo>]) -> Vec<Operand> {
    let operand = |(i, input): (usize, &Option<&ValueInfo>)| match input {
        Some(_) => Operand::Input(i),
        None => Operand::Absent,
    };
    inputs.iter().enumerate().map(operand).collect()
}

/// `x · factor + shift`, with one factor and one shift for all elements or one each for the
/// positions of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// The input that is x.
    pub x: usize,
    /// The axis whose positions have the factors and shifts, counted from the end with 1 as the
    /// last; `None` where there is one factor and one shift.
    pub axis: Option<usize>,
    /// The factors, in double precision, so that folding costs one rounding.
    pub factors: Vec<f64>,
    /// The shifts, as many as factors, or one of either.
    pub shifts: Vec<f64>,
}

impl Affine {
    /// The factor and the shift of a position of the axis.
    #[must_use]
    pub fn at(&self, position: usize) -> (f64, f64) {
        let of = |values: &[f64]| values[if values.len() == 1 { 0 } else { position }];
        (of(&self.factors), of(&self.shifts))
    }

    /// Whether every one of so many positions of an axis has a factor and a shift. The axis is
    /// counted from the end.
    #[must_use]
    pub fn fits(&self, axis: usize, positions: usize) -> bool {
        let sized = |values: &[f64]| values.len() == 1 || values.len() == positions;
        let is_single = self.factors.len() == 1 && self.shifts.len() == 1;
        (is_single || self.axis == Some(axis)) && sized(&self.factors) && sized(&self.shifts)
    }
}

/// An operation on an operator's result that the operator may do itself.
#[derive(Debug, Clone, Copy)]
pub enum Following<'a> {
    /// A function of each element.
    Activation(Activation),
    /// The sum with a constant of `[n]`, n being the length of the last axis.
    Row(&'a Tensor),
    /// The sum with a tensor of the result's dtype and shape.
    Residual,
}

/// An operator that also does the operation that followed it.
#[derive(Debug, Clone)]
pub struct Absorbed {
    /// The operator.
    pub op: Arc<dyn Op>,
    /// The input for the added tensor; `None` where no tensor was added, or where the operator
    /// holds it.
    pub input: Option<usize>,
}

impl Absorbed {
    /// An operator with unchanged inputs.
    #[must_use]
    pub fn held(op: impl Op) -> Self {
        Self { op: Arc::new(op), input: None }
    }

    /// An operator with one more input.
    #[must_use]
    pub fn given(op: impl Op, input: usize) -> Self {
        Self { op: Arc::new(op), input: Some(input) }
    }
}

/// How an operator decodes an input that takes fewer bytes to floats.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoder {
    /// From f16 or bf16 to f32.
    Widens,
    /// `(q − zero) · scale`: scale is input 1, zero input 2.
    Scales {
        /// The axis of the scales, negative from the back.
        axis: i64,
        /// Elements along the axis that share a scale; 0 for one scale a position.
        block: usize,
        /// The floats' dtype; `None` for that of the scales.
        to: Option<DType>,
    },
    /// From packed elements of a few bits.
    Unpacks(UnpackBits),
}
