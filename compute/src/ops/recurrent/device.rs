//! Recurrent layers on devices: one product for the inputs of all steps; then at each step one for
//! the hidden state, and a kernel for all that follows.

use super::{Activation, Cell, Direction, Recurrent};
use crate::args::optional;
use crate::device::{
    Argument, Call, Element, Factor, Kernel, Launches, Product, c_type, groups, literal, load,
    store,
};
use crate::op::{Op, ValueInfo};
use crate::ops::{Unary, UnaryKind};
use lgp_memory::DType;

const GROUP: usize = 64;
/// More steps are too many launches for one recipe.
const STEPS_MAX: usize = 4096;

/// What the steps pass on: scratch buffers.
const PROJECTED: Argument = Argument::Scratch(0);
const STATE: Argument = Argument::Scratch(1);
const CELL: Argument = Argument::Scratch(2);
const PRODUCT: Argument = Argument::Scratch(3);
/// A GRU's hidden state times its reset gate, and the product of that.
const RESET: Argument = Argument::Scratch(4);
const INNER: Argument = Argument::Scratch(5);

struct Layer<'a> {
    op: &'a Recurrent,
    inputs: &'a [Option<&'a ValueInfo>],
    dtype: DType,
    steps: usize,
    batch: usize,
    features: usize,
    hidden: usize,
    directions: usize,
}

pub(super) fn launches(op: &Recurrent, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let [Some(x), _, Some(recurrent), ..] = inputs else { return None };
    let (shape, states) = (x.ty.concrete_shape()?, recurrent.ty.concrete_shape()?);
    let &[first, second, features] = shape.dims() else { return None };
    let &[directions, _, hidden] = states.dims() else { return None };
    let (steps, batch) = if op.batch_first { (second, first) } else { (first, second) };
    let layer = Layer { op, inputs, dtype: x.ty.dtype, steps, batch, features, hidden, directions };
    layer.launches()
}

impl Layer<'_> {
    fn launches(&self) -> Option<Launches> {
        let &Self { steps, batch, features, hidden, directions, .. } = self;
        let count = directions.checked_mul(batch)?.checked_mul(hidden)?;
        if count == 0 {
            return Some(Launches::default());
        }
        if steps > STEPS_MAX {
            return None;
        }
        let all = self.gates() * hidden;
        let states = 4 * count;
        // Kernels index what is projected as they do the result, which has fewer elements.
        i32::try_from((directions * all).checked_mul(steps.checked_mul(batch)?)?).ok()?;
        let projected = (4 * directions * all).checked_mul(steps.checked_mul(batch)?)?;
        let scratch = vec![projected.max(4), states, states, states * self.gates()];
        let mut launches = Launches { scratch, ..Launches::default() };
        let is_reset = self.op.cell == Cell::Gru { linear_before_reset: false };
        if is_reset {
            launches.scratch.extend([states, states * self.gates()]);
        }
        let rows = steps * batch;
        self.product((Argument::Input(0), self.dtype), 1, [rows, all, features], PROJECTED)
            .add_to(&mut launches)?;
        launches.calls.push(self.start()?);
        let product = |from, to, launches: &mut Launches| {
            let before = launches.calls.len();
            self.product((from, DType::F32), 2, [batch, all, hidden], to).add_to(launches)?;
            Some(launches.calls.split_off(before))
        };
        // All steps share the scratch buffers of one.
        let of_state = product(STATE, PRODUCT, &mut launches)?;
        let of_reset = if is_reset { product(RESET, INNER, &mut launches)? } else { Vec::new() };
        for i in 0..steps {
            launches.calls.extend(of_state.iter().cloned());
            if is_reset {
                launches.calls.push(self.reset(i)?);
                launches.calls.extend(of_reset.iter().cloned());
            }
            launches.calls.push(self.step(i, if is_reset { INNER } else { PRODUCT })?);
        }
        Some(launches)
    }

    fn gates(&self) -> usize {
        self.op.cell.gates()
    }

    /// Rows times a weight of every direction; x has no directions.
    fn product(
        &self,
        (from, dtype): (Argument, DType),
        weight: usize,
        sizes: [usize; 3],
        to: Argument,
    ) -> Product<'_> {
        let factor = |argument, dtype| Factor::plain(argument, dtype, true);
        let all = std::slice::from_ref(&self.directions);
        let rows: &[usize] = if weight == 1 { &[] } else { all };
        Product {
            sizes,
            operands: [factor(from, dtype), factor(Argument::Input(weight), self.dtype)],
            batches: [all, rows, all],
            alpha: 1.,
            addend: None,
            y: (to, DType::F32),
        }
    }

    fn start(&self) -> Option<Call> {
        let mut arguments: Vec<Argument> =
            [5, 6].into_iter().filter_map(|i| self.optional_input(i)).collect();
        arguments.extend([STATE, CELL, Argument::Output(1)]);
        self.call(self.kernel("recurrent_start")?, arguments, None, 1)
    }

    fn reset(&self, step: usize) -> Option<Call> {
        let mut arguments = vec![PROJECTED, PRODUCT];
        arguments.extend(self.optional_input(3));
        arguments.extend([STATE, RESET]);
        self.call(self.kernel("recurrent_reset")?, arguments, Some(step), 8)
    }

    fn step(&self, step: usize, inner: Argument) -> Option<Call> {
        let mut arguments = vec![PROJECTED, PRODUCT, inner];
        arguments.extend([3, 4, 7].into_iter().filter_map(|i| self.optional_input(i)));
        arguments.extend([STATE, CELL, Argument::Output(0), Argument::Output(1)]);
        self.call(self.kernel("recurrent_step")?, arguments, Some(step), 40)
    }

    fn optional_input(&self, i: usize) -> Option<Argument> {
        optional(self.inputs, i).map(|_| Argument::Input(i))
    }

    /// The launch, an LSTM's last cell state and the sizes added to the arguments.
    fn call(
        &self,
        kernel: Kernel,
        mut arguments: Vec<Argument>,
        step: Option<usize>,
        flops: u64,
    ) -> Option<Call> {
        if self.op.cell.is_lstm() && kernel.name() != "recurrent_reset" {
            arguments.push(Argument::Output(2));
        }
        let sizes = [self.steps, self.batch, self.hidden, self.directions];
        for size in step.into_iter().chain(sizes) {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let count = self.directions * self.batch * self.hidden;
        let (flops, bytes) = (flops * count as u64, 4 * (count * (2 * self.gates() + 3)) as u64);
        Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops, bytes })
    }

    /// A kernel with everything that the layer decides; each direction's activations are chosen
    /// by `direction`.
    fn kernel(&self, name: &'static str) -> Option<Kernel> {
        let (op, ty) = (self.op, c_type(self.dtype)?);
        let backwards = match op.direction {
            Direction::Forward => "0",
            Direction::Reverse => "1",
            Direction::Bidirectional => "direction",
        };
        let mut kernel = Kernel::new(name, include_str!("recurrent.cl"), [GROUP, 1, 1])
            .define("GATES", self.gates())
            .define("BATCH_FIRST", u8::from(op.batch_first))
            .define("BACKWARDS", backwards)
            .define("LIMIT", literal(op.clip.unwrap_or(0.)))
            .define("LINEAR", u8::from(op.cell == Cell::Gru { linear_before_reset: true }))
            .define("COUPLED", u8::from(op.cell == Cell::Lstm { input_forget: true }))
            .define("STORED", ty)
            .define("STORE(value, p, i)", store(self.dtype, "value", "p", "(i)"));
        let each = op.cell.activations();
        for (i, name) in ["F(x)", "G(x)", "H(x)"].into_iter().enumerate().take(each) {
            let forward = function(*op.activations.get(i)?)?;
            let function = match op.activations.get(each + i) {
                Some(&second) => format!("(direction ? ({}) : ({forward}))", function(second)?),
                None => format!("({forward})"),
            };
            kernel = kernel.define(name, function);
        }
        let last = store(self.dtype, "value", "last_cell", "STATE");
        let kernel = match op.cell.is_lstm() {
            true => kernel
                .define("LAST_CELL", format!("GLOBAL {ty} *last_cell,"))
                .define("STORE_LAST_CELL(value)", last),
            false => kernel.define("LAST_CELL", "").define("STORE_LAST_CELL(value)", ""),
        };
        Some(self.optional_inputs(kernel, ty))
    }

    /// The kernel, told of each optional input a pointer and an element, or what stands for it.
    fn optional_inputs(&self, mut kernel: Kernel, ty: &str) -> Kernel {
        let gate = |rows: usize| format!("direction * {rows} * hidden + (g) * hidden + j");
        let (bias, peephole) = (gate(2 * self.gates()), gate(3));
        let table = [
            (3, ty, "BIAS", "bias", "BIAS(g)", bias.as_str(), "0.0f"),
            (4, "i32", "LENGTHS", "lengths", "LENGTH", "sequence", "(i32)steps"),
            (5, ty, "INITIAL_STATE", "initial_state", "FIRST_STATE", "STATE", "0.0f"),
            (6, ty, "INITIAL_CELL", "initial_cell", "FIRST_CELL", "STATE", "0.0f"),
            (7, ty, "PEEPHOLES", "peepholes", "PEEPHOLE(g)", &peephole, "0.0f"),
        ];
        for (i, ty, pointer, name, value, at, absent) in table {
            let pointer = format!("{pointer}_POINTER");
            kernel = match optional(self.inputs, i) {
                None => kernel.define(&pointer, "").define(value, absent),
                Some(info) => kernel
                    .define(&pointer, format!("GLOBAL const {ty} *{name},"))
                    .define(value, load(info.ty.dtype, name, at)),
            };
        }
        kernel
    }
}

/// The expression of a function of `x`.
fn function(activation: Activation) -> Option<String> {
    let n = literal;
    let kind = match activation {
        Activation::Relu => UnaryKind::Relu,
        Activation::Tanh => UnaryKind::Tanh,
        Activation::Sigmoid => UnaryKind::Sigmoid,
        Activation::Affine { alpha, beta } => UnaryKind::Linear { scale: alpha, shift: beta },
        Activation::LeakyRelu { alpha } => UnaryKind::LeakyRelu { alpha },
        Activation::HardSigmoid { alpha, beta } => UnaryKind::HardSigmoid { alpha, beta },
        Activation::Elu { alpha } => UnaryKind::Elu { alpha },
        Activation::Softsign => UnaryKind::Softsign,
        Activation::Softplus => UnaryKind::Softplus,
        Activation::ThresholdedRelu { alpha } => {
            return Some(format!("(x) < {} ? 0.0f : (x)", n(alpha)));
        }
        Activation::ScaledTanh { alpha, beta } => {
            return Some(format!("{} * tanh({} * (x))", n(alpha), n(beta)));
        }
    };
    Unary::new(kind).expression(&[Some(Element { dtype: DType::F32, name: "(x)" })])
}
