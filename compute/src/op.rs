//! What an operator is: it infers types, validates its inputs and computes its outputs.

mod context;
mod given;
mod launch;
mod value_info;

pub use context::Context;
pub use given::Given;
pub(crate) use given::as_large;
pub use launch::launch;
pub use value_info::ValueInfo;

use crate::args::count;
use crate::axes::{Axes, Axis};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::{Element, Launches};
use crate::epilogue::Activation;
use crate::error::Result;
use crate::ops::BinaryKind;
use crate::reorder::Reordered;
use crate::rewrite::{Absorbed, Affine, Decoder, Following, Hints, Operand, Step};
use crate::widen::{is_half, widened};
use lgp_memory::{DType, Datum, Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// An operator with its attributes: pure, and safe to run from several threads at once.
///
/// An operator writes [`Op::infer_types`] and [`Op::compute`]. Callers call [`Op::infer`] and
/// [`Op::run`], which do what all operators have in common around these bodies.
///
/// `Any` lets a graph pass recognise the ops that it rewrites.
pub trait Op: std::any::Any + std::fmt::Debug + Send + Sync {
    // What it computes.

    /// The operator's name, as ONNX spells it.
    fn name(&self) -> &'static str;

    /// How many inputs it may be given, absent optional ones included; up to `usize::MAX` where there
    /// is no limit.
    fn arity(&self) -> RangeInclusive<usize>;

    /// The outputs' types from the inputs' (`None` = an optional input that is absent), of which
    /// there are as many as [`Op::arity`] says. Errors need not name the operator. Callers call
    /// [`Op::infer`].
    ///
    /// Where small integer inputs carry [`ValueInfo::dims`], operators that move or combine
    /// dimensions pass them on. Constants are not folded: running an op on them is for the
    /// caller to decide.
    ///
    /// # Errors
    /// When the inputs cannot be right whatever the unknown dimensions turn out to be.
    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>>;

    /// Computes the outputs on the CPU, from as many inputs as [`Op::arity`] says; input 0 is no half
    /// where [`Op::widens_halves`] says so. Every input is validated: a wrong one is an error, not a
    /// panic. Errors need not name the operator. Callers call [`Op::run`].
    ///
    /// # Errors
    /// Inputs that do not fit, a dtype without a kernel, or out of memory.
    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>>;

    /// Whether inputs or outputs may be other than tensors. Such an operator computes in
    /// [`Op::compute_data`], and its `run` is never called by a graph.
    fn takes_data(&self) -> bool {
        false
    }

    /// Computes the outputs from values of any kind, as many as [`Op::arity`] says. Errors need not
    /// name the operator. Callers call [`Op::run_data`].
    ///
    /// By default [`Op::run`] computes them from tensors.
    ///
    /// # Errors
    /// As [`Op::compute`], and a value of the wrong kind.
    fn compute_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        launch::launch_data(self, ctx, &inputs)
    }

    /// The outputs' types by [`Op::infer_types`]: the inputs are counted, and errors name the operator.
    ///
    /// # Errors
    /// Too few or too many inputs, and as [`Op::infer_types`].
    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let counted = count(&self.arity(), inputs.len());
        let outputs = counted.and_then(|()| self.infer_types(inputs));
        outputs.map_err(|error| error.of(self.name()))
    }

    /// The outputs by [`Op::compute`]: the inputs are counted, halves are widened where
    /// [`Op::widens_halves`] says so, and errors name the operator. String tensors must have one common
    /// table, as [`launch`](fn@launch) gives them.
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

    /// As [`Op::run`], with one of the inputs that [`Op::overwrites`] names given away: output 0 is
    /// written over it. In its place in `inputs` is `None`.
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

    /// The outputs from values of any kind by [`Op::compute_data`]: the inputs are counted, and errors
    /// name the operator.
    ///
    /// # Errors
    /// Too few or too many inputs, and as [`Op::compute_data`].
    fn run_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let counted = count(&self.arity(), inputs.len());
        let outputs = counted.and_then(|()| self.compute_data(ctx, inputs));
        outputs.map_err(|error| error.of(self.name()))
    }

    // On a device.

    /// Of an operator each element of whose output is a function of its inputs' elements at the
    /// same place, broadcast: that function as an expression in the portable language of kernels,
    /// where halves are `float` and bool is `u8`. `None` otherwise, or for these dtypes.
    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        let _ = x;
        None
    }

    /// The kernels that compute it on a device, for inputs and outputs of types whose dimensions
    /// are all known; inputs that are constants of the graph are there with their contents.
    /// `None` where there are none for these: the CPU computes it then.
    ///
    /// Every kernel stays within the buffers of those types, whatever is in them.
    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        let _ = (inputs, outputs);
        None
    }

    /// All ways to compute it there that are worth measuring, [`Op::launches`] first. Their results
    /// may be rounded differently.
    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        self.launches(inputs, outputs).into_iter().collect()
    }

    // Facts.

    /// How outputs of these types follow from inputs of these types, axis by axis. What is said
    /// holds for all contents of the inputs; of an axis that is left out nothing is known.
    ///
    /// By default that of an operator with an [`Op::expression`] is known, and of no other.
    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let element = |info: &ValueInfo| Element { dtype: info.ty.dtype, name: "x" };
        let elements: Vec<_> = inputs.iter().map(|info| info.map(element)).collect();
        match self.expression(&elements) {
            Some(_) => Axes::elementwise(inputs, outputs),
            None => Axes::new(),
        }
    }

    /// The operator for tensors of which an axis of its own has become of another length, where an
    /// attribute says that length; `None` is the same operator.
    fn for_length(&self, axis: &Axis, length: usize) -> Option<Arc<dyn Op>> {
        let _ = (axis, length);
        None
    }

    /// The input whose contents are the shape that output 0 has, or that input 0 is broadcast to, and
    /// say nothing else.
    fn shape_input(&self) -> Option<usize> {
        None
    }

    /// Whether every element of its outputs is an element of input 0, or of any input where all have
    /// the outputs' dtype: it copies and moves them, whatever they are.
    fn moves(&self) -> bool {
        false
    }

    /// The inputs of which [`Op::run_over`] may write over any one, for inputs and outputs of these
    /// types, the best first: output 0 has its dtype and shape.
    fn overwrites(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<usize> {
        let _ = (inputs, outputs);
        Vec::new()
    }

    /// Whether output 0 is input 0's own memory, under another shape at most.
    fn passes_memory_on(&self) -> bool {
        false
    }

    /// How many multiplications with an addition outputs of these types take: pairs that a sum of
    /// products has. Where it computes otherwise, an operation an element counts as one.
    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let _ = inputs;
        if self.moves() { 0 } else { outputs.iter().map(crate::cost::elements).sum() }
    }

    /// Bytes that a run on `threads` threads takes from the pool besides its outputs, for inputs
    /// of known shapes. Of halves that it widens the copies are left out, and its kernel's bytes
    /// are asked for in f32: [`crate::scratch_bytes`] is what a memory plan counts on top.
    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let _ = (threads, inputs);
        0
    }

    /// Bytes of weights and tables that the operator holds itself, besides its inputs. Where there
    /// are any, its `Debug` output may leave them out: two operators that hold data are never taken
    /// for the same.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether a run with input 0 in f16 or bf16 computes through copies in f32 of all inputs that are
    /// halves. Outputs in f32 are rounded to the dtype of input 0.
    fn widens_halves(&self) -> bool {
        false
    }

    /// Whether two runs on the same inputs give the same.
    fn is_deterministic(&self) -> bool {
        true
    }

    /// The name for people: of an operator that joins others, theirs.
    fn label(&self) -> String {
        self.name().to_owned()
    }

    /// The dtype that it converts input 0 to, where that is all it does.
    fn casts_to(&self) -> Option<DType> {
        None
    }

    /// The function of two elements that it computes, by numpy's rules, of inputs 0 and 1.
    fn arithmetic(&self) -> Option<BinaryKind> {
        None
    }

    /// The function of one element of input 0 that it is for these inputs, where a kernel may apply
    /// that to its result.
    fn activation(&self, inputs: &[Option<&ValueInfo>]) -> Option<Activation> {
        let _ = inputs;
        None
    }

    /// What it is of one of these inputs, where the others are constants and it is a product and a
    /// sum with them.
    fn affine(&self, inputs: &[Option<&ValueInfo>]) -> Option<Affine> {
        let _ = inputs;
        None
    }

    /// How it makes floats of input 0, which takes fewer bytes.
    fn decodes(&self) -> Option<Decoder> {
        None
    }

    /// Whether it quantises input 0, with its scale and zero point as inputs 1 and 2.
    fn quantizes(&self) -> bool {
        false
    }

    // What it becomes when a graph is compiled.

    /// The operator on tensors of `order.len()` axes that lie in another order: axis `i` of such a
    /// tensor is axis `order[i]` of the plain one. `None` where it has no such form.
    ///
    /// By default the operator itself, where every axis is [`AxisKind::Each`](crate::AxisKind::Each)
    /// and in the same place in inputs and outputs.
    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        crate::reorder::elementwise(&self.axes(inputs, outputs), order, inputs, outputs)
    }

    /// An operator that computes the same faster from constants that were prepared for it, once.
    ///
    /// # Errors
    /// Out of memory.
    fn prepared(&self, inputs: &[Option<&ValueInfo>], hints: Hints) -> Result<Option<Step>> {
        let _ = (inputs, hints);
        Ok(None)
    }

    /// The operator with what followed it done as well.
    fn absorbing(&self, inputs: &[Option<&ValueInfo>], next: &Following<'_>) -> Option<Absorbed> {
        let _ = (inputs, next);
        None
    }

    /// The inputs with which the operator's result is `x · factor + shift` of what it is now, where
    /// constants among them can carry that.
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

    /// The operator on the bytes behind some inputs, with a result in bytes; a third input of one that
    /// has two is a row of `[n]` that is added to its result.
    ///
    /// By default operators that [move](Op::moves) move bytes, and those that compute each element
    /// from one of a single input look bytes up in a table.
    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        crate::bytes::generic(self, inputs, y)
    }

    /// The operator on input 0 as `DynamicQuantizeLinear` gives it, with a result in floats: the step
    /// reads the bytes, the scale and the zero point as [`Operand::Made`] 0 to 2.
    ///
    /// # Errors
    /// Out of memory.
    fn on_dynamic_bytes(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<(Step, bool)>> {
        let _ = inputs;
        Ok(None)
    }

    /// The operator with results in bf16, where it can also give those.
    fn narrowed(&self) -> Option<Arc<dyn Op>> {
        None
    }

    /// The operator with an input left as a decoder would read it: the decoder's inputs take the
    /// place of that input and those after it. The infos are those of such inputs.
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
