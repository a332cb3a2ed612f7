//! Matrix product with a scaled addend.

/// `Gemm`: `alpha · op(a) · op(b) + beta · c` with a, b of rank 2 and c (optional) that broadcasts
/// to the product.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemm {
    /// Scale of the product.
    pub alpha: f32,
    /// Scale of c.
    pub beta: f32,
    /// Transposes a.
    pub trans_a: bool,
    /// Transposes b.
    pub trans_b: bool,
}

impl Default for Gemm {
    fn default() -> Self {
        Self { alpha: 1., beta: 1., trans_a: false, trans_b: false }
    }
}
crate::ops::stub!(Gemm);
