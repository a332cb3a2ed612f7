//! Products that are `x · W + bias` and nothing more, found by running them.

use super::sites::Site;
use crate::error::Result;
use lgp_compute::Context;
use lgp_inference::{Model, Structure};
use lgp_memory::{DType, Tensor};

/// The relative difference that sums in another order may have.
const TOLERANCE: f32 = 1e-4;

/// A product of matrices: the last axis of x is summed over, the outputs are the last axis of the
/// result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlainProduct {
    /// The name of x.
    pub(crate) x: String,
    /// The name of the stored row that is added, if one is.
    pub(crate) bias: Option<String>,
}

impl PlainProduct {
    /// The product of a site; `None` where the node does something else besides, such as a factor.
    ///
    /// # Errors
    /// A weight that cannot be read.
    pub(crate) fn of(model: &Model, structure: &Structure, site: &Site) -> Result<Option<Self>> {
        let Some((rank, axis)) = site.summed else { return Ok(None) };
        let node = &model.nodes()[site.node];
        if !site.windows.is_empty() || axis + 1 != rank || node.outputs.len() != 1 {
            return Ok(None);
        }
        let Some(stored) = model.initializers().get(&site.weight) else { return Ok(None) };
        let matrix = site.matrix(stored)?;
        let (n, k) = matrix.dim();
        let operator = &structure.operators[site.operator];
        let mut bias = None;
        let mut inputs = Vec::with_capacity(operator.inputs.len());
        let x: Vec<f32> = (0..k).map(|i| ((i * 7 + 3) % 11) as f32 / 5. - 1.).collect();
        let mut shape = vec![1; rank];
        shape[rank - 1] = k;
        let x = Tensor::from_slice(shape, &x)?;
        for (info, id) in structure.infos(operator).into_iter().zip(&operator.inputs) {
            let name = id.map(|id| structure.values[id].name.as_str());
            match (info.and_then(|info| info.constant.as_ref()), name) {
                (Some(constant), Some(name)) => {
                    let is_row = constant.dtype() == DType::F32 && constant.shape().dims() == [n];
                    if name != site.weight {
                        if !is_row || !model.initializers().contains_key(name) || bias.is_some() {
                            return Ok(None);
                        }
                        bias = Some((name.to_owned(), constant.clone()));
                    }
                    inputs.push(Some(constant.view()));
                }
                (None, Some(name)) if name == site.activation => inputs.push(Some(x.view())),
                (None, None) => inputs.push(None),
                _ => return Ok(None),
            }
        }
        let Ok(found) = operator.op.run(&Context::new(1), &inputs) else { return Ok(None) };
        let x = ndarray::ArrayView1::from(x.as_slice::<f32>()?);
        let mut wanted = matrix.dot(&x);
        let mut scale = matrix.mapv(f32::abs).dot(&x.mapv(f32::abs));
        if let Some((_, bias)) = &bias {
            let row = ndarray::ArrayView1::from(bias.as_slice::<f32>()?);
            wanted += &row;
            scale += &row.mapv(f32::abs);
        }
        let Some(found) = found.first().and_then(|it| it.as_slice::<f32>().ok()) else {
            return Ok(None);
        };
        let same = found.len() == n
            && found.iter().zip(&wanted).zip(&scale).all(|((found, wanted), scale)| {
                (found - wanted).abs() <= TOLERANCE * scale.max(f32::MIN_POSITIVE)
            });
        let bias = bias.map(|(name, _)| name);
        Ok(same.then(|| Self { x: site.activation.clone(), bias }))
    }
}
