//! An operator of another crate is compiled as built-in ones are: by the facts that it states.

use lgp_compute::{Axes, Context, Given, Op, Result as OpResult, ValueInfo, check_facts};
use lgp_inference::{Attr, GraphBuilder, Model, Operators, Session, SessionOptions};
use lgp_memory::{DType, Dim, Shape, SymShape, Tensor, TensorType, TensorView};
use std::sync::Arc;

/// `x / (1 + |x|)`, in f32: ONNX's `Softsign`.
#[derive(Debug)]
struct Squash;

fn squash(x: f32) -> f32 {
    x / (1. + x.abs())
}

impl Op for Squash {
    fn name(&self) -> &'static str {
        "Squash"
    }

    fn arity(&self) -> std::ops::RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> OpResult<Vec<ValueInfo>> {
        Ok(inputs.iter().flatten().map(|x| ValueInfo::of(x.ty.clone())).collect())
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn overwrites(&self, _: &[Option<&ValueInfo>], _: &[ValueInfo]) -> Vec<usize> {
        vec![0]
    }

    fn run_over(
        &self,
        _: &Context,
        mut given: Given,
        _: &[Option<TensorView<'_>>],
    ) -> OpResult<Vec<Tensor>> {
        given.tensor.as_mut_slice::<f32>()?.iter_mut().for_each(|x| *x = squash(*x));
        Ok(vec![given.tensor])
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> OpResult<Vec<Tensor>> {
        let mut made = Vec::new();
        for x in inputs.iter().flatten() {
            let mut out = ctx.alloc(DType::F32, x.shape().clone())?;
            let pairs = out.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?);
            pairs.for_each(|(out, x)| *out = squash(*x));
            made.push(out);
        }
        Ok(made)
    }
}

fn noise(dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.) / 50.).collect();
    Tensor::from_slice(dims, &data).unwrap()
}

/// Two convolutions with an operator between them, then pooling.
fn model(op: &str) -> Model {
    let dims = [Dim::Symbol("n".into()), Dim::Known(16), Dim::Known(12), Dim::Known(12)];
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(dims.to_vec())) };
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty);
    let w = g.initializer("w", noise(&[16, 16, 3, 3]));
    let pads = [("pads", Attr::from([1, 1, 1, 1]))];
    let y = g.node("Conv", &[x, w], pads.clone());
    let y = g.node(op, &[y], []);
    let y = g.node("Conv", &[y, w], pads);
    let y = g.node("GlobalAveragePool", &[y], []);
    let y = g.node("Flatten", &[y], []);
    g.output("y", y, TensorType { dtype: DType::F32, shape: None });
    g.finish().unwrap()
}

#[test]
fn an_operator_from_elsewhere_is_compiled_as_ours_are() {
    let operators = Operators::new().with("my.domain", "Squash", |_| Ok(Arc::new(Squash)));
    let theirs = model("my.domain::Squash").with_operators(operators);
    let options = SessionOptions::with_threads(1);
    let [ours, theirs] =
        [model("Softsign"), theirs].map(|model| Session::new(model, options).unwrap());
    let shapes = [("x", Shape::from([2usize, 16, 12, 12]))];
    // Both graphs have the same nodes, no transposes, and the same memory: one tensor, overwritten.
    let nodes = |session: &Session| {
        let nodes = session.placement(&shapes).unwrap().into_iter().map(|node| node.op);
        nodes.map(|op| if op == "Squash" { "Softsign".into() } else { op }).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&ours), nodes(&theirs));
    let [a, b] = [&ours, &theirs].map(|session| session.memory(&shapes).unwrap());
    assert_eq!((a.arena_bytes, a.tensors), (b.arena_bytes, b.tensors));
    assert!(ours.rows_are_independent() && theirs.rows_are_independent());
    let x = noise(&[2, 16, 12, 12]);
    let [a, b] = [&ours, &theirs].map(|session| session.run(&[("x", x.view())]).unwrap());
    let (a, b) = (a[0].tensor.as_slice::<f32>().unwrap(), b[0].tensor.as_slice::<f32>().unwrap());
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn its_facts_are_held_against_what_it_does() {
    let complaints = check_facts(&Squash, &[Some(noise(&[3, 4]))], 1).unwrap();
    assert_eq!(complaints, [] as [&str; 0]);
}

#[test]
fn an_operator_that_no_one_added_is_named() {
    let error = Session::new(model("my.domain::Squash"), SessionOptions::with_threads(1));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("Squash") && error.contains("my.domain"), "{error}");
    let refused = Operators::new().with("my.domain", "Squash", |_| Err("not today".to_owned()));
    let model = model("my.domain::Squash").with_operators(refused);
    let error = Session::new(model, SessionOptions::with_threads(1)).unwrap_err().to_string();
    assert!(error.contains("not today"), "{error}");
}
