//! Trees against a walk written out, and trees that are refused.

use super::{Aggregate, Branch, Child, Split, TreeEnsemble, Trees};
use crate::post_transform::PostTransform;
use crate::testing::{assert_close, fails, infers, info, noise, run, t};

fn split(feature: usize, branch: Branch, yes: Child, no: Child) -> Split {
    Split { feature, branch, missing_is_yes: false, yes, no }
}

fn made(trees: &Trees, targets: usize) -> TreeEnsemble {
    TreeEnsemble::new(trees, targets, Aggregate::Sum, vec![], PostTransform::None).unwrap()
}

#[test]
fn every_comparison_decides() {
    use Child::Leaf;
    let x = t(&[4, 1], &[1f32, 2., 3., f32::NAN]);
    for (branch, missing_is_yes, want) in [
        (Branch::LessOrEqual(2.), false, [1f32, 1., 0., 0.]),
        (Branch::Less(2.), false, [1., 0., 0., 0.]),
        (Branch::GreaterOrEqual(2.), false, [0., 1., 1., 0.]),
        (Branch::Greater(2.), false, [0., 0., 1., 0.]),
        (Branch::Equal(2.), false, [0., 1., 0., 0.]),
        (Branch::NotEqual(2.), false, [1., 0., 1., 1.]),
        (Branch::Member(vec![3., 1.]), false, [1., 0., 1., 0.]),
        (Branch::Member(vec![]), true, [0., 0., 0., 1.]),
        (Branch::Less(2.), true, [1., 0., 0., 1.]),
    ] {
        let mut split = split(0, branch, Leaf(0), Leaf(1));
        split.missing_is_yes = missing_is_yes;
        let trees = Trees {
            splits: vec![split],
            leaves: vec![vec![(0, 1.)], vec![]],
            roots: vec![Child::Split(0)],
        };
        assert_eq!(run(&made(&trees, 1), &[&x]), t(&[4, 1], &want), "{trees:?}");
    }
}

/// Full trees of some depth, walked by index arithmetic: node `i` has children `2i + 1`, `2i + 2`.
#[test]
fn walks_agree_with_index_arithmetic() {
    let (depth, count, features, rows) = (5usize, 7usize, 3usize, 200usize);
    let inner = (1usize << depth) - 1;
    let thresholds = noise(&[count * inner], 3);
    let thresholds = thresholds.as_slice::<f32>().unwrap();
    let mut trees = Trees::default();
    for tree in 0..count {
        let base = tree * inner;
        trees.roots.push(Child::Split(base));
        for i in 0..inner {
            let child = |c: usize| {
                if c < inner {
                    Child::Split(base + c)
                } else {
                    Child::Leaf(tree * (inner + 1) + c - inner)
                }
            };
            let branch = Branch::Less(thresholds[base + i].into());
            trees.splits.push(split(
                (i + tree) % features,
                branch,
                child(2 * i + 1),
                child(2 * i + 2),
            ));
        }
        for leaf in 0..=inner {
            #[allow(clippy::cast_precision_loss)]
            trees.leaves.push(vec![(leaf % 2, (tree * leaf) as f64)]);
        }
    }
    let x = noise(&[rows, features], 5);
    let rows_of = x.as_slice::<f32>().unwrap();
    let mut want = vec![0f32; rows * 2];
    for (row, want) in rows_of.chunks(features).zip(want.chunks_mut(2)) {
        for tree in 0..count {
            let mut i = 0;
            while i < inner {
                let yes = row[(i + tree) % features] < thresholds[tree * inner + i];
                i = if yes { 2 * i + 1 } else { 2 * i + 2 };
            }
            #[allow(clippy::cast_precision_loss)]
            let value = (tree * (i - inner)) as f32;
            want[(i - inner) % 2] += value;
        }
    }
    assert_close(&run(&made(&trees, 2), &[&x]), &t(&[rows, 2], &want), 1e-6);
}

#[test]
fn leaves_are_taken_together_as_told() {
    let leaf = |target, value| vec![(target, value)];
    let trees = Trees {
        splits: vec![],
        leaves: vec![leaf(0, 1.), leaf(0, 4.)],
        roots: vec![Child::Leaf(0), Child::Leaf(1)],
    };
    for (aggregate, want) in [
        (Aggregate::Sum, [15f32, 0.]),
        (Aggregate::Average, [12.5, 0.]),
        (Aggregate::Min, [11., 0.]),
        (Aggregate::Max, [14., 0.]),
    ] {
        let op =
            TreeEnsemble::new(&trees, 2, aggregate, vec![10., 0.], PostTransform::None).unwrap();
        assert_eq!(run(&op, &[&t(&[3], &[0i64; 3])]), t(&[1, 2], &want), "{aggregate:?}");
        let wide = run(&op.keeping_f64(), &[&t(&[1, 3], &[0f64; 3])]);
        assert_eq!(wide, t(&[1, 2], &want.map(f64::from)));
    }
}

#[test]
fn trees_that_are_none_are_refused() {
    use Child::{Leaf, Split};
    let less = || Branch::Less(0.);
    let new = |splits: Vec<super::Split>, roots: Vec<Child>| {
        let trees = Trees { splits, leaves: vec![vec![(0, 1.)], vec![(7, 1.)]], roots };
        TreeEnsemble::new(&trees, 8, Aggregate::Sum, vec![], PostTransform::None)
    };
    let error = |splits, roots| new(splits, roots).unwrap_err().to_string();
    let own = vec![split(0, less(), Split(0), Leaf(0))];
    assert_eq!(error(own, vec![Split(0)]), "TreeEnsemble: split 0 is reached twice");
    let shared = vec![split(0, less(), Split(1), Split(1)), split(0, less(), Leaf(0), Leaf(0))];
    assert_eq!(error(shared, vec![Split(0)]), "TreeEnsemble: split 1 is reached twice");
    assert_eq!(error(vec![], vec![Split(0)]), "TreeEnsemble: split 0 is named, but there are 0");
    assert_eq!(error(vec![], vec![Leaf(2)]), "TreeEnsemble: leaf 2 is named, but there are 2");
    let far = vec![split(usize::MAX, less(), Leaf(0), Leaf(0))];
    assert!(error(far, vec![Split(0)]).ends_with("is too large"));
    let trees = Trees { leaves: vec![vec![(8, 1.)]], ..Trees::default() };
    let refused = TreeEnsemble::new(&trees, 8, Aggregate::Sum, vec![], PostTransform::None);
    assert_eq!(refused.unwrap_err().to_string(), "TreeEnsemble: a leaf adds to target 8 of 8");
    let refused = TreeEnsemble::new(&trees, 9, Aggregate::Sum, vec![1.], PostTransform::None);
    assert_eq!(refused.unwrap_err().to_string(), "TreeEnsemble: 1 base values, expected 9");
}

#[test]
fn inputs_are_tables_that_are_wide_enough() {
    let trees = Trees {
        splits: vec![split(2, Branch::Less(0.), Child::Leaf(0), Child::Leaf(0))],
        leaves: vec![vec![]],
        roots: vec![Child::Split(0)],
    };
    let op = made(&trees, 1);
    assert_eq!(fails(&op, &[&noise(&[4, 2], 0)]), "TreeEnsemble: 2 features, expected at least 3");
    assert!(fails(&op, &[&noise(&[1, 4, 3], 0)]).contains("rank 3"));
    assert_eq!(run(&op, &[&noise(&[0, 3], 0)]), t(&[0, 1], &[] as &[f32]));
    assert_eq!(infers(&op, &[info("f32 n 3")]), "f32 [n,1]");
}
