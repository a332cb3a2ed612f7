//! Element-wise operators.

use super::{Case, cast, noise};
use lgp_compute::ops::{Binary, BinaryKind, Cast, Clip, Unary, UnaryKind, Where};
use lgp_memory::{DType, Tensor};

pub(super) fn cases() -> Vec<Case> {
    [unary(), binary(), conversions(), choices()].into_iter().flatten().collect()
}

/// Numbers around zero, both zeros, both infinities and NaN.
fn numbers() -> Tensor {
    let mut data: Vec<f32> = (-40..40).map(|i| i as f32 * 0.37).collect();
    data.extend([0., -0., f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    Tensor::from_slice([data.len()], &data).expect("the shape fits")
}

/// Finite numbers, for functions whose approximations differ at infinity.
fn finite() -> Tensor {
    noise(&[100], 5)
}

fn unary() -> Vec<Case> {
    use UnaryKind as K;
    let tanh = K::Gelu { tanh: true };
    let examples = K::EXAMPLES.iter().copied().filter(|kind| *kind != tanh);
    let bools = [K::IsNaN, K::IsInf { positive: true, negative: false }];
    let mut cases: Vec<Case> = examples
        .chain(bools)
        .map(|kind| Case::new(format!("{kind:?}"), Unary::new(kind), vec![numbers()]).within(2e-5))
        .collect();
    cases.push(Case::new("Gelu by tanh", Unary::new(tanh), vec![finite()]));
    for dtype in [DType::F16, DType::BF16] {
        let x = cast(&noise(&[3, 50], 1), dtype);
        cases.push(Case::new(format!("Tanh {dtype}"), Unary::new(K::Tanh), vec![x]));
    }
    for kind in [K::Neg, K::Abs, K::Sign, K::Relu] {
        for dtype in [DType::I8, DType::I64] {
            let x = Tensor::from_slice([5], &[-7i8, -128, 0, 127, 3]).expect("five");
            cases.push(Case::new(
                format!("{kind:?} {dtype}"),
                Unary::new(kind),
                vec![cast(&x, dtype)],
            ));
        }
    }
    let bools = Tensor::from_slice([3], &[true, false, true]).expect("three");
    cases.push(Case::new("Not", Unary::new(K::Not), vec![bools]));
    cases
}

fn binary() -> Vec<Case> {
    use BinaryKind as K;
    let mut cases = Vec::new();
    let kinds = [
        K::Add,
        K::Sub,
        K::Mul,
        K::Div,
        K::Min,
        K::Max,
        K::Mod { fmod: true },
        K::PRelu,
        K::Equal,
        K::Less,
        K::LessOrEqual,
        K::Greater,
        K::GreaterOrEqual,
    ];
    for kind in kinds {
        let inputs = vec![noise(&[2, 3, 5, 7], 1), noise(&[3, 1, 7], 2)];
        cases.push(Case::new(format!("{kind:?}"), Binary::new(kind), inputs));
    }
    for (a, b) in [
        (vec![4, 9], vec![4, 9]),
        (vec![], vec![]),
        (vec![1], vec![6, 1, 5]),
        (vec![2, 1, 3, 1, 5, 1], vec![2, 1, 3, 1, 5]),
        (vec![1, 64, 1, 1], vec![2, 64, 7, 7]),
        (vec![5], vec![1, 4, 5]),
        (vec![0, 3], vec![1, 3]),
        (vec![70_000], vec![1]),
    ] {
        let name = format!("Add {a:?} {b:?}");
        cases.push(Case::new(name, Binary::new(K::Add), vec![noise(&a, 3), noise(&b, 4)]));
    }
    for kind in [K::Add, K::Sub, K::Mul, K::Max, K::Less] {
        for dtype in [DType::I8, DType::I64, DType::U8] {
            let x = Tensor::from_slice([4], &[100i32, 3, 127, 90]).expect("four");
            let y = Tensor::from_slice([4], &[100i32, 90, 127, 3]).expect("four");
            let inputs = vec![cast(&x, dtype), cast(&y, dtype)];
            cases.push(Case::new(format!("{kind:?} {dtype}"), Binary::new(kind), inputs));
        }
    }
    let positive = Tensor::from_slice([4], &[0.5f32, 2., 9., 1.]).expect("four");
    let powers = Tensor::from_slice([4], &[2f32, 0.5, -1., 0.]).expect("four");
    cases.push(Case::new("Pow", Binary::new(K::Pow), vec![positive.clone(), powers]));
    let whole = Tensor::from_slice([4], &[2i64, 0, 3, -1]).expect("four");
    cases.push(Case::new("Pow i64", Binary::new(K::Pow), vec![positive, whole]));
    let (p, q) = ([true, true, false, false], [true, false, true, false]);
    for kind in [K::And, K::Or, K::Xor, K::Equal] {
        let inputs = [p, q].map(|x| Tensor::from_slice([4], &x).expect("four"));
        cases.push(Case::new(format!("{kind:?} bool"), Binary::new(kind), inputs.to_vec()));
    }
    cases
}

fn conversions() -> Vec<Case> {
    let all = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];
    let floats =
        [-1e30f32, -300.5, -1.5, -0.5, 0., 0.5, 1.5, 200.7, 7e4, 3e9, 1e19, 1e30, f32::NAN];
    let x = Tensor::from_slice([floats.len()], &floats).expect("as many");
    let small = Tensor::from_slice([5], &[0f32, 1., 2., 100., 127.]).expect("five");
    let mut cases = Vec::new();
    for to in all {
        cases.push(Case::new(format!("Cast f32 to {to}"), Cast { to }, vec![x.clone()]));
        for from in [DType::I8, DType::I64, DType::U8, DType::F16, DType::Bool] {
            let inputs = vec![cast(&small, from)];
            cases.push(Case::new(format!("Cast {from} to {to}"), Cast { to }, inputs));
        }
    }
    cases
}

fn choices() -> Vec<Case> {
    let condition = Tensor::from_slice([3, 1], &[true, false, true]).expect("three");
    let inputs = vec![condition, noise(&[3, 4], 1), noise(&[4], 2)];
    let bounds = |x: f32| Tensor::scalar(x).expect("one");
    let clipped = vec![numbers(), bounds(-0.5), bounds(0.5)];
    vec![
        Case::new("Where", Where, inputs),
        Case::new("Clip", Clip::default(), clipped.clone()).constant(&[1, 2]),
        Case::new("Clip above", Clip::default(), clipped).absent(1),
        Case::new("Clip by attributes", Clip { min: Some(0.), max: Some(6.) }, vec![numbers()]),
    ]
}
