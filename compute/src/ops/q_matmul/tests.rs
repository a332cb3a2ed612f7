//! Quantised products against those of floats.

use crate::ops::{QInput, QMatMul, QMatMulParts, QOutput, Quant};
use crate::testing::{assert_close, fails, noise, run, t};
use lgp_memory::DType;

#[test]
fn bytes_to_bytes_and_floats() {
    let quant = Quant { dtype: DType::I8, scale: 0.5, zero: 1 };
    let weight = t(&[3, 2], &[1i8, 2, 3, 4, 5, -6]);
    let x = t(&[2, 3], &[1i8, 2, 3, 4, 5, 6]);
    let view = weight.view();
    let op = |y: QOutput| {
        QMatMul::new(QMatMulParts {
            x: QInput::Bytes(quant),
            weight: &view,
            transposed: false,
            weight_scale: &[1., 2.],
            weight_zero: &[0, 0],
            y,
            limits: (-9., f32::INFINITY),
        })
        .unwrap()
    };
    // Rows minus the zero point are (0, 1, 2) and (3, 4, 5): sums 13, -8 and 40, -8.
    let floats = op(QOutput::Floats { bias: Some(vec![0.5, 0.25]) });
    assert_eq!(run(&floats, &[&x]), t(&[2, 2], &[7f32, -7.75, 20.5, -7.75]));
    let y = Quant { dtype: DType::U8, scale: 2., zero: 10 };
    let bytes = op(QOutput::Bytes { quant: y, bias: Some(vec![0, -2]) });
    assert_eq!(run(&bytes, &[&x]), t(&[2, 2], &[13u8, 6, 20, 6]));
    assert!(fails(&bytes, &[&t(&[2], &[0i8; 2])]).contains("inner dimension"));
}

#[test]
fn floats_are_quantised_on_the_way() {
    let (x, w) = (noise(&[3, 37], 1), noise(&[37, 21], 2));
    let (xs, ws) = (x.as_slice::<f32>().unwrap(), w.as_slice::<f32>().unwrap());
    let q: Vec<i8> = ws.iter().map(|w| (w * 127.).round() as i8).collect();
    let weight = t(&[37, 21], &q);
    let op = QMatMul::new(QMatMulParts {
        x: QInput::Floats,
        weight: &weight.view(),
        transposed: false,
        weight_scale: &[1. / 127.],
        weight_zero: &[0],
        y: QOutput::Floats { bias: None },
        limits: (f32::NEG_INFINITY, f32::INFINITY),
    })
    .unwrap();
    let mut want = vec![0f32; 63];
    for (i, want) in want.iter_mut().enumerate() {
        *want = (0..37).map(|k| xs[i / 21 * 37 + k] * ws[k * 21 + i % 21]).sum();
    }
    assert_close(&run(&op, &[&x]), &t(&[3, 21], &want), 0.05);
}
