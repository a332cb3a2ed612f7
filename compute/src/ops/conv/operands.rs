//! The operands of a convolution on the CPU.

use crate::op::Context;
use crate::window::Axis;

/// A convolution with its operands, of up to three spatial axes.
pub(super) struct Convolution<'a, T> {
    pub(super) ctx: &'a Context,
    pub(super) axes: &'a [Axis; 3],
    pub(super) group: usize,
    /// Input channels.
    pub(super) channels: usize,
    /// Output channels.
    pub(super) maps: usize,
    pub(super) x: &'a [T],
    pub(super) weight: &'a [T],
    pub(super) bias: Option<&'a [T]>,
}
