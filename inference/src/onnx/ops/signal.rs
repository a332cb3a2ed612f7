//! Operators of signals and images, and random numbers.

use super::select::element_type;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    AffineGrid, CenterCropPad, Col2Im, Dft, Einsum, GridSample, MaxRoiPool, MelWeights,
    Multinomial, NonMaxSuppression, Random, RandomKind, RoiAlign, SampleMode, SamplePadding, Stft,
    TensorScatter, WindowFunction, WindowKind,
};
use lgp_memory::DType;

pub(crate) fn einsum(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let Some(equation) = cx.text("equation")? else {
        return Err("attribute 'equation' is missing".into());
    };
    cx.map(Einsum { equation: equation.to_owned() })
}

/// The axis became an input with opset 20.
pub(crate) fn dft(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.unwrap_or(if cx.opset < 20 { 1 } else { -2 });
    let op = Dft {
        axis,
        inverse: cx.flag("inverse")?.unwrap_or(false),
        one_sided: cx.flag("onesided")?.unwrap_or(false),
    };
    cx.map(op)
}

pub(crate) fn stft(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let one_sided = cx.flag("onesided")?.unwrap_or(true);
    cx.map(Stft { one_sided })
}

macro_rules! windows {
    ($($name:ident => $kind:ident),* $(,)?) => { $(
        pub(crate) fn $name(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
            let periodic = cx.flag("periodic")?.unwrap_or(true);
            let dtype = output_datatype(cx)?;
            cx.map(WindowFunction { kind: WindowKind::$kind, periodic, dtype })
        }
    )* };
}
windows!(blackman => Blackman, hamming => Hamming, hann => Hann);

fn output_datatype(cx: &mut NodeCx<'_>) -> Result<DType, Refusal> {
    const KEY: &str = "output_datatype";
    cx.int(KEY)?.map_or(Ok(DType::F32), |code| element_type(KEY, code))
}

pub(crate) fn mel_weights(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let dtype = output_datatype(cx)?;
    cx.map(MelWeights { dtype })
}

pub(crate) fn affine_grid(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let align_corners = cx.flag("align_corners")?.unwrap_or(false);
    cx.map(AffineGrid { align_corners })
}

pub(crate) fn grid_sample(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mode = match cx.text("mode")?.unwrap_or("linear") {
        "linear" | "bilinear" => SampleMode::Linear,
        "nearest" => SampleMode::Nearest,
        "cubic" | "bicubic" => SampleMode::Cubic,
        other => return Err(unsupported("mode", other, &["linear", "nearest", "cubic"])),
    };
    let padding = match cx.text("padding_mode")?.unwrap_or("zeros") {
        "zeros" => SamplePadding::Zeros,
        "border" => SamplePadding::Border,
        "reflection" => SamplePadding::Reflection,
        other => {
            return Err(unsupported("padding_mode", other, &["zeros", "border", "reflection"]));
        }
    };
    let align_corners = cx.flag("align_corners")?.unwrap_or(false);
    cx.map(GridSample { mode, padding, align_corners })
}

/// Opset 16 added the half pixel and made it the default.
pub(crate) fn roi_align(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    const KEY: &str = "coordinate_transformation_mode";
    let default = if cx.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half_pixel = match cx.text(KEY)?.unwrap_or(default) {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return Err(unsupported(KEY, other, &["half_pixel", "output_half_pixel"])),
    };
    let max = match cx.text("mode")?.unwrap_or("avg") {
        "avg" => false,
        "max" => true,
        other => return Err(unsupported("mode", other, &["avg", "max"])),
    };
    let height = cx.size("output_height")?.unwrap_or(1);
    let op = RoiAlign {
        output: [height, cx.size("output_width")?.unwrap_or(1)],
        sampling_ratio: cx.size("sampling_ratio")?.unwrap_or(0),
        spatial_scale: cx.float("spatial_scale")?.unwrap_or(1.),
        half_pixel,
        max,
    };
    cx.map(op)
}

pub(crate) fn max_roi_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let [height, width] = cx.sizes("pooled_shape")?[..] else {
        return Err("attribute 'pooled_shape' has another length, expected 2".into());
    };
    let spatial_scale = cx.float("spatial_scale")?.unwrap_or(1.);
    cx.map(MaxRoiPool { output: [height, width], spatial_scale })
}

pub(crate) fn non_max_suppression(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let center_point = cx.flag("center_point_box")?.unwrap_or(false);
    cx.map(NonMaxSuppression { center_point })
}

pub(crate) fn col2im(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = Col2Im {
        dilations: cx.sizes("dilations")?,
        pads: cx.sizes("pads")?,
        strides: cx.sizes("strides")?,
    };
    cx.map(op)
}

pub(crate) fn center_crop_pad(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axes = cx.ints("axes")?;
    cx.map(CenterCropPad { axes })
}

pub(crate) fn tensor_scatter(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let circular = match cx.text("mode")?.unwrap_or("linear") {
        "linear" => false,
        "circular" => true,
        other => return Err(unsupported("mode", other, &["linear", "circular"])),
    };
    let axis = cx.int("axis")?.unwrap_or(-2);
    cx.map(TensorScatter { axis, circular })
}

/// The seed that a node names, or one that differs from node to node.
fn seed(cx: &mut NodeCx<'_>) -> Result<u64, Refusal> {
    let given = cx.float("seed")?;
    let name = cx.node.name.bytes().chain(cx.node.outputs.iter().flat_map(|o| o.bytes()));
    // The 64-bit hash of Fowler, Noll and Vo.
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Ok(given.map_or_else(|| name.fold(0xcbf2_9ce4_8422_2325, hash), |seed| seed.to_bits().into()))
}

fn random(cx: &mut NodeCx<'_>, kind: RandomKind, like: bool) -> Result<(), Refusal> {
    let dtype = cx.int("dtype")?.map(|code| element_type("dtype", code)).transpose()?;
    let shape = if like { None } else { Some(cx.sizes("shape")?) };
    let seed = seed(cx)?;
    cx.map(Random { kind, seed, dtype, shape })
}

fn normal(cx: &mut NodeCx<'_>) -> Result<RandomKind, Refusal> {
    let (mean, scale) = (cx.float("mean")?.unwrap_or(0.), cx.float("scale")?.unwrap_or(1.));
    Ok(RandomKind::Normal { mean, scale })
}

fn uniform(cx: &mut NodeCx<'_>) -> Result<RandomKind, Refusal> {
    let (low, high) = (cx.float("low")?.unwrap_or(0.), cx.float("high")?.unwrap_or(1.));
    Ok(RandomKind::Uniform { low, high })
}

pub(crate) fn random_normal(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let kind = normal(cx)?;
    random(cx, kind, false)
}

pub(crate) fn random_normal_like(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let kind = normal(cx)?;
    random(cx, kind, true)
}

pub(crate) fn random_uniform(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let kind = uniform(cx)?;
    random(cx, kind, false)
}

pub(crate) fn random_uniform_like(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let kind = uniform(cx)?;
    random(cx, kind, true)
}

pub(crate) fn bernoulli(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    random(cx, RandomKind::Bernoulli, true)
}

pub(crate) fn multinomial(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let samples = cx.size("sample_size")?.unwrap_or(1);
    let dtype = cx.int("dtype")?.map_or(Ok(DType::I32), |code| element_type("dtype", code))?;
    let seed = seed(cx)?;
    cx.map(Multinomial { samples, seed, dtype })
}
