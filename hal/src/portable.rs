//! The language in which kernels are written once for every device.
//!
//! The language is a structured subset of C with the C preprocessor's macros, conditions and `#error`; the book's page on
//! the language of kernels has its grammar. These names stand where compilers differ:
//!
//! | name | meaning |
//! |---|---|
//! | `KERNEL GROUP_SIZE(x, y, z) void name(…)` | a kernel whose work-groups have that size |
//! | `DEVICE` | before a function that kernels call; it is defined before its use and does not call itself |
//! | `GLOBAL` | before a pointer to a buffer, wherever a pointer is declared |
//! | `LOCAL` | before an array that a work-group shares, in a kernel's outermost block; its size is a constant |
//! | `ALIGNED` | after the declaration of a `LOCAL` array that begins at a multiple of 16 bytes |
//! | `BARRIER()` | all work-items of the group get here, and see its local memory |
//! | `UNROLL` | before a loop of constant bounds whose turns are written out; `_Pragma("unroll N")` for some of them |
//! | `GLOBAL_ID(d)`, `LOCAL_ID(d)`, `GROUP_ID(d)`, `GROUPS(d)` | places in the grid, `u32`; `d` is a literal |
//! | `i8` … `u64` | integers of that many bits |
//! | `f16`, `bf16` | halves in memory: `load_f16(p, i)`, `store_f16(x, p, i)`, and so for bf16 |
//! | `load4(p, i)` | four elements of `float`, `f16` or `bf16` from `p[i]` on as a `float4` |
//! | `load_u32(p, i)` | the four bytes from `p[i]` on, of 8- or 16-bit integers, the first in the lowest bits |
//! | `BITS_F32(x)`, `F32_BITS(u)` | a float's bits, and back |
//! | `F32X4(a, b, c, d)` | a `float4`; its parts are `.x .y .z .w`, and it has no operators |
//! | `divide(x, y)` | the quotient, rounded to nearest where `/` need not be; not of numbers below 2⁻¹⁰⁰ |
//! | `compare_and_swap(p, old, new)` | the one atomic on buffers; only it may read its target |
//!
//! Other types are `void`, `bool` and `float`. Parameters of kernels are buffers, `u32`, `i32`, `u64`, `i64` and
//! `float`.
//! A packed load begins at a multiple of its own size, counted from the buffer's begin.
//!
//! A pointer is indexed, moved by `+`, passed to a function, or kept in a local that is never assigned again. There is
//! no `*p`, no `&x`, no cast of a pointer and no array of pointers. A function with pointers among its parameters
//! returns only at its end. Assignments are statements or steps of a `for`; there is no `switch` and no `goto`.
//!
//! Mathematical functions have their OpenCL names, on `float`. Work-items do not run in lock-step
//! on any device. There are no subgroups, no `half` arithmetic, no swizzles, and no local memory as
//! an argument. A work-group has at most [`GROUP_MAX`] work-items and [`LOCAL_BYTES`] of local
//! memory.

use crate::backend::BackendKind;

/// The maximum number of work-items in a work-group, which every supported device allows.
pub const GROUP_MAX: usize = 256;
/// Bytes of local memory that every supported device has for a work-group.
pub const LOCAL_BYTES: u64 = 32 * 1024;

/// The header before a portable kernel's source for the compiler of a backend; `None` for a backend
/// that compiles no programs.
#[must_use]
pub fn prelude(backend: BackendKind) -> Option<&'static str> {
    backend.line().prelude
}

/// A source with its header; the compiler's messages count lines from the source's first line.
#[must_use]
pub fn with_prelude(backend: BackendKind, source: &str) -> String {
    format!("{}#line 1\n{source}", prelude(backend).unwrap_or_default())
}
