//! Casts from and to strings.

// A cast to an integer truncates.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use super::Cast;
use crate::error::{Error, Result};
use crate::op::{Context, Op};
use half::{bf16, f16};
use lgp_memory::{DType, Tensor, TensorView};
use std::fmt::{Display, LowerExp};

/// The numbers that texts spell, in a dtype that holds the numbers of `to`. Text of a float is
/// truncated where `to` is an integer dtype.
pub(super) fn parse(x: &TensorView<'_>, to: DType) -> Result<Tensor> {
    let texts = x.strings()?;
    let wrong = |text: &str| {
        let shown: String = text.chars().take(40).collect();
        Error::invalid(format!("'{shown}' is not a number"))
    };
    let float = |text: &str| match text {
        "True" => Ok(1.),
        "False" => Ok(0.),
        _ => text.parse::<f64>().map_err(|_| wrong(text)),
    };
    let shape = x.shape().clone();
    let texts = texts.iter().map(|t| t.trim());
    Ok(match to {
        DType::U64 => {
            let number = |t: &str| t.parse::<u64>().or_else(|_| float(t).map(|x| x as u64));
            Tensor::from_slice(shape, &texts.map(number).collect::<Result<Vec<_>>>()?)?
        }
        _ if to.is_float() || to == DType::Bool => {
            Tensor::from_slice(shape, &texts.map(float).collect::<Result<Vec<_>>>()?)?
        }
        _ => {
            let number = |t: &str| t.parse::<i64>().or_else(|_| float(t).map(|x| x as i64));
            Tensor::from_slice(shape, &texts.map(number).collect::<Result<Vec<_>>>()?)?
        }
    })
}

/// Numbers as texts: the shortest digits that are read back as the same number.
pub(super) fn write(ctx: &Context, x: &TensorView<'_>) -> Result<Tensor> {
    let texts: Vec<String> = match x.dtype() {
        DType::F16 => x.as_slice::<f16>()?.iter().map(|&x| float(x.to_f32())).collect(),
        DType::BF16 => x.as_slice::<bf16>()?.iter().map(|&x| float(x.to_f32())).collect(),
        DType::F32 => x.as_slice::<f32>()?.iter().map(|&x| float(x)).collect(),
        DType::F64 => x.as_slice::<f64>()?.iter().map(|&x| float(x)).collect(),
        DType::U64 => x.as_slice::<u64>()?.iter().map(ToString::to_string).collect(),
        DType::Bool => {
            let name = |&x: &bool| if x { "True" } else { "False" }.to_owned();
            x.as_slice::<bool>()?.iter().map(name).collect()
        }
        _ => {
            let x = Cast { to: DType::I64 }.run(ctx, &[Some(x.clone())])?;
            let x = x.first().ok_or_else(|| Error::invalid("there is no output"))?;
            x.as_slice::<i64>()?.iter().map(ToString::to_string).collect()
        }
    };
    Ok(Tensor::from_strings(x.shape().clone(), &texts)?)
}

/// In plain notation where that is short, otherwise with an exponent of two digits or more.
fn float<T: Display + LowerExp + Into<f64> + Copy>(x: T) -> String {
    let wide: f64 = x.into();
    if wide.is_nan() {
        return "NaN".to_owned();
    }
    if wide.is_infinite() {
        return if wide > 0. { "INF" } else { "-INF" }.to_owned();
    }
    if wide == 0. || (1e-4..1e16).contains(&wide.abs()) {
        let plain = x.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{digits}e{sign}{exponent:0>2}")
}
