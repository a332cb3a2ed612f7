//! Maps, made and read again.

use super::*;
use crate::testing::{ints, t};

fn run(op: &dyn Op, input: Datum) -> Result<Datum> {
    let mut out = op.run_data(&Context::new(1), vec![Some(input)])?;
    assert_eq!(out.len(), 1, "{op:?}");
    Ok(out.remove(0))
}

fn texts(texts: &[&str]) -> Tensor {
    Tensor::from_strings([texts.len()], texts).unwrap()
}

#[test]
fn rows_become_maps() {
    let op = ZipMap { keys: texts(&["no", "yes"]) };
    let map = |values: &[f32]| Datum::Map { keys: op.keys.clone(), values: t(&[2], values) };
    let x = t(&[2, 2], &[1f32, 2., 3., 4.]);
    let want = Datum::Sequence(vec![map(&[1., 2.]), map(&[3., 4.])]);
    assert_eq!(run(&op, x.into()).unwrap(), want);
    let one = run(&op, t(&[2], &[1f32, 2.]).into()).unwrap();
    assert_eq!(one, Datum::Sequence(vec![map(&[1., 2.])]));
    assert!(run(&op, t(&[2, 3], &[0f32; 6]).into()).is_err());
    assert!(run(&op, t(&[2], &[0f64; 2]).into()).is_err());
    assert!(run(&op, Datum::Absent).is_err());
}

#[test]
fn maps_become_rows() {
    let map = |keys: Tensor, values: Tensor| Datum::Map { keys, values };
    let numbers = || map(ints(&[3, 1]), t(&[2], &[30f32, 10.]));
    let dense = CastMap { to: DType::I64, width: None };
    assert_eq!(run(&dense, numbers()).unwrap(), t(&[1, 2], &[10i64, 30]).into());
    let sparse = |width| CastMap { to: DType::F32, width: Some(width) };
    let want = t(&[1, 5], &[0f32, 10., 0., 30., 0.]);
    assert_eq!(run(&sparse(5), numbers()).unwrap(), want.into());
    assert!(run(&sparse(3), numbers()).is_err());
    let written = map(ints(&[0, 1]), texts(&["1.5", "-2"]));
    assert_eq!(run(&sparse(2), written).unwrap(), t(&[1, 2], &[1.5f32, -2.]).into());
    let op = DictVectorizer::new(&texts(&["a", "c", "b"])).unwrap();
    let given = map(texts(&["b", "a"]), t(&[2], &[2i64, 1]));
    assert_eq!(run(&op, given).unwrap(), t(&[1, 3], &[1i64, 0, 2]).into());
    let strange = map(texts(&["d", "c"]), t(&[2], &[2i64, 3]));
    assert_eq!(run(&op, strange).unwrap(), t(&[1, 3], &[0i64, 3, 0]).into());
    let named = run(&op, map(texts(&["c"]), texts(&["x"]))).unwrap();
    assert_eq!(named.tensor().unwrap().strings().unwrap(), ["", "x", ""]);
    assert!(run(&op, numbers()).is_err());
}
