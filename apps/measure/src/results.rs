//! Compares the results of two ways of running a model.

use lgp_memory::{DType, NamedTensor, Tensor};

/// Tolerances of results, relative and absolute, because sums may be added in another order.
const RELATIVE: f32 = 1e-3;
const ABSOLUTE: f32 = 1e-4;

/// Whether outputs are the same, in the same order: FP32 up to the rounding of sums (a thousandth
/// of the value plus a ten-thousandth), all else exactly.
///
/// ```
/// use lgp_measure::agree;
/// use lgp_memory::{NamedTensor, Tensor};
///
/// let output = |value: f32| {
///     let y = Tensor::from_slice([1], &[value])?;
///     Ok::<_, lgp_memory::Error>([NamedTensor::new("y", y)])
/// };
/// assert!(agree(&output(1.0)?, &output(1.0005)?));
/// assert!(!agree(&output(1.0)?, &output(1.01)?));
/// # Ok::<(), lgp_memory::Error>(())
/// ```
#[must_use]
pub fn agree(one: &[NamedTensor], other: &[NamedTensor]) -> bool {
    let same =
        |(a, b): (&NamedTensor, &NamedTensor)| a.name == b.name && close(&a.tensor, &b.tensor);
    one.len() == other.len() && one.iter().zip(other).all(same)
}

fn close(a: &Tensor, b: &Tensor) -> bool {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return false;
    }
    let near = |(a, b): (&f32, &f32)| {
        (a - b).abs() <= RELATIVE.mul_add(a.abs(), ABSOLUTE) || a.to_bits() == b.to_bits()
    };
    match (a.dtype(), a.as_slice::<f32>(), b.as_slice::<f32>()) {
        (DType::F32, Ok(a), Ok(b)) => a.iter().zip(b).all(near),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, values: &[f32]) -> NamedTensor {
        NamedTensor::new(name, Tensor::from_slice([values.len()], values).expect("small"))
    }

    #[test]
    fn results_agree_up_to_the_order_of_sums() {
        let one = [tensor("a", &[1., 2.]), tensor("b", &[f32::NAN])];
        for (what, other, expected) in [
            ("itself", vec![one[0].clone(), one[1].clone()], true),
            ("close", vec![tensor("a", &[1.0005, 2.]), one[1].clone()], true),
            ("another order", vec![one[1].clone(), one[0].clone()], false),
            ("too far", vec![tensor("a", &[1.01, 2.]), one[1].clone()], false),
            ("a number for none", vec![one[0].clone(), tensor("b", &[1.])], false),
            ("another name", vec![tensor("c", &[1., 2.]), one[1].clone()], false),
            ("another shape", vec![tensor("a", &[1.]), one[1].clone()], false),
            ("one less", vec![one[0].clone()], false),
        ] {
            assert_eq!(agree(&one, &other), expected, "{what}");
        }
    }
}
