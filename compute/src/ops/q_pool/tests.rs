//! Quantised pools against those of floats.

use crate::ops::{Pads, QGlobalAveragePool, QMaxPool, Quant};
use crate::testing::{fails, run, t};
use lgp_memory::DType;

#[test]
fn largest_bytes() {
    let op = QMaxPool {
        kernel: [2, 2],
        strides: [1, 2],
        dilations: [1, 1],
        pads: Pads::Explicit(vec![1, 0, 0, 1]),
        ceil_mode: false,
    };
    let x: Vec<u8> = (0..12).map(|i| i * 21 % 25 + 100).collect();
    let want: Vec<u8> = (0..2)
        .flat_map(|oy: i32| (0..2).map(move |ox: i32| (oy, ox)))
        .flat_map(|at| (0..2).map(move |c: i32| (at, c)))
        .map(|((oy, ox), c)| {
            let taps = (0..2).flat_map(|y| (0..2).map(move |x| (oy + y - 1, 2 * ox + x)));
            let inside = taps.filter(|(y, x)| (0..2).contains(y) && (0..3).contains(x));
            inside.map(|(y, p)| x[usize::try_from((y * 3 + p) * 2 + c).unwrap()]).max().unwrap()
        })
        .collect();
    assert_eq!(run(&op, &[&t(&[1, 2, 3, 2], &x)]), t(&[1, 2, 2, 2], &want));
    let signed: Vec<i8> = x.iter().map(|x| (x ^ 0x80).cast_signed()).collect();
    let want: Vec<i8> = want.iter().map(|x| (x ^ 0x80).cast_signed()).collect();
    assert_eq!(run(&op, &[&t(&[1, 2, 3, 2], &signed)]), t(&[1, 2, 2, 2], &want));
    assert!(fails(&op, &[&t(&[1, 2, 3, 2], &[0f32; 12])]).contains("f32"));
}

#[test]
fn means() {
    let x = Quant { dtype: DType::U8, scale: 0.5, zero: 2 };
    let y = Quant { dtype: DType::I8, scale: 0.25, zero: -5 };
    let op = QGlobalAveragePool { x, y };
    let image = t(&[1, 2, 1, 2], &[4u8, 10, 6, 11]);
    // The means are 3 and 8.5 steps of 0.5 above zero.
    assert_eq!(run(&op, &[&image]), t(&[1, 1, 1, 2], &[1i8, 12]));
}
