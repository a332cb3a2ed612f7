//! The scale and zero point that a tensor gets.

use crate::ops::DynamicQuantizeLinear;
use crate::testing::{fails, run_all, t};

#[test]
fn zero_is_always_in_range() {
    for (x, y, scale, zero) in [
        (
            &[0f32, 2., -3., -2.5, 1.34, 0.5][..],
            &[153u8, 255, 0, 26, 221, 179][..],
            5f32 / 255.,
            153u8,
        ),
        (&[-1., -2.1, -1.3, -2.5, -3.34, -4.], &[191, 121, 172, 96, 42, 0], 4. / 255., 255),
        (&[1., 2.1, 1.3, 2.5, 3.34, 4.], &[64, 134, 83, 159, 213, 255], 4. / 255., 0),
        (&[0., 0.], &[0, 0], 1., 0),
        (&[], &[], 1., 0),
    ] {
        let out = run_all(&DynamicQuantizeLinear, &[Some(&t(&[x.len()], x))]).unwrap();
        assert_eq!(out, [t(&[y.len()], y), t(&[], &[scale]), t(&[], &[zero])]);
    }
    for strange in [f32::NAN, f32::INFINITY] {
        let mut x = vec![0.5; 40_000];
        x[39_000] = strange;
        let out = run_all(&DynamicQuantizeLinear, &[Some(&t(&[x.len()], &x))]).unwrap();
        assert!(!out[1].as_slice::<f32>().unwrap()[0].is_finite(), "what it scales is not finite");
    }
    assert!(fails(&DynamicQuantizeLinear, &[&t(&[1], &[1u8])]).contains("expected f32"));
}
