//! Dynamic quantisation as `onnxruntime.quantization.quantize_dynamic` writes it: weights in signed
//! bytes, the activations' scales computed as the model runs.

use crate::qdq::{range, scale, symmetric_scale};
use crate::rewrite::Rewrite;
use lgp_inference::{Model, ModelNode, Result, Value};
use lgp_memory::Tensor;
use std::collections::HashMap;

/// Quantises the products with stored matrices, and stored tables that are looked up in.
pub(crate) fn quantize(model: &Model, name: &str) -> Result<Model> {
    let mut writer = Writer { rewrite: Rewrite::new(model, name), activations: HashMap::new() };
    for node in model.nodes() {
        let stored = |at: usize| {
            let name = node.inputs.get(at)?;
            Some(name).filter(|name| model.initializers().contains_key(*name))
        };
        match (node.op_type.as_str(), stored(0), stored(1)) {
            ("MatMul", None, Some(weight)) => {
                let tensor = writer.rewrite.constant(weight).expect("it is stored");
                let y = writer.product(&node.inputs[0], weight, tensor.clone())?;
                writer.rewrite.set(&node.outputs[0], y);
            }
            ("Gemm", None, Some(weight)) => {
                let tensor = writer.rewrite.constant(weight).expect("it is stored");
                let y = writer.product(&node.inputs[0], weight, transposed(tensor)?)?;
                let bias = writer.rewrite.value(&node.inputs[2]);
                let y = writer.rewrite.g.node("Add", &[y, bias], []);
                writer.rewrite.set(&node.outputs[0], y);
            }
            ("Gather", Some(table), None) if table.ends_with(".weight") => {
                writer.look_up(node, table)?;
            }
            _ => {
                writer.rewrite.copy(node);
            }
        }
    }
    writer.rewrite.finish()
}

struct Writer<'m> {
    rewrite: Rewrite<'m>,
    /// Quantised activations by name: values, scale and zero point.
    activations: HashMap<String, [Value; 3]>,
}

impl Writer<'_> {
    /// The product of an activation with a stored matrix.
    fn product(&mut self, x: &str, name: &str, weight: Tensor) -> Result<Value> {
        let [bytes, scale, zero] = self.weight(name, &weight)?;
        let [x, x_scale, x_zero] = self.activation(x);
        let g = &mut self.rewrite.g;
        let y = g.node("MatMulInteger", &[x, bytes, x_zero, zero], []);
        // ONNX's number of f32.
        let y = g.node("Cast", &[y], [("to", 1.into())]);
        let scale = g.node("Mul", &[x_scale, scale], []);
        Ok(g.node("Mul", &[y, scale], []))
    }

    fn activation(&mut self, name: &str) -> [Value; 3] {
        if let Some(found) = self.activations.get(name) {
            return *found;
        }
        let value = self.rewrite.value(name);
        let parts = self.rewrite.g.node_with_outputs("DynamicQuantizeLinear", &[value], []);
        self.activations.insert(name.to_owned(), parts);
        parts
    }

    /// Rows of a stored table, which is kept in unsigned bytes and made floats after the rows were
    /// found.
    fn look_up(&mut self, node: &ModelNode, name: &str) -> Result<()> {
        let table = self.rewrite.constant(name).expect("it is stored");
        let values = table.as_slice::<f32>()?;
        let scale = scale(range(values));
        let bytes: Vec<u8> = values.iter().map(|&v| scale.quantize(v)).collect();
        let bytes = Tensor::from_slice(table.shape().dims(), &bytes)?;
        let zero = Tensor::scalar(scale.zero)?;
        let [bytes, scale, zero] = self.stored(name, bytes, scale.scale, zero)?;
        let ids = self.rewrite.value(&node.inputs[1]);
        let rows = self.rewrite.apply(node, &[bytes, ids]);
        let rows = self.rewrite.g.node("DequantizeLinear", &[rows, scale, zero], []);
        self.rewrite.set(&node.outputs[0], rows);
        Ok(())
    }

    /// A weight in signed bytes with one scale, and zero for zero.
    fn weight(&mut self, name: &str, weight: &Tensor) -> Result<[Value; 3]> {
        let values = weight.as_slice::<f32>()?;
        let scale = symmetric_scale(values);
        let bytes: Vec<i8> = values.iter().map(|v| (v / scale).round_ties_even() as i8).collect();
        let bytes = Tensor::from_slice(weight.shape().dims(), &bytes)?;
        self.stored(name, bytes, scale, Tensor::scalar(0i8)?)
    }

    fn stored(
        &mut self,
        name: &str,
        values: Tensor,
        scale: f32,
        zero: Tensor,
    ) -> Result<[Value; 3]> {
        let g = &mut self.rewrite.g;
        Ok([
            g.initializer(format!("{name}_quantized"), values),
            g.initializer(format!("{name}_scale"), Tensor::scalar(scale)?),
            g.initializer(format!("{name}_zero_point"), zero),
        ])
    }
}

/// Rows and columns of a matrix exchanged.
fn transposed(matrix: &Tensor) -> Result<Tensor> {
    let [rows, columns] = matrix.shape().dims() else {
        panic!("a fully connected layer's weight is a matrix");
    };
    let values = matrix.as_slice::<f32>()?;
    let turned: Vec<f32> =
        (0..rows * columns).map(|i| values[i % rows * columns + i / rows]).collect();
    Ok(Tensor::from_slice([*columns, *rows], &turned)?)
}
