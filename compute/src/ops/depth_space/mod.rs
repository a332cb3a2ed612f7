//! DepthToSpace and SpaceToDepth: channels become pixels and back.

/// How `DepthToSpace` reads the channel axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepthMode {
    /// Depth, column, row: the block position is outermost.
    Dcr,
    /// Column, row, depth: the block position is innermost, as in PyTorch's pixel shuffle.
    Crd,
}

/// `DepthToSpace`: `[n, c, h, w]` to `[n, c / block², h · block, w · block]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepthToSpace {
    /// Side of a block in pixels.
    pub block: usize,
    /// Order of the channels.
    pub mode: DepthMode,
}

/// `SpaceToDepth`: `[n, c, h, w]` to `[n, c · block², h / block, w / block]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceToDepth {
    /// Side of a block in pixels.
    pub block: usize,
}
crate::ops::stub!(DepthToSpace);
crate::ops::stub!(SpaceToDepth);
