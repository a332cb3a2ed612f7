//! What an operator is: it infers types, validates its inputs and computes its outputs.

mod arity;
mod context;
mod given;
mod launch;
mod run_cost;
mod value_info;
mod widened;

pub(crate) use arity::count;
pub use context::Context;
pub use given::Given;
pub(crate) use given::as_large;
pub use launch::launch;
pub use run_cost::cost;
pub use value_info::ValueInfo;
pub use widened::scratch_bytes;

use crate::axes::{Axes, Axis};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::{Element, Launches};
use crate::epilogue::Activation;
use crate::error::Result;
use crate::ops::BinaryKind;
use crate::reorder::Reordered;
use crate::rewrite::{Absorbed, Affine, Decoder, Following, Hints, Operand, Step};
use lgp_memory::{DType, Datum, Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;
use widened::{is_half, widened};

/// An operator with its attributes: pure, and safe to run from several threads at once.
///
/// An operator writes [`Op::infer_types`] and [`Op::compute`]. Callers call [`Op::infer`] and
/// [`Op::run`], which do what all operators have in common around these bodies.
///
/// `Any` lets a graph pass recognise the ops that it rewrites.
pub trait Op: std::any::Any + std::fmt::Debug + Send + Sync {
    // What the operator computes.

    /// The operator's name, as ONNX spells it.
    fn name(&self) -> &'static str;

    /// How many inputs the operator takes, absent optional ones included. The end is `usize::MAX`
    /// where there is no limit.
    fn arity(&self) -> RangeInclusive<usize>;

    /// The outputs' types from the inputs' types (`None` = an optional input that is absent). The
    /// number of inputs is within [`Op::arity`]. Errors need not name the operator. Callers call
    /// [`Op::infer`].
    ///
    /// Where small integer inputs carry [`ValueInfo::dims`], operators that move or combine
    /// dimensions pass them on. Constants are not folded: the caller decides whether to run an
    /// operator on them.
    ///
    /// # Errors
    /// Inputs that no values of the unknown dimensions could make valid.
    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>>;

    /// Computes the outputs on the CPU. The number of inputs is within [`Op::arity`]; input 0 is
    /// neither f16 nor bf16 where [`Op::widens_halves`] is true. Every input is validated: a wrong
    /// one is an error, not a panic. Errors need not name the operator. Callers call [`Op::run`].
    ///
    /// # Errors
    /// Inputs that do not fit, a dtype without a kernel, or out of memory.
    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>>;

    /// Whether inputs or outputs may be values other than tensors. A graph runs such an operator by
    /// [`Op::run_data`], never by [`Op::run`].
    fn takes_data(&self) -> bool {
        false
    }

    /// Computes the outputs from values of any kind, whose number is within [`Op::arity`]. Errors
    /// need not name the operator. Callers call [`Op::run_data`].
    ///
    /// By default [`Op::run`] computes them from tensors.
    ///
    /// # Errors
    /// As [`Op::compute`], and a value of the wrong kind.
    fn compute_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        launch::launch_data(self, ctx, &inputs)
    }

    /// The outputs' types by [`Op::infer_types`]. Counts the inputs and names the operator in
    /// errors.
    ///
    /// # Errors
    /// Too few or too many inputs, and as [`Op::infer_types`].
    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let counted = count(&self.arity(), inputs.len());
        let outputs = counted.and_then(|()| self.infer_types(inputs));
        outputs.map_err(|error| error.of(self.name()))
    }

    /// The outputs by [`Op::compute`]. Counts the inputs, widens f16 and bf16 where
    /// [`Op::widens_halves`] is true, and names the operator in errors. String tensors must share
    /// one table, which [`launch`](fn@launch) gives them.
    ///
    /// # Errors
    /// Too few or too many inputs, and as [`Op::compute`].
    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let counted = count(&self.arity(), inputs.len());
        let outputs = counted.and_then(|()| {
            if self.widens_halves() && is_half(inputs) {
                widened(self, ctx, inputs)
            } else {
                self.compute(ctx, inputs)
            }
        });
        outputs.map_err(|error| error.of(self.name()))
    }

    /// As [`Op::run`], but may write output 0 over `given`, one of the inputs that
    /// [`Op::overwrites`] names. `inputs` has `None` in its place.
    ///
    /// # Errors
    /// As [`Op::run`]; they name the operator.
    fn run_over(
        &self,
        ctx: &Context,
        given: Given,
        inputs: &[Option<TensorView<'_>>],
    ) -> Result<Vec<Tensor>> {
        let mut inputs = inputs.to_vec();
        if let Some(input) = inputs.get_mut(given.input) {
            *input = Some(given.tensor.view());
        }
        self.run(ctx, &inputs)
    }

    /// The outputs from values of any kind by [`Op::compute_data`]. Counts the inputs and names the
    /// operator in errors.
    ///
    /// # Errors
    /// Too few or too many inputs, and as [`Op::compute_data`].
    fn run_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let counted = count(&self.arity(), inputs.len());
        let outputs = counted.and_then(|()| self.compute_data(ctx, inputs));
        outputs.map_err(|error| error.of(self.name()))
    }

    // On a device.

    /// The function of an element-wise operator, of its inputs' elements at one place, as an
    /// expression in the portable language of kernels. In it f16 and bf16 are `float`, and bool is
    /// `u8`. `None` for other operators, and for dtypes without an expression.
    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        let _ = x;
        None
    }

    /// The kernels that compute the operator on a device. All dimensions of inputs and outputs are
    /// known, and inputs that are constants of the graph have their contents. `None` where there
    /// are no kernels for these types: the CPU computes the operator then.
    ///
    /// Every kernel stays within the buffers of those types, for any contents.
    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        let _ = (inputs, outputs);
        None
    }

    /// All ways to compute the operator on a device that are worth measuring, [`Op::launches`]
    /// first. Their results may be rounded differently.
    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        self.launches(inputs, outputs).into_iter().collect()
    }

    // Facts.

    /// How outputs of these types follow from inputs of these types, axis by axis. The answer
    /// holds for all contents of the inputs; nothing is known of an axis that it leaves out.
    ///
    /// By default only operators with an [`Op::expression`] have known axes.
    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let element = |info: &ValueInfo| Element { dtype: info.ty.dtype, name: "x" };
        let elements: Vec<_> = inputs.iter().map(|info| info.map(element)).collect();
        match self.expression(&elements) {
            Some(_) => Axes::elementwise(inputs, outputs),
            None => Axes::new(),
        }
    }

    /// The operator for tensors whose axis `axis` now has this length, where an attribute holds the
    /// length; `None` is the same operator.
    fn for_length(&self, axis: &Axis, length: usize) -> Option<Arc<dyn Op>> {
        let _ = (axis, length);
        None
    }

    /// The input whose contents are only the shape of output 0, or the shape that input 0 is
    /// broadcast to.
    fn shape_input(&self) -> Option<usize> {
        None
    }

    /// Whether every element of the outputs is an element of input 0, or of any input where all
    /// have the outputs' dtype. Such an operator copies and moves elements regardless of their
    /// values.
    fn moves(&self) -> bool {
        false
    }

    /// The inputs that [`Op::run_over`] may write over, one in a run, the best first. Each has the
    /// dtype and shape of output 0.
    fn overwrites(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<usize> {
        let _ = (inputs, outputs);
        Vec::new()
    }

    /// Whether output 0 is input 0's own memory, under another shape at most.
    fn passes_memory_on(&self) -> bool {
        false
    }

    /// How many multiply-adds outputs of these types take. In an operator without sums of products,
    /// an operation on an element counts as one.
    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let _ = inputs;
        if self.moves() { 0 } else { outputs.iter().map(crate::cost::elements).sum() }
    }

    /// Bytes that a run on `threads` threads takes from the pool besides its outputs, for inputs of
    /// known shapes. The answer leaves out copies of widened f16 and bf16 inputs, whose infos are
    /// given as f32: [`crate::scratch_bytes`] adds the copies for a memory plan.
    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let _ = (threads, inputs);
        0
    }

    /// Bytes of weights and tables that the operator holds itself, besides its inputs. The `Debug`
    /// output may leave them out: passes never merge two operators that hold data.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether a run with input 0 in f16 or bf16 copies all f16 and bf16 inputs to f32 and computes
    /// in f32. Outputs in f32 are rounded to the dtype of input 0.
    fn widens_halves(&self) -> bool {
        false
    }

    /// Whether two runs on the same inputs give the same outputs.
    fn is_deterministic(&self) -> bool {
        true
    }

    /// The name for people; an operator that joins others names them.
    fn label(&self) -> String {
        self.name().to_owned()
    }

    /// The dtype that the operator converts input 0 to, where it does nothing else.
    fn casts_to(&self) -> Option<DType> {
        None
    }

    /// The function of two elements that the operator computes of inputs 0 and 1, broadcast by
    /// numpy's rules.
    fn arithmetic(&self) -> Option<BinaryKind> {
        None
    }

    /// The operator as a function of one element of input 0, where the kernel that makes input 0
    /// may apply that function.
    fn activation(&self, inputs: &[Option<&ValueInfo>]) -> Option<Activation> {
        let _ = inputs;
        None
    }

    /// The operator as a product and a sum of one input with constants, where the other inputs are
    /// constants.
    fn affine(&self, inputs: &[Option<&ValueInfo>]) -> Option<Affine> {
        let _ = inputs;
        None
    }

    /// How the operator decodes input 0 to floats, where input 0 takes fewer bytes.
    fn decodes(&self) -> Option<Decoder> {
        None
    }

    /// Whether the operator quantises input 0, with the scale and the zero point as inputs 1 and 2.
    fn quantizes(&self) -> bool {
        false
    }

    // What the operator becomes when a graph is compiled.

    /// The operator on tensors of `order.len()` axes in another order: axis `i` of a reordered
    /// tensor is axis `order[i]` of the plain one. `None` where the operator has no form in that
    /// order.
    ///
    /// By default the operator itself, where every axis is
    /// [`AxisKind::Each`](crate::AxisKind::Each) and in the same place in inputs and outputs.
    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        crate::reorder::elementwise(&self.axes(inputs, outputs), order, inputs, outputs)
    }

    /// A faster operator for the same outputs, which reads constants that are prepared once.
    ///
    /// # Errors
    /// Out of memory.
    fn prepared(&self, inputs: &[Option<&ValueInfo>], hints: Hints) -> Result<Option<Step>> {
        let _ = (inputs, hints);
        Ok(None)
    }

    /// An operator that also does the work of `next`, which follows this one.
    fn absorbing(&self, inputs: &[Option<&ValueInfo>], next: &Following<'_>) -> Option<Absorbed> {
        let _ = (inputs, next);
        None
    }

    /// The inputs with which the operator's result becomes `result · factor + shift`, where
    /// constants among the inputs can take up the factors and shifts.
    ///
    /// # Errors
    /// Out of memory.
    fn with_affine(
        &self,
        inputs: &[Option<&ValueInfo>],
        affine: &Affine,
    ) -> Result<Option<Vec<Operand>>> {
        let _ = (inputs, affine);
        Ok(None)
    }

    /// The operator on the bytes behind some inputs, with a result in bytes. If the operator has
    /// two inputs, a third one is a row of `[n]` that is added to the result.
    ///
    /// By default operators that [move](Op::moves) elements move bytes, and operators that compute
    /// each element from one element of a single input look bytes up in a table.
    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        crate::bytes::generic(self, inputs, y)
    }

    /// The operator on input 0 as quantised by `DynamicQuantizeLinear`, with a result in floats.
    /// The step reads the bytes, the scale and the zero point as [`Operand::Made`] 0 to 2.
    ///
    /// # Errors
    /// Out of memory.
    fn on_dynamic_bytes(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<(Step, bool)>> {
        let _ = inputs;
        Ok(None)
    }

    /// The operator with results in bf16, where its kernels can write bf16.
    fn narrowed(&self) -> Option<Arc<dyn Op>> {
        None
    }

    /// The operator that decodes an input itself: the decoder's inputs take the place of that input
    /// and those after it. `inputs` has the infos of these inputs.
    fn reading_stored(
        &self,
        input: usize,
        decoder: &Decoder,
        inputs: &[Option<&ValueInfo>],
    ) -> Option<Arc<dyn Op>> {
        let _ = (input, decoder, inputs);
        None
    }
}
