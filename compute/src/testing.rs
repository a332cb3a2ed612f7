//! Helpers of the operators' tests.

use crate::{Context, Op, Result, ValueInfo};
use lgp_memory::{DType, Dim, Element, SymShape, Tensor, TensorType, TensorView};

/// A tensor of the elements given.
pub(crate) fn t<T: Element>(dims: &[usize], data: &[T]) -> Tensor {
    Tensor::from_slice(dims, data).unwrap()
}

/// A tensor of i64 of rank 1.
pub(crate) fn ints(data: &[i64]) -> Tensor {
    t(&[data.len()], data)
}

/// Pseudo-random floats in -1..1, the same for the same seed.
pub(crate) fn noise(dims: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let n: usize = dims.iter().product();
    let data: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from(i16::from_ne_bytes([(state >> 40) as u8, (state >> 48) as u8])) / 32768.
        })
        .collect();
    t(dims, &data)
}

/// Runs an operator on one thread and on three, which must agree, and compares the outputs with the
/// types inferred from unknown dimensions.
pub(crate) fn run_all(op: &dyn Op, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>> {
    let views: Vec<Option<TensorView<'_>>> = inputs.iter().map(|x| x.map(Tensor::view)).collect();
    let out = op.run(&Context::new(1), &views)?;
    assert_eq!(op.run(&Context::new(3), &views).unwrap(), out, "{op:?} on three threads");
    let infos: Vec<Option<ValueInfo>> = inputs.iter().map(|x| x.map(vague)).collect();
    let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
    let inferred = op.infer(&infos).unwrap_or_else(|e| panic!("{op:?}: {e}"));
    assert_eq!(inferred.len(), out.len(), "{op:?}");
    for (info, out) in inferred.iter().zip(&out) {
        assert_eq!(info.ty.dtype, out.dtype(), "{op:?}");
        if let Some(shape) = &info.ty.shape {
            let fits = shape.rank() == out.shape().rank()
                && shape
                    .0
                    .iter()
                    .zip(out.shape().iter())
                    .all(|(d, n)| d.known().is_none_or(|d| d == *n));
            assert!(fits, "{op:?}: inferred {shape}, got {:?}", out.shape());
        }
    }
    Ok(out)
}

/// Dtype and rank of a tensor, its dimensions unknown.
fn vague(x: &Tensor) -> ValueInfo {
    let shape = SymShape(vec![Dim::Unknown; x.shape().rank()]);
    ValueInfo::of(TensorType { dtype: x.dtype(), shape: Some(shape) })
}

/// The only output of an operator that must succeed.
pub(crate) fn run(op: &dyn Op, inputs: &[&Tensor]) -> Tensor {
    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|x| Some(*x)).collect();
    let mut out = run_all(op, &inputs).unwrap_or_else(|e| panic!("{op:?}: {e}"));
    assert_eq!(out.len(), 1, "{op:?}");
    out.remove(0)
}

/// The message of an operator that must fail.
pub(crate) fn fails(op: &dyn Op, inputs: &[&Tensor]) -> String {
    let views: Vec<Option<TensorView<'_>>> = inputs.iter().map(|x| Some(x.view())).collect();
    match op.run(&Context::new(1), &views) {
        Ok(out) => panic!("{op:?} gave {out:?}"),
        Err(error) => error.to_string(),
    }
}

/// Fails unless shapes are equal and elements within a tolerance, absolute and relative.
pub(crate) fn assert_close(got: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()));
    for (i, (a, b)) in wide(got).into_iter().zip(wide(want)).enumerate() {
        let close =
            a == b || (a - b).abs() <= tolerance * (1. + b.abs()) || (a.is_nan() && b.is_nan());
        assert!(close, "element {i} is {a}, expected {b}");
    }
}

fn wide(x: &Tensor) -> Vec<f64> {
    let cast = crate::ops::Cast { to: DType::F64 };
    let out = cast.run(&Context::new(1), &[Some(x.view())]).unwrap();
    out[0].as_slice().unwrap().to_vec()
}

/// The info of a value from text: `"f32 n 3 ?"`, or `"dims n 4"` for a value that holds dimensions.
pub(crate) fn info(text: &str) -> ValueInfo {
    let mut words = text.split_whitespace();
    let kind = words.next().unwrap();
    let dims: Vec<Dim> = words
        .map(|word| match word.parse() {
            Ok(n) => Dim::Known(n),
            Err(_) if word == "?" => Dim::Unknown,
            Err(_) => Dim::Symbol(word.into()),
        })
        .collect();
    if kind == "dims" {
        let shape = SymShape(vec![Dim::Known(dims.len())]);
        let mut info = ValueInfo::of(TensorType { dtype: DType::I64, shape: Some(shape) });
        info.dims = Some(dims);
        return info;
    }
    let dtype = DType::ALL.into_iter().find(|d| d.name() == kind).unwrap();
    ValueInfo::of(TensorType { dtype, shape: Some(SymShape(dims)) })
}

/// A constant.
pub(crate) fn constant(x: Tensor) -> ValueInfo {
    let mut info = ValueInfo::of(TensorType::concrete(x.dtype(), x.shape()));
    info.constant = Some(x);
    info
}

/// The inferred types of all outputs as text, with contents where they are tracked; or the error.
pub(crate) fn infers(op: &dyn Op, inputs: &[ValueInfo]) -> String {
    let inputs: Vec<Option<&ValueInfo>> = inputs.iter().map(Some).collect();
    match op.infer(&inputs) {
        Err(error) => error.to_string(),
        Ok(out) => {
            let one = |info: &ValueInfo| match &info.dims {
                Some(dims) => format!("{} = {}", info.ty, SymShape(dims.clone())),
                None => info.ty.to_string(),
            };
            out.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}
