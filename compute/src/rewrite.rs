//! What operators become when a graph is compiled: the words in which they say it.

use crate::epilogue::Activation;
use crate::isa::Isa;
use crate::op::{Op, ValueInfo};
use crate::ops::UnpackBits;
use lgp_memory::{DType, Tensor};
use std::sync::Arc;

/// How the operators that stand in for others will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// The widest vector instructions that kernels may use; `None` is what the machine has.
    pub isa: Option<Isa>,
    /// Products may be rounded to bf16, where the machine has instructions for it.
    pub bf16: bool,
    /// They run on a device, whose kernels are others than the CPU's.
    pub on_device: bool,
}

/// What a step reads.
#[derive(Debug, Clone)]
pub enum Operand {
    /// An optional input that is absent.
    Absent,
    /// An input of the operator that the steps stand in for.
    Input(usize),
    /// A tensor that was made for the step.
    Constant(Tensor),
    /// What an earlier step made, by the step's number.
    Made(usize),
}

/// One of the operators that stand in for another.
#[derive(Debug, Clone)]
pub struct Step {
    /// The operator; `None` is the one that it stands in for.
    pub op: Option<Arc<dyn Op>>,
    /// What it reads.
    pub inputs: Vec<Operand>,
}

impl Step {
    /// A step of another operator.
    #[must_use]
    pub fn new(op: impl Op, inputs: Vec<Operand>) -> Self {
        Self { op: Some(Arc::new(op)), inputs }
    }

    /// A step of the operator itself.
    #[must_use]
    pub fn same(inputs: Vec<Operand>) -> Self {
        Self { op: None, inputs }
    }
}

/// All inputs, as they are given.
#[must_use]
pub fn operands(inputs: &[Option<&ValueInfo>]) -> Vec<Operand> {
    let operand = |(i, input): (usize, &Option<&ValueInfo>)| match input {
        Some(_) => Operand::Input(i),
        None => Operand::Absent,
    };
    inputs.iter().enumerate().map(operand).collect()
}

/// `x · factor + shift`, with one factor and one shift for all elements or one each for the positions
/// of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// The input that is x.
    pub x: usize,
    /// The axis whose positions the factors and shifts belong to, counted from the end, 1 the last;
    /// `None` where there is one of each.
    pub axis: Option<usize>,
    /// In double precision, so that folding costs one rounding.
    pub factors: Vec<f64>,
    /// As many as factors, or one of either.
    pub shifts: Vec<f64>,
}

impl Affine {
    /// The factor and the shift of a position of the axis.
    #[must_use]
    pub fn at(&self, position: usize) -> (f64, f64) {
        let of = |values: &[f64]| values[if values.len() == 1 { 0 } else { position }];
        (of(&self.factors), of(&self.shifts))
    }

    /// Whether there are a factor and a shift for each of so many positions of an axis, which is
    /// counted from the end.
    #[must_use]
    pub fn fits(&self, axis: usize, positions: usize) -> bool {
        let sized = |values: &[f64]| values.len() == 1 || values.len() == positions;
        let is_single = self.factors.len() == 1 && self.shifts.len() == 1;
        (is_single || self.axis == Some(axis)) && sized(&self.factors) && sized(&self.shifts)
    }
}

/// What an operator's result goes into that the operator may do itself.
#[derive(Debug, Clone, Copy)]
pub enum Following<'a> {
    /// A function of each element.
    Activation(Activation),
    /// The sum with a constant of `[n]`, n being the length of the last axis.
    Row(&'a Tensor),
    /// The sum with a tensor of the result's dtype and shape.
    Residual,
}

/// An operator that does what followed another one.
#[derive(Debug, Clone)]
pub struct Absorbed {
    /// The operator.
    pub op: Arc<dyn Op>,
    /// The input that takes what was added; `None` where nothing was, or where the operator holds it.
    pub input: Option<usize>,
}

impl Absorbed {
    /// An operator with the inputs that it had.
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

/// How an operator makes floats of an input that takes fewer bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoder {
    /// From f16 or bf16 to f32.
    Widens,
    /// `(q − zero) · scale`: scale is input 1, zero input 2.
    Scales {
        /// The axis of the scales, negative from the back.
        axis: i64,
        /// Elements along the axis that share a scale; 0 for one a position.
        block: usize,
        /// The floats' dtype; `None` for that of the scales.
        to: Option<DType>,
    },
    /// From a few bits.
    Unpacks(UnpackBits),
}
