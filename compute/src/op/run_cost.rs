//! What a run of an operator costs.

use super::{Op, ValueInfo};
use crate::cost::Cost;

/// The cost of an operator for these inputs and outputs. Tensors with unknown dimensions count no
/// bytes and no work. An operator that passes its memory on costs nothing.
#[must_use]
pub fn cost(op: &dyn Op, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Cost {
    if op.passes_memory_on() {
        return Cost::default();
    }
    let bytes = |info: &ValueInfo| info.bytes_in(info.ty.dtype) as u64;
    Cost {
        multiply_adds: op.multiply_adds(inputs, outputs),
        bytes_read: inputs.iter().flatten().map(|info| bytes(info)).sum::<u64>()
            + op.held_bytes() as u64,
        bytes_written: outputs.iter().map(bytes).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Conv, MatMul, Reshape, Transpose, Unary, UnaryKind};
    use lgp_memory::{DType, Shape, TensorType};

    #[test]
    fn costs_are_those_of_the_textbook() {
        let conv = Conv { group: 2, ..Conv::default() };
        let cases: Vec<(&dyn Op, Vec<&[usize]>, Cost)> = vec![
            (
                &MatMul,
                vec![&[3, 4, 5], &[5, 6]],
                Cost { multiply_adds: 3 * 4 * 5 * 6, bytes_read: 360, bytes_written: 288 },
            ),
            (
                &conv,
                vec![&[1, 4, 5, 5], &[6, 2, 3, 3]],
                Cost { multiply_adds: 6 * 9 * 2 * 9, bytes_read: 832, bytes_written: 216 },
            ),
            (
                &Unary { kind: UnaryKind::Relu },
                vec![&[7]],
                Cost { multiply_adds: 7, bytes_read: 28, bytes_written: 28 },
            ),
            (
                &Transpose { perm: None },
                vec![&[2, 3]],
                Cost { multiply_adds: 0, bytes_read: 24, bytes_written: 24 },
            ),
            (&Reshape { allow_zero: false }, vec![&[2, 3], &[1]], Cost::default()),
        ];
        for (op, inputs, expected) in cases {
            let ty = |dims: &&[usize]| TensorType::concrete(DType::F32, &Shape::from(*dims));
            let infos: Vec<ValueInfo> = inputs.iter().map(|d| ValueInfo::of(ty(d))).collect();
            let given: Vec<Option<&ValueInfo>> = infos.iter().map(Some).collect();
            let outputs = match op.passes_memory_on() {
                true => vec![infos[0].clone()],
                false => op.infer(&given).unwrap(),
            };
            assert_eq!(cost(op, &given, &outputs), expected, "{}", op.name());
        }
        let cost = Cost { multiply_adds: 100, bytes_read: 30, bytes_written: 20 };
        assert_eq!((cost.seconds(10., 10.), cost.seconds(100., 10.)), (10., 5.));
    }
}
