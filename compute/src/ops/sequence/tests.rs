//! Sequences: made, read, changed, split and joined.

use super::*;
use crate::testing::{ints, t};

fn run(op: &dyn Op, inputs: Vec<Datum>) -> Result<Datum> {
    let out = op.run_data(&Context::new(1), inputs.into_iter().map(Some).collect())?;
    assert_eq!(out.len(), 1, "{op:?}");
    Ok(out.into_iter().next().unwrap())
}

fn list(values: &[i64]) -> Datum {
    Datum::Sequence(values.iter().map(|&v| ints(&[v]).into()).collect())
}

fn at(i: i64) -> Datum {
    t(&[], &[i]).into()
}

#[test]
fn positions_count_from_both_ends() {
    let abc = || list(&[1, 2, 3]);
    assert_eq!(run(&SequenceAt, vec![abc(), at(-1)]).unwrap(), ints(&[3]).into());
    assert_eq!(run(&SequenceErase, vec![abc(), at(0)]).unwrap(), list(&[2, 3]));
    assert_eq!(run(&SequenceErase, vec![abc()]).unwrap(), list(&[1, 2]));
    let nine = || ints(&[9]).into();
    assert_eq!(run(&SequenceInsert, vec![abc(), nine(), at(1)]).unwrap(), list(&[1, 9, 2, 3]));
    assert_eq!(run(&SequenceInsert, vec![abc(), nine(), at(3)]).unwrap(), list(&[1, 2, 3, 9]));
    assert_eq!(run(&SequenceInsert, vec![abc(), nine()]).unwrap(), list(&[1, 2, 3, 9]));
    assert_eq!(run(&SequenceLength, vec![abc()]).unwrap(), t(&[], &[3i64]).into());
    for (op, inputs) in [
        (&SequenceAt as &dyn Op, vec![abc(), at(3)]),
        (&SequenceAt, vec![abc(), at(-4)]),
        (&SequenceAt, vec![list(&[]), at(0)]),
        (&SequenceErase, vec![list(&[])]),
        (&SequenceInsert, vec![abc(), nine(), at(i64::MIN)]),
        (&SequenceLength, vec![at(0)]),
    ] {
        assert!(run(op, inputs).is_err(), "{op:?}");
    }
}

#[test]
fn tensors_are_cut_and_joined() {
    let x = || Datum::Tensor(t(&[3, 2], &[1f32, 2., 3., 4., 5., 6.]));
    let cut = |keep_dims| SplitToSequence { axis: 0, keep_dims };
    let shapes = |value: Datum| match value {
        Datum::Sequence(items) => {
            items.iter().map(|i| i.tensor().unwrap().shape().to_vec()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(shapes(run(&cut(true), vec![x()]).unwrap()), vec![vec![1, 2]; 3]);
    assert_eq!(shapes(run(&cut(false), vec![x()]).unwrap()), vec![vec![2]; 3]);
    assert_eq!(shapes(run(&cut(false), vec![x(), at(2)]).unwrap()), [[2, 2], [1, 2]]);
    let pieces = run(&cut(true), vec![x(), ints(&[1, 2]).into()]).unwrap();
    let joined = ConcatFromSequence { axis: 0, new_axis: false };
    assert_eq!(run(&joined, vec![pieces]).unwrap(), x());
    for sizes in [ints(&[1, 1]), ints(&[-1, 4]), t(&[], &[0i64])] {
        assert!(run(&cut(true), vec![x(), sizes.into()]).is_err());
    }
    let rows = run(&cut(false), vec![x()]).unwrap();
    let stacked = ConcatFromSequence { axis: -1, new_axis: true };
    let out = run(&stacked, vec![rows]).unwrap();
    assert_eq!(out.tensor().unwrap(), &t(&[2, 3], &[1f32, 3., 5., 2., 4., 6.]));
}
