//! The functions as expressions of kernels.

use super::{Binary, BinaryKind};
use crate::device::{Element, all};
use lgp_memory::DType;

/// The function of two elements; `None` for dtypes without an expression. Kernels do not divide
/// integers, because a kernel cannot report the error of a zero divisor.
pub(super) fn expression(op: &Binary, x: &[Option<Element<'_>>]) -> Option<String> {
    let [a, b] = all(x)?;
    let float = matches!(a.dtype, DType::F32 | DType::F16 | DType::BF16);
    let signed = matches!(a.dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let (dtype, a, b) = (b.dtype, a.name, b.name);
    Some(match op.kind {
        // Overflow wraps, as it does for unsigned integers.
        BinaryKind::Add if signed => format!("(u64){a} + (u64){b}"),
        BinaryKind::Sub if signed => format!("(u64){a} - (u64){b}"),
        BinaryKind::Mul if signed => format!("(u64){a} * (u64){b}"),
        BinaryKind::Add => format!("{a} + {b}"),
        BinaryKind::Sub => format!("{a} - {b}"),
        BinaryKind::Mul => format!("{a} * {b}"),
        BinaryKind::Div if float => format!("{a} / {b}"),
        BinaryKind::Pow if float => match dtype {
            DType::F32 | DType::F16 | DType::BF16 => format!("pow({a}, {b})"),
            _ => format!("pow({a}, (float){b})"),
        },
        BinaryKind::Mod { fmod: true } if float => format!("fmod({a}, {b})"),
        BinaryKind::Min => format!("{a} < {b} || {a} != {a} ? {a} : {b}"),
        BinaryKind::Max => format!("{a} > {b} || {a} != {a} ? {a} : {b}"),
        BinaryKind::PRelu if float || signed => format!("{a} < 0 ? {a} * {b} : {a}"),
        BinaryKind::PRelu => a.to_owned(),
        BinaryKind::Equal => format!("{a} == {b}"),
        BinaryKind::Less => format!("{a} < {b}"),
        BinaryKind::LessOrEqual => format!("{a} <= {b}"),
        BinaryKind::Greater => format!("{a} > {b}"),
        BinaryKind::GreaterOrEqual => format!("{a} >= {b}"),
        BinaryKind::And => format!("{a} && {b}"),
        BinaryKind::Or => format!("{a} || {b}"),
        BinaryKind::Xor => format!("{a} != {b}"),
        BinaryKind::Div | BinaryKind::Pow | BinaryKind::Mod { .. } => return None,
    })
}
