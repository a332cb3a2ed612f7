//! Chains of nodes in place of one: new nodes for the first factors, and the layer's own node, with
//! its bias and attributes, for the last.

use super::factors::Factors;
use super::layer::{Layer, activation};
use crate::compression::decompose::ConvFactor;
use crate::compression::rewrite::Rewrite;
use crate::compression::sites::Site;
use crate::error::{Error, Result};
use lgp_inference::Attr;
use lgp_memory::Tensor;
use ndarray::Array4;
use std::collections::BTreeMap;

/// The attributes of a convolution that say where its windows are.
const WINDOW_ATTRIBUTES: [&str; 5] = ["auto_pad", "dilations", "kernel_shape", "pads", "strides"];

/// Writes the factors in place of the site's weight.
///
/// # Errors
/// Factors that do not fit the node.
pub(super) fn write(
    rewrite: &mut Rewrite,
    site: &Site,
    layer: Layer,
    factors: &Factors,
) -> Result<()> {
    let wrong = |message| Error::compression("write factors", message);
    let node = rewrite.parts.nodes.get(site.node);
    let node = node.ok_or_else(|| wrong("the model has no such node"))?;
    let place = activation(node, site).ok_or_else(|| wrong("the node does not read the value"))?;
    let output = node.outputs.first().ok_or_else(|| wrong("the node has no output"))?.clone();
    let attributes = node.attributes.clone();
    let Some((last, others)) = factors.chain.factors.split_last() else {
        return Err(wrong("there are no factors"));
    };
    let mut value = site.activation.clone();
    for (at, factor) in others.iter().enumerate() {
        let number = at + 1;
        let (op, tensor) = match layer {
            // The values are rows, so the factor is turned.
            Layer::Product => (("", "MatMul"), matrix(factor, true)?),
            Layer::Convolution { .. } => (("", "Conv"), kernel(factor, site)?),
        };
        let weight = rewrite.store(&format!("{}.factor{number}", site.weight), tensor);
        let stem = format!("{output}.factor{number}");
        value = rewrite.node(op, &stem, &[&value, &weight], []);
        if let (Layer::Convolution { .. }, Some(node)) = (layer, rewrite.parts.nodes.last_mut()) {
            node.attributes = divided(&attributes, factor, site);
            node.attributes.retain(|name, _| WINDOW_ATTRIBUTES.contains(&name.as_str()));
        }
    }
    let tensor = match layer {
        Layer::Product => matrix(last, site.n_axis == 1)?,
        Layer::Convolution { .. } => kernel(last, site)?,
    };
    let weight = rewrite.store(&format!("{}.factor{}", site.weight, others.len() + 1), tensor);
    rewrite.redirect(site.node, site.input, &weight);
    rewrite.redirect(site.node, place, &value);
    if let (Layer::Convolution { .. }, Some(node)) = (layer, rewrite.parts.nodes.get_mut(site.node))
    {
        node.attributes = divided(&attributes, last, site);
    }
    Ok(())
}

/// The attributes of one factor. Along an axis that the factor does not take, it has stride 1,
/// dilation 1 and no padding; padding that follows from the sizes is none for a window of one
/// position.
fn divided(
    attributes: &BTreeMap<String, Attr>,
    factor: &ConvFactor,
    site: &Site,
) -> BTreeMap<String, Attr> {
    let axes = site.windows.len().max(1);
    let taken = |at: usize| factor.spatial.get(at % axes) == Some(&true);
    let each = |values: &[i64], other: i64| -> Attr {
        let values = values.iter().enumerate();
        values.map(|(at, v)| if taken(at) { *v } else { other }).collect::<Vec<i64>>().into()
    };
    let sizes = factor.kernel.shape().iter().skip(2).take(axes);
    let sizes: Vec<i64> = sizes.map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
    let divide = |(name, value): (&String, &Attr)| {
        let value = match (name.as_str(), value) {
            // The padding before all axes comes first, then that after them.
            ("pads", Attr::Ints(values)) => each(values, 0),
            ("strides" | "dilations", Attr::Ints(values)) => each(values, 1),
            ("kernel_shape", _) => sizes.clone().into(),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    attributes.iter().map(divide).collect()
}

/// The kernel of a factor with as many axes as the layer's.
fn kernel(factor: &ConvFactor, site: &Site) -> Result<Tensor> {
    let shape: Vec<usize> = factor.kernel.shape().iter().copied().take(site.shape.len()).collect();
    Ok(Tensor::from_slice(shape, &values(&factor.kernel))?)
}

/// The matrix [out, in] of a pointwise factor, or [in, out] where it is `turned`.
fn matrix(factor: &ConvFactor, turned: bool) -> Result<Tensor> {
    let (outputs, inputs, _, _) = factor.kernel.dim();
    if !turned {
        return Ok(Tensor::from_slice([outputs, inputs], &values(&factor.kernel))?);
    }
    let turned = factor.kernel.view().permuted_axes([1, 0, 2, 3]);
    Ok(Tensor::from_slice([inputs, outputs], &values(&turned.to_owned()))?)
}

fn values(kernel: &Array4<f32>) -> Vec<f32> {
    kernel.iter().copied().collect()
}
