//! Runs with options: every kind of run can be stopped, and reports the time of its nodes.

use crate::{batched, request};
use lgp_inference::{
    Error, GraphBuilder, Profile, Result, RunOptions, Session, SessionOptions, Stop, Stopped,
};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use std::time::Instant;

type Kind = fn(&Session, &Tensor, RunOptions<'_>) -> Result<()>;

/// Each kind of run, on a model with the input `x`.
const KINDS: [(&str, Kind); 5] = [
    ("tensors", |session, x, options| session.run_with(&[("x", x.view())], options).map(drop)),
    ("any", |session, x, options| session.run_any_with(&[("x", x.view())], options).map(drop)),
    ("data", |session, x, options| {
        session.run_data_with(vec![("x", x.clone().into())], options).map(drop)
    }),
    ("batch", |session, x, options| {
        let requests = [request(x.as_slice::<f32>()?), request(&[3., -4.])];
        session.run_batch_with(&requests, options).map(drop)
    }),
    ("binding", |session, x, options| {
        let mut binding = session.binding();
        binding.bind("x", x.clone())?;
        binding.run_with(options)
    }),
];

fn row() -> Result<Tensor> {
    Ok(Tensor::from_slice([1, 2], &[1f32, -2.])?)
}

fn ops(profile: &Profile) -> Vec<&'static str> {
    profile.nodes.iter().map(|node| node.op).collect()
}

#[test]
fn every_kind_of_run_ends_when_it_is_asked_to() -> Result<()> {
    let (session, x) = (batched(), row()?);
    let passed = Stop::at(Instant::now());
    for (kind, run) in KINDS {
        let stopped = run(&session, &x, RunOptions::new().until(&passed));
        let ended = matches!(stopped, Err(Error::Stopped(Stopped::Deadline)));
        assert!(ended, "{kind}: {stopped:?}");
    }
    Ok(())
}

#[test]
fn every_kind_of_run_names_its_nodes() -> Result<()> {
    let (session, x, stop) = (batched(), row()?, Stop::new());
    let mut profile = Profile::default();
    for (kind, run) in KINDS {
        run(&session, &x, RunOptions::new().profile(&mut profile))?;
        assert_eq!(ops(&profile), ["Relu", "Neg"], "{kind}");
        run(&session, &x, RunOptions::new().trace(&mut profile).until(&stop))?;
        assert_eq!(ops(&profile), ["Relu", "Neg"], "{kind}");
    }
    Ok(())
}

#[test]
fn a_profile_names_every_node_that_ran() -> Result<()> {
    let x = row()?;
    let mut profile = Profile::default();
    let options = RunOptions::new().profile(&mut profile);
    let outputs = batched().run_with(&[("x", x.view())], options)?;
    assert_eq!(outputs[0].tensor.as_slice::<f32>()?, [-1., -0.]);
    assert_eq!(ops(&profile), ["Relu", "Neg"]);
    assert_eq!((profile.nodes[0].bytes_read, profile.nodes[0].bytes_written), (8, 8));
    assert!(profile.nodes[1].start >= profile.nodes[0].start + profile.nodes[0].duration);
    assert!(profile.overhead() <= profile.total);
    assert_eq!(profile.by_operator().len(), 2);
    Ok(())
}

#[test]
fn a_run_that_fails_leaves_its_profile_empty() -> Result<()> {
    let (session, x) = (batched(), row()?);
    let wide = Tensor::zeros(DType::F32, [1, 3])?;
    let mut profile = Profile::default();
    for (kind, run) in KINDS {
        run(&session, &x, RunOptions::new().profile(&mut profile))?;
        assert!(!profile.nodes.is_empty(), "{kind}");
        // The batch makes its own requests. Its failure is tested below.
        if kind != "batch" {
            let refused = run(&session, &wide, RunOptions::new().profile(&mut profile));
            assert!(refused.is_err() && profile == Profile::default(), "{kind}: {refused:?}");
        }
    }
    let shape = SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2)]);
    let ty = TensorType { dtype: DType::F32, shape: Some(shape) };
    let mut g = GraphBuilder::new("twice");
    let x = g.input("x", ty.clone());
    let y = g.node("Concat", &[x, x], [("axis", 0.into())]);
    g.output("y", y, ty);
    let twice = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
    let requests = [request(&[1., 2.])];
    let refused = twice.run_batch_with(&requests, RunOptions::new().trace(&mut profile));
    assert!(matches!(refused, Err(Error::Batch { .. })), "{refused:?}");
    assert_eq!(profile, Profile::default(), "all its nodes ran, and it has no answer");
    Ok(())
}

/// Independent images, with enough convolution that running them one by one pays.
fn images() -> Result<Session> {
    let dims = [Dim::Symbol("n".into()), Dim::Known(3), Dim::Known(16), Dim::Known(16)];
    let shape = Some(SymShape(dims.into()));
    let mut g = GraphBuilder::new("images");
    let x = g.input("x", TensorType { dtype: DType::F32, shape });
    let weights: Vec<f32> = (0..8 * 3 * 9).map(|i| (i % 7) as f32 - 3.).collect();
    let w = g.initializer("w", Tensor::from_slice([8, 3, 3, 3], &weights)?);
    let y = g.node("Conv", &[x, w], []);
    let y = g.node("Relu", &[y], []);
    let y = g.node("GlobalAveragePool", &[y], []);
    let y = g.node("Flatten", &[y], []);
    g.output("y", y, TensorType { dtype: DType::F32, shape: None });
    Session::new(g.finish()?, SessionOptions::with_threads(1))
}

#[test]
fn a_profile_runs_a_batch_as_a_whole_and_a_trace_does_not() -> Result<()> {
    let session = images()?;
    let mut profile = Profile::default();
    // Three images run one by one; a single image runs as a whole anyway.
    for (batch, traced) in [(3, false), (1, true)] {
        let data: Vec<f32> = (0..batch * 3 * 256).map(|i| ((i * 31) % 101) as f32).collect();
        let x = Tensor::from_slice([batch, 3, 16, 16], &data)?;
        let given = [("x", x.view())];
        let plain = session.run(&given)?;
        let whole = session.run_with(&given, RunOptions::new().profile(&mut profile))?;
        assert!(!profile.nodes.is_empty(), "{batch}");
        assert_eq!(whole, plain, "{batch}");
        let nodes = profile.nodes.len();
        let same = session.run_with(&given, RunOptions::new().trace(&mut profile))?;
        assert_eq!(profile.nodes.len(), if traced { nodes } else { 0 }, "{batch}");
        assert_eq!(same, plain, "{batch}");
    }
    Ok(())
}
