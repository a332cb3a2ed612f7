//! Branches, loops and scans.

use crate::model::{Attr, Model, ModelNode, Subgraph, ValueSpec};
use crate::{Error, Result, RunOptions, Session, SessionOptions, Stop, Stopped};
use lgp_memory::{DType, Datum, SymShape, Tensor, TensorType, TensorView};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|s| (*s).to_owned()).collect()
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: Vec<(&str, Attr)>) -> ModelNode {
    ModelNode {
        name: format!("{op}_node"),
        op_type: op.to_owned(),
        domain: String::new(),
        inputs: strings(inputs),
        outputs: strings(outputs),
        attributes: attributes.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
    }
}

fn graph(inputs: &[&str], outputs: &[&str], nodes: Vec<ModelNode>) -> Attr {
    let graph = Subgraph {
        name: "inner".into(),
        inputs: strings(inputs),
        outputs: strings(outputs),
        initializers: BTreeMap::new(),
        nodes,
        captures: Vec::new(),
    };
    Attr::Graph(Arc::new(graph.validated().unwrap()))
}

fn session(inputs: &[(&str, DType)], output: DType, nodes: Vec<ModelNode>) -> Result<Session> {
    let spec = |name: &str, dtype| ValueSpec::tensor(name, TensorType { dtype, shape: None });
    let mut inputs: Vec<ValueSpec> = inputs.iter().map(|(name, d)| spec(name, *d)).collect();
    for input in &mut inputs {
        if matches!(input.ty.dtype, DType::Bool | DType::I64) {
            input.ty.shape = Some(SymShape(vec![]));
        }
    }
    let model = Model {
        name: "m".into(),
        producer: String::new(),
        ir_version: 8,
        opsets: [(String::new(), 18)].into(),
        metadata: BTreeMap::new(),
        inputs,
        defaults: Vec::new(),
        outputs: vec![spec("y", output)],
        initializers: [("w".to_owned(), Tensor::from_slice([2], &[10f32, 20.])?)].into(),
        nodes,
        operators: Default::default(),
    }
    .validated()?;
    Session::new(&model, SessionOptions::with_threads(1))
}

/// Adds `x` and the stored `w` of the model around it, or passes `x` on.
fn branches() -> Vec<ModelNode> {
    let add = graph(&[], &["a"], vec![node("Add", &["x", "w"], &["a"], vec![])]);
    let pass = graph(&[], &["b"], vec![node("Identity", &["x"], &["b"], vec![])]);
    vec![node("If", &["c"], &["y"], vec![("then_branch", add), ("else_branch", pass)])]
}

#[test]
fn one_branch_runs_on_what_is_around_it() -> Result<()> {
    let session = session(&[("c", DType::Bool), ("x", DType::F32)], DType::F32, branches())?;
    let x = Tensor::from_slice([2], &[1f32, 2.])?;
    for (condition, expected) in [(true, [11f32, 22.]), (false, [1., 2.])] {
        let c = Tensor::scalar(condition)?;
        let out = session.run(&[("c", c.view()), ("x", x.view())])?;
        assert_eq!(out[0].tensor.as_slice::<f32>()?, expected);
    }
    let wrong = session.run(&[("c", Tensor::from_slice([2], &[true; 2])?.view()), ("x", x.view())]);
    assert!(matches!(wrong, Err(Error::InputShape { .. })));
    Ok(())
}

/// A loop that doubles `v` and does not end by itself: `keep` passes `go` on, which is true.
fn endless() -> Vec<ModelNode> {
    let body = graph(
        &["i", "go", "v"],
        &["keep", "out", "out2"],
        vec![
            node("Add", &["v", "v"], &["out"], vec![]),
            node("Identity", &["out"], &["out2"], vec![]),
            node("Identity", &["go"], &["keep"], vec![]),
        ],
    );
    vec![
        node("Loop", &["m", "c", "x"], &["last", "all"], vec![("body", body)]),
        node("Concat", &["all", "last"], &["y"], vec![("axis", Attr::Int(0))]),
    ]
}

#[test]
fn loops_hand_on_and_collect() -> Result<()> {
    let inputs = [("m", DType::I64), ("c", DType::Bool), ("x", DType::F32)];
    let session = session(&inputs, DType::F32, endless())?;
    let run = |m: i64, c: bool| {
        let (m, c, x) =
            (Tensor::scalar(m)?, Tensor::scalar(c)?, Tensor::from_slice([1, 1], &[1f32])?);
        session.run_data(vec![("m", m.into()), ("c", c.into()), ("x", x.into())])
    };
    // The collected values have one axis more, so joining them with a value that is handed on
    // fails.
    let error = run(3, true).unwrap_err().to_string();
    assert!(error.starts_with("node 'Concat_node' (Concat)"), "{error}");
    Ok(())
}

#[test]
fn a_loop_without_end_ends_when_it_is_asked_to() -> Result<()> {
    let nodes = endless().into_iter().take(1).map(|mut n| {
        n.outputs = strings(&["y", ""]);
        n
    });
    let inputs = [("m", DType::I64), ("c", DType::Bool), ("x", DType::F32)];
    let session = session(&inputs, DType::F32, nodes.collect())?;
    let (m, c, x) = (Tensor::scalar(i64::MAX)?, Tensor::scalar(true)?, Tensor::scalar(0f32)?);
    let given: [(&str, TensorView<'_>); 3] = [("m", m.view()), ("c", c.view()), ("x", x.view())];
    let soon = Stop::at(Instant::now() + Duration::from_millis(20));
    let stopped = session.run_with(&given, RunOptions::new().until(&soon));
    assert!(matches!(stopped, Err(Error::Stopped(Stopped::Deadline))), "{stopped:?}");
    let stop = Stop::new();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| session.run_with(&given, RunOptions::new().until(&stop)));
        std::thread::sleep(Duration::from_millis(20));
        stop.stop();
        let stopped = run.join().expect("the run does not panic");
        assert!(matches!(stopped, Err(Error::Stopped(Stopped::Cancelled))), "{stopped:?}");
    });
    let three = Tensor::scalar(3i64)?;
    let x = Tensor::scalar(1f32)?;
    let out = session.run(&[("m", three.view()), ("c", c.view()), ("x", x.view())])?;
    assert_eq!(out[0].tensor.as_slice::<f32>()?, [8.]);
    Ok(())
}

/// A loop that begins with the stored `w` and adds the result of the loop inside it.
fn nested(level: usize) -> ModelNode {
    let [go, own, out, keep] = ["go", "c", "o", "k"].map(|name| format!("{name}{level}"));
    let mut nodes = vec![node("Identity", &[&go], &[&keep], vec![])];
    let other = if level == 0 {
        own.clone()
    } else {
        nodes.push(nested(level - 1));
        format!("l{}", level - 1)
    };
    nodes.push(node("Concat", &[&own, &other], &[&out], vec![("axis", Attr::Int(0))]));
    let body = graph(&[&format!("i{level}"), &go, &own], &[&keep, &out], nodes);
    node("Loop", &["m", "", "w"], &[&format!("l{level}")], vec![("body", body)])
}

/// Each loop changes the shape of its first value: inferring every loop twice would take 2 to the
/// power of 30 steps.
#[test]
fn loops_within_loops_are_no_work() -> Result<()> {
    let nodes = vec![nested(29), node("Identity", &["l29"], &["y"], vec![])];
    let session = session(&[("m", DType::I64)], DType::F32, nodes)?;
    let one = Tensor::scalar(1i64)?;
    let out = session.run(&[("m", one.view())])?;
    assert_eq!(out[0].tensor.shape().dims(), [2 * 31]);
    Ok(())
}

/// A sequence of i64 that is empty at first: its elements must not be taken for floats.
#[test]
fn empty_sequences_keep_their_dtype() -> Result<()> {
    let first = graph(&[], &["t"], vec![node("SequenceAt", &["s", "zero"], &["t"], vec![])]);
    let count = graph(&[], &["e"], vec![node("Identity", &["i"], &["e"], vec![])]);
    let body = graph(
        &["i", "go", "s"],
        &["keep", "out"],
        vec![
            node("Identity", &["go"], &["keep"], vec![]),
            node("Sub", &["i", "i"], &["zero"], vec![]),
            node("SequenceLength", &["s"], &["n"], vec![]),
            node("Greater", &["n", "zero"], &["has"], vec![]),
            node("If", &["has"], &["v"], vec![("then_branch", first), ("else_branch", count)]),
            node("Add", &["v", "i"], &["w1"], vec![]),
            node("SequenceInsert", &["s", "w1"], &["out"], vec![]),
        ],
    );
    let nodes = vec![
        node("SequenceEmpty", &[], &["s0"], vec![("dtype", Attr::Int(7))]),
        node("Loop", &["m", "", "s0"], &["all"], vec![("body", body)]),
        node(
            "ConcatFromSequence",
            &["all"],
            &["y"],
            vec![("axis", Attr::Int(0)), ("new_axis", Attr::Int(1))],
        ),
    ];
    let session = session(&[("m", DType::I64)], DType::I64, nodes)?;
    let out = session.run(&[("m", Tensor::scalar(3i64)?.view())])?;
    assert_eq!(out[0].tensor.as_slice::<i64>()?, [0, 1, 2]);
    Ok(())
}

#[test]
fn scans_of_nothing_are_empty() -> Result<()> {
    let body = graph(
        &["state", "slice"],
        &["sum", "each"],
        vec![
            node("Add", &["state", "slice"], &["sum"], vec![]),
            node("Concat", &["slice", "slice"], &["each"], vec![("axis", Attr::Int(0))]),
        ],
    );
    let attributes = vec![
        ("num_scan_inputs", Attr::Int(1)),
        ("scan_output_axes", Attr::Ints(vec![1])),
        ("body", body),
    ];
    let nodes = vec![node("Scan", &["w", "x"], &["last", "y"], attributes)];
    let session = session(&[("x", DType::F32)], DType::F32, nodes)?;
    for (count, want) in [(0, [4, 0]), (3, [4, 3])] {
        let x = Tensor::zeros(DType::F32, [count, 2])?;
        let out = session.run(&[("x", x.view())])?;
        assert_eq!(out[0].tensor.shape().dims(), want);
    }
    Ok(())
}

#[test]
fn a_loop_over_nothing_notices_too() -> Result<()> {
    let copies =
        ["c", "x"].map(|name| node("Identity", &[name], &[&format!("{name}_out")], vec![]));
    let body = graph(&["i", "c", "x"], &["c_out", "x_out"], copies.into());
    let nodes = vec![node("Loop", &["", "go", "x0"], &["y"], vec![("body", body)])];
    let session = session(&[("go", DType::Bool), ("x0", DType::F32)], DType::F32, nodes)?;
    let (go, x) = (Tensor::scalar(true)?, Tensor::scalar(0f32)?);
    let soon = Stop::at(Instant::now() + Duration::from_millis(20));
    let given = [("go", go.view()), ("x0", x.view())];
    let stopped = session.run_with(&given, RunOptions::new().until(&soon));
    assert!(matches!(stopped, Err(Error::Stopped(Stopped::Deadline))), "{stopped:?}");
    Ok(())
}

#[test]
fn what_an_inner_graph_lacks_is_told() {
    let unknown = graph(&[], &["a"], vec![node("Nonsense", &["x"], &["a"], vec![])]);
    let pass = graph(&[], &["b"], vec![node("Identity", &["x"], &["b"], vec![])]);
    let nodes =
        vec![node("If", &["c"], &["y"], vec![("then_branch", unknown), ("else_branch", pass)])];
    let error = session(&[("c", DType::Bool), ("x", DType::F32)], DType::F32, nodes).unwrap_err();
    assert_eq!(error.to_string(), "1 operator is not supported: Nonsense (node 'Nonsense_node')");
    let reads = graph(&[], &["a"], vec![node("Add", &["x", "nowhere"], &["a"], vec![])]);
    let pass = graph(&[], &["b"], vec![node("Identity", &["x"], &["b"], vec![])]);
    let nodes =
        vec![node("If", &["c"], &["y"], vec![("then_branch", reads), ("else_branch", pass)])];
    let error = session(&[("c", DType::Bool), ("x", DType::F32)], DType::F32, nodes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid graph: node 'If_node' (If) reads 'nowhere', which nothing defines"
    );
}

#[test]
fn values_of_any_kind_go_in_and_out() -> Result<()> {
    let nodes = vec![
        node("SequenceConstruct", &["x", "x"], &["s"], vec![]),
        node("SequenceLength", &["s"], &["y"], vec![]),
    ];
    let session = session(&[("x", DType::F32)], DType::I64, nodes)?;
    let x = Datum::from(Tensor::scalar(1f32)?);
    let out = session.run_data(vec![("x", x.clone())])?;
    assert_eq!(out[0], ("y".to_owned(), Tensor::scalar(2i64)?.into()));
    let error = session.run_data(vec![("x", Datum::Sequence(vec![x]))]).unwrap_err().to_string();
    assert_eq!(error, "input 'x' is a sequence, expected f32 of unknown rank");
    Ok(())
}
