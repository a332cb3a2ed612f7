//! Conversions as expressions of kernels.

use crate::device::{Element, c_type};
use lgp_memory::DType;

/// The conversion of an element; `None` between dtypes that kernels do not have.
pub(super) fn expression(x: Element<'_>, to: DType) -> Option<String> {
    let (from, x) = (x.dtype, x.name);
    let is_float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let target = c_type(to)?;
    c_type(from)?;
    Some(match (is_float(from), to) {
        _ if is_float(to) => format!("(float){x}"),
        (_, DType::Bool) => format!("{x} != 0"),
        (false, _) => format!("({target}){x}"),
        (true, _) => {
            // `low` and `high` are floats at the limits or next beyond them.
            let (least, most, low, high) = limits(to)?;
            format!(
                "{x} != {x} ? 0 : {x} <= {low} ? {least} : {x} >= {high} ? {most} : ({target}){x}"
            )
        }
    })
}

/// The least and the largest integer of a dtype, and floats at or next beyond them.
fn limits(dtype: DType) -> Option<(&'static str, &'static str, &'static str, &'static str)> {
    Some(match dtype {
        DType::I8 => ("-128", "127", "-128.0f", "127.0f"),
        DType::U8 => ("0", "255", "0.0f", "255.0f"),
        DType::I16 => ("-32768", "32767", "-32768.0f", "32767.0f"),
        DType::U16 => ("0", "65535", "0.0f", "65535.0f"),
        DType::I32 => ("(-2147483647 - 1)", "2147483647", "-2147483648.0f", "2147483648.0f"),
        DType::U32 => ("0u", "4294967295u", "0.0f", "4294967296.0f"),
        DType::I64 => (
            "((i64)1 << 63)",
            "~((i64)1 << 63)",
            "-9223372036854775808.0f",
            "9223372036854775808.0f",
        ),
        DType::U64 => ("(u64)0", "~(u64)0", "0.0f", "18446744073709551616.0f"),
        _ => return None,
    })
}
