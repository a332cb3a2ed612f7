//! Uses of ONNX Runtime's operators that are refused. Supported uses are compared in `tests/fused`.

use crate::onnx::proto::{ModelProto, OperatorSetIdProto};
use crate::{Attr, GraphBuilder, Model, Result, Session, SessionOptions, Value};
use lgp_memory::{DType, Tensor, TensorType};
use prost::Message;

/// The error of compiling one node with this number of inputs.
fn refusal(op: &str, inputs: usize, attributes: &[(&str, Attr)]) -> Result<String> {
    let mut g = GraphBuilder::new("g");
    let ty = |dtype| TensorType { dtype, shape: None };
    let mut given = vec![g.input("x", ty(DType::F32))];
    given.push(g.initializer("w", Tensor::zeros(DType::F32, [4, 12])?));
    given.resize(inputs.max(2), Value::ABSENT);
    given[inputs - 1] = g.input("last", ty(DType::F32));
    let y = g.node(op, &given, attributes.iter().cloned());
    g.output("y", y, ty(DType::F32));
    let mut model = ModelProto::decode(&*g.finish()?.to_onnx()?).unwrap();
    let domain = Some("com.microsoft".to_owned());
    model.opset_import.push(OperatorSetIdProto { domain: domain.clone(), version: Some(1) });
    model.graph.as_mut().unwrap().node[0].domain = domain;
    let model = Model::from_bytes(&model.encode_to_vec(), None)?;
    let refused = Session::new(&model, SessionOptions::with_threads(1)).unwrap_err();
    Ok(refused.to_string())
}

#[test]
fn what_is_not_understood_is_refused() -> Result<()> {
    let heads =
        |key, value: Attr| vec![("num_heads", 2.into()), ("kv_num_heads", 2.into()), (key, value)];
    let one = || Attr::from(1);
    type Case<'a> = (&'a str, usize, Vec<(&'a str, Attr)>, &'a str);
    let cases: Vec<Case<'_>> = vec![
        ("GroupQueryAttention", 7, heads("qk_output", one()), "'qk_output' is 1"),
        ("GroupQueryAttention", 7, heads("kv_cache_bit_width", 8.into()), "bit_width' is 8"),
        ("GroupQueryAttention", 7, heads("k_quant_type", "PER_TENSOR".into()), "supported: NONE"),
        ("GroupQueryAttention", 7, heads("local_window_size", 0.into()), "window_size' is 0"),
        ("GroupQueryAttention", 7, heads("sharpness", one()), "'sharpness' is not supported"),
        ("GroupQueryAttention", 13, heads("causal", one()), "input 12 is not supported"),
        ("GroupQueryAttention", 7, vec![], "'num_heads' is missing"),
        ("RotaryEmbedding", 4, vec![("scale", 2f32.into())], "'scale' is 2, supported: 1"),
        ("Attention", 3, vec![("num_heads", 2.into()), ("do_rotary", one())], "'do_rotary' is 1"),
        ("Attention", 7, vec![("num_heads", 2.into())], "input 6"),
        ("MultiHeadAttention", 9, vec![("num_heads", 2.into())], "inputs 8 and 9"),
        ("MultiHeadAttention", 2, vec![("num_heads", 2.into())], "input 2 is missing"),
        ("NhwcMaxPool", 1, vec![], "'kernel_shape' is missing"),
        ("GroupNorm", 3, vec![("groups", 2.into())], "'activation' is missing"),
        ("BiasDropout", 5, vec![], "'training_mode' is not a constant"),
        ("ExpandDims", 2, vec![], "the axis is not a constant"),
        (
            "MatMulNBits",
            3,
            vec![("K", 4.into()), ("N", 3.into()), ("block_size", 16.into()), ("bits", 3.into())],
            "'bits' is 3, supported: 2, 4 and 8",
        ),
        (
            "MatMulBnb4",
            3,
            vec![
                ("K", 4.into()),
                ("N", 3.into()),
                ("block_size", 16.into()),
                ("quant_type", one()),
            ],
            "a weight of 3 by 4",
        ),
        ("GatherBlockQuantized", 3, vec![], "the data is not a constant"),
        ("DynamicQuantizeLSTM", 12, vec![], "input 8, scales, is not a constant"),
        ("QLinearConv", 8, vec![("channels_last", one())], "the weight is not a constant"),
    ];
    for (op, inputs, attributes, expected) in cases {
        let said = refusal(op, inputs, &attributes)?;
        assert!(said.contains(expected), "{op}: {said}");
    }
    Ok(())
}

/// A session of a graph of these operators.
fn compiled(g: GraphBuilder, operators: &[&str]) -> Result<Session> {
    let mut model = ModelProto::decode(&*g.finish()?.to_onnx()?).unwrap();
    let domain = Some("com.microsoft".to_owned());
    model.opset_import.push(OperatorSetIdProto { domain: domain.clone(), version: Some(1) });
    for node in &mut model.graph.as_mut().unwrap().node {
        if operators.contains(&node.op_type()) {
            node.domain.clone_from(&domain);
        }
    }
    let model = Model::from_bytes(&model.encode_to_vec(), None)?;
    Session::new(&model, SessionOptions::with_threads(1))
}

#[test]
fn without_a_zero_point_results_have_the_dtype_of_what_goes_in() -> Result<()> {
    let ty = |dtype| TensorType { dtype, shape: None };
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(DType::I8));
    let s = g.initializer("s", Tensor::scalar(0.1f32)?);
    let alpha = ("alpha", Attr::from(1f32));
    let none = Value::ABSENT;
    let y = g.node("QLinearLeakyRelu", &[x, s, none, s, none], [alpha.clone()]);
    let y = g.node("QLinearLeakyRelu", &[y, s, none, s, none], [alpha]);
    g.output("y", y, ty(DType::I8));
    let session = compiled(g, &["QLinearLeakyRelu"])?;
    let x = Tensor::from_slice([3], &[-100i8, 0, 50])?;
    assert_eq!(session.run(&[("x", x.view())])?[0].tensor, x);
    Ok(())
}

/// Ranks and widths that no input declares, but that the operators before tell.
#[test]
fn ranks_are_known_after_other_operators() -> Result<()> {
    let ty = |dims: &[usize]| TensorType::concrete(DType::F32, &dims.into());
    let open = TensorType { dtype: DType::F32, shape: None };
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(&[1, 1, 2, 2]));
    let moved = g.node("Transpose", &[x], [("perm", vec![0i64, 2, 1, 3].into())]);
    let y = g.node("FusedMatMul", &[moved, moved], [("transB", 1.into())]);
    g.output("y", y, open.clone());
    let x = Tensor::from_slice([1, 1, 2, 2], &[1f32, 2., 3., 4.])?;
    let out = compiled(g, &["FusedMatMul"])?.run(&[("x", x.view())])?;
    assert_eq!(out[0].tensor, Tensor::from_slice([1, 2, 1, 1], &[5f32, 25.])?);

    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty(&[1, 1, 2]));
    let mut project = |name: &str, width: usize| -> Result<Value> {
        let weight = g.initializer(name, Tensor::from_slice([2, width], &vec![1f32; 2 * width])?);
        Ok(g.node("MatMul", &[x, weight], []))
    };
    let [q, k, v] = [project("q", 4)?, project("k", 4)?, project("v", 8)?];
    let bias: Vec<f32> = (0..16u8).map(f32::from).collect();
    let bias = g.initializer("bias", Tensor::from_slice([16], &bias)?);
    let y = g.node("MultiHeadAttention", &[q, k, v, bias], [("num_heads", 2.into())]);
    g.output("y", y, open);
    let x = Tensor::from_slice([1, 1, 2], &[1f32, 2.])?;
    let out = compiled(g, &["MultiHeadAttention"])?.run(&[("x", x.view())])?;
    let want: Vec<f32> = (8..16u8).map(|i| 3. + f32::from(i)).collect();
    assert_eq!(out[0].tensor, Tensor::from_slice([1, 1, 8], &want)?);
    Ok(())
}

#[test]
fn plans_foretell_what_grouped_attention_takes() -> Result<()> {
    let (heads, key_heads, size, length) = (8, 2, 16, 128);
    let ty = |dims: &[usize]| TensorType::concrete(DType::F32, &dims.into());
    for sinks in [false, true] {
        let mut g = GraphBuilder::new("g");
        let [q, k, v] = [("q", heads), ("k", key_heads), ("v", key_heads)]
            .map(|(name, heads)| g.input(name, ty(&[1, length, heads * size])));
        let last = g.initializer("last", Tensor::from_slice([1], &[127i32])?);
        let total = g.initializer("total", Tensor::from_slice([1], &[128i32])?);
        let none = Value::ABSENT;
        let mut given = vec![q, k, v, none, none, last, total];
        if sinks {
            given.extend([none; 4]);
            given.push(g.initializer("sinks", Tensor::from_slice([heads], &[0f32; 8])?));
        }
        let attributes = [("num_heads", 8.into()), ("kv_num_heads", 2.into())];
        let y = g.node("GroupQueryAttention", &given, attributes);
        g.output("y", y, ty(&[1, length, heads * size]));
        let session = compiled(g, &["GroupQueryAttention"])?;
        let [q, k] = [heads, key_heads].map(|n| Tensor::zeros(DType::F32, [1, length, n * size]));
        let (q, k) = (q?, k?);
        let shapes = [("q", &q), ("k", &k), ("v", &k)];
        let plan = session.memory(&shapes.map(|(name, x)| (name, x.shape().clone())))?;
        drop(session.run(&shapes.map(|(name, x)| (name, x.view())))?);
        let taken = session.pool_stats().high_water_bytes;
        let planned = plan.peak_bytes - plan.weights_bytes - plan.input_bytes;
        assert!((planned * 9..planned * 11).contains(&(taken * 10)), "{taken} of {plan:?}");
    }
    Ok(())
}

/// The bytes of a block of 32 numbers are 16, and 4 for its scale: 128 / 20 of the floats' bytes.
#[test]
fn weights_of_few_bits_stay_in_few_bits() -> Result<()> {
    let (k, n) = (256, 96);
    let bytes: Vec<u8> = (0..n * k / 2).map(|i| u8::try_from(i * 37 % 256).unwrap_or(0)).collect();
    for zeros in [false, true] {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType { dtype: DType::F32, shape: None });
        let w = g.initializer("w", Tensor::from_slice([n, k / 32, 16], &bytes)?);
        let scales =
            g.initializer("s", Tensor::from_slice([n * k / 32], &vec![0.5f32; n * k / 32])?);
        let mut given = vec![x, w, scales];
        if zeros {
            let zeros = vec![0x97u8; n * k / 64];
            given.push(g.initializer("z", Tensor::from_slice([n * k / 64], &zeros)?));
        }
        let attributes = [
            ("K", Attr::from(256)),
            ("N", 96.into()),
            ("bits", 4.into()),
            ("block_size", 32.into()),
            ("accuracy_level", 4.into()),
        ];
        let y = g.node("MatMulNBits", &given, attributes);
        g.output("y", y, TensorType { dtype: DType::F32, shape: None });
        let session = compiled(g, &["MatMulNBits"])?;
        let x = Tensor::from_slice([1, k], &vec![1f32; k])?;
        let report = session.memory(&[("x", x.shape().clone())])?;
        assert!(report.weights_bytes * 6 <= k * n * 4, "{} bytes", report.weights_bytes);
        // Column 0: 0.5 · Σ (q − zero), with zero points 7 and 9 of alternating blocks.
        let numbers = bytes[..k / 2].iter().flat_map(|b| [b & 15, b >> 4]).enumerate();
        let zero = |i: usize| match (zeros, i / 32 % 2) {
            (false, _) => 8.,
            (true, 0) => 7.,
            (true, _) => 9.,
        };
        let want: f32 = numbers.map(|(i, q)| 0.5 * (f32::from(q) - zero(i))).sum();
        let y = session.run(&[("x", x.view())])?;
        let y = y[0].tensor.as_slice::<f32>()?;
        assert!((y[0] - want).abs() < 1e-3, "{}, expected {want}", y[0]);
    }
    Ok(())
}
