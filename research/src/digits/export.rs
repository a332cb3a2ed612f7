//! Writes the digits network as an ONNX model.

use super::data::{CLASSES, SIDE};
use super::network::{DigitsNetwork, KERNEL, STRIDES};
use crate::error::Result;
use candle_core::Var;
use lgp_inference::{Attr, GraphBuilder, Model};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};

impl DigitsNetwork {
    /// The network as a model: input `image` f32 `[n, 1, 8, 8]` with values 0–16, output `logits`
    /// f32 `[n, 10]`.
    ///
    /// # Errors
    /// Out of memory.
    pub fn to_model(&self) -> Result<Model> {
        let mut graph = GraphBuilder::new("digits");
        let mut x = graph.input("image", batch_of(&[1, SIDE, SIDE]));
        let kernel = [KERNEL as i64; 2];
        let pads = [(KERNEL / 2) as i64; 4];
        for (at, (layer, stride)) in self.convolutions.iter().zip(STRIDES).enumerate() {
            let weight = graph.initializer(format!("conv{at}.weight"), stored(&layer.0)?);
            let bias = graph.initializer(format!("conv{at}.bias"), stored(&layer.1)?);
            let attributes = [
                ("kernel_shape", Attr::from(kernel)),
                ("pads", Attr::from(pads)),
                ("strides", Attr::from([stride as i64; 2])),
            ];
            x = graph.node("Conv", &[x, weight, bias], attributes);
            x = graph.node("Relu", &[x], []);
        }
        x = graph.node("Flatten", &[x], []);
        let weight = graph.initializer("linear.weight", stored(&self.linear.0)?);
        let bias = graph.initializer("linear.bias", stored(&self.linear.1)?);
        x = graph.node("Gemm", &[x, weight, bias], [("transB", Attr::from(1))]);
        graph.output("logits", x, batch_of(&[CLASSES]));
        Ok(graph.finish()?)
    }
}

fn batch_of(rest: &[usize]) -> TensorType {
    let rest = rest.iter().map(|&dim| Dim::Known(dim));
    let dims = [Dim::Symbol("n".into())].into_iter().chain(rest).collect();
    TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) }
}

fn stored(variable: &Var) -> Result<Tensor> {
    let values = variable.flatten_all()?.to_vec1::<f32>()?;
    Ok(Tensor::from_slice(variable.dims(), &values)?)
}

#[cfg(test)]
mod tests {
    use super::super::data::PIXELS;
    use super::*;
    use lgp_inference::{Session, SessionOptions};
    use lgp_memory::TensorView;
    use rand::{SeedableRng, rngs::StdRng};

    #[test]
    fn the_exported_model_computes_what_the_network_does() {
        let network = DigitsNetwork::new(&mut StdRng::seed_from_u64(5)).unwrap();
        let pixels: Vec<f32> = (0..3 * PIXELS).map(|i| (i * 7 % 17) as f32).collect();
        let wanted = network.forward(&pixels).unwrap().flatten_all().unwrap();
        let wanted = wanted.to_vec1::<f32>().unwrap();

        let bytes = network.to_model().unwrap().to_onnx().unwrap();
        let model = Model::from_bytes(&bytes, None).unwrap();
        let session = Session::new(&model, SessionOptions::with_threads(1)).unwrap();
        let images = TensorView::from_slice([3, 1, SIDE, SIDE], &pixels).unwrap();
        let outputs = session.run(&[("image", images)]).unwrap();
        assert_eq!(outputs[0].name, "logits");
        assert_eq!(outputs[0].tensor.shape().dims(), [3, CLASSES]);
        let found = outputs[0].tensor.as_slice::<f32>().unwrap();
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((found - wanted).abs() <= 1e-4 * wanted.abs().max(1.0), "{found} {wanted}");
        }
    }

    #[test]
    fn the_bundled_model_reads_the_test_part() {
        let data = include_bytes!("../../../apps/cli/assets/digits/digits.csv.gz");
        let model = include_bytes!("../../../apps/cli/assets/digits/digits.onnx");
        let (_, test) = crate::DigitSet::read_split(data.as_slice()).unwrap();
        let model = Model::from_bytes(model, None).unwrap();
        let session = Session::new(&model, SessionOptions::with_threads(1)).unwrap();
        let images = TensorView::from_slice([test.len(), 1, SIDE, SIDE], &test.pixels).unwrap();
        let outputs = session.run(&[("image", images)]).unwrap();
        let logits = outputs[0].tensor.as_slice::<f32>().unwrap();
        assert!(crate::accuracy(logits, &test.labels).unwrap() >= 0.975);
    }
}
