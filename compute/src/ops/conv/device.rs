//! Convolution on devices: as a product with tiles of the unfolded input, as a plain product where
//! there is nothing to unfold, or directly where groups have one input channel.

use super::Conv;
use super::schedule::{Product, Schedule};
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, c_type, groups, planes};
use crate::op::ValueInfo;
use crate::window::{Axis, three};
use lgp_memory::DType;

/// A convolution's operands, of up to three spatial axes.
pub(crate) struct Convolution {
    pub(crate) dtype: DType,
    pub(crate) axes: [Axis; 3],
    /// Whether inputs and outputs of the axes are exchanged, and the weight's channels come first.
    pub(crate) transposed: bool,
    pub(crate) images: usize,
    pub(crate) groups: usize,
    /// Input and output channels of a group.
    pub(crate) channels: usize,
    pub(crate) maps: usize,
    pub(crate) bias: bool,
    /// Whether input 3 is the weight as Winograd's algorithm reads it.
    pub(crate) transformed: bool,
    /// Set for a convolution of bytes, multiplied as integers; `dtype` is then the input's.
    pub(crate) integers: Option<Integers>,
}

/// The weight and the zero points of a convolution of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Integers {
    pub(crate) weight: DType,
    /// Whether input 2 exists: the input's zero point.
    pub(crate) zero: bool,
    /// Whether input 3 exists, the weight's zero points, and if so whether each map has its own.
    pub(crate) weight_zero: Option<bool>,
}

pub(super) fn launches(
    op: &Conv,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    Convolution::new(op, inputs, outputs)?.launches()
}

pub(super) fn schedules(
    op: &Conv,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    Convolution::new(op, inputs, outputs).map_or(Vec::new(), |conv| conv.schedules())
}

/// The dimensions of the input, the weight and the output, none of them 0.
pub(crate) fn shapes(
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<[Vec<usize>; 3]> {
    let infos = [optional(inputs, 0)?, optional(inputs, 1)?, outputs.first()?];
    let mut shapes = [const { Vec::new() }; 3];
    for (shape, info) in shapes.iter_mut().zip(infos) {
        *shape = info.ty.concrete_shape()?.to_vec();
        if shape.contains(&0) {
            return None;
        }
    }
    Some(shapes)
}

impl Convolution {
    pub(super) fn new(
        op: &Conv,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Self> {
        let [x, weight, y] = shapes(inputs, outputs)?;
        Some(Self {
            dtype: outputs.first()?.ty.dtype,
            axes: three(&op.windows(&x, &weight).ok()?).ok()?,
            transposed: false,
            images: y[0],
            groups: op.group,
            channels: weight[1],
            maps: weight[0] / op.group,
            bias: optional(inputs, 2).is_some(),
            transformed: optional(inputs, 3).is_some(),
            integers: None,
        })
    }

    /// The input's and the output's sizes along each axis.
    fn sizes(&self, axis: &Axis) -> (usize, usize) {
        if self.transposed { (axis.output, axis.input) } else { (axis.input, axis.output) }
    }

    /// Elements of an input's and of an output's plane.
    pub(super) fn plane(&self) -> (usize, usize) {
        let sizes = self.axes.iter().map(|axis| self.sizes(axis));
        sizes.fold((1, 1), |(a, b), (x, y)| (a * x, b * y))
    }

    pub(super) fn outputs(&self) -> usize {
        self.images * self.groups * self.maps * self.plane().1
    }

    pub(super) fn window(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    /// Additions and multiplications.
    pub(super) fn flops(&self) -> u64 {
        let planes = self.images * self.groups * self.channels * self.maps;
        let (x, y) = self.plane();
        2 * (planes * if self.transposed { x } else { y } * self.window()) as u64
    }

    /// Bytes of the operands.
    pub(super) fn bytes(&self) -> u64 {
        let input = self.images * self.groups * self.channels * self.plane().0;
        let weight = self.groups * self.channels * self.maps * self.window();
        let bias = if self.bias { self.groups * self.maps } else { 0 };
        ((input + weight + bias + self.outputs()) * self.dtype.size()) as u64
    }

    /// The distance between the taps that an output sees, along each axis.
    fn steps(&self) -> [usize; 3] {
        self.axes.map(|axis| self.phases(&axis) / common(self.phases(&axis), axis.dilation))
    }

    /// Phases along an axis. In a transposed convolution, outputs at equal places modulo the stride
    /// see the same taps; otherwise all outputs do.
    fn phases(&self, axis: &Axis) -> usize {
        if self.transposed { axis.stride } else { 1 }
    }

    fn sizes_of_product(&self) -> Option<Product> {
        let taps = self.axes.iter().zip(self.steps()).map(|(a, step)| a.kernel.div_ceil(step));
        let places = self.axes.iter().map(|a| self.sizes(a).1.div_ceil(self.phases(a)));
        let phases: usize = self.axes.iter().map(|axis| self.phases(axis)).product();
        Some(Product {
            count: self.groups.checked_mul(phases)?,
            maps: self.maps,
            places: self.images * places.product::<usize>(),
            taps: taps.product(),
            channels: self.channels,
        })
    }

    /// The launches.
    pub(crate) fn launches(&self) -> Option<Launches> {
        if self.is_by_planes() { self.by_planes() } else { self.product() }
    }

    /// The launches of every schedule that is worth measuring; [`Convolution::launches`] come first.
    pub(crate) fn schedules(&self) -> Vec<Launches> {
        let Some(best) = self.launches() else { return Vec::new() };
        let others: Vec<Launches> =
            self.others().into_iter().filter(|other| *other != best).collect();
        std::iter::once(best).chain(others).collect()
    }

    fn is_by_planes(&self) -> bool {
        self.channels == 1 && !self.transposed && self.integers.is_none()
    }

    /// The launches as a matrix product, or as a special form that costs less.
    fn product(&self) -> Option<Launches> {
        if let Some(Some(plain)) = self.plain(|product| product.launches()) {
            return Some(plain);
        }
        let product = self.sizes_of_product()?;
        let schedule = Schedule::new(&product);
        let cost = schedule.cost(&product);
        let special = self.direct(cost).or_else(|| self.winograd(cost));
        special.or_else(|| self.scheduled(&product, schedule))
    }

    /// The time of the launches without a special form, in multiply-adds of the whole card.
    pub(super) fn cost(&self) -> Option<usize> {
        let product = self.sizes_of_product()?;
        Some(Schedule::new(&product).cost(&product))
    }

    /// The launches worth measuring: plane by plane for groups of one channel, else the cheapest
    /// schedules of the product and Winograd's algorithm; and each direct form.
    fn others(&self) -> Vec<Launches> {
        if self.is_by_planes() {
            return self.depthwise().into_iter().chain(self.directs()).collect();
        }
        let Some(product) = self.sizes_of_product() else { return Vec::new() };
        let schedules = Schedule::cheapest(&product).into_iter();
        let products = schedules.filter_map(|schedule| self.scheduled(&product, schedule));
        let plain = self.plain(|product| product.schedules()).unwrap_or_default();
        let special = self.winograd(usize::MAX).into_iter().chain(self.directs());
        plain.into_iter().chain(products).chain(special).collect()
    }

    fn scheduled(&self, product: &Product, schedule: Schedule) -> Option<Launches> {
        let Schedule { tile, slice, step, splits, share } = schedule;
        let [columns, rows] = tile.group;
        let mut kernel = self
            .numbers(Kernel::new("conv", include_str!("conv.cl"), [columns, rows, 1]))?
            .window(&self.axes)
            .define("THREAD_M", tile.thread)
            .define("THREAD_N", tile.thread)
            .define("SLICE", slice)
            .define("CHANNELS", step)
            .define("SPLITS", splits)
            // With the sums of a large tile, a tile under way would leave room for two waves.
            .define("PREFETCH", usize::from(tile.thread <= 4))
            .define("WHOLE", usize::from(self.channels.is_multiple_of(step)))
            .define("TRANSPOSED", usize::from(self.transposed));
        if self.transposed {
            for (step, name) in self.steps().iter().zip(["STEP_D", "STEP_H", "STEP_W"]) {
                kernel = kernel.define(name, step);
            }
        }
        let [n, m] = schedule.tiles(product);
        let grid = [n, m, product.count * splits];
        let sizes = [self.groups, self.channels, share, self.maps, self.images];
        if splits == 1 {
            let kernel = kernel.define("BIAS", usize::from(self.bias));
            return Some(self.call(kernel, grid, Argument::Output(0), &sizes)?.into());
        }
        let mut kernel = kernel.define("BIAS", 0);
        if self.integers.is_none() {
            kernel = plainly(kernel, "float");
        }
        let parts = Self { bias: false, ..*self };
        let mut first = parts.call(kernel, grid, Argument::Scratch(0), &sizes)?;
        let copies = self.outputs().checked_mul(splits).filter(|n| i32::try_from(*n).is_ok())?;
        first.bytes += (4 * copies - self.outputs() * self.dtype.size()) as u64;
        let calls = vec![first, self.sum(splits)?];
        Some(Launches { calls, scratch: vec![copies * 4], ..Launches::default() })
    }

    /// The kernel with the types of its operands and the zero points defined.
    fn numbers(&self, kernel: Kernel) -> Option<Kernel> {
        let Some(Integers { weight, zero, weight_zero }) = self.integers else {
            return Some(
                kernel
                    .floats(self.dtype)?
                    .define("W_TYPE", "X_TYPE")
                    .define("NUMBER", "float")
                    .define("TILE", "float")
                    .define("ZEROS", "")
                    .define("ELEMENT(i)", "LOAD(x, i)")
                    .define("WEIGHT(i, map)", "LOAD(weight, i)"),
            );
        };
        let x_zero = if zero { ("GLOBAL const X_TYPE *zero, ", " - zero[0]") } else { ("", "") };
        let w_zero = match weight_zero {
            None => ("", ""),
            Some(false) => ("GLOBAL const W_TYPE *weight_zero,", " - weight_zero[0]"),
            Some(true) => ("GLOBAL const W_TYPE *weight_zero,", " - weight_zero[map]"),
        };
        let kernel = kernel
            .define("X_TYPE", c_type(self.dtype)?)
            .define("W_TYPE", c_type(weight)?)
            .define("NUMBER", "i32")
            .define("TILE", "i16")
            .define("ZEROS", format!("{}{}", x_zero.0, w_zero.0))
            .define("ELEMENT(i)", format!("((i32)x[i]{})", x_zero.1))
            .define("WEIGHT(i, map)", format!("((i32)weight[i]{})", w_zero.1));
        Some(plainly(kernel, "i32"))
    }

    /// The sum of the copies of the output, each computed from a share of the channels.
    fn sum(&self, splits: usize) -> Option<Call> {
        const GROUP: usize = 64;
        let kernel = self
            .numbers(Kernel::new("conv_sum", include_str!("sum.cl"), [GROUP, 1, 1]))?
            .define("SPLITS", splits)
            .define("BIAS", usize::from(self.bias));
        let mut arguments = vec![Argument::Scratch(0)];
        arguments.extend(self.bias.then_some(Argument::Input(2)));
        arguments.push(Argument::Output(0));
        let outputs = self.outputs();
        for size in [outputs, self.plane().1, self.groups * self.maps] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let bytes = (outputs * (4 * splits + self.dtype.size())) as u64;
        let flops = (outputs * splits) as u64;
        Some(Call { kernel, groups: [groups(outputs, GROUP), 1, 1], arguments, flops, bytes })
    }

    pub(super) fn call(
        &self,
        kernel: Kernel,
        groups: [usize; 3],
        y: Argument,
        sizes: &[usize],
    ) -> Option<Call> {
        let mut arguments = vec![Argument::Input(0), Argument::Input(1)];
        let zeros = self.integers.map(|x| [x.zero, x.weight_zero.is_some()]).unwrap_or_default();
        arguments.extend((self.bias || zeros[0]).then_some(Argument::Input(2)));
        arguments.extend(zeros[1].then_some(Argument::Input(3)));
        arguments.push(y);
        for &size in sizes {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let [a, b, c, d, e, f] = planes(&self.axes)?;
        arguments.extend(if self.transposed { [d, e, f, a, b, c] } else { [a, b, c, d, e, f] });
        Some(Call { kernel, groups, arguments, flops: self.flops(), bytes: self.bytes() })
    }
}

/// The kernel with a plain store and no epilogue.
fn plainly(kernel: Kernel, y: &str) -> Kernel {
    kernel
        .define("EXTRA_PARAMETERS", "")
        .define("Y_TYPE", y)
        .define("FINISH(value, index)", "y[index] = (value)")
}

/// The greatest common divisor of two positive numbers.
fn common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common(b, a % b) }
}
