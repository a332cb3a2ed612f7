//! Convolution of few input channels on devices, as in the first layer of most image networks. It
//! keeps the weight in local memory and lines of the input in registers, without unfolding.

use super::device::Convolution;
use super::schedule::{ITEMS_BUSY, LOAD_COST};
use crate::device::{Argument, Call, Kernel, Launches, groups, planes};

/// Work-items of a work-group.
const ITEMS: usize = 128;
/// Output channels that an item computes; a convolution with fewer does not take this form.
const MAPS: usize = 8;
/// Neighbouring outputs that an item computes. Longer strips use each weight and element more
/// often, shorter ones give more items.
const STRIPS: [usize; 4] = [4, 3, 2, 1];
/// Input channels at most: with more, a product with tiles loads as little.
const CHANNELS_MAX: usize = 4;
/// Taps and elements of a line at most: with the sums, their registers leave room for three waves.
const TAPS_MAX: usize = 7;
const COLUMNS_MAX: usize = 12;
/// Weights of a map at most: the local memory of a compute unit then holds the weights of six
/// groups, three waves for each of its SIMDs.
const WEIGHTS_MAX: usize = 336;
/// Numbers per read from local memory.
const VECTOR: usize = 4;

impl Convolution {
    /// The direct form, where it applies and takes less time than `cost` multiply-adds.
    pub(super) fn direct(&self, cost: usize) -> Option<Launches> {
        let strip = self.strips().into_iter().min_by_key(|strip| self.direct_cost(*strip))?;
        (self.direct_cost(strip) < cost).then(|| self.by_strips(strip)).flatten()
    }

    /// The direct form with each strip that fits.
    pub(super) fn directs(&self) -> impl Iterator<Item = Launches> {
        self.strips().into_iter().filter_map(|strip| self.by_strips(strip))
    }

    /// The strips whose lines fit; none where the direct form does not apply.
    fn strips(&self) -> Vec<usize> {
        let fits = |strip: &usize| self.is_first_layer() && self.columns(*strip) <= COLUMNS_MAX;
        STRIPS.into_iter().filter(fits).collect()
    }

    fn by_strips(&self, strip: usize) -> Option<Launches> {
        let [_, h, w] = &self.axes;
        let kernel = Kernel::new("conv_direct", include_str!("direct.cl"), [ITEMS, 1, 1])
            .floats(self.dtype)?
            .window(&self.axes)
            .define("CHANNELS", self.channels)
            .define("STRIP", strip)
            .define("MAPS", MAPS)
            .define("BIAS", usize::from(self.bias));
        let mut arguments = vec![Argument::Input(0), Argument::Input(1)];
        arguments.extend(self.bias.then_some(Argument::Input(2)));
        arguments.push(Argument::Output(0));
        for size in [self.maps, self.images] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let [_, in_h, in_w, _, out_h, out_w] = planes(&self.axes)?;
        arguments.extend([in_h, in_w, out_h, out_w]);
        let items = self.images * h.output * w.output.div_ceil(strip);
        let groups = [groups(items, ITEMS), groups(self.maps, MAPS), 1];
        let (flops, bytes) = (self.flops(), self.bytes());
        Some(Call { kernel, groups, arguments, flops, bytes }.into())
    }

    fn is_first_layer(&self) -> bool {
        let [d, h, w] = &self.axes;
        let flat = d.input == 1 && d.is_pointwise();
        let plain = !self.transposed && self.integers.is_none() && self.groups == 1;
        let few = self.channels <= CHANNELS_MAX && self.maps >= MAPS && w.kernel <= TAPS_MAX;
        let fits = h.kernel.saturating_mul(self.channels * w.kernel) <= WEIGHTS_MAX;
        flat && plain && few && fits
    }

    /// Elements of a line of the input that a strip of outputs sees.
    fn columns(&self, strip: usize) -> usize {
        let [_, _, w] = &self.axes;
        let reach = (w.kernel - 1).saturating_mul(w.dilation);
        w.stride.saturating_mul(strip - 1).saturating_add(reach).saturating_add(1)
    }

    /// The time of the direct form, in multiply-adds of the whole card.
    fn direct_cost(&self, strip: usize) -> usize {
        let [_, h, w] = &self.axes;
        let lines = self.channels.saturating_mul(h.kernel);
        let products = w.kernel * (MAPS * strip + MAPS / VECTOR);
        let line = products + LOAD_COST * self.columns(strip);
        let weights = lines.saturating_mul(w.kernel) * MAPS / ITEMS * LOAD_COST;
        let strips = self.images * h.output * w.output.div_ceil(strip);
        let items = (strips * self.maps.div_ceil(MAPS)).max(ITEMS_BUSY);
        items.saturating_mul(lines.saturating_mul(line).saturating_add(weights))
    }
}
