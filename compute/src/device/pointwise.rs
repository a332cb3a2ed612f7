//! Element-wise operators as generated code: alone, several at once, or at the end of another
//! kernel, where a result is still in a register.

use super::expression::Element;
use super::kernel::{Argument, Call, Kernel, c_type, groups, load, store};
use super::launches::Launches;
use crate::op::{Op, ValueInfo};
use lgp_memory::{DType, Shape};
use std::fmt::Write as _;

const GROUP: usize = 64;
/// Dimensions that remain after neighbours that broadcast alike are joined.
const RANK_MAX: usize = 6;

/// The value that a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// An input of all steps together.
    Input(usize),
    /// The result of an earlier step.
    Step(usize),
}

/// Element-wise operators that compute one tensor together.
#[derive(Debug, Clone)]
pub(super) struct Pointwise {
    inputs: Vec<(DType, Shape)>,
    /// The number of each input among the operator's inputs.
    arguments: Vec<usize>,
    /// For each step, the result's dtype and its expression, in which inputs are `x0`, `x1` … and
    /// the results of earlier steps are `v0`, `v1` …
    steps: Vec<(DType, String)>,
    output: (DType, Shape),
}

impl Pointwise {
    /// No steps yet, for inputs and an output of these types. `None` for unknown dimensions, or a
    /// dtype that kernels lack.
    pub(super) fn new(inputs: &[&ValueInfo], output: &ValueInfo) -> Option<Self> {
        let known = |info: &ValueInfo| {
            c_type(info.ty.dtype)?;
            Some((info.ty.dtype, info.ty.concrete_shape()?))
        };
        let inputs: Vec<_> = inputs.iter().map(|info| known(info)).collect::<Option<_>>()?;
        let arguments = (0..inputs.len()).collect();
        Some(Self { inputs, arguments, steps: Vec::new(), output: known(output)? })
    }

    /// Adds an operator, whose result has dtype `to`. `None` if it is not element-wise.
    pub(super) fn step(
        mut self,
        op: &dyn Op,
        operands: &[Option<Operand>],
        to: DType,
    ) -> Option<Self> {
        c_type(to)?;
        let mut named = Vec::with_capacity(operands.len());
        for operand in operands {
            named.push(match *operand {
                Some(Operand::Input(i)) => Some((format!("x{i}"), self.inputs.get(i)?.0)),
                Some(Operand::Step(i)) => Some((format!("v{i}"), self.steps.get(i)?.0)),
                None => None,
            });
        }
        let elements = named
            .iter()
            .map(|operand| operand.as_ref().map(|(name, dtype)| Element { dtype: *dtype, name }));
        self.steps.push((to, op.expression(&elements.collect::<Vec<_>>())?));
        Some(self)
    }

    /// One operator with all its inputs.
    pub(super) fn single(
        op: &dyn Op,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Self> {
        let [output] = outputs else { return None };
        let given: Vec<&ValueInfo> = inputs.iter().copied().flatten().collect();
        let mut present = 0..given.len();
        let operands: Vec<_> =
            inputs.iter().map(|x| x.and_then(|_| present.next()).map(Operand::Input)).collect();
        let is_there = |i: &usize| inputs[*i].is_some();
        let arguments = (0..inputs.len()).filter(is_there).collect();
        Self { arguments, ..Self::new(&given, output)? }.step(op, &operands, output.ty.dtype)
    }

    /// The launch of one kernel that computes all steps.
    pub(super) fn launches(&self) -> Option<Launches> {
        let count = self.output.1.elements().ok()?;
        let mut parameters = String::new();
        for (i, (dtype, _)) in self.inputs.iter().enumerate() {
            let _ = write!(parameters, "GLOBAL const {} *p{i}, ", c_type(*dtype)?);
        }
        let _ = write!(parameters, "GLOBAL {} *y, ", c_type(self.output.0)?);
        let kernel = Kernel::new("pointwise", include_str!("pointwise.cl"), [GROUP, 1, 1])
            .define("PARAMETERS", parameters)
            .define("STEPS", self.code(0)?);
        let mut arguments: Vec<Argument> =
            self.arguments.iter().copied().map(Argument::Input).collect();
        arguments.push(Argument::Output(0));
        arguments.push(Argument::U32(u32::try_from(count).ok()?));
        let read: usize = self.inputs.iter().filter_map(|(d, s)| s.byte_len(*d).ok()).sum();
        let written = self.output.1.byte_len(self.output.0).ok()?;
        let bytes = (read + written) as u64;
        let flops = (count * self.steps.len()) as u64;
        Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops, bytes }.into())
    }

    /// The statements that load inputs from `first` on, compute and store the element `i`.
    fn code(&self, first: usize) -> Option<String> {
        let mut code = String::new();
        let places = self.places(first)?;
        for (i, (dtype, _)) in self.inputs.iter().enumerate().skip(first) {
            let place = &places[i - first];
            let _ = write!(
                code,
                "{} x{i} = {}; ",
                register(*dtype),
                load(*dtype, &format!("p{i}"), place)
            );
        }
        for (i, (dtype, expression)) in self.steps.iter().enumerate() {
            let register = register(*dtype);
            let _ = write!(code, "{register} v{i} = ({register})({expression}); ");
        }
        let last = format!("v{}", self.steps.len().checked_sub(1)?);
        let _ = write!(code, "{};", store(self.output.0, &last, "y", "i"));
        Some(code)
    }

    /// For each input from `first` on, the expression of the index of its element that belongs to
    /// the output's element `i`.
    fn places(&self, first: usize) -> Option<Vec<String>> {
        let shapes: Vec<&[usize]> = self.inputs[first..].iter().map(|(_, s)| s.dims()).collect();
        places(self.output.1.dims(), &shapes, "i")
    }

    /// The kernel, which stores by `FINISH(value, index)`, with these steps before each store.
    fn define_finish(&self, kernel: Kernel) -> Option<Kernel> {
        let (first, shape) = self.inputs.first()?;
        // `FINISH` gets each element of the output as a `float`.
        if register(*first) != "float" || *shape != self.output.1 {
            return None;
        }
        let mut parameters = String::new();
        for (i, (dtype, _)) in self.inputs.iter().enumerate().skip(1) {
            let _ = write!(parameters, ", GLOBAL const {} *p{i}", c_type(*dtype)?);
        }
        // `value` and `index` may contain the kernel's own `i`.
        let names = "u32 finished = (u32)(index); float x0 = (value); u32 i = finished;";
        let finish = format!("{{ {names} {} }}", self.code(1)?);
        Some(
            kernel
                .define("EXTRA_PARAMETERS", parameters)
                .define("Y_TYPE", c_type(self.output.0)?)
                .define("FINISH(value, index)", finish),
        )
    }

    /// Arguments for the inputs but the first, which are the recipe's inputs from `from` on.
    fn extra_arguments(&self, from: usize) -> impl Iterator<Item = Argument> {
        (0..self.inputs.len().saturating_sub(1)).map(move |i| Argument::Input(from + i))
    }

    /// Bytes of the inputs but the first, for estimates.
    fn extra_bytes(&self) -> u64 {
        let bytes = self.inputs.iter().skip(1).filter_map(|(d, shape)| shape.byte_len(*d).ok());
        bytes.sum::<usize>() as u64
    }
}

impl Launches {
    /// The launches, with `steps` applied to each element of the result before it is stored. That
    /// element is input 0 of `steps`; their other inputs are the recipe's inputs from `first` on.
    /// `None` where the last kernel cannot do it.
    pub(super) fn finished_by(mut self, steps: &Pointwise, first: usize) -> Option<Self> {
        let last = self.calls.last_mut().filter(|call| call.kernel.finishes())?;
        last.kernel = steps.define_finish(last.kernel.clone())?;
        last.arguments.extend(steps.extra_arguments(first));
        last.bytes += steps.extra_bytes();
        Some(self)
    }
}

/// For each tensor of `inputs`, the expression of the index of its element that belongs to the
/// output's element `i`. `None` if a tensor does not broadcast to the dimensions `output`, or if
/// more than [`RANK_MAX`] dimensions remain.
pub(super) fn places(output: &[usize], inputs: &[&[usize]], i: &str) -> Option<Vec<String>> {
    let joined = joined(output, inputs)?;
    if joined.dims.len() > RANK_MAX {
        return None;
    }
    // One step along dimension `d` is `outer[d + 1]` elements of the output.
    let mut outer = vec![1usize; joined.dims.len() + 1];
    for d in (0..joined.dims.len()).rev() {
        outer[d] = outer[d + 1].saturating_mul(joined.dims[d]);
    }
    let place = |steps: &Vec<usize>| {
        if *steps == outer[1..] && !steps.is_empty() {
            return i.to_owned();
        }
        let terms = steps.iter().enumerate().filter(|(_, step)| **step > 0).map(|(d, step)| {
            let above = if d == 0 { String::new() } else { format!(" % {}u", outer[d]) };
            format!("{i}{above} / {}u * {step}u", outer[d + 1])
        });
        let sum = terms.collect::<Vec<_>>().join(" + ");
        if sum.is_empty() { "0".to_owned() } else { sum }
    };
    Some(joined.steps.iter().map(place).collect())
}

/// The type of an element in a register.
fn register(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 => "float",
        other => c_type(other).unwrap_or("float"),
    }
}

/// The dimensions of an output after joining neighbours, and each input's step along them, in
/// elements.
struct Joined {
    dims: Vec<usize>,
    steps: Vec<Vec<usize>>,
}

/// Joins neighbouring dimensions along which every input steps evenly. `None` for an input that
/// does not broadcast to the output.
fn joined(output: &[usize], inputs: &[&[usize]]) -> Option<Joined> {
    let mut strides = Vec::with_capacity(inputs.len());
    for input in inputs {
        let missing = output.len().checked_sub(input.len())?;
        let mut own = vec![0usize; output.len()];
        let mut step = 1usize;
        for (d, &size) in input.iter().enumerate().rev() {
            if size != output[missing + d] && size != 1 {
                return None;
            }
            own[missing + d] = if size == 1 { 0 } else { step };
            step = step.checked_mul(size)?;
        }
        strides.push(own);
    }
    let mut joined = Joined { dims: Vec::new(), steps: vec![Vec::new(); inputs.len()] };
    for (d, &size) in output.iter().enumerate() {
        if size == 1 {
            continue;
        }
        let continues = !joined.dims.is_empty()
            && joined.steps.iter().zip(&strides).all(|(steps, own)| {
                steps.last().is_some_and(|&last| last == own[d].saturating_mul(size))
            });
        if continues && let Some(last) = joined.dims.last_mut() {
            *last *= size;
            for (steps, own) in joined.steps.iter_mut().zip(&strides) {
                if let Some(last) = steps.last_mut() {
                    *last = own[d];
                }
            }
        } else {
            joined.dims.push(size);
            joined.steps.iter_mut().zip(&strides).for_each(|(steps, own)| steps.push(own[d]));
        }
    }
    Some(joined)
}
