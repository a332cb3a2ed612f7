//! Operators that make, pick, convert or pass on elements.

use crate::onnx::dtype;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{Cast, CastAs, ConstantOfShape, Gather, Identity, Range};
use lgp_memory::{PowerRounding, Shape, Tensor};

pub(crate) fn constant(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let text = |e: lgp_memory::Error| e.to_string();
    let tensor = if let Some(tensor) = cx.tensor("value")? {
        tensor
    } else if let Some(value) = cx.float("value_float")? {
        Tensor::scalar(value).map_err(text)?
    } else if let Some(value) = cx.int("value_int")? {
        Tensor::scalar(value).map_err(text)?
    } else if let Some(values) = cx.floats("value_floats")? {
        Tensor::from_slice([values.len()], &values).map_err(text)?
    } else if let Some(values) = cx.ints("value_ints")? {
        Tensor::from_slice([values.len()], &values).map_err(text)?
    } else if let Some(value) = cx.text("value_string")? {
        Tensor::from_strings(Shape::default(), &[value]).map_err(text)?
    } else if let values @ [_, ..] = cx.texts("value_strings")? {
        Tensor::from_strings([values.len()], values).map_err(text)?
    } else {
        return Err("has no value of a supported kind".into());
    };
    if let Some(output) = cx.outputs.first().copied().flatten() {
        cx.graph.set_constant(output, tensor);
    }
    Ok(())
}

pub(crate) fn constant_of_shape(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let value = match cx.tensor("value")? {
        Some(value) => value,
        None => Tensor::scalar(0f32).map_err(|e| e.to_string())?,
    };
    cx.map(ConstantOfShape { value })
}

pub(crate) fn identity(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Identity)
}

pub(crate) fn cast(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (saturate, rounding) = manner(cx)?;
    // Opsets up to 5 give the type by name.
    let code = match cx.int("to") {
        Ok(code) => code.ok_or("attribute 'to' is missing")?,
        Err(refusal) => match cx.text("to") {
            Ok(Some(name)) => dtype::number(name).ok_or_else(|| {
                format!("attribute 'to' is '{name}', expected the name of an element type")
            })?,
            _ => return Err(refusal),
        },
    };
    let to = dtype::from_onnx(code)
        .map_err(|given| format!("attribute 'to' is {given}, which is not supported"))?;
    if saturate && rounding == PowerRounding::Up {
        return cx.map(Cast { to });
    }
    cx.map(CastAs { to: Some(to), saturate, rounding })
}

pub(crate) fn cast_like(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (saturate, rounding) = manner(cx)?;
    cx.map(CastAs { to: None, saturate, rounding })
}

/// Whether conversions to floats of eight bits saturate, and how they round.
fn manner(cx: &mut NodeCx<'_>) -> Result<(bool, PowerRounding), Refusal> {
    let rounding = match cx.text("round_mode")?.unwrap_or("up") {
        "up" => PowerRounding::Up,
        "down" => PowerRounding::Down,
        "nearest" => PowerRounding::Nearest,
        other => return Err(unsupported("round_mode", other, &["up", "down", "nearest"])),
    };
    Ok((cx.flag("saturate")?.unwrap_or(true), rounding))
}

pub(crate) fn gather(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.unwrap_or(0);
    cx.map(Gather { axis })
}

pub(crate) fn range(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Range)
}
