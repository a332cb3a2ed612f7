//! The parts of the expressions of element-wise operators.

use lgp_memory::DType;

/// An input's element in an expression.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    /// The dtype that it has in memory.
    pub dtype: DType,
    /// Its name.
    pub name: &'a str,
}

/// The elements of an operator's `N` inputs; `None` if one is absent.
pub(crate) fn all<'a, const N: usize>(x: &[Option<Element<'a>>]) -> Option<[Element<'a>; N]> {
    let present: Vec<Element<'a>> = x.iter().copied().collect::<Option<_>>()?;
    present.try_into().ok()
}

/// The expression of exactly this number.
pub(crate) fn literal(x: f32) -> String {
    format!("F32_BITS({:#x}u)", x.to_bits())
}
