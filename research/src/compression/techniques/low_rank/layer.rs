//! The nodes whose weight a chain of factors can replace.

use crate::compression::product::PlainProduct;
use crate::compression::sites::Site;
use crate::error::Result;
use lgp_inference::{Attr, Model, ModelNode, Structure};

/// What a node does with its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layer {
    /// It multiplies matrices.
    Product,
    /// It slides windows over all channels.
    Convolution {
        /// Positions from one window to the next, along the height and the width.
        strides: [usize; 2],
    },
}

impl Layer {
    /// The layer of a site; `None` where factors do not fit the node.
    ///
    /// # Errors
    /// A weight that cannot be read.
    pub(super) fn of(model: &Model, structure: &Structure, site: &Site) -> Result<Option<Self>> {
        let node = &model.nodes()[site.node];
        if activation(node, site).is_none() || site.k_axis.is_none() {
            return Ok(None);
        }
        if site.windows.is_empty() {
            let plain = PlainProduct::of(model, structure, site)?;
            return Ok(plain.filter(|_| site.shape.len() == 2).map(|_| Self::Product));
        }
        Ok(convolution(node, site))
    }
}

/// The input of a node that its weight is multiplied with.
pub(super) fn activation(node: &ModelNode, site: &Site) -> Option<usize> {
    node.inputs.iter().position(|name| *name == site.activation)
}

/// The convolution of one group, of one or two axes, whose attributes say the same as its facts.
fn convolution(node: &ModelNode, site: &Site) -> Option<Layer> {
    let rank = site.shape.len();
    let axes = rank.checked_sub(2).filter(|axes| (1..=2).contains(axes))?;
    let plain = site.n_axis == 0 && site.k_axis == Some(1) && site.summed == Some((rank, 1));
    if !plain || site.windows.len() != axes {
        return None;
    }
    let mut strides = [1; 2];
    for (at, window) in site.windows.iter().enumerate() {
        let kernel = site.shape[at + 2];
        let stated = |name: &str| match node.attributes.get(name) {
            None => Some(1),
            Some(Attr::Ints(values)) => values.get(at).and_then(|it| usize::try_from(*it).ok()),
            Some(_) => None,
        };
        let extent = kernel.checked_sub(1)?.checked_mul(stated("dilations")?)?.checked_add(1)?;
        if window.axis != at + 2 || stated("strides")? != window.stride || extent != window.extent {
            return None;
        }
        strides[at] = window.stride;
    }
    Some(Layer::Convolution { strides })
}
