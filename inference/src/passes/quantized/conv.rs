//! Convolutions and pooling of bytes.

use super::{Quantized, Rewrite};
use crate::error::Result;
use crate::graph::ValueId;
use lgp_compute::ops::{
    Conv, ConvGeometry, DequantizeLinear, GlobalPool, GlobalPoolKind, Pool, PoolKind, QConv,
    QConvParts, QGlobalAveragePool, QMaxPool,
};
use lgp_memory::{DType, Tensor};

/// A constant weight of bytes with its scales.
pub(super) struct Weight {
    pub(super) tensor: Tensor,
    pub(super) scale: Vec<f32>,
    pub(super) zero: Vec<i32>,
    /// The axis of the scales, where there is more than one.
    pub(super) axis: i64,
}

impl Rewrite<'_> {
    /// The weight behind a value that goes back to floats.
    pub(super) fn weight(&self, id: ValueId) -> Option<Weight> {
        let (node, dequantize) = self.made_by::<DequantizeLinear>(id)?;
        let tensor = self.constant(node, 0)?.clone();
        let scale = self.constant(node, 1)?;
        if scale.shape().rank() > 1 || !matches!(tensor.dtype(), DType::I8 | DType::U8) {
            return None;
        }
        let scale = scale.as_slice::<f32>().ok()?.to_vec();
        let zero = match self.input(node, 2) {
            None => vec![0; scale.len()],
            Some(_) => self.zeros(node)?,
        };
        let rank = i64::try_from(tensor.shape().rank()).ok()?;
        let axis = if dequantize.axis < 0 { dequantize.axis + rank } else { dequantize.axis };
        Some(Weight { tensor, scale, zero, axis })
    }

    /// A constant bias in steps of the sums, where these are fine beside the output's.
    pub(super) fn bias(
        &self,
        id: ValueId,
        x_scale: f32,
        scale: &[f32],
        y_scale: f32,
    ) -> Option<Vec<i32>> {
        let bias = self.graph.constant(id)?.as_slice::<f32>().ok()?;
        let mut out = Vec::with_capacity(bias.len());
        for (i, bias) in bias.iter().enumerate() {
            let scale = if scale.len() == 1 { scale[0] } else { *scale.get(i)? };
            let step = f64::from(x_scale) * f64::from(scale);
            let steps = (f64::from(*bias) / step).round_ties_even();
            let off = (steps * step - f64::from(*bias)).abs();
            if steps.is_nan() || steps.abs() > f64::from(1 << 30) || off > f64::from(y_scale) / 16.
            {
                return None;
            }
            #[allow(clippy::cast_possible_truncation, reason = "checked just before")]
            out.push(steps as i32);
        }
        Some(out)
    }

    pub(super) fn conv(&mut self, q: &Quantized) -> Result<bool> {
        let Some((x, conv)) = self.conv_of(q) else { return Ok(false) };
        let image = self.channels_last(x)?;
        self.push_channels_last(conv, vec![image], q.out)?;
        Ok(true)
    }

    fn conv_of(&self, q: &Quantized) -> Option<(ValueId, QConv)> {
        let (node, conv) = self.made_by::<Conv>(q.from).filter(|_| self.uses[q.from.0] == 1)?;
        let (x, x_quant) = self.dequantized(self.input(node, 0)?)?;
        let weight = self.weight(self.input(node, 1)?)?;
        let [m, per_group, kh, kw] = weight.tensor.shape()[..] else { return None };
        if weight.scale.len() > 1 && weight.axis != 0 {
            return None;
        }
        let bias = match self.input(node, 2) {
            None => None,
            Some(id) => Some(self.bias(id, x_quant.scale, &weight.scale, q.quant.scale)?),
        };
        let pair = |v: &[usize]| match v {
            [] => Some([1, 1]),
            [a, b] => Some([*a, *b]),
            _ => None,
        };
        let geometry = ConvGeometry {
            kernel: [kh, kw],
            strides: pair(&conv.strides)?,
            dilations: pair(&conv.dilations)?,
            pads: conv.pads.clone(),
            group: conv.group,
            channels: per_group.checked_mul(conv.group)?,
            maps: m,
        };
        let parts = QConvParts {
            x: x_quant,
            weight: &weight.tensor.view(),
            weight_scale: &weight.scale,
            weight_zero: &weight.zero,
            bias: bias.as_deref(),
            y: q.quant,
            limits: q.limits,
        };
        // What has no kernel stays as it is.
        Some((x, QConv::new(geometry, parts).ok()?))
    }

    pub(super) fn pool(&mut self, q: &Quantized) -> Result<bool> {
        if self.uses[q.from.0] != 1 || q.limits.1 < f32::INFINITY || q.limits.0 > f32::MIN {
            return Ok(false);
        }
        if let Some((node, pool)) = self.made_by::<GlobalPool>(q.from) {
            let average = pool.kind == GlobalPoolKind::Average;
            let x = self.input(node, 0).and_then(|x| self.dequantized(x));
            let Some((x, quant)) = x.filter(|(x, _)| average && self.rank(*x) == Some(4)) else {
                return Ok(false);
            };
            let image = self.channels_last(x)?;
            let op = QGlobalAveragePool { x: quant, y: q.quant };
            self.push_channels_last(op, vec![image], q.out)?;
            return Ok(true);
        }
        let Some((node, pool)) = self.made_by::<Pool>(q.from) else { return Ok(false) };
        let x = self.input(node, 0).and_then(|x| self.dequantized(x));
        let (Some((x, _)), Some(op)) = (x.filter(|(_, quant)| *quant == q.quant), max_pool(pool))
        else {
            return Ok(false);
        };
        let image = self.channels_last(x)?;
        self.push_channels_last(op, vec![image], q.out)?;
        Ok(true)
    }

    /// A pool that reads bytes as they are.
    pub(super) fn max_pool_of_bytes(&mut self, index: usize) -> Result<bool> {
        let op = self.op::<Pool>(index).and_then(max_pool);
        let image = self.input(index, 0).and_then(|x| self.channels_last.get(&x).copied());
        let out = self.old[index].outputs.first().copied().flatten();
        let (Some(op), Some(image), Some(out)) = (op, image, out) else { return Ok(false) };
        self.push_channels_last(op, vec![image], out)?;
        Ok(true)
    }
}

/// The pool on channels-last bytes.
fn max_pool(pool: &Pool) -> Option<QMaxPool> {
    let pair = |v: &[usize]| match v {
        [] => Some([1, 1]),
        [a, b] => Some([*a, *b]),
        _ => None,
    };
    if pool.kind != PoolKind::Max || pool.kernel.len() != 2 {
        return None;
    }
    Some(QMaxPool {
        kernel: pair(&pool.kernel)?,
        strides: pair(&pool.strides)?,
        dilations: pair(&pool.dilations)?,
        pads: pool.pads.clone(),
        ceil_mode: pool.ceil_mode,
    })
}
