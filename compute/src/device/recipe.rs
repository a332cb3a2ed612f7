//! What an operator asks of a device, as data.

use super::library::LibraryProduct;
use super::pointwise::Pointwise;
use crate::op::{Op, ValueInfo};
use lgp_memory::DType;
use std::fmt::Write as _;

/// A kernel: portable C, made special by constants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kernel {
    name: &'static str,
    body: &'static str,
    defines: String,
    group: [usize; 3],
}

impl Kernel {
    /// The kernel `name` of the source `body`, in work-groups of `group` work-items. The source
    /// finds the group's sides as `GROUP_X`, `GROUP_Y` and `GROUP_Z`.
    #[must_use]
    pub(crate) fn new(name: &'static str, body: &'static str, group: [usize; 3]) -> Self {
        let kernel = Self { name, body, defines: String::new(), group };
        let [x, y, z] = group;
        kernel.define("GROUP_X", x).define("GROUP_Y", y).define("GROUP_Z", z)
    }

    /// The same kernel with a constant, or with a piece of code, in place of a name.
    #[must_use]
    pub(crate) fn define(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        // Writing to a string cannot fail.
        let _ = writeln!(self.defines, "#define {name} {value}");
        self
    }

    /// The same kernel, which learns as `STORED` and `STORE(value, index)` what elements `y` has.
    pub(crate) fn storing(self, dtype: DType) -> Option<Self> {
        let store = store(dtype, "(value)", "y", "(index)");
        Some(self.define("STORED", c_type(dtype)?).define("STORE(value, index)", store))
    }

    /// The entry point.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it stores each element of its output once, by `FINISH(value, index)`, and takes
    /// what that needs after its own parameters, as `EXTRA_PARAMETERS`.
    fn finishes(&self) -> bool {
        self.body.contains("EXTRA_PARAMETERS") && !self.defines.contains("EXTRA_PARAMETERS")
    }

    /// Work-items of a work-group.
    #[must_use]
    pub fn group(&self) -> [usize; 3] {
        self.group
    }

    /// The source, its constants first, without a device's prelude.
    #[must_use]
    pub fn source(&self) -> String {
        format!("{}{}{}", self.defines, include_str!("common.h"), self.body)
    }
}

/// What a parameter of a kernel is given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// An input's buffer.
    Input(usize),
    /// An output's buffer.
    Output(usize),
    /// A scratch buffer, which no other recipe shares while this one runs.
    Scratch(usize),
    /// A number, `u32` in the kernel.
    U32(u32),
    /// A number, `i32` in the kernel.
    I32(i32),
    /// A number, `float` in the kernel.
    F32(f32),
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What is launched.
    pub kernel: Kernel,
    /// How many work-groups, in each of three dimensions.
    pub groups: [usize; 3],
    /// The arguments, in the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
    /// Additions and multiplications, for estimates.
    pub flops: u64,
    /// Bytes that must pass between memory and cores at least, for estimates.
    pub bytes: u64,
}

/// The launches that compute an operator, one after the other.
///
/// Only this crate makes recipes. Each keeps this promise, on which launching them relies: with
/// buffers of at least the bytes that it names, its kernels stay within them, whatever is in them.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    library: Option<Box<LibraryProduct>>,
    calls: Vec<Call>,
    scratch: Vec<usize>,
    /// Bytes of each input that is read, and of each output.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

impl Recipe {
    /// How a device computes an operator, for inputs and outputs of these types;
    /// `None` where the operator has no kernels for them, or some dimension is not known.
    #[must_use]
    pub fn new(op: &dyn Op, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Self> {
        let sizes = Sizes::new(inputs, outputs)?;
        let launches = match Pointwise::single(op, inputs, outputs) {
            Some(pointwise) => pointwise.launches()?,
            None => op.launches(inputs, outputs)?,
        };
        Some(Self::with(launches, &sizes))
    }

    /// All ways to compute it that are worth measuring, [`Recipe::new`] first.
    #[must_use]
    pub fn alternatives(
        op: &dyn Op,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Vec<Self> {
        let Some(sizes) = Sizes::new(inputs, outputs) else { return Vec::new() };
        let schedules = match Pointwise::single(op, inputs, outputs) {
            Some(pointwise) => pointwise.launches().into_iter().collect(),
            None => op.schedules(inputs, outputs),
        };
        schedules.into_iter().map(|launches| Self::with(launches, &sizes)).collect()
    }

    fn with(launches: Launches, sizes: &Sizes) -> Self {
        let mut recipe = Self::of(launches, sizes.inputs.clone(), sizes.outputs.clone());
        for i in 0..recipe.inputs.len() {
            if !recipe.reads(i) {
                recipe.inputs[i] = 0;
            }
        }
        recipe
    }

    /// Launches that stand for no operator, with the bytes of each input and output.
    pub(crate) fn of(launches: Launches, inputs: Vec<usize>, outputs: Vec<usize>) -> Self {
        let Launches { library, calls, scratch } = launches;
        Self { library, calls, scratch, inputs, outputs }
    }

    /// Whether what it launches reads an input.
    #[must_use]
    pub fn reads(&self, input: usize) -> bool {
        let by_library = self.library().is_some_and(|product| product.reads(input));
        by_library || self.calls.iter().any(|call| call.arguments.contains(&Argument::Input(input)))
    }

    /// Whether buffers of these sizes hold what the kernels touch.
    pub(super) fn fits(&self, inputs: &[usize], outputs: &[usize], scratch: &[usize]) -> bool {
        let holds = |given: &[usize], wanted: &[usize]| {
            given.len() == wanted.len() && given.iter().zip(wanted).all(|(g, w)| g >= w)
        };
        holds(inputs, &self.inputs)
            && holds(outputs, &self.outputs)
            && holds(scratch, &self.scratch)
    }

    /// Bytes of each input that is read, and of each output.
    pub(super) fn sizes(&self) -> [&[usize]; 2] {
        [&self.inputs, &self.outputs]
    }

    /// Additions and multiplications of all launches.
    #[must_use]
    pub fn flops(&self) -> u64 {
        let library = self.library().map_or(0, LibraryProduct::flops);
        library + self.calls.iter().map(|call| call.flops).sum::<u64>()
    }

    /// What the library of the device's vendor computes before the launches.
    #[must_use]
    pub fn library(&self) -> Option<&LibraryProduct> {
        self.library.as_deref()
    }

    /// What is launched.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Bytes of each scratch buffer.
    #[must_use]
    pub fn scratch(&self) -> &[usize] {
        &self.scratch
    }
}

/// The launches of an operator, and bytes of the scratch buffers that they pass things on in.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Launches {
    /// What the library of the device's vendor computes before.
    pub(crate) library: Option<Box<LibraryProduct>>,
    /// What is launched, one after the other.
    pub(crate) calls: Vec<Call>,
    /// Bytes of each scratch buffer.
    pub(crate) scratch: Vec<usize>,
}

impl Launches {
    /// The launches whose result each element of goes through element-wise operators before it is
    /// stored: `steps`' input 0 is what was stored, the others are further inputs, from `first` on.
    /// `None` where the last kernel cannot do it.
    pub(super) fn finished_by(mut self, steps: &Pointwise, first: usize) -> Option<Self> {
        let last = self.calls.last_mut().filter(|call| call.kernel.finishes())?;
        last.kernel = steps.define_finish(last.kernel.clone())?;
        last.arguments.extend(steps.extra_arguments(first));
        last.bytes += steps.extra_bytes();
        Some(self)
    }
}

impl From<Call> for Launches {
    fn from(call: Call) -> Self {
        Self { calls: vec![call], ..Self::default() }
    }
}

/// Bytes of an operator's inputs and outputs. They are known before an operator is asked for launches,
/// so that none of its products of dimensions can be too large.
struct Sizes {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

impl Sizes {
    fn new(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Self> {
        let bytes_in = |info: &Option<&ValueInfo>| info.map_or(Some(0), bytes);
        Some(Self {
            inputs: inputs.iter().map(bytes_in).collect::<Option<_>>()?,
            outputs: outputs.iter().map(bytes).collect::<Option<_>>()?,
        })
    }
}

/// Bytes of a tensor whose dimensions are known, and that kernels can index with 32 bits.
fn bytes(info: &ValueInfo) -> Option<usize> {
    let shape = info.ty.concrete_shape()?;
    c_type(info.ty.dtype)?;
    let few = i32::try_from(shape.elements().ok()?).is_ok();
    shape.byte_len(info.ty.dtype).ok().filter(|_| few)
}

/// Work-groups of `size` that cover `items`, one at least.
pub(crate) fn groups(items: usize, size: usize) -> usize {
    items.div_ceil(size.max(1)).max(1)
}

/// How kernels spell a dtype in memory; `None` for one that they do not have. `bool` is a byte.
pub(crate) fn c_type(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "float",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 | DType::Bool => "u8",
        DType::U16 => "u16",
        DType::U32 => "u32",
        DType::U64 => "u64",
        _ => return None,
    })
}

/// How kernels spell what is as large as an element, which they only move.
pub(crate) fn word(dtype: DType) -> Option<&'static str> {
    Some(match dtype.size() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "u64",
        _ => return None,
    })
}

/// The expression of an element in a register: halves widen to `float`.
pub(crate) fn load(dtype: DType, pointer: &str, index: &str) -> String {
    match dtype {
        DType::F16 => format!("load_f16({pointer}, {index})"),
        DType::BF16 => format!("load_bf16({pointer}, {index})"),
        _ => format!("{pointer}[{index}]"),
    }
}

/// The statement that stores an element.
pub(crate) fn store(dtype: DType, value: &str, pointer: &str, index: &str) -> String {
    match dtype {
        DType::F16 => format!("store_f16({value}, {pointer}, {index})"),
        DType::BF16 => format!("store_bf16({value}, {pointer}, {index})"),
        _ => format!("{pointer}[{index}] = {value}"),
    }
}
