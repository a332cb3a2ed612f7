//! Convolution whose groups have one input channel, on devices: plane by plane, or directly.

use super::device::Convolution;
use super::schedule::{ITEMS_BUSY, LOAD_COST};
use crate::device::{Argument, Kernel, Launches, groups};

/// Outputs of an item at most, one below the other.
const ROWS_MAX: usize = 4;

impl Convolution {
    /// The direct form or [`Convolution::depthwise`], whichever takes less time by a rough count.
    pub(super) fn by_planes(&self) -> Option<Launches> {
        self.direct(self.cost_by_planes()).or_else(|| self.depthwise())
    }

    /// The time that [`Convolution::depthwise`] takes, in multiply-adds of the whole card.
    fn cost_by_planes(&self) -> usize {
        let [_, h, w] = &self.axes;
        let rows = h.output.min(ROWS_MAX);
        let lines = h.stride.saturating_mul(rows - 1).saturating_add(h.kernel);
        // An item also loads each weight, and once each element of the input that its rows share.
        let products = self.window().saturating_mul(rows + LOAD_COST);
        let loads = lines.saturating_mul(w.kernel * LOAD_COST);
        let items = (self.outputs() / rows).max(ITEMS_BUSY);
        items.saturating_mul(products.saturating_add(loads))
    }

    /// Each output plane by itself.
    pub(super) fn depthwise(&self) -> Option<Launches> {
        const GROUP: usize = 64;
        let [d, h, w] = &self.axes;
        let rows = h.output.min(ROWS_MAX);
        // Unrolled loops over much larger windows would not fit into the registers.
        let unrolled = (rows - 1) * h.stride + h.kernel.saturating_mul(h.dilation) <= 32;
        let rows = if unrolled { rows } else { 1 };
        let unroll = |all| if all { "UNROLL" } else { "_Pragma(\"unroll 1\")" };
        let kernel = Kernel::new("depthwise", include_str!("depthwise.cl"), [GROUP, 1, 1])
            .floats(self.dtype)?
            .window(&self.axes)
            .define("ROWS", rows)
            .define("UNROLL_LINES", unroll(unrolled))
            .define("UNROLL_COLUMNS", unroll(unrolled && self.window() <= 9))
            .define("BIAS", usize::from(self.bias));
        let planes = self.images * self.groups * self.maps;
        let items = planes * d.output * h.output.div_ceil(rows) * w.output;
        let sizes = [self.groups, self.maps, planes];
        let grid = [groups(items, GROUP), 1, 1];
        Some(self.call(kernel, grid, Argument::Output(0), &sizes)?.into())
    }
}
