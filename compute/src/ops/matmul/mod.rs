//! Matrix product, batched.

/// `MatMul` by numpy's rules: the last two axes multiply, the others broadcast, a vector on
/// either side loses its axis again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatMul;
crate::ops::stub!(MatMul);
