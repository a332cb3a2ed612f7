//! Sessions: their results, with any callers and any number of threads.

#[path = "../../examples/zoo/blocks.rs"]
mod blocks;
#[path = "../../examples/zoo/decoder.rs"]
mod decoder;
mod decoding;
#[path = "../../examples/zoo/nets.rs"]
mod nets;
mod options;
#[path = "../../examples/zoo/transformer.rs"]
mod transformer;

use lgp_inference::{Error, GraphBuilder, Result, Session, SessionOptions};
use lgp_memory::{DType, Dim, NamedTensor, SymShape, Tensor, TensorType, TensorView};

fn ty(dims: &[Option<usize>]) -> TensorType {
    let dims = dims.iter().map(|d| d.map_or(Dim::Symbol("n".into()), Dim::Known));
    TensorType { dtype: DType::F32, shape: Some(SymShape(dims.collect())) }
}

/// Numbers that look random and are the same everywhere.
fn image(batch: usize) -> Result<Tensor> {
    let shape = [batch, 3, 64, 64];
    let data: Vec<f32> = (0..shape.iter().product::<usize>())
        .map(|k| ((k * 7919 % 10007) as f32 / 5003.) - 1.)
        .collect();
    Ok(Tensor::from_slice(shape, &data)?)
}

fn run(session: &Session, x: &Tensor) -> Result<Vec<NamedTensor>> {
    session.run(&[("input", x.view())])
}

#[test]
fn threads_change_nothing() -> Result<()> {
    for (name, net) in nets::ALL {
        let model = net(nets::Size::Tiny)?;
        let one = Session::new(&model, SessionOptions::with_threads(1))?;
        let three = Session::new(&model, SessionOptions::with_threads(3))?;
        let x = image(2)?;
        let expected = run(&one, &x)?;
        let y = &expected[0].tensor;
        assert_eq!(y.shape().dims(), [2, 125]);
        let finite = y.as_slice::<f32>()?.iter().all(|v| v.is_finite());
        assert!(finite && y.as_slice::<f32>()?.iter().any(|&v| v != 0.), "{name}");
        assert_eq!(run(&three, &x)?, expected, "{name}");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(run(&three, &x).unwrap(), expected));
            }
        });
    }
    Ok(())
}

#[test]
fn plans_foretell_what_runs_take() -> Result<()> {
    for (name, net) in nets::ALL.iter().chain(&blocks::BLOCKS) {
        for threads in [1, 3] {
            let model = net(nets::Size::Tiny)?;
            let session = Session::new(&model, SessionOptions::with_threads(threads))?;
            let x = image(16)?;
            let plan = session.memory(&[("input", x.shape().clone())])?;
            assert_eq!(plan.unknown, 0, "{name}");
            let peak = |_| -> Result<f64> {
                let kept = run(&session, &x)?;
                drop(kept);
                Ok(session.pool_stats().high_water_bytes as f64)
            };
            // A second run reuses the plan, and takes no more memory.
            let measured = peak(0)?.max(peak(1)?);
            let planned = plan.peak_bytes - plan.weights_bytes - plan.input_bytes;
            let fixed = (plan.weights_bytes + plan.input_bytes) as f64;
            let ratio = (measured + fixed) / (planned as f64 + fixed);
            assert!((0.95..1.05).contains(&ratio), "{name}: {measured} of {plan:?}");
        }
    }
    Ok(())
}

/// Convolutions of few weights on large images: a batch runs image by image.
#[test]
fn plans_foretell_what_batches_take() -> Result<()> {
    let mut g = GraphBuilder::new("g");
    let mut x = g.input("input", ty(&[None, Some(3), Some(96), Some(96)]));
    for (name, dims) in [("w", [8, 3, 3, 3]), ("v", [16, 8, 3, 3]), ("u", [4, 16, 3, 3])] {
        let values: Vec<f32> = (0..dims.iter().product()).map(|i| (i % 5) as f32 - 2.).collect();
        let weight = g.initializer(name, Tensor::from_slice(dims, &values)?);
        x = g.node("Conv", &[x, weight], []);
    }
    let x = g.node("GlobalAveragePool", &[x], []);
    g.output("y", x, ty(&[None, Some(4), Some(1), Some(1)]));
    let model = g.finish()?;
    for (threads, batch) in [(1, 1), (1, 6), (2, 6), (3, 7)] {
        let session = Session::new(&model, SessionOptions::with_threads(threads))?;
        let x = Tensor::from_slice([batch, 3, 96, 96], &vec![0.5f32; batch * 3 * 96 * 96])?;
        let plan = session.memory(&[("input", x.shape().clone())])?;
        let planned = (plan.peak_bytes - plan.weights_bytes - plan.input_bytes) as f64;
        let mut ratio = 0.0;
        // On a busy machine a thread may come too late for its share of a run.
        for _ in 0..200 {
            drop(run(&session, &x)?);
            ratio = session.pool_stats().high_water_bytes as f64 / planned;
            if ratio >= 0.95 {
                break;
            }
        }
        assert!((0.95..1.05).contains(&ratio), "{threads} {batch}: {ratio} of {plan:?}");
    }
    Ok(())
}

/// Halves are computed through copies in f32, which the pool sees.
#[test]
fn plans_foretell_what_halves_take() -> Result<()> {
    let half = |dims: &[usize]| TensorType::concrete(DType::F16, &dims.into());
    let zeros = |dims: &[usize]| Tensor::zeros(DType::F16, dims);
    let mut conv = GraphBuilder::new("g");
    let x = conv.input("input", half(&[1, 8, 64, 64]));
    let w = conv.initializer("w", zeros(&[16, 8, 3, 3])?);
    let y = conv.node("Conv", &[x, w], []);
    conv.output("y", y, half(&[1, 16, 62, 62]));
    let mut attention = GraphBuilder::new("g").with_opset(24);
    let x = attention.input("input", half(&[1, 4, 96, 32]));
    let y = attention.node("Attention", &[x, x, x], []);
    attention.output("y", y, half(&[1, 4, 96, 32]));
    let cases = [(conv, vec![1, 8, 64, 64]), (attention, vec![1, 4, 96, 32])];
    for (graph, dims) in cases {
        let session = Session::new(&graph.finish()?, SessionOptions::with_threads(1))?;
        let plan = session.memory(&[("input", dims.as_slice().into())])?;
        drop(run(&session, &zeros(&dims)?)?);
        let taken = session.pool_stats().high_water_bytes as f64;
        let planned = (plan.peak_bytes - plan.weights_bytes - plan.input_bytes) as f64;
        // Some memory is free again before the result is rounded to halves.
        assert!((0.85..1.05).contains(&(taken / planned)), "{taken} of {plan:?}");
    }
    Ok(())
}

#[test]
fn samples_of_a_batch_do_not_touch_each_other() -> Result<()> {
    let session =
        Session::new(&nets::ALL[2].1(nets::Size::Tiny)?, SessionOptions::with_threads(1))?;
    let two = image(2)?;
    let one = image(1)?;
    let (two, one) = (run(&session, &two)?, run(&session, &one)?);
    let (two, one) = (two[0].tensor.as_slice::<f32>()?, one[0].tensor.as_slice::<f32>()?);
    for (a, b) in one.iter().zip(two) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    Ok(())
}

#[test]
fn folding_the_normalisation_changes_the_numbers_little() -> Result<()> {
    // The same network with an Identity that keeps each convolution's result in use, so that
    // nothing is folded, would be another graph: compare with the closed form instead.
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(&[None, Some(1), Some(1), Some(1)]));
    let w = g.initializer("w", Tensor::from_slice([1, 1, 1, 1], &[3f32])?);
    let y = g.node("Conv", &[x, w], []);
    let one = |g: &mut GraphBuilder, name: &str, v: f32| {
        Ok::<_, Error>(g.initializer(name, Tensor::from_slice([1], &[v])?))
    };
    let inputs = [
        y,
        one(&mut g, "scale", 0.7)?,
        one(&mut g, "shift", 0.1)?,
        one(&mut g, "mean", -0.4)?,
        one(&mut g, "variance", 2.3)?,
    ];
    let y = g.node("BatchNormalization", &inputs, []);
    g.output("y", y, ty(&[None, Some(1), Some(1), Some(1)]));
    let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
    let y = session.run(&[("x", TensorView::from_slice([1, 1, 1, 1], &[1.3f32])?)])?;
    let expected = (3. * 1.3 + 0.4) / (2.3f64 + 1e-5).sqrt() * 0.7 + 0.1;
    assert!((f64::from(y[0].tensor.as_slice::<f32>()?[0]) - expected).abs() < 1e-6);
    Ok(())
}

#[test]
fn outputs_may_be_inputs_or_constants() -> Result<()> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(&[None]));
    let w = g.initializer("w", Tensor::from_slice([1], &[5f32])?);
    g.output("same", x, ty(&[None]));
    g.output("stored", w, ty(&[Some(1)]));
    let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
    let y = session.run(&[("x", TensorView::from_slice([2], &[1f32, 2.])?)])?;
    assert_eq!(y[0], NamedTensor::new("same", Tensor::from_slice([2], &[1f32, 2.])?));
    assert_eq!(y[1], NamedTensor::new("stored", Tensor::from_slice([1], &[5f32])?));
    Ok(())
}

#[test]
fn what_is_not_a_number_flows_through() -> Result<()> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(&[None]));
    let y = g.node("Add", &[x, x], []);
    g.output("y", y, ty(&[None]));
    let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
    let y = session.run(&[("x", TensorView::from_slice([4], &x)?)])?;
    let y = y[0].tensor.as_slice::<f32>()?;
    assert!(y[0].is_nan());
    assert_eq!(y[1..], [f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
    Ok(())
}

#[test]
fn an_empty_batch_is_a_batch() -> Result<()> {
    let session =
        Session::new(&nets::ALL[2].1(nets::Size::Tiny)?, SessionOptions::with_threads(1))?;
    let y = run(&session, &Tensor::zeros(DType::F32, [0, 3, 64, 64])?)?;
    assert_eq!(y[0].tensor.shape().dims(), [0, 125]);
    Ok(())
}

#[test]
fn types_of_outputs_are_inferred() -> Result<()> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(&[None, Some(3), Some(8), Some(8)]));
    let w = g.initializer("w", Tensor::zeros(DType::F32, [5, 3, 3, 3])?);
    let y = g.node("Conv", &[x, w], [("strides", [2, 2].into())]);
    let shape = g.node("Shape", &[y], []);
    let n = g.initializer("0", Tensor::from_slice([1], &[0i64])?);
    let n = g.node("Gather", &[shape, n], []);
    let rest = g.initializer("rest", Tensor::from_slice([1], &[-1i64])?);
    let shape = g.node("Concat", &[n, rest], [("axis", 0.into())]);
    let flat = g.node("Reshape", &[y, shape], []);
    let unknown = TensorType { dtype: DType::F32, shape: None };
    g.output("y", y, unknown.clone());
    g.output("flat", flat, unknown);
    let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
    let types: Vec<String> = session.outputs().iter().map(|o| o.ty.to_string()).collect();
    assert_eq!(types, ["f32 [n,5,3,3]", "f32 [n,45]"]);
    let y = session.run(&[("x", Tensor::zeros(DType::F32, [2, 3, 8, 8])?.view())])?;
    assert_eq!(y[1].tensor.shape().dims(), [2, 45]);
    Ok(())
}

#[test]
fn a_node_that_cannot_fit_is_named() -> Result<()> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(&[None, Some(4)]));
    let w = g.initializer("w", Tensor::zeros(DType::F32, [5, 2])?);
    let y = g.node("MatMul", &[x, w], []);
    g.output("y", y, ty(&[None, Some(2)]));
    let error = Session::new(g.finish()?, SessionOptions::with_threads(1)).unwrap_err();
    assert!(error.to_string().starts_with("node 'MatMul_0' (MatMul): "), "{error}");

    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(&[None, Some(4)]));
    g.output("y", x, TensorType { dtype: DType::I64, shape: None });
    let error = Session::new(g.finish()?, SessionOptions::with_threads(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid graph: output 'y' is declared i64, but its value is f32"
    );
    Ok(())
}

#[test]
fn wrong_inputs_are_refused_before_anything_runs() -> Result<()> {
    let session =
        Session::new(&nets::ALL[0].1(nets::Size::Tiny)?, SessionOptions::with_threads(1))?;
    let x = Tensor::zeros(DType::F32, [1, 3, 64, 63])?;
    assert_eq!(
        run(&session, &x).unwrap_err().to_string(),
        "input 'input' has shape [1, 3, 64, 63], expected [batch,3,64,64]: dimension 3 is 63, \
         expected 64"
    );
    assert!(matches!(session.run(&[]), Err(Error::MissingInput { .. })));
    Ok(())
}

/// `y = relu(x)` with a batch dimension.
fn batched() -> Session {
    let shape = SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2)]);
    let ty = TensorType { dtype: DType::F32, shape: Some(shape) };
    let mut g = GraphBuilder::new("relu");
    let x = g.input("x", ty.clone());
    let y = g.node("Relu", &[x], []);
    let y = g.node("Neg", &[y], []);
    g.output("y", y, ty);
    Session::new(g.finish().unwrap(), SessionOptions::with_threads(1)).unwrap()
}

fn request(rows: &[f32]) -> Vec<NamedTensor> {
    vec![NamedTensor::new("x", Tensor::from_slice([rows.len() / 2, 2], rows).unwrap())]
}

#[test]
fn requests_share_a_run() {
    let session = batched();
    let requests = [request(&[1., -2.]), request(&[]), request(&[3., 4., -5., 6.])];
    let answers = session.run_batch(&requests).unwrap();
    let values: Vec<&[f32]> =
        answers.iter().map(|a| a[0].tensor.as_slice::<f32>().unwrap()).collect();
    assert_eq!(values, [&[-1f32, -0.][..], &[], &[-3., -4., -0., -6.]]);
    assert!(session.run_batch(&[]).unwrap().is_empty());
    let twice = [request(&[1., 2.]), request(&[3., 4.])].concat();
    let mut more = request(&[1., 2.]);
    more.push(NamedTensor::new("z", Tensor::zeros(DType::F32, [1, 2]).unwrap()));
    for other in [vec![more[1].clone()], more, twice, vec![]] {
        let error = session.run_batch(&[request(&[1., 2.]), other]).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("request 1 gives") && message.contains("'x'"), "{message}");
    }
}

#[test]
fn a_batch_whose_outputs_have_other_rows_is_refused() {
    let shape = SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2)]);
    let ty = TensorType { dtype: DType::F32, shape: Some(shape) };
    let mut g = GraphBuilder::new("twice");
    let x = g.input("x", ty.clone());
    let y = g.node("Concat", &[x, x], [("axis", 0.into())]);
    g.output("y", y, ty);
    let session = Session::new(g.finish().unwrap(), SessionOptions::with_threads(1)).unwrap();
    let error = session.run_batch(&[request(&[1., 2.]), request(&[3., 4.])]).unwrap_err();
    assert!(error.to_string().contains("shape [4, 2], expected 2 rows (n)"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_value_larger_than_what_is_free_is_refused_before_it_is_made() -> Result<()> {
    let mut g = GraphBuilder::new("zeros");
    let shape = g.input("shape", TensorType { dtype: DType::I64, ..ty(&[Some(1)]) });
    let y = g.node("ConstantOfShape", &[shape], []);
    g.output("y", y, ty(&[None]));
    let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
    let zeros = |count: i64| {
        let shape = Tensor::from_slice([1], &[count])?;
        session.run(&[("shape", shape.view())])
    };
    let free = lgp_hal::host_free_bytes().expect("the system says it");
    // This many f32 take five quarters of the free memory.
    let refused = zeros(i64::try_from(free / 16 * 5).unwrap()).expect_err("it does not fit");
    assert!(refused.to_string().contains("cannot allocate"), "{refused}");
    assert_eq!(zeros(3)?[0].tensor.as_slice::<f32>()?, [0.; 3]);
    Ok(())
}

#[test]
fn a_task_is_a_future() {
    use std::task::{Context, Poll, Waker};
    let session = std::sync::Arc::new(batched());
    let mut task = std::pin::pin!(session.start(request(&[1., -2.])).unwrap());
    let begin = std::time::Instant::now();
    let outputs = loop {
        let mut cx = Context::from_waker(Waker::noop());
        match std::future::Future::poll(task.as_mut(), &mut cx) {
            Poll::Ready(result) => break result.unwrap(),
            Poll::Pending => assert!(begin.elapsed().as_secs() < 60, "the task never ends"),
        }
    };
    assert_eq!(outputs[0].tensor.as_slice::<f32>().unwrap(), [-1., -0.]);
    // The run no longer holds the session, and its result was given away.
    assert_eq!(std::sync::Arc::strong_count(&session), 1);
    let again = std::future::Future::poll(task.as_mut(), &mut Context::from_waker(Waker::noop()));
    assert!(matches!(again, Poll::Ready(Err(Error::Task { .. }))), "{again:?}");
    let wrong = session.start(vec![]).unwrap().wait();
    assert!(matches!(wrong, Err(Error::MissingInput { .. })), "{wrong:?}");
}
