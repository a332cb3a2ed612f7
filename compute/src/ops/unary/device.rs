//! The functions as expressions of kernels.

use super::table::{on_device, on_device_integers};
use super::{Unary, UnaryKind};
use crate::device::{Element, all};
use lgp_memory::DType;

/// The function of an element; `None` for a dtype without an expression.
pub(super) fn expression(op: &Unary, x: &[Option<Element<'_>>]) -> Option<String> {
    let [Element { dtype, name: x }] = all(x)?;
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => match op.kind {
            UnaryKind::IsNaN => Some(format!("{x} != {x}")),
            UnaryKind::IsInf { positive, negative } => Some(match (positive, negative) {
                (true, true) => format!("fabs({x}) == INFINITY"),
                (true, false) => format!("{x} == INFINITY"),
                (false, true) => format!("{x} == -INFINITY"),
                (false, false) => "0".to_owned(),
            }),
            kind => on_device(kind, x),
        },
        DType::Bool => (op.kind == UnaryKind::Not).then(|| format!("!{x}")),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => on_device_integers(op.kind, x, false),
        _ => on_device_integers(op.kind, x, true),
    }
}
