//! Convolution by 3 × 3 taps on devices with fewer multiplications: Winograd's F(2 × 2, 3 × 3).

use super::device::Convolution;
use super::schedule::{LAUNCH_COST, LOAD_COST};
use crate::device::{Argument, Call, Kernel, Launches, groups, planes};
use crate::window::Axis;

/// Work-items, maps and squares of outputs of a work-group.
const ITEMS: usize = 256;
const TILE_M: usize = 32;
const TILE_P: usize = 16;
/// Work-groups that keep a card busy.
const GROUPS_BUSY: usize = 72;
/// The cost of a channel for an item, in multiply-adds: its products and their loads.
const CHANNEL_COST: usize = 32 + 12 + 4 + 4 * LOAD_COST;
/// The cost of transforming the weight of one channel and map, in multiply-adds.
const WEIGHT_COST: usize = 1200;

impl Convolution {
    /// Winograd's algorithm, where it applies and takes less time than `cost` multiply-adds.
    pub(super) fn winograd(&self, cost: usize) -> Option<Launches> {
        let [d, h, w] = &self.axes;
        let fits = |axis: &Axis| (axis.kernel, axis.stride, axis.dilation) == (3, 1, 1);
        let flat = d.input == 1 && d.is_pointwise();
        if self.transposed || self.integers.is_some() || !flat || !fits(h) || !fits(w) {
            return None;
        }
        let squares = self.images * h.output.div_ceil(2) * w.output.div_ceil(2);
        let grid = [groups(squares, TILE_P), groups(self.maps, TILE_M), self.groups];
        let weights = self.groups.checked_mul(self.channels)?.checked_mul(self.maps)?;
        let busy = grid.iter().product::<usize>().max(GROUPS_BUSY);
        let own = busy.checked_mul(ITEMS * CHANNEL_COST)?.checked_mul(self.channels)?;
        if own + WEIGHT_COST * weights + LAUNCH_COST >= cost {
            return None;
        }
        let scratch = weights.checked_mul(16).filter(|n| i32::try_from(*n).is_ok())? * 4;
        let kernel = Kernel::new("winograd", include_str!("winograd.cl"), [ITEMS, 1, 1])
            .floats(self.dtype)?
            .define("PAD_H", h.begin)
            .define("PAD_W", w.begin)
            .define("BIAS", usize::from(self.bias));
        let mut arguments = vec![Argument::Input(0), Argument::Scratch(0)];
        arguments.extend(self.bias.then_some(Argument::Input(2)));
        arguments.push(Argument::Output(0));
        for size in [self.groups, self.channels, self.maps, self.images] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let [_, in_h, in_w, _, out_h, out_w] = planes(&self.axes)?;
        arguments.extend([in_h, in_w, out_h, out_w]);
        // 16 products replace 36 of the plain sum.
        let (flops, bytes) = (self.flops() / 9 * 4, self.bytes() + scratch as u64);
        let product = Call { kernel, groups: grid, arguments, flops, bytes };
        let calls = vec![self.transformed(weights)?, product];
        Some(Launches { calls, scratch: vec![scratch], ..Launches::default() })
    }

    /// The launch that transforms the weight.
    fn transformed(&self, weights: usize) -> Option<Call> {
        const GROUP: usize = 64;
        let body = include_str!("winograd_weight.cl");
        let kernel = Kernel::new("winograd_weight", body, [GROUP, 1, 1]).floats(self.dtype)?;
        let mut arguments = vec![Argument::Input(1), Argument::Scratch(0)];
        for size in [self.groups, self.channels, self.maps] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let bytes = (weights * (9 * self.dtype.size() + 16 * 4)) as u64;
        let (flops, groups) = (32 * weights as u64, [groups(weights, GROUP), 1, 1]);
        Some(Call { kernel, groups, arguments, flops, bytes })
    }
}
