//! Kernels, their launches, and how their code spells types and elements.

use super::tensor::DeviceTensor;
use crate::error::{Error, Result};
use lgp_hal::Arg;
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

    /// The same kernel with `STORED`, the type of `y`'s elements, and `STORE(value, index)`, which
    /// stores one. `None` for a dtype that kernels lack.
    pub(crate) fn storing(self, dtype: DType) -> Option<Self> {
        let store = store(dtype, "(value)", "y", "(index)");
        Some(self.define("STORED", c_type(dtype)?).define("STORE(value, index)", store))
    }

    /// The entry point.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the kernel stores each element of its output once, by `FINISH(value, index)`, and
    /// takes that macro's parameters after its own, as `EXTRA_PARAMETERS`.
    pub(super) fn finishes(&self) -> bool {
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

/// The value of a kernel's parameter.
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

impl Argument {
    pub(super) fn resolve<'a>(
        &self,
        inputs: &[Option<&'a DeviceTensor>],
        outputs: &[Option<&'a DeviceTensor>],
        scratch: &'a [DeviceTensor],
    ) -> Result<Arg<'a>> {
        let tensor = |tensors: &[Option<&'a DeviceTensor>], what: &str, i: usize| {
            let tensor = tensors.get(i).copied().flatten();
            let missing = || Error::invalid(format!("{what} {i} is missing")).of("launch");
            tensor.map(|tensor| Arg::Buffer(&**tensor.buffer())).ok_or_else(missing)
        };
        match *self {
            Self::Input(i) => tensor(inputs, "input", i),
            Self::Output(i) => tensor(outputs, "output", i),
            Self::Scratch(i) => scratch
                .get(i)
                .map(|tensor| Arg::Buffer(&**tensor.buffer()))
                .ok_or_else(|| Error::invalid(format!("scratch {i} is missing")).of("launch")),
            Self::U32(value) => Ok(Arg::U32(value)),
            Self::I32(value) => Ok(Arg::I32(value)),
            Self::F32(value) => Ok(Arg::F32(value)),
        }
    }
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The kernel that is launched.
    pub kernel: Kernel,
    /// How many work-groups, in each of three dimensions.
    pub groups: [usize; 3],
    /// The arguments, in the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
    /// Additions and multiplications, for estimates.
    pub flops: u64,
    /// The fewest bytes that must pass between memory and cores, for estimates.
    pub bytes: u64,
}

/// Waves of 64 work-items that keep a card busy: two for each of the 144 vector units of a Polaris 10.
/// Work with fewer waves is worth splitting.
pub(crate) const WAVES_BUSY: usize = 288;

/// Work-groups of `size` that cover `items`, one at least.
pub(crate) fn groups(items: usize, size: usize) -> usize {
    items.div_ceil(size.max(1)).max(1)
}

/// The type that kernels have for a dtype in memory; `None` for a dtype that they lack. `bool` is a
/// byte.
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

/// The unsigned type as large as an element, for kernels that only move elements.
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
