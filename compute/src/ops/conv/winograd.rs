//! Convolution by 3 × 3 taps on devices with fewer multiplications: Winograd's F(2 × 2, 3 × 3).

use super::device::Convolution;
use super::schedule::LAUNCH_COST;
use crate::device::{Argument, Call, Kernel, Launches, WAVES_BUSY, groups, planes};
use crate::error::{Error, Result};
use crate::window::Axis;
use lgp_memory::{DType, Tensor};

/// Work-items, maps and squares of outputs of a work-group.
const ITEMS: usize = 256;
const TILE_M: usize = 32;
const TILE_P: usize = 16;
/// Channels of a step of the kernel.
const CHANNELS: usize = 4;
/// The cost of a channel for an item: a quarter of the instructions of a step, as Mesa compiles it for
/// a Polaris card. Eight outputs of an item take 19 of them.
const CHANNEL_COST: usize = 78;
/// The cost of transforming the weight of one channel and map in a run, in multiply-adds.
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
        let busy = grid.iter().product::<usize>().max(WAVES_BUSY * 64 / ITEMS);
        let own = busy.checked_mul(ITEMS * CHANNEL_COST)?.checked_mul(self.channels)?;
        let first = if self.transformed { 0 } else { WEIGHT_COST * weights + LAUNCH_COST };
        if own.saturating_add(first) >= cost {
            return None;
        }
        let numbers = self.numbers_of_weight()?;
        let weight = if self.transformed { Argument::Input(3) } else { Argument::Scratch(0) };
        let kernel = Kernel::new("winograd", include_str!("winograd.cl"), [ITEMS, 1, 1])
            .floats(self.dtype)?
            .define("PAD_H", h.begin)
            .define("PAD_W", w.begin)
            .define("WHOLE", usize::from(self.channels.is_multiple_of(CHANNELS)))
            .define("BIAS", usize::from(self.bias));
        let mut arguments = vec![Argument::Input(0), weight];
        arguments.extend(self.bias.then_some(Argument::Input(2)));
        arguments.push(Argument::Output(0));
        for size in [self.groups, self.channels, self.maps, self.images] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let [_, in_h, in_w, _, out_h, out_w] = planes(&self.axes)?;
        arguments.extend([in_h, in_w, out_h, out_w]);
        // 16 products replace 36 of the plain sum.
        let bytes = self.bytes() + 4 * numbers as u64;
        let product = Call { kernel, groups: grid, arguments, flops: self.flops() / 9 * 4, bytes };
        if self.transformed {
            return Some(product.into());
        }
        let calls = vec![self.transforming(numbers)?, product];
        Some(Launches { calls, scratch: vec![4 * numbers], ..Launches::default() })
    }

    /// Channels and maps of a group in the transformed weight, which has zeros up to whole tiles.
    fn whole(&self) -> [usize; 2] {
        [self.channels.next_multiple_of(CHANNELS), self.maps.next_multiple_of(TILE_M)]
    }

    /// Elements of the transformed weight; `None` for more than an `i32` counts.
    fn numbers_of_weight(&self) -> Option<usize> {
        let [channels, maps] = self.whole();
        let count = self.groups.checked_mul(channels)?.checked_mul(maps)?.checked_mul(16)?;
        i32::try_from(count).is_ok().then_some(count)
    }

    /// The launch that transforms the weight.
    fn transforming(&self, numbers: usize) -> Option<Call> {
        const GROUP: usize = 64;
        let body = include_str!("winograd_weight.cl");
        let kernel = Kernel::new("winograd_weight", body, [GROUP, 1, 1]).floats(self.dtype)?;
        let mut arguments = vec![Argument::Input(1), Argument::Scratch(0)];
        let [whole_channels, whole_maps] = self.whole();
        for size in [self.groups, self.channels, self.maps, whole_channels, whole_maps] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let (items, weights) = (numbers / 16, self.groups * self.channels * self.maps);
        let bytes = (weights * 9 * self.dtype.size() + 4 * numbers) as u64;
        let groups = [groups(items, GROUP), 1, 1];
        Some(Call { kernel, groups, arguments, flops: 32 * weights as u64, bytes })
    }

    /// The weight as the kernel reads it: `G g Gᵀ`, 16 numbers of each channel, the maps next to each
    /// other.
    ///
    /// # Errors
    /// Out of memory, or a weight of another size.
    pub(super) fn transform(&self, weight: &[f32]) -> Result<Tensor> {
        let [channels, maps] = self.whole();
        let given = [self.groups, self.maps, self.channels, 9].iter().product::<usize>();
        if weight.len() != given {
            let message = format!("the weight has {} elements, expected {given}", weight.len());
            return Err(Error::invalid(message));
        }
        let mut out = Tensor::zeros(DType::F32, [self.groups * channels, 16, maps])?;
        let numbers = out.as_mut_slice::<f32>()?;
        for (i, taps) in weight.chunks_exact(9).enumerate() {
            let (c, m) = (i % self.channels, i / self.channels);
            let (group, m) = (m / self.maps, m % self.maps);
            let rows: [[f32; 4]; 3] = [0, 1, 2].map(|j| ends(taps[j], taps[3 + j], taps[6 + j]));
            let first = (group * channels + c) * 16 * maps + m;
            for r in 0..4 {
                let [a, b, d] = rows.map(|column| column[r]);
                for (k, number) in ends(a, b, d).into_iter().enumerate() {
                    numbers[first + (4 * r + k) * maps] = number;
                }
            }
        }
        Ok(out)
    }
}

/// `G` times a column of three taps.
fn ends(a: f32, b: f32, d: f32) -> [f32; 4] {
    [a, 0.5 * (a + b + d), 0.5 * (a - b + d), d]
}
