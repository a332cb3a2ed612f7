//! What networks of attention have in common.

use crate::nets::Random;
use lgp_inference::{Attr, GraphBuilder, Result, Value};
use lgp_memory::Tensor;

/// Sizes of a network.
pub(crate) struct Config {
    pub(crate) vocabulary: usize,
    pub(crate) positions: usize,
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) layers: usize,
}

/// Writes the nodes of a transformer.
pub(crate) struct Writer {
    pub(crate) g: GraphBuilder,
    pub(crate) config: Config,
    random: Random,
    constants: usize,
}

impl Writer {
    /// An empty network whose weights come of a seed.
    pub(crate) fn new(name: &str, config: Config, seed: u64) -> Self {
        Self { g: GraphBuilder::new(name), config, random: Random::new(seed), constants: 0 }
    }

    pub(crate) fn weight(&mut self, name: &str, dims: &[usize]) -> Result<Value> {
        let weight = self.random.tensor(dims, 0.06, 0.)?;
        Ok(self.g.initializer(name, weight))
    }

    pub(crate) fn bias(&mut self, name: &str, size: usize) -> Result<Value> {
        let bias = self.random.tensor(&[size], 0.05, 0.)?;
        Ok(self.g.initializer(name, bias))
    }

    /// A stored list of integers, or a single one for no dimensions.
    pub(crate) fn ints(&mut self, dims: &[usize], values: &[i64]) -> Result<Value> {
        Ok(self.g.node("Constant", &[], [("value", Tensor::from_slice(dims, values)?.into())]))
    }

    pub(crate) fn float(&mut self, value: f32) -> Result<Value> {
        Ok(self.g.node("Constant", &[], [("value", Tensor::scalar(value)?.into())]))
    }

    /// Dimension `axis` of a value as a list of one.
    pub(crate) fn dim(&mut self, x: Value, axis: i64) -> Result<Value> {
        let shape = self.g.node("Shape", &[x], []);
        let axis = self.ints(&[], &[axis])?;
        let dim = self.g.node("Gather", &[shape, axis], [("axis", 0.into())]);
        let zero = self.ints(&[1], &[0])?;
        Ok(self.g.node("Unsqueeze", &[dim, zero], []))
    }

    /// Reshapes to batch and sequence of `like`, and what follows.
    pub(crate) fn reshape(&mut self, x: Value, like: Value, rest: &[i64]) -> Result<Value> {
        let mut dims = vec![self.dim(like, 0)?, self.dim(like, 1)?];
        for &size in rest {
            dims.push(self.ints(&[1], &[size])?);
        }
        let shape = self.g.node("Concat", &dims, [("axis", 0.into())]);
        Ok(self.g.node("Reshape", &[x, shape], [("allowzero", 0.into())]))
    }

    /// What a norm multiplies each feature with.
    pub(crate) fn norm_scale(&mut self, name: &str) -> Result<Value> {
        let scale = self.random.tensor(&[self.config.hidden], 0.2, 1.)?;
        Ok(self.g.initializer(format!("{name}.weight"), scale))
    }

    pub(crate) fn layer_norm(&mut self, name: &str, x: Value, epsilon: f32) -> Result<Value> {
        let scale = self.norm_scale(name)?;
        let bias = self.bias(&format!("{name}.bias"), self.config.hidden)?;
        let attributes = [("axis", Attr::from(-1)), ("epsilon", epsilon.into())];
        Ok(self.g.node("LayerNormalization", &[x, scale, bias], attributes))
    }

    pub(crate) fn dense(
        &mut self,
        name: &str,
        x: Value,
        [inputs, outputs]: [usize; 2],
    ) -> Result<Value> {
        let bias = self.bias(&format!("{name}.bias"), outputs)?;
        self.constants += 1;
        // The exporter stores the transposed weight under a name of its own.
        let weight =
            self.weight(&format!("onnx::MatMul_{}", self.constants), &[inputs, outputs])?;
        let y = self.g.node("MatMul", &[x, weight], []);
        Ok(self.g.node("Add", &[bias, y], []))
    }
}

pub(crate) fn count(n: usize) -> i64 {
    i64::try_from(n).expect("a layer's sizes are small")
}
