//! The pass keeps the results of graphs; transposes stand at borders only.

use super::ChannelsLast;
use crate::graph::{Graph, ValueId};
use crate::passes::tests::{f32_type, graph_of};
use crate::passes::{Pass, dead_code::DeadCodeElimination, epilogue::Epilogues};
use crate::passes::{constant_folding::ConstantFolding, transpose::TransposeJoining};
use crate::{Attr, GraphBuilder, Result, Value};
use lgp_compute::Context;
use lgp_memory::{Tensor, TensorView};
use std::collections::HashMap;

/// Noise from -1 to 1.
fn noise(dims: &[usize], seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1u32 << 23) as f32 - 1.
        })
        .collect();
    Tensor::from_slice(dims, &values).expect("it is small")
}

/// The graph's outputs, computed node by node.
fn evaluate(graph: &Graph, x: &Tensor) -> Result<Vec<Tensor>> {
    let ctx = Context::new(1);
    let mut values: HashMap<ValueId, Tensor> = HashMap::from([(graph.inputs[0], x.clone())]);
    let get = |values: &HashMap<ValueId, Tensor>, id: ValueId| {
        graph.constant(id).or_else(|| values.get(&id)).expect("in order").clone()
    };
    for node in &graph.nodes {
        let inputs: Vec<Option<Tensor>> =
            node.inputs.iter().map(|id| id.map(|id| get(&values, id))).collect();
        let views: Vec<Option<TensorView<'_>>> =
            inputs.iter().map(|x| x.as_ref().map(Tensor::view)).collect();
        let made = node.op.run(&ctx, &views).map_err(|e| crate::graph::node_error(node, e))?;
        for (id, tensor) in node.outputs.iter().zip(made) {
            id.map(|id| values.insert(id, tensor));
        }
    }
    Ok(graph.outputs.iter().map(|(_, id)| get(&values, *id)).collect())
}

/// A convolution of 3×3 from `c` to `m` channels that keeps the image's size.
fn conv(g: &mut GraphBuilder, x: Value, c: usize, m: usize, group: usize) -> Value {
    let w = g.initializer(format!("weight of {x:?}"), noise(&[m, c / group, 3, 3], 3));
    let b = g.initializer(format!("bias of {x:?}"), noise(&[m], 4));
    let group = i64::try_from(group).expect("it is small");
    let attributes = [("pads", Attr::from([1, 1, 1, 1])), ("group", group.into())];
    g.node("Conv", &[x, w, b], attributes)
}

fn ints(g: &mut GraphBuilder, values: &[i64]) -> Value {
    g.initializer(
        format!("{values:?}"),
        Tensor::from_slice([values.len()], values).expect("it is small"),
    )
}

fn floats(g: &mut GraphBuilder, dims: &[usize], seed: u32) -> Value {
    g.initializer(format!("{dims:?} {seed}"), noise(dims, seed))
}

/// Name, the nodes after a convolution, and the most transposes that may be left: one at each end
/// of the region, and none behind the nodes that end it.
type Case = (&'static str, fn(&mut GraphBuilder, Value) -> Value, usize);

const CASES: [Case; 17] = [
    ("relu", |g, x| g.node("Relu", &[x], []), 2),
    (
        "per channel",
        |g, x| {
            let c = floats(g, &[16, 1, 1], 9);
            let d = floats(g, &[1, 16, 1, 1], 9);
            let e = g.node("Mul", &[c, x], []);
            g.node("Sub", &[e, d], [])
        },
        2,
    ),
    (
        "per column",
        |g, x| {
            let c = floats(g, &[7], 9);
            g.node("Add", &[x, c], [])
        },
        2,
    ),
    (
        "slope",
        |g, x| {
            let slope = floats(g, &[16, 1, 1], 9);
            g.node("PRelu", &[x, slope], [])
        },
        2,
    ),
    (
        "residual",
        |g, x| {
            let y = conv(g, x, 16, 16, 1);
            let z = g.node("Add", &[x, y], []);
            g.node("Relu", &[z], [])
        },
        2,
    ),
    (
        "squeeze and excite",
        |g, x| {
            let s = g.node("GlobalAveragePool", &[x], []);
            let w = floats(g, &[16, 16, 1, 1], 9);
            let s = g.node("Conv", &[s, w], []);
            let s = g.node("HardSigmoid", &[s], []);
            g.node("Mul", &[s, x], [])
        },
        2,
    ),
    (
        "gates",
        |g, x| {
            let s = g.node("Sigmoid", &[x], []);
            let x = g.node("Mul", &[x, s], []);
            let y = conv(g, x, 16, 16, 16);
            let s = g.node("HardSigmoid", &[y], [("alpha", (1f32 / 6.).into())]);
            g.node("Mul", &[s, y], [])
        },
        2,
    ),
    (
        "concat",
        |g, x| {
            let y = conv(g, x, 16, 4, 1);
            let c = floats(g, &[2, 3, 6, 7], 9);
            let y = g.node("Concat", &[x, y, c], [("axis", Attr::from(-3))]);
            conv(g, y, 23, 4, 1)
        },
        2,
    ),
    (
        "split",
        |g, x| {
            let parts = g.node_with_outputs::<2>("Split", &[x], [("axis", Attr::from(1))]);
            g.node("Sub", &parts, [])
        },
        2,
    ),
    (
        "slice",
        |g, x| {
            let (from, to) = (ints(g, &[2, -4]), ints(g, &[9, 7]));
            let axes = ints(g, &[1, -1]);
            g.node("Slice", &[x, from, to, axes], [])
        },
        2,
    ),
    (
        "pad",
        |g, x| {
            let pads = ints(g, &[0, 1, 2, 3, 0, 0, 1, -1]);
            g.node("Pad", &[x, pads], [])
        },
        2,
    ),
    (
        "pool",
        |g, x| {
            let window = [("kernel_shape", Attr::from([3, 2])), ("strides", [2, 1].into())];
            let x = g.node("MaxPool", &[x], window.clone());
            g.node("AveragePool", &[x], [("kernel_shape", Attr::from([2, 2]))])
        },
        2,
    ),
    (
        "norm",
        |g, x| {
            let parts = [1, 2, 3].map(|seed| floats(g, &[16], seed));
            let variance = g.node("Abs", &[parts[2]], []);
            g.node("BatchNormalization", &[x, parts[0], parts[1], parts[2], variance], [])
        },
        2,
    ),
    ("softmax", |g, x| g.node("Softmax", &[x], [("axis", Attr::from(1))]), 2),
    (
        "mean",
        |g, x| {
            let axes = [("axes", Attr::from([2, 3])), ("keepdims", 0.into())];
            g.node("ReduceMean", &[x], axes)
        },
        1,
    ),
    ("flatten", |g, x| g.node("Flatten", &[x], []), 2),
    (
        "upscale",
        |g, x| {
            let roi = g.initializer("roi", Tensor::from_slice([0], &[] as &[f32]).expect("empty"));
            let scales = Tensor::from_slice([4], &[1f32, 1., 2., 3.]).expect("it is small");
            let scales = g.initializer("scales", scales);
            let y = g.node("Resize", &[x, roi, scales], [("mode", Attr::from("linear"))]);
            conv(g, y, 16, 4, 1)
        },
        2,
    ),
];

#[test]
fn graphs_compute_what_they_did() -> Result<()> {
    for (name, build, transposes) in CASES {
        for symbolic in [false, true] {
            let dim = |n: usize| if symbolic { None } else { Some(n) };
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", f32_type(&[dim(2), Some(8), dim(6), dim(7)]));
            let y = conv(&mut g, x, 8, 16, 1);
            let y = build(&mut g, y);
            g.output("y", y, crate::passes::tests::untyped());
            let mut graph = graph_of(g)?;
            ConstantFolding { keep_bytes: false }.run(&mut graph)?;
            let x = noise(&[2, 8, 6, 7], 1);
            let expected = evaluate(&graph, &x)?;
            let convs =
                |graph: &Graph| graph.nodes.iter().filter(|n| n.op.name() == "Conv").count();
            let plain = convs(&graph);
            for pass in [&ChannelsLast as &dyn Pass, &TransposeJoining, &Epilogues] {
                pass.run(&mut graph)?;
                let given = evaluate(&graph, &x)?;
                assert_eq!(given[0].shape(), expected[0].shape(), "{name}");
                let (a, b) = (given[0].as_slice::<f32>()?, expected[0].as_slice::<f32>()?);
                let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0., f32::max);
                assert!(worst < 2e-4, "{name} after {}: off by {worst}", pass.name());
            }
            DeadCodeElimination.run(&mut graph)?;
            assert!(plain > 0 && convs(&graph) == 0, "{name}");
            let left = graph.nodes.iter().filter(|n| n.op.name() == "Transpose").count();
            assert_eq!(left, transposes, "{name} {symbolic}");
        }
    }
    Ok(())
}

#[test]
fn a_convolution_that_does_little_stays() -> Result<()> {
    for (c, m, group, moves) in [(8, 8, 8, false), (1, 2, 1, false), (16, 16, 1, true)] {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(c), None, None]));
        let y = conv(&mut g, x, c, m, group);
        g.output("y", y, f32_type(&[None, None, None, None]));
        let mut graph = graph_of(g)?;
        ConstantFolding { keep_bytes: false }.run(&mut graph)?;
        ChannelsLast.run(&mut graph)?;
        assert_eq!(graph.nodes[0].op.name() == "Transpose", moves, "{c} {m} {group}");
    }
    Ok(())
}

#[test]
fn a_model_s_own_transposes_cancel() -> Result<()> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", f32_type(&[None, None, None, Some(8)]));
    let x = g.node("Transpose", &[x], [("perm", Attr::from([0, 3, 1, 2]))]);
    let y = conv(&mut g, x, 8, 8, 1);
    let y = g.node("Relu", &[y], []);
    let y = g.node("Transpose", &[y], [("perm", Attr::from([0, 2, 3, 1]))]);
    g.output("y", y, f32_type(&[None, None, None, None]));
    let mut graph = graph_of(g)?;
    let passes: [&dyn Pass; 5] = [
        &ConstantFolding { keep_bytes: false },
        &ChannelsLast,
        &TransposeJoining,
        &Epilogues,
        &DeadCodeElimination,
    ];
    passes.iter().try_for_each(|pass| pass.run(&mut graph))?;
    let ops: Vec<_> = graph.nodes.iter().map(|n| n.op.name()).collect();
    assert_eq!(ops, ["ConvNhwc"]);
    Ok(())
}

#[test]
fn sums_gates_and_limits_become_part_of_the_convolution() -> Result<()> {
    for (name, ops) in [
        ("relu", 1),
        ("residual", 2),
        ("gates", 2),
        // Two convolutions, the global pooling and the product.
        ("squeeze and excite", 4),
    ] {
        let build = CASES.iter().find(|case| case.0 == name).expect("a case").1;
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(8), None, None]));
        let y = conv(&mut g, x, 8, 16, 1);
        let y = build(&mut g, y);
        g.output("y", y, f32_type(&[None, None, None, None]));
        let mut graph = graph_of(g)?;
        let passes: [&dyn Pass; 4] = [
            &ConstantFolding { keep_bytes: false },
            &ChannelsLast,
            &Epilogues,
            &DeadCodeElimination,
        ];
        passes.iter().try_for_each(|pass| pass.run(&mut graph))?;
        let left = graph.nodes.iter().filter(|n| n.op.name() != "Transpose").count();
        assert_eq!(left, ops, "{name}");
    }
    Ok(())
}
