//! Operators that move elements or deal with dimensions.

use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    AspectRatio, Concat, CoordinateMode, DepthMode, DepthToSpace, Expand, Flatten, NearestRounding,
    Pad, PadMode, Reshape, Resize, ResizeMode, Shape, Size, Slice, SpaceToDepth, Split, Squeeze,
    Tile, Transpose, Unsqueeze,
};

pub(crate) fn concat(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let Some(axis) = cx.int("axis")? else {
        return Err("attribute 'axis' is missing".into());
    };
    cx.map(Concat { axis })
}

pub(crate) fn depth_to_space(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let block = block(cx)?;
    let mode = match cx.text("mode")?.unwrap_or("DCR") {
        "DCR" => DepthMode::Dcr,
        "CRD" => DepthMode::Crd,
        other => return Err(unsupported("mode", other, &["DCR", "CRD"])),
    };
    cx.map(DepthToSpace { block, mode })
}

pub(crate) fn space_to_depth(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let block = block(cx)?;
    cx.map(SpaceToDepth { block })
}

fn block(cx: &mut NodeCx<'_>) -> Result<usize, Refusal> {
    match cx.size("blocksize")? {
        Some(block) if block > 0 => Ok(block),
        other => Err(format!("attribute 'blocksize' is {other:?}, expected 1 or more")),
    }
}

pub(crate) fn expand(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Expand)
}

pub(crate) fn flatten(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.unwrap_or(1);
    cx.map(Flatten { axis })
}

/// Pads and value were attributes before opset 11.
pub(crate) fn pad(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mode = match cx.text("mode")?.unwrap_or("constant") {
        "constant" => PadMode::Constant,
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        "wrap" => PadMode::Wrap,
        other => {
            return Err(unsupported("mode", other, &["constant", "reflect", "edge", "wrap"]));
        }
    };
    let op = Pad { mode, pads: cx.ints("pads")?, value: cx.float("value")? };
    cx.map(op)
}

pub(crate) fn reshape(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let allow_zero = cx.flag("allowzero")?.unwrap_or(false);
    cx.map(Reshape { allow_zero })
}

pub(crate) fn shape(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = Shape { start: cx.int("start")?.unwrap_or(0), end: cx.int("end")? };
    cx.map(op)
}

pub(crate) fn size(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Size)
}

/// Everything but the data was an attribute before opset 10.
pub(crate) fn slice(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = Slice {
        starts: cx.ints("starts")?,
        ends: cx.ints("ends")?,
        axes: cx.ints("axes")?,
        steps: None,
    };
    cx.map(op)
}

/// The sizes were an attribute before opset 13; from 18 on their number can be given instead.
pub(crate) fn split(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let declared = cx.outputs.len();
    let outputs = cx.size("num_outputs")?.unwrap_or(declared);
    if outputs != declared {
        return Err(format!("attribute 'num_outputs' is {outputs}, but there are {declared}"));
    }
    let op = Split { axis: cx.int("axis")?.unwrap_or(0), outputs, sizes: cx.ints("split")? };
    cx.map(op)
}

pub(crate) fn squeeze(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axes = cx.ints("axes")?;
    cx.map(Squeeze { axes })
}

pub(crate) fn unsqueeze(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axes = cx.ints("axes")?;
    cx.map(Unsqueeze { axes })
}

pub(crate) fn tile(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Tile)
}

pub(crate) fn transpose(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let perm = cx.sizes("perm")?;
    cx.map(Transpose { perm: (!perm.is_empty()).then_some(perm) })
}

/// The scales: a list, or in opset 1 two numbers for images.
fn upsample_scales(cx: &mut NodeCx<'_>) -> Result<Option<Vec<f32>>, Refusal> {
    let (height, width) = (cx.float("height_scale")?, cx.float("width_scale")?);
    match (height, width) {
        (Some(height), Some(width)) => Ok(Some(vec![1., 1., height, width])),
        _ => cx.floats("scales"),
    }
}

/// Replaced by `Resize` in opset 10.
pub(crate) fn upsample(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mode = match cx.text("mode")?.unwrap_or("nearest") {
        "nearest" => ResizeMode::Nearest(NearestRounding::Old),
        "linear" | "bilinear" => ResizeMode::Linear,
        other => return Err(unsupported("mode", other, &["nearest", "linear"])),
    };
    let scales = upsample_scales(cx)?;
    let coordinates = CoordinateMode::Asymmetric;
    let op = Resize { mode, coordinates, scales, ..Resize::default() };
    cx.map_with(op, vec![cx.input(0), None, cx.input(1), None])
}

pub(crate) fn resize(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    if cx.opset < 11 {
        return upsample(cx);
    }
    const POLICIES: [&str; 3] = ["stretch", "not_larger", "not_smaller"];
    let aspect = match cx.text("keep_aspect_ratio_policy")?.unwrap_or("stretch") {
        "stretch" => AspectRatio::Stretch,
        "not_larger" => AspectRatio::NotLarger,
        "not_smaller" => AspectRatio::NotSmaller,
        other => return Err(unsupported("keep_aspect_ratio_policy", other, &POLICIES)),
    };
    let a = cx.float("cubic_coeff_a")?.unwrap_or(-0.75);
    let coordinates = coordinates(cx)?;
    let rounding = rounding(cx)?;
    let mode = match cx.text("mode")?.unwrap_or("nearest") {
        "nearest" => ResizeMode::Nearest(rounding),
        "linear" => ResizeMode::Linear,
        "cubic" => ResizeMode::Cubic { a },
        other => return Err(unsupported("mode", other, &["nearest", "linear", "cubic"])),
    };
    // In opset 11 an empty tensor stands for an input that is left out.
    let given = |cx: &NodeCx<'_>, i| match cx.constant(i) {
        Some(tensor) if tensor.is_empty() => None,
        _ => cx.input(i),
    };
    let crops = coordinates == CoordinateMode::TfCropAndResize;
    let roi = if crops { cx.input(1) } else { None };
    let inputs = vec![cx.input(0), roi, given(cx, 2), given(cx, 3)];
    let op = Resize {
        mode,
        coordinates,
        axes: cx.ints("axes")?,
        scales: None,
        antialias: cx.flag("antialias")?.unwrap_or(false),
        exclude_outside: cx.flag("exclude_outside")?.unwrap_or(false),
        extrapolation: cx.float("extrapolation_value")?.unwrap_or(0.),
        aspect,
    };
    cx.map_with(op, inputs)
}

fn coordinates(cx: &mut NodeCx<'_>) -> Result<CoordinateMode, Refusal> {
    const KEY: &str = "coordinate_transformation_mode";
    match cx.text(KEY)?.unwrap_or("half_pixel") {
        "half_pixel" => Ok(CoordinateMode::HalfPixel),
        "half_pixel_symmetric" => Ok(CoordinateMode::HalfPixelSymmetric),
        "pytorch_half_pixel" => Ok(CoordinateMode::PytorchHalfPixel),
        "align_corners" => Ok(CoordinateMode::AlignCorners),
        "asymmetric" => Ok(CoordinateMode::Asymmetric),
        "tf_crop_and_resize" => Ok(CoordinateMode::TfCropAndResize),
        other => Err(unsupported(
            KEY,
            other,
            &[
                "half_pixel",
                "half_pixel_symmetric",
                "pytorch_half_pixel",
                "align_corners",
                "asymmetric",
                "tf_crop_and_resize",
            ],
        )),
    }
}

fn rounding(cx: &mut NodeCx<'_>) -> Result<NearestRounding, Refusal> {
    match cx.text("nearest_mode")?.unwrap_or("round_prefer_floor") {
        "round_prefer_floor" | "" => Ok(NearestRounding::RoundPreferFloor),
        "round_prefer_ceil" => Ok(NearestRounding::RoundPreferCeil),
        "floor" => Ok(NearestRounding::Floor),
        "ceil" => Ok(NearestRounding::Ceil),
        other => Err(unsupported(
            "nearest_mode",
            other,
            &["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
        )),
    }
}
