//! Operators in the opsets that define them differently, on small numbers worked out by hand.

use lgp_inference::{Attr, GraphBuilder, Result, Session, SessionOptions, Value};
use lgp_memory::{DType, Tensor, TensorType};

type Attributes<'a> = Vec<(&'a str, Attr)>;

/// Runs one node on `x` (as an input, so that nothing is folded) and on stored tensors.
fn run(
    opset: i64,
    op: &str,
    x: &Tensor,
    rest: &[Option<Tensor>],
    attributes: Attributes<'_>,
) -> Result<Tensor> {
    let mut g = GraphBuilder::new("g").with_opset(opset);
    let unknown = |dtype| TensorType { dtype, shape: None };
    let mut inputs = vec![g.input("x", unknown(x.dtype()))];
    for (k, tensor) in rest.iter().enumerate() {
        inputs.push(match tensor {
            Some(tensor) => g.initializer(format!("w{k}"), tensor.clone()),
            None => Value::ABSENT,
        });
    }
    let y = g.node(op, &inputs, attributes);
    g.output("y", y, unknown(x.dtype()));
    let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
    Ok(session.run(&[("x", x.view())])?.remove(0).tensor)
}

fn f(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_slice(shape, data).unwrap()
}

fn i(data: &[i64]) -> Option<Tensor> {
    Some(Tensor::from_slice([data.len()], data).unwrap())
}

fn s(value: f32) -> Option<Tensor> {
    Some(Tensor::scalar(value).unwrap())
}

/// Opset, operator, other inputs, attributes, and the expected output for `x`.
type Case<'a> = (i64, &'a str, Vec<Option<Tensor>>, Attributes<'a>, Tensor);

fn check(x: &Tensor, cases: Vec<Case<'_>>) -> Result<()> {
    for (opset, op, rest, attributes, expected) in cases {
        let y = run(opset, op, x, &rest, attributes)?;
        assert_eq!(y.shape(), expected.shape(), "{op} of opset {opset}");
        let (y, expected) = (y.as_slice::<f32>()?, expected.as_slice::<f32>()?);
        for (a, b) in y.iter().zip(expected) {
            assert!((a - b).abs() < 1e-6, "{op} of opset {opset}: {y:?}, expected {expected:?}");
        }
    }
    Ok(())
}

#[test]
fn attributes_that_became_inputs() -> Result<()> {
    let x = f(&[1, 4], &[-2., -1., 1., 2.]);
    let clipped = || f(&[1, 4], &[-1., -1., 1., 1.5]);
    let middle = || f(&[1, 2], &[-1., 1.]);
    let padded = || f(&[1, 6], &[9., -2., -1., 1., 2., 9.]);
    check(
        &x,
        vec![
            (10, "Clip", vec![], vec![("min", (-1f32).into()), ("max", 1.5f32.into())], clipped()),
            (11, "Clip", vec![s(-1.), s(1.5)], vec![], clipped()),
            (18, "Clip", vec![None, s(0.)], vec![], f(&[1, 4], &[-2., -1., 0., 0.])),
            (
                9,
                "Slice",
                vec![],
                vec![("starts", [1].into()), ("ends", [3].into()), ("axes", [1].into())],
                middle(),
            ),
            (10, "Slice", vec![i(&[1]), i(&[3]), i(&[1])], vec![], middle()),
            (
                13,
                "Slice",
                vec![i(&[-1]), i(&[i64::MIN]), i(&[-1]), i(&[-2])],
                vec![],
                f(&[1, 2], &[2., -1.]),
            ),
            (
                7,
                "Pad",
                vec![],
                vec![("pads", [0, 1, 0, 1].into()), ("value", 9f32.into())],
                padded(),
            ),
            (11, "Pad", vec![i(&[0, 1, 0, 1]), s(9.)], vec![], padded()),
            (18, "Pad", vec![i(&[1, 1]), s(9.), i(&[1])], vec![], padded()),
            (12, "Squeeze", vec![], vec![("axes", [0].into())], f(&[4], &[-2., -1., 1., 2.])),
            (13, "Squeeze", vec![i(&[0])], vec![], f(&[4], &[-2., -1., 1., 2.])),
            (
                12,
                "Unsqueeze",
                vec![],
                vec![("axes", [0].into())],
                f(&[1, 1, 4], &[-2., -1., 1., 2.]),
            ),
            (13, "Unsqueeze", vec![i(&[-1])], vec![], f(&[1, 4, 1], &[-2., -1., 1., 2.])),
        ],
    )
}

#[test]
fn reductions_and_softmax() -> Result<()> {
    let x = f(&[1, 2, 2], &[0., 0., 0., 2f32.ln()]);
    let ln2 = 2f32.ln();
    check(
        &x,
        vec![
            (11, "ReduceSum", vec![], vec![("axes", [2].into())], f(&[1, 2, 1], &[0., ln2])),
            (13, "ReduceSum", vec![i(&[2])], vec![], f(&[1, 2, 1], &[0., ln2])),
            (17, "ReduceMean", vec![], vec![("axes", [-1].into())], f(&[1, 2, 1], &[0., ln2 / 2.])),
            (
                18,
                "ReduceMean",
                vec![i(&[1, 2])],
                vec![("keepdims", 0.into())],
                f(&[1], &[ln2 / 4.]),
            ),
            (18, "ReduceMax", vec![], vec![("keepdims", 0.into())], f(&[], &[ln2])),
            (18, "ReduceMax", vec![], vec![("noop_with_empty_axes", 1.into())], x.clone()),
            (18, "ReduceLogSum", vec![i(&[1, 2])], vec![], f(&[1, 1, 1], &[ln2.ln()])),
            // All axes from 1 on share one sum, 1 + 1 + 1 + 2.
            (11, "Softmax", vec![], vec![], f(&[1, 2, 2], &[0.2, 0.2, 0.2, 0.4])),
            // Only the elements of the last axis share a sum.
            (13, "Softmax", vec![], vec![], f(&[1, 2, 2], &[0.5, 0.5, 1. / 3., 2. / 3.])),
            (
                13,
                "LogSoftmax",
                vec![],
                vec![("axis", 1.into())],
                f(&[1, 2, 2], &[0.5f32.ln(), (1f32 / 3.).ln(), 0.5f32.ln(), (2f32 / 3.).ln()]),
            ),
        ],
    )
}

#[test]
fn resampling() -> Result<()> {
    let x = f(&[1, 1, 1, 2], &[1., 3.]);
    let nearest = || f(&[1, 1, 1, 4], &[1., 1., 3., 3.]);
    let scales = || Some(f(&[4], &[1., 1., 1., 2.]));
    let empty = || Some(f(&[0], &[]));
    check(
        &x,
        vec![
            (7, "Upsample", vec![], vec![("scales", vec![1f32, 1., 1., 2.].into())], nearest()),
            (9, "Upsample", vec![scales()], vec![], nearest()),
            (10, "Resize", vec![scales()], vec![], nearest()),
            (11, "Resize", vec![empty(), scales()], vec![], nearest()),
            (11, "Resize", vec![empty(), empty(), i(&[1, 1, 1, 4])], vec![], nearest()),
            (18, "Resize", vec![None, None, i(&[4])], vec![("axes", [3].into())], nearest()),
            (
                13,
                "Resize",
                vec![None, scales()],
                vec![
                    ("mode", "linear".into()),
                    ("coordinate_transformation_mode", "align_corners".into()),
                ],
                f(&[1, 1, 1, 4], &[1., 5. / 3., 7. / 3., 3.]),
            ),
        ],
    )
}

/// The example of opset 10's documentation: at scale 0.6, positions in the input are rounded up.
#[test]
fn old_resampling_rounds_up_where_it_shrinks() -> Result<()> {
    let x = f(&[1, 1, 2, 4], &[1., 2., 3., 4., 5., 6., 7., 8.]);
    let scales = || Some(f(&[4], &[1., 1., 0.6, 0.6]));
    let want = || f(&[1, 1, 1, 2], &[1., 3.]);
    check(
        &x,
        vec![
            (10, "Resize", vec![scales()], vec![], want()),
            (9, "Upsample", vec![scales()], vec![], want()),
        ],
    )
}

#[test]
fn errors_name_the_operator_of_the_model() -> Result<()> {
    let x = f(&[2, 3], &[0.; 6]);
    let missing = run(23, "QuantizeLinear", &x, &[], vec![("precision", 1.into())]);
    let missing = missing.unwrap_err().to_string();
    assert!(missing.contains("(QuantizeLinear)") && missing.contains("the scale"), "{missing}");
    // The operator is mapped to a sum and a division, but the error names the operator.
    let wrong = run(13, "LpNormalization", &x, &[], vec![("axis", 7.into())]);
    let wrong = wrong.unwrap_err().to_string();
    assert!(wrong.contains("(LpNormalization)"), "{wrong}");
    Ok(())
}

#[test]
fn nothing_is_dropped_or_trained_at_inference() -> Result<()> {
    let x = f(&[1, 2, 1], &[1., 4.]);
    let c = |a, b| Some(f(&[2], &[a, b]));
    let stop = || Some(Tensor::scalar(false).unwrap());
    let normal = || vec![c(2., 1.), c(0., 1.), c(0., 2.), c(4., 1.)];
    let expected = || f(&[1, 2, 1], &[1., 3.]);
    let epsilon = || ("epsilon", Attr::from(0f32));
    check(
        &x,
        vec![
            (7, "Dropout", vec![], vec![("ratio", 0.9f32.into())], x.clone()),
            (12, "Dropout", vec![s(0.9)], vec![("seed", 3.into())], x.clone()),
            (13, "Dropout", vec![s(0.9), stop()], vec![], x.clone()),
            (
                7,
                "BatchNormalization",
                normal(),
                vec![epsilon(), ("momentum", 0.9f32.into())],
                expected(),
            ),
            (
                15,
                "BatchNormalization",
                normal(),
                vec![epsilon(), ("training_mode", 0.into())],
                expected(),
            ),
        ],
    )?;
    Ok(())
}

#[test]
fn training_drops_and_takes_the_batch_as_it_is() -> Result<()> {
    let x = f(&[2, 2, 1], &[1., 4., 3., 8.]);
    let c = |a, b| Some(f(&[2], &[a, b]));
    let normal = || vec![c(2., 1.), c(0., 1.), c(0., 2.), c(4., 1.)];
    let expected = || f(&[2, 2, 1], &[-2., 0., 2., 2.]);
    let epsilon = || ("epsilon", Attr::from(0f32));
    check(
        &x,
        vec![
            (
                15,
                "BatchNormalization",
                normal(),
                vec![epsilon(), ("training_mode", 1.into())],
                expected(),
            ),
            (6, "BatchNormalization", normal(), vec![epsilon(), ("is_test", 0.into())], expected()),
        ],
    )?;
    // Statistics of each activation, which opset 9 removed.
    let each = |a, b| Some(f(&[2, 1], &[a, b]));
    let normal = vec![each(2., 1.), each(0., 1.), each(1., 4.), each(4., 1.)];
    let attributes = vec![epsilon(), ("spatial", 0.into())];
    let y = f(&[2, 2, 1], &[0., 1., 2., 5.]);
    check(&x, vec![(7, "BatchNormalization", normal, attributes, y)])?;
    // The elements that are not dropped are scaled.
    let train = || Some(Tensor::scalar(true).unwrap());
    let many = f(&[64], &[1.; 64]);
    for (opset, rest, attributes) in [
        (13, vec![s(0.75), train()], vec![("seed", 1.into())]),
        (6, vec![], vec![("is_test", 0.into()), ("ratio", 0.75f32.into())]),
    ] {
        let y = run(opset, "Dropout", &many, &rest, attributes)?;
        let y = y.as_slice::<f32>()?;
        assert!(y.contains(&0.) && y.contains(&4.), "{y:?}");
        assert!(y.iter().all(|&y| y == 0. || y == 4.), "{y:?}");
    }
    Ok(())
}

#[test]
fn norms_and_pools_by_power() -> Result<()> {
    let x = f(&[1, 1, 4], &[3., -4., 0., 2.]);
    let kernel = || ("kernel_shape", Attr::from([2]));
    check(
        &x,
        vec![
            (1, "LpPool", vec![], vec![kernel(), ("p", 1f32.into())], f(&[1, 1, 3], &[7., 4., 2.])),
            (18, "LpPool", vec![], vec![kernel()], f(&[1, 1, 3], &[5., 4., 2.])),
            (2, "GlobalLpPool", vec![], vec![("p", 1.into())], f(&[1, 1, 1], &[9.])),
            (
                1,
                "LpNormalization",
                vec![],
                vec![("p", 1.into())],
                f(&[1, 1, 4], &[3. / 9., -4. / 9., 0., 2. / 9.]),
            ),
            (
                1,
                "LpNormalization",
                vec![],
                vec![("axis", 1.into())],
                f(&[1, 1, 4], &[1., -1., 0., 1.]),
            ),
            (
                9,
                "MeanVarianceNormalization",
                vec![],
                vec![("axes", [0, 1].into())],
                f(&[1, 1, 4], &[0.; 4]),
            ),
            (6, "PRelu", vec![Some(f(&[1], &[0.5]))], vec![], f(&[1, 1, 4], &[3., -2., 0., 2.])),
        ],
    )
}

#[test]
fn what_the_oldest_opsets_wrote_in_attributes() -> Result<()> {
    let x = f(&[1, 2], &[1., 5.]);
    let w = || Some(f(&[2], &[10., 20.]));
    let sum = || f(&[1, 2], &[11., 25.]);
    check(
        &x,
        vec![
            (6, "Add", vec![w()], vec![("broadcast", 1.into())], sum()),
            (6, "Dropout", vec![], vec![("is_test", 1.into())], x.clone()),
        ],
    )?;
    let tall = f(&[2, 2], &[1., 2., 3., 4.]);
    let axis = vec![("broadcast", 1.into()), ("axis", 0.into())];
    let rows = f(&[2, 2], &[11., 12., 23., 24.]);
    check(&tall, vec![(6, "Add", vec![w()], axis, rows)])?;
    Ok(())
}

#[test]
fn any_number_of_inputs() -> Result<()> {
    let x = f(&[2], &[1., 5.]);
    let w = |a, b| Some(f(&[2], &[a, b]));
    check(
        &x,
        vec![
            (8, "Sum", vec![], vec![], x.clone()),
            (13, "Sum", vec![w(1., 1.), s(2.), w(3., 3.)], vec![], f(&[2], &[7., 11.])),
            (13, "Max", vec![w(2., 2.), w(0., 6.)], vec![], f(&[2], &[2., 6.])),
            (13, "Min", vec![w(2., 2.), w(0., 6.)], vec![], f(&[2], &[0., 2.])),
        ],
    )
}

#[test]
fn constants_of_every_kind() -> Result<()> {
    let cases: Vec<(&str, Attr, Tensor)> = vec![
        ("value", f(&[1, 1], &[2.]).into(), f(&[1, 1], &[2.])),
        ("value_float", 2f32.into(), f(&[], &[2.])),
        ("value_int", 2.into(), Tensor::scalar(2i64)?),
        ("value_floats", vec![2f32, 3.].into(), f(&[2], &[2., 3.])),
        ("value_ints", [2, 3].into(), Tensor::from_slice([2], &[2i64, 3])?),
    ];
    for (key, value, expected) in cases {
        let mut g = GraphBuilder::new("g");
        let y = g.node("Constant", &[], [(key, value)]);
        g.output("y", y, TensorType { dtype: expected.dtype(), shape: None });
        let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
        assert_eq!(session.run(&[])?[0].tensor, expected);
    }
    Ok(())
}

#[test]
fn pieces_of_a_split() -> Result<()> {
    type Pieces<'a> = (i64, Option<Tensor>, Attributes<'a>, [usize; 3]);
    let cases: Vec<Pieces<'_>> = vec![
        (11, None, vec![("split", [1, 3, 2].into())], [1, 3, 2]),
        (13, i(&[1, 3, 2]), vec![], [1, 3, 2]),
        (13, None, vec![], [2, 2, 2]),
        (18, None, vec![("num_outputs", 3.into())], [2, 2, 2]),
    ];
    let x = f(&[6], &[0., 1., 2., 3., 4., 5.]);
    for (opset, sizes, attributes, expected) in cases {
        let mut g = GraphBuilder::new("g").with_opset(opset);
        let ty = TensorType { dtype: DType::F32, shape: None };
        let mut inputs = vec![g.input("x", ty.clone())];
        inputs.extend(sizes.map(|t| g.initializer("sizes", t)));
        let pieces: [Value; 3] = g.node_with_outputs("Split", &inputs, attributes);
        for (k, piece) in pieces.into_iter().enumerate() {
            g.output(format!("y{k}"), piece, ty.clone());
        }
        let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
        let outputs = session.run(&[("x", x.view())])?;
        assert_eq!(outputs.iter().map(|o| o.tensor.len()).collect::<Vec<_>>(), expected);
        assert_eq!(outputs[2].tensor.as_slice::<f32>()?.last(), Some(&5.));
    }
    Ok(())
}
