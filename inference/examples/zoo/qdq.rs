//! Static quantisation as `onnxruntime.quantization.quantize_static` writes it: 8-bit integers
//! between pairs of `QuantizeLinear` and `DequantizeLinear`, activations unsigned with a range for
//! each tensor, weights signed with a scale for each output channel.

use crate::nets::Random;
use crate::rewrite::Rewrite;
use lgp_inference::{Attr, Model, ModelNode, Result, Session, SessionOptions, Value};
use lgp_memory::{DType, Dim, Tensor, TensorType};
use std::collections::{HashMap, HashSet};

/// How many random images decide the ranges.
const IMAGES: usize = 2;

/// A scale and the integer that stands for zero.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) scale: f32,
    pub(crate) zero: u8,
}

impl Scale {
    /// The nearest integer; what is out of range becomes the nearest end.
    pub(crate) fn quantize(self, value: f32) -> u8 {
        ((value / self.scale).round_ties_even() + f32::from(self.zero)) as u8
    }
}

/// Quantises a network of convolutions; ranges are those of seeded random images.
pub(crate) fn quantize(model: &Model, name: &str) -> Result<Model> {
    let ranges = calibrate(model)?;
    let mut writer = Writer {
        rewrite: Rewrite::new(model, name),
        scales: ranges.into_iter().map(|(name, range)| (name, scale(range))).collect(),
        quantized: HashSet::new(),
        folded: folded(model),
    };
    for node in model.nodes() {
        writer.node(node)?;
    }
    writer.rewrite.finish()
}

/// Least and largest element of every tensor that a node makes or a caller gives.
fn calibrate(model: &Model) -> Result<HashMap<String, (f32, f32)>> {
    let mut rewrite = Rewrite::new(model, "calibration");
    let mut watched = Vec::new();
    for node in model.nodes() {
        let value = rewrite.copy(node);
        if node.op_type != "Constant" {
            watched.push((node.outputs[0].clone(), value));
        }
    }
    for (name, value) in &watched {
        rewrite.g.output(name.clone(), *value, TensorType { dtype: DType::F32, shape: None });
    }
    let session = Session::new(&rewrite.g.finish()?, SessionOptions::default())?;
    let mut ranges = HashMap::new();
    let mut random = Random::new(0xca11);
    for _ in 0..IMAGES {
        for input in model.inputs() {
            let image = random.tensor(&dims(&input.ty), 2., 0.)?;
            widen(&mut ranges, &input.name, &image)?;
            for output in session.run(&[(&input.name, image.view())])? {
                widen(&mut ranges, &output.name, &output.tensor)?;
            }
        }
    }
    Ok(ranges)
}

/// Known dimensions, and 1 for all others.
fn dims(ty: &TensorType) -> Vec<usize> {
    let size = |dim: &Dim| if let Dim::Known(n) = dim { *n } else { 1 };
    ty.shape.iter().flat_map(|shape| shape.0.iter().map(size)).collect()
}

fn widen(
    ranges: &mut HashMap<String, (f32, f32)>,
    name: &str,
    values: &Tensor,
) -> lgp_memory::Result<()> {
    let (low, high) = range(values.as_slice()?);
    let range = ranges.entry(name.to_owned()).or_insert((0., 0.));
    *range = (range.0.min(low), range.1.max(high));
    Ok(())
}

/// Least and largest of `values` and zero, which is always within so that padding is exact.
pub(crate) fn range(values: &[f32]) -> (f32, f32) {
    values.iter().fold((0., 0.), |(low, high), v| (v.min(low), v.max(high)))
}

/// The scale at which unsigned bytes hold a range that includes zero.
pub(crate) fn scale((low, high): (f32, f32)) -> Scale {
    let scale = ((high - low) / 255.).max(f32::MIN_POSITIVE);
    Scale { scale, zero: (-low / scale).round_ties_even() as u8 }
}

/// Activations whose work the saturating quantisation of the node before them does: by their
/// output, the value that they read.
fn folded(model: &Model) -> HashMap<String, String> {
    let mut readers: HashMap<&str, usize> = HashMap::new();
    for name in model.nodes().iter().flat_map(|node| &node.inputs) {
        *readers.entry(name).or_default() += 1;
    }
    let activations =
        model.nodes().iter().filter(|node| ["Relu", "Clip"].contains(&node.op_type.as_str()));
    activations
        .filter(|node| readers[node.inputs[0].as_str()] == 1)
        .map(|node| (node.inputs[0].clone(), node.outputs[0].clone()))
        .collect()
}

struct Writer<'m> {
    rewrite: Rewrite<'m>,
    scales: HashMap<String, Scale>,
    /// Tensors that already went through a pair.
    quantized: HashSet<String>,
    /// By the value before an activation, the value after it.
    folded: HashMap<String, String>,
}

impl Writer<'_> {
    fn node(&mut self, node: &ModelNode) -> Result<()> {
        let output = &node.outputs[0];
        match node.op_type.as_str() {
            // Written by what reads them.
            "Constant" => {}
            "Relu" | "Clip" => {
                assert_eq!(
                    self.folded.get(&node.inputs[0]),
                    Some(output),
                    "every activation of these networks follows a convolution or an addition"
                );
            }
            "Conv" | "Gemm" => {
                let x = self.pair(&node.inputs[0])?;
                let (weight, scales) = self.weight(&node.inputs[1])?;
                let scale = self.scales[&node.inputs[0]].scale;
                let bias = self.bias(&node.inputs[2], scale, &scales)?;
                let y = self.rewrite.apply(node, &[x, weight, bias]);
                self.result(output, y)?;
            }
            "MaxPool" => {
                // A maximum needs no scale of its own.
                let scale = self.scales[&node.inputs[0]];
                self.scales.insert(output.clone(), scale);
                let x = self.pair(&node.inputs[0])?;
                let y = self.rewrite.apply(node, &[x]);
                self.result(output, y)?;
            }
            "Add" | "GlobalAveragePool" | "Mul" | "Sigmoid" => {
                let inputs: Vec<Value> =
                    node.inputs.iter().map(|name| self.pair(name)).collect::<Result<_>>()?;
                let y = self.rewrite.apply(node, &inputs);
                self.result(output, y)?;
            }
            _ => {
                self.rewrite.copy(node);
            }
        }
        Ok(())
    }

    /// Lets a node's result, quantised, stand for its output and that of an activation behind it.
    fn result(&mut self, output: &str, value: Value) -> Result<()> {
        let name = self.folded.get(output).cloned().unwrap_or_else(|| output.to_owned());
        self.rewrite.set(&name, value);
        self.pair(&name)?;
        Ok(())
    }

    /// A tensor behind its pair of `QuantizeLinear` and `DequantizeLinear`, written on first use.
    fn pair(&mut self, name: &str) -> Result<Value> {
        let value = self.rewrite.value(name);
        if !self.quantized.insert(name.to_owned()) {
            return Ok(value);
        }
        let Scale { scale, zero } = self.scales[name];
        let g = &mut self.rewrite.g;
        let scale = g.initializer(format!("{name}_scale"), Tensor::scalar(scale)?);
        let zero = g.initializer(format!("{name}_zero_point"), Tensor::scalar(zero)?);
        let value = g.node("QuantizeLinear", &[value, scale, zero], []);
        let value = g.node("DequantizeLinear", &[value, scale, zero], []);
        self.rewrite.set(name, value);
        Ok(value)
    }

    /// A weight in signed bytes behind `DequantizeLinear`, and its scale for each output channel.
    fn weight(&mut self, name: &str) -> Result<(Value, Vec<f32>)> {
        let tensor = self.rewrite.constant(name).expect("weights are stored");
        let values = tensor.as_slice::<f32>()?;
        let channels = tensor.shape().dims()[0];
        let mut scales = Vec::with_capacity(channels);
        let mut bytes = Vec::with_capacity(values.len());
        for channel in values.chunks_exact(values.len() / channels) {
            let scale = symmetric_scale(channel);
            bytes.extend(channel.iter().map(|v| (v / scale).round_ties_even() as i8));
            scales.push(scale);
        }
        let bytes = Tensor::from_slice(tensor.shape().dims(), &bytes)?;
        let zeros = Tensor::from_slice([channels], &vec![0i8; channels])?;
        Ok((self.dequantized(name, bytes, &scales, zeros)?, scales))
    }

    /// A bias in the scale of the products that it is added to.
    fn bias(&mut self, name: &str, input: f32, weights: &[f32]) -> Result<Value> {
        let tensor = self.rewrite.constant(name).expect("biases are stored");
        let scales: Vec<f32> = weights.iter().map(|w| input * w).collect();
        let values = tensor.as_slice::<f32>()?.iter().zip(&scales);
        let values: Vec<i32> = values.map(|(v, s)| (v / s).round_ties_even() as i32).collect();
        let count = values.len();
        let values = Tensor::from_slice([count], &values)?;
        let zeros = Tensor::from_slice([count], &vec![0i32; count])?;
        self.dequantized(name, values, &scales, zeros)
    }

    fn dequantized(
        &mut self,
        name: &str,
        values: Tensor,
        scales: &[f32],
        zeros: Tensor,
    ) -> Result<Value> {
        let scales = Tensor::from_slice([scales.len()], scales)?;
        let g = &mut self.rewrite.g;
        let parts = [
            g.initializer(format!("{name}_quantized"), values),
            g.initializer(format!("{name}_scale"), scales),
            g.initializer(format!("{name}_zero_point"), zeros),
        ];
        Ok(g.node("DequantizeLinear", &parts, [("axis", Attr::from(0))]))
    }
}

/// The scale at which signed bytes around zero hold all of `values`.
pub(crate) fn symmetric_scale(values: &[f32]) -> f32 {
    let largest = values.iter().fold(0f32, |most, v| most.max(v.abs()));
    (largest / 127.).max(f32::MIN_POSITIVE)
}
