//! The language in which kernels are written once for every device: its grammar, its checker, and its compiler to
//! SPIR-V for Vulkan. This crate knows no devices.

#![forbid(unsafe_code)]

mod constant;
mod lower;
mod module;
mod parse;
mod preprocess;
mod syntax;
mod token;

use lower::Source;
use parse::Parser;
use preprocess::Preprocessor;
use std::collections::BTreeSet;
use syntax::Function;

/// Work-items of a work-group that every supported device allows.
pub const GROUP_ITEMS_MAX: u32 = 256;
/// Bytes of local memory that every supported device has for a work-group.
pub const LOCAL_BYTES_MAX: u32 = 32 * 1024;
/// The language's own functions, in the language.
const LIBRARY: &str = include_str!("library.h");
/// The function of the library that rounds a float to the bits of a bf16.
const ROUNDED_BF16: &str = "rounded_bf16_";

/// A kernel as a SPIR-V module of its own, with one entry point of the kernel's name.
///
/// Buffers are storage buffers of descriptor set 0. Scalars are push constants, which begin at byte 0. A grid with more
/// work-groups than a dispatch may have is dispatched in pieces, by a pipeline for pieces: its specialisation constants
/// (u32, 0 by default) are 3, which is 1, and 4, 5 and 6, the sides of its work-groups. Behind the scalars push constants
/// give a piece's first work-group in each dimension; a pipeline for whole grids ignores them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The entry point.
    pub name: String,
    /// The module.
    pub words: Vec<u32>,
    /// Work-items of a work-group in each dimension. `None` without a `GROUP_SIZE`: the specialisation constants 0, 1
    /// and 2 (u32) give the sides then.
    pub group: Option<[u32; 3]>,
    /// The parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Bytes of all push constants.
    pub scalar_bytes: u32,
    /// The first byte of a piece's first work-group, three u32. `None` for a kernel that asks for the number of
    /// work-groups (`GROUPS`) or whose scalars leave no room: all of its work-groups must be in one dispatch.
    pub first_offset: Option<u32>,
    /// Local memory of a work-group.
    pub local_bytes: u32,
    /// What the device must have.
    pub needs: Vec<Need>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// A storage buffer.
    Buffer {
        /// Its binding in descriptor set 0.
        binding: u32,
        /// Whether the kernel writes to it.
        written: bool,
    },
    /// A push constant.
    Scalar {
        /// Its type.
        ty: Scalar,
        /// Its first byte.
        offset: u32,
    },
}

/// The type of a scalar parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// A 32-bit unsigned integer.
    U32,
    /// A 32-bit signed integer.
    I32,
    /// A 64-bit unsigned integer.
    U64,
    /// A 64-bit signed integer.
    I64,
    /// A 32-bit float.
    F32,
}

/// A feature of Vulkan that a kernel needs beyond the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// `storageBuffer8BitAccess`.
    Storage8,
    /// `storageBuffer16BitAccess`.
    Storage16,
    /// `shaderInt8`.
    Int8,
    /// `shaderInt16`.
    Int16,
    /// `shaderInt64`.
    Int64,
    /// `shaderSignedZeroInfNanPreserveFloat32`.
    FloatControls,
}

/// Why a source is no kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Error {
    /// The line in the source, from 1.
    pub line: u32,
    /// What is wrong, and what is expected.
    pub message: String,
}

impl Error {
    fn new(line: u32, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// Compiles all kernels of `source` with `options` (`-D NAME=VALUE …`).
///
/// # Errors
/// The first mistake.
pub fn compile(source: &str, options: &str) -> Result<Vec<Kernel>, Error> {
    let mut functions = items(&mut Preprocessor::default(), LIBRARY)?;
    functions.iter_mut().for_each(|function| function.precise = true);
    let mut preprocessor = Preprocessor::default();
    preprocessor.options(options)?;
    let (kernels, own): (Vec<Function>, Vec<Function>) =
        items(&mut preprocessor, source)?.into_iter().partition(|item| item.kernel.is_some());
    let library = functions.len();
    functions.extend(own);
    unique(functions.iter().chain(&kernels))?;
    let source = Source::new(&functions);
    let done = kernels.iter().map(|kernel| lower::kernel(kernel, &source));
    let done = done.collect::<Result<Vec<Kernel>, Error>>()?;
    let own: Vec<&Function> = functions.iter().skip(library).collect();
    lower::check(&own, &source)?;
    Ok(done)
}

fn items(preprocessor: &mut Preprocessor, text: &str) -> Result<Vec<Function>, Error> {
    let tokens = preprocessor.run(text, 1)?;
    Parser::new(&tokens, 1).items()
}

/// No name may stand for two functions.
fn unique<'a>(items: impl Iterator<Item = &'a Function>) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for Function { name, line, .. } in items {
        if lower::is_builtin(name) || !names.insert(name) {
            return Err(Error::new(*line, format!("{name} is defined twice")));
        }
    }
    Ok(())
}
