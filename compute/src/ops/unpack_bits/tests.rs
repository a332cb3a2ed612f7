//! Unpacked numbers of few bits.

use crate::ops::UnpackBits;
use crate::testing::{fails, run, t};

#[test]
fn four_and_eight_bits_in_blocks() {
    let op = UnpackBits { k: 9, n: 1, bits: 4, block: 8 };
    let packed = t(&[1, 2, 4], &[0x10u8, 0x32, 0x54, 0x76, 0x08, 0, 0, 0]);
    let scales = t(&[2], &[1f32, 0.5]);
    let want = t(&[9, 1], &[-8f32, -7., -6., -5., -4., -3., -2., -1., 0.]);
    assert_eq!(run(&op, &[&packed, &scales]), want);
    let zero = t(&[1], &[0x20u8]);
    let want = t(&[9, 1], &[0f32, 1., 2., 3., 4., 5., 6., 7., 3.]);
    assert_eq!(run(&op, &[&packed, &scales, &zero]), want);
    assert_eq!(run(&op, &[&packed, &scales, &t(&[2], &[0f32, 2.])]), want);
    let bytes = UnpackBits { k: 2, n: 2, bits: 8, block: 8 };
    let packed = t(&[2, 1, 8], &[1u8, 2, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0]);
    let zero = t(&[2], &[1u8, 2]);
    assert_eq!(run(&bytes, &[&packed, &scales, &zero]), t(&[2, 2], &[0f32, 0.5, 1., 1.]));
    assert!(fails(&op, &[&packed, &scales]).contains("packed weights have 16 elements"));
    let odd = UnpackBits { block: 12, ..op };
    assert!(fails(&odd, &[&packed, &scales]).contains("blocks of 12"));
}
