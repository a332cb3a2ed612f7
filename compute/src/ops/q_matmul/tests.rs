//! Quantised products against those of floats.

use crate::epilogue::Activation;
use crate::isa::Isa;
use crate::ops::{
    Binary, BinaryKind, DynamicQuantizeLinear, MatMulInteger, QKind, QMatMul, QMatMulParts, Quant,
    Unary, UnaryKind,
};
use crate::testing::{assert_close, fails, noise, run, run_all, t};
use crate::{Context, Op};
use lgp_memory::{DType, Tensor};

fn product(
    weight: &Tensor,
    transposed: bool,
    scale: &[f32],
    kind: QKind,
) -> crate::Result<QMatMul> {
    let zero = vec![0; scale.len()];
    let (weight, weight_scale, weight_zero) = (&weight.view(), scale, &zero[..]);
    QMatMul::new(QMatMulParts { weight, transposed, weight_scale, weight_zero, kind })
}

#[test]
fn bytes_to_bytes() {
    // Signed rows of an odd width, which are copied, and unsigned rows, which are read in place.
    for (dtype, k) in [(DType::I8, 3usize), (DType::U8, 4)] {
        let x = Quant { dtype, scale: 0.5, zero: 1 };
        let y = Quant { dtype: DType::U8, scale: 2., zero: 10 };
        let kind = || QKind::Fixed { x, y, bias: Some(vec![0, -2]), limits: (-9., f32::INFINITY) };
        let rows = [[1i8, 2, 3, 9], [4, 5, 6, 9]];
        let bytes: Vec<u8> = rows.iter().flat_map(|r| &r[..k]).map(|b| b.cast_unsigned()).collect();
        let x = Tensor::from_bytes(dtype, [2, k], &bytes).unwrap();
        let columns = [[1i8, 3, 5, 0], [2, 4, -6, 0]];
        let transposed: Vec<i8> = columns.iter().flat_map(|c| c[..k].to_vec()).collect();
        let plain: Vec<i8> = (0..k).flat_map(|i| [columns[0][i], columns[1][i]]).collect();
        for (weight, transposed) in [(t(&[k, 2], &plain), false), (t(&[2, k], &transposed), true)] {
            let op = product(&weight, transposed, &[1., 2.], kind()).unwrap();
            // Rows minus the zero point are (0, 1, 2) and (3, 4, 5): sums 13, -8 and 40, -8.
            assert_eq!(run(&op, &[&x]), t(&[2, 2], &[13u8, 6, 20, 6]));
            assert!(fails(&op, &[&t(&[2], &[0i8; 2])]).contains(if k == 3 {
                "inner"
            } else {
                "dtype"
            }));
        }
        let weight = t(&[k, 2], &plain);
        assert!(product(&weight, false, &[1., f32::INFINITY], kind()).is_err());
    }
}

/// One operator against the chain that it replaces, NaN and infinity included.
#[test]
fn floats_quantised_before_are_the_chain() {
    for (k, n, last) in [(37, 21, 0.5), (64, 70, 0.5), (8, 5, f32::NAN), (8, 5, f32::INFINITY)] {
        let (x, w) = (noise(&[3, k], 1), noise(&[k, n], 2));
        let mut xs = x.as_slice::<f32>().unwrap().to_vec();
        xs[2] = last;
        let x = t(&[3, k], &xs);
        let weight = w.as_slice::<f32>().unwrap().iter().map(|w| (w * 127.).round() as i8);
        let weight = t(&[k, n], &weight.collect::<Vec<_>>());
        let scale: Vec<f32> = (1..=n).map(|i| i as f32 / 127.).collect();
        let bias = noise(&[n], 3);
        let residual = noise(&[3, n], 4);
        let kind = QKind::Dynamic {
            bias: Some(bias.as_slice::<f32>().unwrap().to_vec()),
            activation: Activation::Relu,
        };
        let op = product(&weight, false, &scale, kind).unwrap();
        let quantized = run_all(&DynamicQuantizeLinear, &[Some(&x)]).unwrap();
        let [q, by, zero] = &quantized[..] else { panic!("three outputs") };
        let sums = run_all(&MatMulInteger, &[Some(q), Some(&weight), Some(zero)]).unwrap();
        let sums: Vec<f32> = sums[0].as_slice::<i32>().unwrap().iter().map(|s| *s as f32).collect();
        let two = |kind, a: &Tensor, b: &Tensor| run(&Binary::new(kind), &[a, b]);
        let scales = two(BinaryKind::Mul, by, &t(&[n], &scale));
        let mut want = two(BinaryKind::Mul, &t(&[3, n], &sums), &scales);
        want = two(BinaryKind::Add, &want, &bias);
        let without = want.clone();
        want = two(BinaryKind::Add, &want, &residual);
        for isa in Isa::ALL {
            let ctx = Context::new(1).with_isa(Some(isa));
            if ctx.simd().isa() != isa {
                println!("skipped: {}: this machine does not have it", isa.name());
                continue;
            }
            for (residual, want) in [(None, &without), (Some(&residual), &want)] {
                let inputs = [Some(q), Some(by), Some(zero), residual];
                let views: Vec<_> = inputs.iter().map(|x| x.map(Tensor::view)).collect();
                let got = op.run(&ctx, &views).unwrap();
                let want = run(&Unary::new(UnaryKind::Relu), &[want]);
                assert_close(&got[0], &want, 0.);
            }
        }
        assert_close(
            &run_all(&op, &[Some(q), Some(by), Some(zero)]).unwrap()[0],
            &run(&Unary::new(UnaryKind::Relu), &[&without]),
            0.,
        );
    }
}
