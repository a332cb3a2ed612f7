//! Against sums written out.

use crate::ops::Einsum;
use crate::testing::{assert_close, fails, infers, info, noise, run, t};
use lgp_memory::Tensor;

fn einsum(equation: &str, inputs: &[&Tensor]) -> Tensor {
    run(&Einsum { equation: equation.into() }, inputs)
}

#[test]
fn products_and_sums() {
    let (a, b) = (noise(&[2, 3, 4], 1), noise(&[2, 4, 5], 2));
    let (x, y) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
    let mut want = vec![0f32; 2 * 3 * 5];
    let mut total = 0f32;
    for (n, i, j, k) in (0..120).map(|q| (q / 60, q / 20 % 3, q / 5 % 4, q % 5)) {
        let p = x[(n * 3 + i) * 4 + j] * y[(n * 4 + j) * 5 + k];
        want[(n * 3 + i) * 5 + k] += p;
        total += p;
    }
    let want = t(&[2, 3, 5], &want);
    assert_close(&einsum("bij, bjk -> bik", &[&a, &b]), &want, 1e-5);
    assert_close(&einsum("bij,bjk", &[&a, &b]), &t(&[3, 5], &fold(&want)), 1e-5);
    assert_close(&einsum("...ij,...jk->...ik", &[&a, &b]), &want, 1e-5);
    assert_close(&einsum("bij,bjk->", &[&a, &b]), &t(&[], &[total]), 1e-4);
    let ones = t(&[5], &[1f32; 5]);
    assert_close(&einsum("bij,bjk,k->", &[&a, &b, &ones]), &t(&[], &[total]), 1e-4);
}

/// The sum over the first axis of `[2, 3, 5]`.
fn fold(x: &Tensor) -> Vec<f32> {
    let x = x.as_slice::<f32>().unwrap();
    (0..15).map(|i| x[i] + x[15 + i]).collect()
}

#[test]
fn single_inputs_diagonals_and_integers() {
    let x = t(&[2, 2], &[1i32, 2, 3, 4]);
    assert_eq!(einsum("ij->ji", &[&x]), t(&[2, 2], &[1i32, 3, 2, 4]));
    assert_eq!(einsum("ii->i", &[&x]), t(&[2], &[1i32, 4]));
    assert_eq!(einsum("ii", &[&x]), t(&[], &[5i32]));
    assert_eq!(einsum("ij->i", &[&x]), t(&[2], &[3i32, 7]));
    assert_eq!(einsum("ij,jk->ik", &[&x, &x]), t(&[2, 2], &[7i32, 10, 15, 22]));
    let (row, all) = (t(&[1, 2], &[1f32, 2.]), t(&[3, 2], &[1f32; 6]));
    assert_eq!(einsum("...j,...j->...", &[&row, &all]), t(&[3], &[3f32; 3]));
    assert_eq!(einsum("...j->...j", &[&row]), row);
}

#[test]
fn equations_that_do_not_fit_are_refused() {
    let x = t(&[2, 2], &[1f32; 4]);
    for (equation, message) in [
        ("ijk->i", "names 3 axes for an input of rank 2"),
        ("ij,jk->ik", "has 2 inputs, expected 1"),
        ("ij->k", "one of no input"),
        ("ij->ii", "twice"),
        ("i1->i", "has '1', expected a letter"),
    ] {
        assert!(
            fails(&Einsum { equation: equation.into() }, &[&x]).contains(message),
            "{equation}"
        );
    }
    let op = Einsum { equation: "ij,jk->ik".into() };
    assert!(fails(&op, &[&x, &t(&[3, 1], &[0f32; 3])]).contains("broadcast"));
    assert_eq!(infers(&op, &[info("f32 n 4"), info("f32 4 m")]), "f32 [n,m]");
}

/// The products of all pairs would take 64 GB.
#[test]
fn integers_are_summed_as_they_come() {
    let x = t(&[2000, 2000], &vec![1i64; 4_000_000]);
    let row = run(&Einsum { equation: "ij,jk->i".into() }, &[&x, &x]);
    assert_eq!(row, t(&[2000], &[4_000_000i64; 2000]));
    let narrow = t(&[2000, 20], &vec![3u8; 40_000]);
    let out = run(&Einsum { equation: "ij,kj->ik".into() }, &[&narrow, &narrow]);
    assert_eq!(out, t(&[2000, 2000], &vec![180u8; 4_000_000]));
}

/// The outer product of the first two would take 4 TB.
#[test]
fn inputs_that_share_an_axis_are_joined_first() {
    let row = t(&[1_000_000], &vec![1f32; 1_000_000]);
    let both = t(&[1_000_000, 1], &vec![1f32; 1_000_000]);
    let out = run(
        &Einsum { equation: "i,j,ik,kj->k".into() },
        &[&row, &row, &both, &t(&[1, 1_000_000], &vec![1f32; 1_000_000])],
    );
    assert_close(&out, &t(&[1], &[1e12f32]), 1e6);
}
