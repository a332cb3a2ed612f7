//! What an operator is: it infers types, validates its inputs and computes its outputs.

use crate::axes::{Axes, Axis};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::{Element, Launches};
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::isa::{Isa, Simd};
use crate::ops::BinaryKind;
use crate::planned::Planned;
use crate::reorder::Reordered;
use crate::rewrite::{Absorbed, Affine, Decoder, Following, Hints, Operand, Step};
use crate::stop::{Stop, Stopped};
use crate::threads::Threads;
use lgp_memory::{
    Arena, DType, Datum, Dim, Pool, Shape, StringTable, Tensor, TensorType, TensorView, ValueKind,
};
use std::sync::Arc;

/// What is known of a value while a graph is compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueInfo {
    /// Dtype and, when its rank is known, the shape.
    pub ty: TensorType,
    /// The value itself, where it does not depend on the graph's inputs.
    pub constant: Option<Tensor>,
    /// The contents of a small integer tensor that holds dimensions, such as the output of
    /// `Shape`: entries may be symbolic.
    pub dims: Option<Vec<Dim>>,
    /// What the type is the type of: the value itself, or the tensors inside.
    pub kind: ValueKind,
}

impl ValueInfo {
    /// A value of which only the type is known.
    #[must_use]
    pub fn of(ty: TensorType) -> Self {
        Self { ty, constant: None, dims: None, kind: ValueKind::Tensor }
    }

    /// A value that holds tensors of a type.
    #[must_use]
    pub fn holding(kind: ValueKind, ty: TensorType) -> Self {
        Self { kind, ..Self::of(ty) }
    }
}

/// What a running operator is given besides its inputs.
/// Clones share threads and memory.
#[derive(Debug, Clone)]
pub struct Context {
    threads: Arc<Threads>,
    simd: Simd,
    pool: Pool,
    stop: Option<Stop>,
    planned: Option<Arc<Planned>>,
}

impl Context {
    /// A context with memory of its own and `threads` threads, the calling one included; with one
    /// thread, kernels stay on the calling one. Where the system refuses to start a thread, the
    /// context has fewer: [`Context::threads`] tells.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self::with_pool(threads, Pool::new())
    }

    /// A context that takes its memory from a pool that others may share.
    #[must_use]
    pub fn with_pool(threads: usize, pool: Pool) -> Self {
        let threads = Arc::new(Threads::new(threads));
        Self { threads, simd: Simd::detect(None), pool, stop: None, planned: None }
    }

    /// The same context for a run that can be asked to end.
    #[must_use]
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Whether somebody may ask the run to end.
    #[must_use]
    pub fn may_stop(&self) -> bool {
        self.stop.is_some()
    }

    /// Whether the run is to go on; asked between operators.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Stopped> {
        self.stop.as_ref().map_or(Ok(()), Stop::check)
    }

    /// The same context whose kernels use no more than this level of vector instructions.
    #[must_use]
    pub fn with_isa(mut self, limit: Option<Isa>) -> Self {
        self.simd = Simd::detect(limit);
        self
    }

    /// The same context for a kernel or graph that runs beside others: it stays on its own thread.
    #[must_use]
    pub fn on_one_thread(&self) -> Self {
        Self { threads: Arc::new(Threads::new(1)), ..self.clone() }
    }

    /// The vector instructions that kernels use.
    #[must_use]
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// The same context for one run whose outputs have planned places in an arena.
    #[must_use]
    pub fn on_arena(&self, arena: Arena) -> Self {
        Self { planned: Some(Arc::new(Planned::new(arena))), ..self.clone() }
    }

    /// Says which lengths the outputs of the next operator have, and which offsets in the arena
    /// were planned for them. What is not as planned comes from the pool.
    pub fn expect_outputs(&self, outputs: &[(usize, usize)]) {
        if let Some(planned) = &self.planned {
            planned.expect(outputs);
        }
    }

    /// How many threads a kernel may use.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    pub(crate) fn workers(&self) -> &Threads {
        &self.threads
    }

    /// Where outputs and scratch memory come from.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Allocates an output. Its contents are initialised but unspecified: a kernel writes all.
    /// Dropping the tensor gives the memory back to the pool.
    ///
    /// # Errors
    /// Out of memory, or a shape that cannot be addressed.
    pub fn alloc(&self, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        // The numbers of strings would be read without their table.
        if let Some(planned) = self.planned.as_ref().filter(|_| dtype != DType::Str)
            && let Some(mut buffer) = planned.take(shape.byte_len(dtype)?)
        {
            if dtype.is_checked() {
                // Not every byte is an element: what was there before must not be read as one.
                buffer.fill(0);
            }
            return Ok(Tensor::from_buffer(dtype, shape, buffer)?);
        }
        Ok(Tensor::pooled(&self.pool, dtype, shape)?)
    }

    /// Allocates what an operator needs besides its outputs, from the pool: it must not take the
    /// place that was planned for an output of the same size. Otherwise as [`Context::alloc`].
    ///
    /// # Errors
    /// Out of memory, or a shape that cannot be addressed.
    pub fn scratch(&self, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        Ok(Tensor::scratch(&self.pool, dtype, shape)?)
    }
}

/// An input that a run may write over.
#[derive(Debug)]
pub struct Given {
    /// Which one it is.
    pub input: usize,
    /// The tensor.
    pub tensor: Tensor,
}

impl Given {
    /// The tensor to write over, once an operator has no complaint against it and the other inputs.
    pub(crate) fn checked(self, op: &dyn Op, inputs: &[Option<TensorView<'_>>]) -> Result<Tensor> {
        let mut all = inputs.to_vec();
        if let Some(input) = all.get_mut(self.input) {
            *input = Some(self.tensor.view());
        }
        let (dtype, shape) = crate::args::concrete_one(op, &all)?;
        if (dtype, &shape) != (self.tensor.dtype(), self.tensor.shape()) {
            let (given, own) = (self.tensor.shape(), self.tensor.dtype());
            let message = format!("{dtype} {shape:?} is written over {own} {given:?}");
            return Err(Error::invalid(op.name(), message));
        }
        Ok(self.tensor)
    }
}

/// Of an operator that may write over an input of its output's dtype and shape: the inputs that are
/// such, halves aside, which are computed through copies.
pub(crate) fn as_large(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<usize> {
    let Some(out) = outputs.first() else { return Vec::new() };
    let is_half = matches!(out.ty.dtype, DType::F16 | DType::BF16);
    let fits = |info: &&ValueInfo| info.ty.concrete_shape().is_some() && info.ty == out.ty;
    let fits =
        inputs.iter().enumerate().filter(|(_, info)| !is_half && info.as_ref().is_some_and(fits));
    fits.map(|(i, _)| i).collect()
}

/// An operator with its attributes: pure, and safe to run from several threads at once.
///
/// `Any` lets a graph pass recognise the ops that it rewrites.
pub trait Op: std::any::Any + std::fmt::Debug + Send + Sync {
    /// The operator's name, as ONNX spells it.
    fn name(&self) -> &'static str;

    /// The outputs' types from the inputs' (`None` = an optional input that is absent).
    ///
    /// Where small integer inputs carry [`ValueInfo::dims`], operators that move or combine
    /// dimensions pass them on. Constants are not folded: running an op on them is for the
    /// caller to decide.
    ///
    /// # Errors
    /// When the inputs cannot be right whatever the unknown dimensions turn out to be.
    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>>;

    /// Computes the outputs on the CPU. Every input is validated: a wrong one is an error, not
    /// a panic. String tensors must have one common table, as [`launch`] gives them.
    ///
    /// # Errors
    /// Inputs that do not fit, a dtype without a kernel, or out of memory.
    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>>;

    /// As [`Op::run`], with one of the inputs that [`Op::overwrites`] names given away: output 0 is
    /// written over it. In its place in `inputs` is `None`.
    ///
    /// # Errors
    /// As [`Op::run`].
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

    /// Of an operator each element of whose output is a function of its inputs' elements at the
    /// same place, broadcast: that function as an expression in the portable language of kernels,
    /// where halves are `float` and bool is `u8`. `None` otherwise, or for these dtypes.
    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        let _ = x;
        None
    }

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

    /// How many multiplications with an addition outputs of these types take: pairs that a sum of
    /// products has. Where it computes otherwise, an operation an element counts as one.
    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let _ = inputs;
        if self.moves() { 0 } else { outputs.iter().map(crate::cost::elements).sum() }
    }

    /// The name for people: of an operator that joins others, theirs.
    fn label(&self) -> String {
        self.name().to_owned()
    }

    /// Whether two runs on the same inputs give the same.
    fn is_deterministic(&self) -> bool {
        true
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

    /// Whether output 0 is input 0's own memory, under another shape at most.
    fn passes_memory_on(&self) -> bool {
        false
    }

    /// Whether a run computes f16 and bf16 through copies in f32.
    fn widens_halves(&self) -> bool {
        false
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

    /// Whether inputs or outputs may be other than tensors. Such an operator computes in
    /// [`Op::run_data`], and its `run` is never called by a graph.
    fn takes_data(&self) -> bool {
        false
    }

    /// Computes the outputs from values of any kind.
    ///
    /// # Errors
    /// As [`Op::run`], and a value of the wrong kind.
    fn run_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let mut views = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            views.push(match input {
                None => None,
                Some(Datum::Tensor(tensor)) => Some(tensor.view()),
                Some(other) => return Err(wrong_kind(self.name(), i, other.kind(), "a tensor")),
            });
        }
        Ok(launch(self, ctx, &views)?.into_iter().map(Datum::Tensor).collect())
    }
}

/// An input of another kind than the operator takes.
pub(crate) fn wrong_kind(op: &'static str, input: usize, given: &str, expected: &str) -> Error {
    Error::invalid(op, format!("input {input} is {given}, expected {expected}"))
}

/// An input of a dtype that the operator has no meaning for.
pub(crate) fn wrong_dtype(op: &'static str, input: usize, given: DType) -> Error {
    Error::invalid(op, format!("input {input} has dtype {given}, which it has no meaning for"))
}

/// Runs an operator on tensors that may hold strings.
///
/// A kernel sees the elements of a string tensor as numbers. Here the inputs get one table, in
/// which numbers order as texts do, and outputs that only moved those numbers get it too.
///
/// # Errors
/// As [`Op::run`].
pub fn launch<O: Op + ?Sized>(
    op: &O,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let is_text = |x: &TensorView<'_>| x.dtype() == DType::Str;
    if !inputs.iter().flatten().any(is_text) {
        return op.run(ctx, inputs);
    }
    let tables = || inputs.iter().flatten().filter_map(TensorView::string_table);
    let table = StringTable::merged(tables());
    // Zeros of strings have no table: their numbers would mean texts in the others'.
    let shares = |x: &TensorView<'_>| x.string_table().is_some_and(|t| t.is(&table));
    let outputs = if inputs.iter().flatten().filter(|x| is_text(x)).all(shares) {
        op.run(ctx, inputs)?
    } else {
        let own = |x: &TensorView<'_>| x.to_tensor()?.with_table(&table);
        let mut renumbered: Vec<Option<Tensor>> = Vec::with_capacity(inputs.len());
        for input in inputs {
            renumbered.push(input.as_ref().filter(|x| is_text(x)).map(own).transpose()?);
        }
        let views: Vec<Option<TensorView<'_>>> = inputs
            .iter()
            .zip(&renumbered)
            .map(|(given, own)| own.as_ref().map(Tensor::view).or_else(|| given.clone()))
            .collect();
        op.run(ctx, &views)?
    };
    Ok(outputs.into_iter().map(|out| out.or_table(&table)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_move_and_compare_like_numbers() {
        let ctx = Context::new(1);
        let a = Tensor::from_strings([2], &["b", "a"]).unwrap();
        let b = Tensor::from_strings([1], &["a"]).unwrap();
        let inputs = [Some(a.view()), Some(b.view())];
        let out = launch(&crate::ops::Concat { axis: 0 }, &ctx, &inputs).unwrap();
        assert_eq!(out[0].strings().unwrap(), ["b", "a", "a"]);
        let equal = crate::ops::Binary::new(crate::ops::BinaryKind::Equal);
        let out = launch(&equal, &ctx, &inputs).unwrap();
        assert_eq!(out[0].as_slice::<bool>().unwrap(), [false, true]);
        let data = vec![Some(Datum::Sequence(vec![])), None];
        let error = equal.run_data(&ctx, data).unwrap_err().to_string();
        assert_eq!(error, "Equal: input 0 is a sequence, expected a tensor");
    }

    #[test]
    fn outputs_go_where_they_were_planned() {
        let plain = Context::new(1);
        let arena = Arena::new(plain.pool(), 512).unwrap();
        let context = plain.on_arena(arena.clone());
        context.expect_outputs(&[(256, 0), (64, 256), (256, 0)]);
        let a = context.alloc(DType::F32, [64]).unwrap();
        assert!(arena.take(0, 64).is_none(), "it is in the arena");
        let before = plain.pool().stats().allocations;
        let small = context.alloc(DType::F32, [3]).unwrap();
        assert_eq!(plain.pool().stats().allocations, before + 1, "nothing of 12 bytes is planned");
        let scratch = context.scratch(DType::F32, [64]).unwrap();
        assert_eq!(plain.pool().stats().allocations, before + 2, "it is no output");
        let conflict = context.alloc(DType::F32, [64]).unwrap();
        assert_eq!(plain.pool().stats().allocations, before + 3, "its place is taken");
        arena.take(256, 64).unwrap().fill(9);
        let bools = context.alloc(DType::Bool, [64]).unwrap();
        assert_eq!(bools.as_slice::<bool>().unwrap(), [false; 64]);
        assert_eq!(plain.pool().stats().allocations, before + 3);
        drop((a, small, scratch, conflict, bools));
        context.expect_outputs(&[]);
        assert!(arena.take(0, 512).is_some());
    }

    #[test]
    fn outputs_reuse_what_was_dropped() {
        let context = Context::new(1);
        drop(context.alloc(DType::F32, [100]));
        let shared = Context::with_pool(0, context.pool().clone());
        let bools = shared.alloc(DType::Bool, [400]).unwrap();
        assert_eq!(shared.threads(), 1);
        assert_eq!(context.pool().stats().hits, 1);
        assert_eq!(bools.as_slice::<bool>().unwrap(), [false; 400]);
        assert!(context.alloc(DType::F32, [usize::MAX, 2]).is_err());
    }
}
