//! Pooling over all spatial axes.

/// How a whole plane becomes one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalPoolKind {
    /// The mean.
    Average,
    /// The largest.
    Max,
}

/// `GlobalAveragePool`, `GlobalMaxPool`: `[n, c, spatial…]` to `[n, c, 1…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalPool {
    /// Mean or maximum.
    pub kind: GlobalPoolKind,
}
crate::ops::stub!(GlobalPool);
