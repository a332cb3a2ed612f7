//! What an operator does and moves: the two sides of a roofline.

use crate::op::{Op, ValueInfo};

/// Work and traffic of one run of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Multiplications with an addition: half as many as floating-point operations.
    pub multiply_adds: u64,
    /// Bytes of the inputs, each read once, and of the weights that the operator holds.
    pub bytes_read: u64,
    /// Bytes of the outputs.
    pub bytes_written: u64,
}

impl Cost {
    /// The least time in seconds on a machine that multiplies and adds `rate` times and moves
    /// `bandwidth` bytes a second.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn seconds(&self, rate: f64, bandwidth: f64) -> f64 {
        let bytes = (self.bytes_read + self.bytes_written) as f64;
        (self.multiply_adds as f64 / rate).max(bytes / bandwidth)
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            multiply_adds: self.multiply_adds.saturating_add(other.multiply_adds),
            bytes_read: self.bytes_read.saturating_add(other.bytes_read),
            bytes_written: self.bytes_written.saturating_add(other.bytes_written),
        }
    }
}

/// The cost of an operator for inputs and outputs whose dimensions are known: of others the bytes
/// and the work count as none. Memory that is only passed on is not touched.
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

/// Elements of a value; 0 while its shape is unknown.
pub(crate) fn elements(info: &ValueInfo) -> u64 {
    let shape = info.ty.concrete_shape();
    shape.and_then(|shape| shape.elements().ok()).map_or(0, |n| n as u64)
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
