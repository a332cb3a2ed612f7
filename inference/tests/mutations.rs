//! Damaged bytes may be refused or may still make a model; they never make a panic.

use lgp_inference::{GraphBuilder, Model, Result, Session, SessionOptions};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType, TensorView};
use std::time::{Duration, Instant};

const MUTATIONS: usize = 6000;

/// More than a hundred times what all mutations take.
const LIMIT: Duration = Duration::from_secs(300);

/// A small network with every kind of field: attributes, weights, a symbolic dimension.
fn model() -> Result<Vec<u8>> {
    let ty = |rest: &[usize]| TensorType {
        dtype: DType::F32,
        shape: Some(SymShape(
            [Dim::Symbol("n".into())]
                .into_iter()
                .chain(rest.iter().map(|&d| Dim::Known(d)))
                .collect(),
        )),
    };
    let mut g = GraphBuilder::new("small");
    let x = g.input("x", ty(&[1, 6, 6]));
    let w = g.initializer("w", Tensor::from_slice([2, 1, 3, 3], &[0.5f32; 18])?);
    let b = g.initializer("b", Tensor::from_slice([2], &[0.1f32, -0.1])?);
    let y = g.node("Conv", &[x, w, b], [("pads", [1, 1, 1, 1].into()), ("group", 1.into())]);
    let low = g.node("Constant", &[], [("value", Tensor::scalar(0f32)?.into())]);
    let y = g.node("Clip", &[y, low], []);
    let pool = [("kernel_shape", [2, 2].into()), ("strides", [2, 2].into())];
    let y = g.node("MaxPool", &[y], pool);
    let shape = g.initializer("shape", Tensor::from_slice([2], &[-1i64, 18])?);
    let y = g.node("Reshape", &[y, shape], []);
    let w = g.initializer("fc", Tensor::from_slice([3, 18], &[0.25f32; 54])?);
    let y = g.node("Gemm", &[y, w], [("transB", 1.into()), ("alpha", 0.5f32.into())]);
    let y = g.node("Softmax", &[y], [("axis", (-1).into())]);
    g.output("y", y, ty(&[3]));
    g.finish()?.to_onnx()
}

/// Reads, compiles and runs the bytes; `false` if one of these steps refuses them.
fn exercise(bytes: &[u8]) -> bool {
    let data = [1f32; 36];
    let run = || -> Result<()> {
        let session =
            Session::new(&Model::from_bytes(bytes, None)?, SessionOptions::with_threads(1))?;
        session.run(&[("x", TensorView::from_slice([1, 1, 6, 6], &data)?)])?;
        Ok(())
    };
    run().is_ok()
}

/// Xorshift: the same mutations every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % n
    }
}

#[test]
fn mutations_never_panic() -> Result<()> {
    let bytes = model()?;
    assert!(exercise(&bytes), "the model itself runs");
    let mut random = Random(0x1234_5678_9abc_def1);
    let start = Instant::now();
    let mut ran = 0;
    for round in 0..MUTATIONS {
        let mut mutated = bytes.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(mutated.len());
            match random.below(4) {
                0 => mutated[at] ^= 1 << random.below(8),
                1 => mutated[at] = u8::try_from(random.below(256)).unwrap(),
                2 => mutated.truncate(at.max(1)),
                _ => {
                    mutated.remove(at);
                }
            }
        }
        ran += usize::from(exercise(&mutated));
        assert!(start.elapsed() < LIMIT, "{round} mutations took {:?}", start.elapsed());
    }
    // Most damage is noticed, but a changed weight or name is still a model.
    assert!(ran > 0 && ran < MUTATIONS, "{ran} of {MUTATIONS} ran");
    Ok(())
}
