//! Convolution on devices: as a product with tiles of the unfolded input, or directly where groups
//! have one input channel.

use super::Conv;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, groups, planes};
use crate::op::ValueInfo;
use crate::window::{Axis, three};
use lgp_memory::DType;

/// A convolution's operands, of up to three spatial axes.
struct Convolution {
    dtype: DType,
    axes: [Axis; 3],
    images: usize,
    groups: usize,
    /// Input and output channels of a group.
    channels: usize,
    maps: usize,
    bias: bool,
}

pub(super) fn launches(
    op: &Conv,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, weight, y) = (optional(inputs, 0)?, optional(inputs, 1)?, outputs.first()?);
    let shape = |info: &ValueInfo| info.ty.concrete_shape();
    let (dims, kernel) = (shape(x)?, shape(weight)?);
    if shape(y)?.contains(&0) || dims.contains(&0) || kernel.contains(&0) {
        return None;
    }
    let conv = Convolution {
        dtype: x.ty.dtype,
        axes: three("Conv", &op.axes(&dims, &kernel).ok()?).ok()?,
        images: dims[0],
        groups: op.group,
        channels: kernel[1],
        maps: kernel[0] / op.group,
        bias: optional(inputs, 2).is_some(),
    };
    let call = if conv.channels == 1 { conv.depthwise() } else { conv.product() }?;
    let bytes = inputs.iter().copied().flatten().chain([y]);
    let bytes = bytes.filter_map(|info| shape(info)?.byte_len(info.ty.dtype).ok());
    Some(Call { bytes: bytes.sum::<usize>() as u64, flops: conv.flops(), ..call }.into())
}

/// How outputs are shared out to work-items.
struct Tile {
    /// Work-items of a group, along places and along maps.
    group: [usize; 2],
    /// Outputs of a work-item.
    thread: usize,
}

/// From the one that computes most with what it loads to the one for the fewest outputs.
const TILES: [Tile; 3] = [
    Tile { group: [16, 16], thread: 4 },
    Tile { group: [16, 8], thread: 4 },
    Tile { group: [8, 8], thread: 4 },
];
/// Work-groups that keep a card of 36 compute units busy.
const GROUPS_BUSY: usize = 72;
/// Products in a tile's depth, about.
const DEPTH: usize = 16;

impl Convolution {
    fn plane(&self) -> usize {
        self.axes.iter().map(|axis| axis.output).product()
    }

    fn taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    fn flops(&self) -> u64 {
        let outputs = self.images * self.groups * self.maps * self.plane();
        2 * (outputs * self.channels * self.taps()) as u64
    }

    /// The tile that wastes little and makes enough groups.
    fn tile(&self) -> &'static Tile {
        let places = self.images * self.plane();
        let fits = |tile: &&Tile| {
            let [n, m] = tile.group.map(|size| size * tile.thread);
            let tiles = groups(places, n) * groups(self.maps, m) * self.groups;
            tiles >= GROUPS_BUSY && 2 * self.maps > m
        };
        TILES.iter().find(fits).unwrap_or(&TILES[TILES.len() - 1])
    }

    fn product(&self) -> Option<Call> {
        let Tile { group: [columns, rows], thread } = *self.tile();
        let slices = self.taps().div_ceil(DEPTH);
        let slice = self.taps().div_ceil(slices);
        let channels = (DEPTH / slice).max(1);
        let kernel = Kernel::new("conv", include_str!("conv.cl"), [columns, rows, 1])
            .floats(self.dtype)?
            .window(&self.axes)
            .define("THREAD_M", thread)
            .define("THREAD_N", thread)
            .define("SLICE", slice)
            .define("CHANNELS", channels)
            .define("WHOLE", usize::from(self.channels.is_multiple_of(channels)))
            .define("BIAS", usize::from(self.bias));
        let places = self.images * self.plane();
        let grid =
            [groups(places, columns * thread), groups(self.maps, rows * thread), self.groups];
        self.call(kernel, grid, [self.channels, self.maps, places])
    }

    fn depthwise(&self) -> Option<Call> {
        const GROUP: usize = 64;
        // Larger windows have more taps than a work-item has registers.
        let unrolled = self.taps() <= 49;
        let [d, h, w] = &self.axes;
        let rows = if unrolled { h.output.min(4) } else { 1 };
        let kernel = Kernel::new("depthwise", include_str!("depthwise.cl"), [GROUP, 1, 1])
            .floats(self.dtype)?
            .window(&self.axes)
            .define("ROWS", rows)
            .define("UNROLL", if unrolled { "_Pragma(\"unroll\")" } else { "" })
            .define("BIAS", usize::from(self.bias));
        let planes = self.images * self.groups * self.maps;
        let items = planes * d.output * h.output.div_ceil(rows) * w.output;
        self.call(kernel, [groups(items, GROUP), 1, 1], [self.groups, self.maps, planes])
    }

    fn call(&self, kernel: Kernel, groups: [usize; 3], sizes: [usize; 3]) -> Option<Call> {
        let inputs = if self.bias { 3 } else { 2 };
        let mut arguments: Vec<Argument> = (0..inputs).map(Argument::Input).collect();
        arguments.push(Argument::Output(0));
        for size in sizes {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        arguments.extend(planes(&self.axes)?);
        Some(Call { kernel, groups, arguments, flops: 0, bytes: 0 })
    }
}
