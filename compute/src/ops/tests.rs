//! Operators that only move elements or shapes, dimensions tracked through chains of them, and the
//! inputs that every operator must refuse.

mod select;
mod signal;

use crate::ops::*;
use crate::testing::{assert_close, constant, fails, infers, info, ints, noise, run, run_all, t};
use crate::{Op, ValueInfo};
use lgp_memory::{DType, PowerRounding, Tensor};
use proptest::prelude::*;

fn iota(dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    t(dims, &(0..n).map(|i| i32::try_from(i).unwrap()).collect::<Vec<_>>())
}

proptest! {
    /// One axis against Python's rules, written out.
    #[test]
    fn slices_agree_with_python(
        n in 0i64..7, start in -9i64..9, end in -9i64..9, step in prop_oneof![-3i64..0, 1i64..4],
    ) {
        let x: Vec<i64> = (0..n).collect();
        let fix = |i: i64, low: i64, high: i64| (if i < 0 { i + n } else { i }).clamp(low, high);
        let mut want = Vec::new();
        if step > 0 {
            let (mut i, end) = (fix(start, 0, n), fix(end, 0, n));
            while i < end {
                want.push(i);
                i += step;
            }
        } else if n > 0 {
            let (mut i, end) = (fix(start, 0, n - 1), fix(end, -1, n - 1));
            while i > end {
                want.push(i);
                i += step;
            }
        }
        let inputs = [ints(&x), ints(&[start]), ints(&[end]), ints(&[0]), ints(&[step])];
        assert_close(&run(&Slice::default(), &inputs.each_ref()), &ints(&want), 0.);
    }
}

#[test]
fn slices() {
    let x = iota(&[2, 4]);
    let op = |starts: &[i64], ends: &[i64], axes: &[i64], steps: &[i64]| Slice {
        starts: Some(starts.to_vec()),
        ends: Some(ends.to_vec()),
        axes: (!axes.is_empty()).then(|| axes.to_vec()),
        steps: (!steps.is_empty()).then(|| steps.to_vec()),
    };
    let big = i64::MAX;
    for (op, want) in [
        (op(&[1], &[big], &[], &[]), t(&[1, 4], &[4i32, 5, 6, 7])),
        (op(&[1], &[3], &[-1], &[]), t(&[2, 2], &[1i32, 2, 5, 6])),
        (op(&[-1], &[i64::MIN], &[1], &[-2]), t(&[2, 2], &[3i32, 1, 7, 5])),
        (op(&[0, 1], &[1, 4], &[0, 1], &[1, 2]), t(&[1, 2], &[1i32, 3])),
        (op(&[3], &[1], &[1], &[]), t(&[2, 0], &[] as &[i32])),
        (op(&[-1], &[i64::MIN], &[1], &[i64::MIN]), t(&[2, 1], &[3i32, 7])),
        (op(&[0], &[big], &[1], &[big]), t(&[2, 1], &[0i32, 4])),
    ] {
        assert_eq!(run(&op, &[&x]), want, "{op:?}");
    }
    for (op, message) in [
        (op(&[0], &[1], &[], &[0]), "Slice: steps are [0], expected no 0"),
        (op(&[0], &[1], &[2], &[]), "Slice: axis 2 is outside a tensor of rank 2"),
        (op(&[0, 0], &[1, 1], &[0, 0], &[]), "Slice: axis 0 is named twice in [0, 0]"),
        (Slice::default(), "Slice: starts are missing"),
    ] {
        assert_eq!(fails(&op, &[&x]), message);
    }
    assert!(fails(&op(&[0], &[1, 2], &[], &[]), &[&x]).contains("expected equal numbers"));
}

#[test]
fn splits() {
    let x = iota(&[5]);
    let split = |outputs, sizes: Option<Vec<i64>>| Split { axis: 0, outputs, sizes };
    let parts = |op: &Split| -> Vec<usize> {
        run_all(op, &[Some(&x)]).unwrap().iter().map(|t| t.len()).collect()
    };
    assert_eq!(parts(&split(2, None)), [3, 2]);
    assert_eq!(parts(&split(3, None)), [2, 2, 1]);
    assert_eq!(parts(&split(3, Some(vec![1, 0, 4]))), [1, 0, 4]);
    let out = run_all(&split(2, None), &[Some(&x), Some(&ints(&[1, 4]))]).unwrap();
    assert_eq!(out[1], t(&[4], &[1i32, 2, 3, 4]));
    for op in [
        split(2, Some(vec![1, 1])),
        split(2, Some(vec![-1, 6])),
        split(4, None),
        split(1, Some(vec![])),
    ] {
        assert!(fails(&op, &[&x]).starts_with("Split: "), "{op:?}");
    }
    assert_eq!(fails(&split(0, None), &[&x]), "Split: there are 0 outputs, expected at least one");
}

#[test]
fn gathers() {
    let x = iota(&[2, 3]);
    let index = t(&[2, 1], &[-1i64, 0]);
    assert_eq!(run(&Gather { axis: 1 }, &[&x, &index]), t(&[2, 2, 1], &[2i32, 0, 5, 3]));
    assert_eq!(run(&Gather { axis: 0 }, &[&x, &t(&[], &[1i32])]), t(&[3], &[3i32, 4, 5]));
    let message = fails(&Gather { axis: 1 }, &[&x, &ints(&[3])]);
    assert_eq!(message, "Gather: index 3 is outside an axis of size 3");
    assert!(fails(&Gather { axis: 1 }, &[&x, &ints(&[i64::MIN])]).contains("outside an axis"));
    assert!(fails(&Gather { axis: 2 }, &[&x, &ints(&[0])]).contains("rank 2"));
}

#[test]
fn joins_and_repeats() {
    let (a, b) = (iota(&[2, 1]), iota(&[2, 2]));
    assert_eq!(run(&Concat { axis: -1 }, &[&a, &b]), t(&[2, 3], &[0i32, 0, 1, 1, 2, 3]));
    let message = fails(&Concat { axis: 0 }, &[&a, &b]);
    assert_eq!(message, "Concat: axis 1 of input 1 is 2, expected 1");
    assert_eq!(run(&Tile, &[&b, &ints(&[1, 2])]), t(&[2, 4], &[0i32, 1, 0, 1, 2, 3, 2, 3]));
    assert!(fails(&Tile, &[&b, &ints(&[1])]).contains("1 repeats for rank 2"));
    assert!(fails(&Tile, &[&b, &ints(&[1, -1])]).contains("no negative entry"));
    assert!(fails(&Tile, &[&b, &ints(&[i64::MAX, i64::MAX])]).contains("more elements"));
    assert_eq!(run(&Expand, &[&a, &ints(&[2, 1, 2])]), t(&[2, 2, 2], &[0i32, 0, 1, 1, 0, 0, 1, 1]));
    assert!(fails(&Expand, &[&b, &ints(&[3])]).contains("cannot broadcast"));
    let value = t(&[1], &[true]);
    let fill = ConstantOfShape { value };
    assert_eq!(run(&fill, &[&ints(&[2, 1])]), t(&[2, 1], &[true, true]));
    assert_eq!(run(&fill, &[&ints(&[])]), t(&[], &[true]));
    assert!(fails(&fill, &[&ints(&[1 << 40, 1 << 40])]).contains("more elements"));
}

#[test]
fn blocks() {
    let x = iota(&[1, 4, 1, 2]);
    let deep = |mode| DepthToSpace { block: 2, mode };
    assert_eq!(run(&deep(DepthMode::Dcr), &[&x]), t(&[1, 1, 2, 4], &[0i32, 2, 1, 3, 4, 6, 5, 7]));
    let y = iota(&[1, 8, 1, 1]);
    assert_eq!(run(&deep(DepthMode::Dcr), &[&y]), t(&[1, 2, 2, 2], &[0i32, 2, 4, 6, 1, 3, 5, 7]));
    assert_eq!(run(&deep(DepthMode::Crd), &[&y]), t(&[1, 2, 2, 2], &[0i32, 1, 2, 3, 4, 5, 6, 7]));
    let there = run(&SpaceToDepth { block: 2 }, &[&iota(&[2, 3, 4, 6])]);
    assert_eq!(run(&deep(DepthMode::Dcr), &[&there]), iota(&[2, 3, 4, 6]));
    assert!(fails(&SpaceToDepth { block: 0 }, &[&x]).contains("block size is 0"));
    assert!(fails(&SpaceToDepth { block: usize::MAX }, &[&x]).contains("block size"));
    assert!(
        fails(&DepthToSpace { block: 3, mode: DepthMode::Dcr }, &[&x]).contains("do not divide")
    );
}

#[test]
fn reshapes() {
    let x = iota(&[2, 0, 3]);
    let y = iota(&[2, 3, 4]);
    let plain = Reshape::default();
    for (x, shape, want) in [
        (&y, ints(&[0, -1]), Ok(vec![2, 12])),
        (&y, ints(&[4, 3, 2]), Ok(vec![4, 3, 2])),
        (&y, ints(&[-1]), Ok(vec![24])),
        (&x, ints(&[0, 0, 0]), Ok(vec![2, 0, 3])),
        (&y, ints(&[5, -1]), Err("Reshape: 24 elements do not divide by 5")),
        (&y, ints(&[-1, -1]), Err("Reshape: the shape is [-1, -1], expected at most one -1")),
        (&y, ints(&[-2]), Err("Reshape: the shape is [-2], expected no entry below -1")),
        (&y, ints(&[1, 1, 1, 0]), Err("Reshape: entry 3 is 0, but the input has rank 3")),
        (
            &y,
            ints(&[23]),
            Err("Reshape: cannot reshape [2,3,4] to [23]: the element counts differ"),
        ),
    ] {
        match want {
            Ok(dims) => assert_eq!(run(&plain, &[x, &shape]).shape().dims(), dims),
            Err(message) => assert_eq!(fails(&plain, &[x, &shape]), message),
        }
    }
    let zero = Reshape { allow_zero: true };
    assert_eq!(run(&zero, &[&x, &ints(&[3, 0, 7])]).shape().dims(), [3, 0, 7]);
    assert_eq!(run(&Flatten { axis: -1 }, &[&y]).shape().dims(), [6, 4]);
    assert_eq!(run(&Flatten { axis: 0 }, &[&y]).shape().dims(), [1, 24]);
    assert!(fails(&Flatten { axis: 4 }, &[&y]).contains("axis 4 is outside"));
    let one = iota(&[1, 2, 1]);
    assert_eq!(run(&Squeeze::default(), &[&one]).shape().dims(), [2]);
    assert_eq!(run(&Squeeze { axes: Some(vec![-1]) }, &[&one]).shape().dims(), [1, 2]);
    assert!(fails(&Squeeze { axes: Some(vec![1]) }, &[&one]).contains("size 2, expected 1"));
    assert_eq!(
        run(&Unsqueeze::default(), &[&one, &ints(&[0, -1])]).shape().dims(),
        [1, 1, 2, 1, 1]
    );
    assert!(fails(&Unsqueeze::default(), &[&one]).contains("axes are missing"));
    let flip = Transpose::default();
    assert_eq!(run(&flip, &[&iota(&[2, 2])]), t(&[2, 2], &[0i32, 2, 1, 3]));
    let bad = Transpose { perm: Some(vec![0, 0]) };
    assert!(fails(&bad, &[&iota(&[2, 2])]).contains("each of 2 axes once"));
}

#[test]
fn ranges() {
    for (a, b, c, n) in
        [(0, 5, 2, 3), (5, 0, -2, 3), (0, -5, 1, 0), (i64::MIN, i64::MAX, i64::MAX, 3)]
    {
        let scalars = [a, b, c].map(|v| t(&[], &[v]));
        assert_eq!(run(&Range, &scalars.each_ref()).len(), n, "{a} {b} {c}");
    }
    let out = run(&Range, &[0f32, 1., 0.25].map(|v| t(&[], &[v])).each_ref());
    assert_close(&out, &t(&[4], &[0f32, 0.25, 0.5, 0.75]), 0.);
    for (a, b, c) in [(0f32, 1., 0.), (0., f32::NAN, 1.), (0., f32::INFINITY, 1.)] {
        let message = fails(&Range, &[a, b, c].map(|v| t(&[], &[v])).each_ref());
        assert!(message.starts_with("Range: the delta is 0"), "{message}");
    }
    let long = [0, i64::MAX, 1].map(|v| t(&[], &[v]));
    assert!(fails(&Range, &long.each_ref()).contains("more elements"));
}

#[test]
fn casts() {
    let x = t(&[5], &[-1.9f32, 0., 300.5, f32::NAN, f32::INFINITY]);
    let cast = |to| Cast { to };
    assert_eq!(run(&cast(DType::U8), &[&x]), t(&[5], &[0u8, 0, 255, 0, 255]));
    assert_eq!(run(&cast(DType::I64), &[&x]), ints(&[-1, 0, 300, 0, i64::MAX]));
    assert_eq!(run(&cast(DType::Bool), &[&x]), t(&[5], &[true, false, true, true, true]));
    assert_eq!(run(&cast(DType::U8), &[&ints(&[-1, 256])]), t(&[2], &[255u8, 0]));
    assert_eq!(run(&cast(DType::F32), &[&t(&[2], &[true, false])]), t(&[2], &[1f32, 0.]));
    let complex = [DType::Complex64, DType::Complex128];
    for from in DType::ALL.into_iter().filter(|d| !complex.contains(d)) {
        for to in DType::ALL.into_iter().filter(|d| !complex.contains(d)) {
            let one = run(&cast(from), &[&t(&[1], &[1u8])]);
            let there = run(&cast(to), &[&one]);
            assert_eq!(run(&cast(DType::U8), &[&there]), t(&[1], &[1u8]), "{from} {to}");
        }
    }
}

#[test]
fn shapes_as_values() {
    let x = iota(&[2, 3, 4]);
    let shape = |start, end| Shape { start, end };
    assert_eq!(run(&shape(0, None), &[&x]), ints(&[2, 3, 4]));
    assert_eq!(run(&shape(-2, Some(-1)), &[&x]), ints(&[3]));
    assert_eq!(run(&shape(5, Some(-9)), &[&x]), ints(&[]));
    assert_eq!(run(&Size, &[&x]), t(&[], &[24i64]));
    assert_eq!(run(&Identity, &[&x]), x);
}

/// The nodes that exporters write around a reshape.
#[test]
fn symbols_survive_shape_arithmetic() {
    let step = |op: &dyn Op, inputs: &[&ValueInfo]| {
        let inputs: Vec<Option<&ValueInfo>> = inputs.iter().map(|x| Some(*x)).collect();
        op.infer(&inputs).unwrap().remove(0)
    };
    let x = info("f32 n 8 7 7");
    let shape = step(&Shape::default(), &[&x]);
    let first = step(&Gather { axis: 0 }, &[&shape, &constant(t(&[], &[0i64]))]);
    let first = step(&Unsqueeze { axes: Some(vec![0]) }, &[&first]);
    let rest = constant(ints(&[-1]));
    let target = step(&Concat { axis: 0 }, &[&first, &rest]);
    assert_eq!(step(&Reshape::default(), &[&x, &target]).ty.to_string(), "f32 [n,392]");
    let cut = Slice { starts: Some(vec![2]), ends: Some(vec![4]), ..Slice::default() };
    let spatial = step(&cut, &[&shape]);
    let twice = step(&Binary::new(BinaryKind::Mul), &[&spatial, &constant(ints(&[2, 2]))]);
    let head = Slice { starts: Some(vec![0]), ends: Some(vec![2]), ..Slice::default() };
    let sizes = step(&Concat { axis: 0 }, &[&step(&head, &[&shape]), &twice]);
    let sizes = step(&Cast { to: DType::I64 }, &[&sizes]);
    let resize = Resize {
        mode: ResizeMode::Linear,
        coordinates: CoordinateMode::HalfPixel,
        ..Resize::default()
    };
    let inputs = [Some(&x), None, None, Some(&sizes)];
    assert_eq!(resize.infer(&inputs).unwrap()[0].ty.to_string(), "f32 [n,8,14,14]");
    let filled = ConstantOfShape { value: t(&[1], &[0f32]) };
    assert_eq!(step(&filled, &[&target]).ty.to_string(), "f32 [n,?]");
    let count = step(&Reduce::new(ReduceKind::Prod, Some(vec![0])), &[&spatial]);
    assert_eq!(count.dims, Some(vec![lgp_memory::Dim::Known(49)]));
}

#[test]
fn symbols_in_movement() {
    let symbolic = || info("f32 n 3 h");
    for (op, inputs, out) in [
        (&Transpose { perm: Some(vec![2, 0, 1]) } as &dyn Op, vec![symbolic()], "f32 [h,n,3]"),
        (&Flatten::default(), vec![info("f32 n 3 4")], "f32 [n,12]"),
        (&Concat { axis: 1 }, vec![symbolic(), info("f32 ? 4 h")], "f32 [n,7,h]"),
        (&Squeeze { axes: Some(vec![2]) }, vec![info("f32 n 3 1")], "f32 [n,3]"),
        (&Squeeze::default(), vec![symbolic()], "f32 of unknown rank"),
        (&Split { axis: 1, outputs: 2, sizes: None }, vec![symbolic()], "f32 [n,2,h], f32 [n,1,h]"),
        (&Expand, vec![info("f32 1 3"), info("dims n 3")], "f32 [n,3]"),
        (&Expand, vec![info("f32 n 1"), info("i64 3")], "f32 [?,?,?]"),
        (&Tile, vec![info("f32 n 3"), constant(ints(&[1, 2]))], "f32 [n,6]"),
        (&Size, vec![symbolic()], "i64 [] = [?]"),
        (&Gather { axis: 0 }, vec![symbolic(), info("i64 k")], "f32 [k,3,h]"),
    ] {
        assert_eq!(infers(op, &inputs), out, "{op:?}");
    }
}

#[test]
fn every_op_refuses_no_input_and_no_rank() {
    let value = noise(&[1], 0);
    let pool = Pool {
        kind: PoolKind::Max,
        kernel: vec![2],
        strides: vec![],
        pads: Pads::default(),
        dilations: vec![],
        ceil_mode: false,
    };
    let resize = Resize {
        mode: ResizeMode::Linear,
        coordinates: CoordinateMode::HalfPixel,
        scales: Some(vec![2.]),
        ..Resize::default()
    };
    let geometry = ConvGeometry {
        kernel: [1; 2],
        strides: [1; 2],
        dilations: [1; 2],
        pads: Pads::default(),
        group: 1,
        channels: 1,
        maps: 1,
    };
    let weight = noise(&[1, 1, 1, 1], 0);
    let (conv_nhwc, _) =
        ConvNhwc::pack(geometry.clone(), &weight.view(), ConvHints::default()).unwrap();
    let pool_nhwc = PoolNhwc {
        kind: PoolKind::Max,
        kernel: [1; 2],
        strides: [1; 2],
        pads: Pads::default(),
        dilations: [1; 2],
        ceil_mode: false,
    };
    let trees =
        TreeEnsemble::new(&Trees::default(), 1, TreeAggregate::Sum, vec![], PostTransform::None);
    let svm = Svm::new(SvmKernel::Linear, SvmDecision::Regression, vec![1.], 1, vec![1.], vec![0.]);
    let (trees, svm) = (trees.unwrap(), svm.unwrap());
    let quant = Quant { dtype: DType::U8, scale: 1., zero: 1 };
    let bytes = Tensor::zeros(DType::I8, [1, 1, 1, 1]).unwrap();
    let parts = QConvParts {
        x: quant,
        weight: &bytes.view(),
        weight_scale: &[1.],
        weight_zero: &[0],
        bias: None,
        y: quant,
        limits: (f32::NEG_INFINITY, f32::INFINITY),
    };
    let q_conv = QConv::new(geometry, parts).unwrap();
    let matrix = Tensor::zeros(DType::I8, [2, 2]).unwrap();
    let q_matmul = |kind| {
        let parts = QMatMulParts {
            weight: &matrix.view(),
            transposed: false,
            weight_scale: &[1.],
            weight_zero: &[0],
            kind,
        };
        QMatMul::new(parts).unwrap()
    };
    let ops: Vec<Box<dyn Op>> = vec![
        Box::new(q_conv),
        Box::new(q_matmul(QKind::Fixed {
            x: quant,
            y: quant,
            bias: None,
            limits: (f32::NEG_INFINITY, f32::INFINITY),
        })),
        Box::new(q_matmul(QKind::Dynamic { bias: None, activation: crate::Activation::None })),
        Box::new(QAdd { a: quant, b: quant, y: quant, limits: (0., 1.) }),
        Box::new(QLookup { from: DType::U8, to: DType::I8, table: Box::new([0; 256]) }),
        Box::new(QMaxPool {
            kernel: [1; 2],
            strides: [1; 2],
            dilations: [1; 2],
            pads: Pads::default(),
            ceil_mode: false,
        }),
        Box::new(QGlobalAveragePool { x: quant, y: quant }),
        Box::new(AttentionMask { hidden: -1. }),
        Box::new(GroupQueryAttention {
            heads: 2,
            key_heads: 1,
            causal: true,
            scale: None,
            softcap: 0.,
            window: Some(1),
            rotary: true,
            interleaved: false,
            smooth: true,
        }),
        Box::new(Inverse),
        Box::new(NGramRepeatBlock { size: 1 }),
        Box::new(RelativePositionBias { bidirectional: true, far: 8 }),
        Box::new(Align { axis: 0 }),
        Box::new(ArgReduce {
            kind: ArgKind::Max,
            axis: 0,
            keep_dims: true,
            select_last_index: false,
        }),
        Box::new(Attention { scores: Some(Scores::Raw), ..Attention::default() }),
        Box::new(BatchNorm::default()),
        Box::new(MatMulBits {
            k: 1,
            n: 1,
            bits: 4,
            block: 32,
            zeros: Zeros::Middle,
            activation: Default::default(),
        }),
        Box::new(MatMulPacked { k: 1, n: 1, bf16: false, activation: Default::default() }),
        Box::new(Sdpa {
            q: [0, 1, 2, 3],
            k: [0, 1, 2, 3],
            v: [0, 1, 2, 3],
            swapped: false,
            scale: 1.,
            sharing: 1,
        }),
        Box::new(Binary::new(BinaryKind::Add)),
        Box::new(Cast { to: DType::F32 }),
        Box::new(CastAs { to: None, saturate: true, rounding: PowerRounding::Up }),
        Box::new(CausalConv),
        Box::new(ClassScores { rule: ClassRule::Highest, post: PostTransform::None }),
        Box::new(Clip::default()),
        Box::new(Concat { axis: 0 }),
        Box::new(ConstantOfShape { value }),
        Box::new(Conv::default()),
        Box::new(conv_nhwc),
        Box::new(ConvTranspose::default()),
        Box::new(DeformConv::default()),
        Box::new(DepthToSpace { block: 2, mode: DepthMode::Dcr }),
        Box::new(SpaceToDepth { block: 2 }),
        Box::new(Dropout { seed: 0 }),
        Box::new(Expand),
        Box::new(Flatten::default()),
        Box::new(Gather::default()),
        Box::new(Gemm::default()),
        Box::new(GlobalPool { kind: GlobalPoolKind::Max }),
        Box::new(GlobalPoolNhwc { kind: GlobalPoolKind::Max }),
        Box::new(GroupNorm { groups: 1, epsilon: 0. }),
        Box::new(ConvInteger::default()),
        Box::new(DequantizeLinear::default()),
        Box::new(DynamicQuantizeLinear),
        Box::new(MatMulInteger),
        Box::new(QuantizeLinear::default()),
        Box::new(UnpackBits { k: 8, n: 1, bits: 4, block: 8 }),
        Box::new(Identity),
        Box::new(InstanceNorm::default()),
        Box::new(LayerNorm::default()),
        Box::new(LayerNormStats { axis: -1, epsilon: 0. }),
        Box::new(LinearAttention {
            query_heads: 1,
            key_heads: 1,
            scale: None,
            gated: false,
            delta: false,
        }),
        Box::new(Lrn { alpha: 1., beta: 1., bias: 1., size: 1 }),
        Box::new(MatMul),
        Box::new(MaxPoolIndices { pool: pool.clone(), column_major: true }),
        Box::new(MaxUnpool { kernel: vec![2], strides: vec![], pads: vec![] }),
        Box::new(NllLoss { reduction: Reduction::Mean, ignore_index: None }),
        Box::new(Pad { mode: PadMode::Constant, pads: None, value: None }),
        Box::new(pool),
        Box::new(pool_nhwc),
        Box::new(Range),
        Box::new(Recurrent::new(Cell::Rnn)),
        Box::new(Recurrent::new(Cell::Gru { linear_before_reset: true })),
        Box::new(Recurrent::new(Cell::Lstm { input_forget: false })),
        Box::new(RecurrentPacked { layer: Recurrent::new(Cell::Rnn), features: 2, hidden: 2 }),
        Box::new(Reduce::new(ReduceKind::Sum, None)),
        Box::new(Reshape::default()),
        Box::new(resize),
        Box::new(RmsNorm::default()),
        Box::new(RotaryEmbedding::default()),
        Box::new(Shape::default()),
        Box::new(Size),
        Box::new(Slice::default()),
        Box::new(Softmax { axis: 1, log: false, flatten: false }),
        Box::new(Split { axis: 0, outputs: 2, sizes: None }),
        Box::new(Squeeze::default()),
        Box::new(svm),
        Box::new(Tile),
        Box::new(Transpose::default()),
        Box::new(trees),
        Box::new(Unary::new(UnaryKind::Exp)),
        Box::new(Unsqueeze::default()),
        Box::new(Where),
        Box::new(GatherElements::default()),
        Box::new(GatherNd::default()),
        Box::new(GatherNd { batch_dims: 2 }),
        Box::new(ScatterElements::default()),
        Box::new(ScatterNd { reduction: ScatterReduction::Max }),
        Box::new(TopK { axis: 0, largest: true, k: Some(1) }),
        Box::new(Unique { axis: Some(0), sorted: true }),
        Box::new(Unique { axis: None, sorted: false }),
        Box::new(NonZero),
        Box::new(OneHot { axis: 0 }),
        Box::new(Cumulative { product: false, exclusive: true, reverse: true }),
        Box::new(Trilu { upper: true }),
        Box::new(EyeLike::default()),
        Box::new(Compress { axis: Some(0) }),
        Box::new(ReverseSequence { time_first: true }),
        Box::new(Bitwise { kind: BitwiseKind::And }),
        Box::new(BitwiseNot),
        Box::new(BitCast { to: DType::I32 }),
        Box::new(IndexOf::new(&ints(&[1, 2])).unwrap()),
        Box::new(ZipMap { keys: ints(&[1]) }),
        Box::new(CastMap { to: DType::F32, width: None }),
        Box::new(DictVectorizer::new(&ints(&[1])).unwrap()),
        Box::new(Hardmax { axis: -1, flatten: false }),
        Box::new(Det),
        Box::new(Mean),
        Box::new(Einsum { equation: "ij,jk->ik".into() }),
        Box::new(Einsum { equation: "...i->...".into() }),
        Box::new(GridSample {
            mode: SampleMode::Cubic,
            padding: SamplePadding::Reflection,
            align_corners: false,
        }),
        Box::new(AffineGrid::default()),
        Box::new(RoiAlign {
            output: [1, 1],
            sampling_ratio: 0,
            spatial_scale: 1.,
            half_pixel: true,
            max: false,
        }),
        Box::new(MaxRoiPool { output: [2, 2], spatial_scale: 1. }),
        Box::new(NonMaxSuppression::default()),
        Box::new(Dft { axis: 0, inverse: true, one_sided: true }),
        Box::new(Stft { one_sided: true }),
        Box::new(WindowFunction { kind: WindowKind::Hann, periodic: false, dtype: DType::F32 }),
        Box::new(MelWeights { dtype: DType::F32 }),
        Box::new(Col2Im::default()),
        Box::new(CenterCropPad::default()),
        Box::new(TensorScatter { axis: 1, circular: true }),
        Box::new(Random { kind: RandomKind::Bernoulli, seed: 0, dtype: None, shape: None }),
        Box::new(Multinomial { samples: 2, seed: 0, dtype: DType::I64 }),
    ];
    let unknown = |dtype| ValueInfo::of(lgp_memory::TensorType { dtype, shape: None });
    for op in ops {
        let none: [Option<&ValueInfo>; 0] = [];
        assert!(op.infer(&none).is_err(), "{op:?}");
        assert!(op.infer(&[None; 9]).is_err(), "{op:?}");
        let context = crate::Context::new(1);
        assert!(op.run(&context, &[]).is_err(), "{op:?}");
        assert!(op.run(&context, &[None, None, None, None, None]).is_err(), "{op:?}");
        // For any rank and dtype of the inputs there is a result or an error, and no panic.
        for rank in 0..6 {
            for dtype in DType::ALL {
                for dim in [0, 1, 2] {
                    let x = Tensor::zeros(dtype, vec![dim; rank]).unwrap();
                    for arity in 1..6 {
                        let _ = op.run(&context, &vec![Some(x.view()); arity]);
                    }
                }
            }
        }
        for arity in 1..6 {
            let info = unknown(DType::F32);
            let _ = op.infer(&vec![Some(&info); arity]);
        }
    }
}
