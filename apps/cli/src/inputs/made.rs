//! Generated inputs: pseudo-random numbers that are the same each time.

use crate::dims::{Dims, SMALLER};
use crate::failure::{Failure, Result};
use lgp_measure::Random;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Error as TensorError, NamedTensor, Shape, Tensor};

/// The given inputs completed by generated ones, and their batch.
pub(crate) fn complete(
    mut given: Vec<NamedTensor>,
    inputs: &[ValueSpec],
    batch: Option<u32>,
    dims: &Dims,
) -> Result<(Vec<NamedTensor>, usize)> {
    let batch = batch.map(usize::try_from).transpose().map_err(Failure::internal)?;
    dims.check(inputs)?;
    let made = batch.or_else(|| given_batch(&given, inputs)).unwrap_or(1);
    for input in inputs {
        if !given.iter().any(|tensor| tensor.name == input.name) {
            given.push(make(input, made, dims)?);
        }
    }
    let batch = check_batch(batch, &given)?;
    Ok((given, batch))
}

/// The leading dimension of a given input, where the model leaves it open.
fn given_batch(given: &[NamedTensor], inputs: &[ValueSpec]) -> Option<usize> {
    given.iter().find_map(|tensor| {
        let dims = &inputs.iter().find(|input| input.name == tensor.name)?.ty.shape.as_ref()?.0;
        dims.first().filter(|dim| dim.known().is_none())?;
        tensor.tensor.shape().first().copied()
    })
}

/// The measured batch: the leading dimension of the inputs.
fn check_batch(wanted: Option<usize>, inputs: &[NamedTensor]) -> Result<usize> {
    let leading = inputs.iter().find_map(|input| input.tensor.shape().first().copied());
    match (wanted, leading) {
        (Some(wanted), Some(given)) if wanted != given => Err(Failure::new(
            "batch_fixed",
            format!("--batch is {wanted}, and the first dimension of the inputs is {given}"),
        )
        .hint("leave --batch out")),
        (_, leading) => Ok(leading.unwrap_or(1)),
    }
}

/// An input made up.
fn make(input: &ValueSpec, batch: usize, dims: &Dims) -> Result<NamedTensor> {
    let name = &input.name;
    let shape = dims.shape(input, batch).map_err(|failure| match failure.hint {
        Some(_) => failure,
        None => failure.hint(format!("give it with --input {name}=FILE.npy")),
    })?;
    let dims = shape.to_vec();
    let tensor = random(input.ty.dtype, shape).map_err(|error| {
        let message = format!("input '{name}' of shape {dims:?} has no room: {error}");
        Failure::new("input_shape", message).hint(SMALLER)
    })?;
    Ok(NamedTensor::new(name.clone(), tensor))
}

/// Floats from 0 to 1 from a fixed seed; zeros for every other dtype.
fn random(dtype: DType, shape: Shape) -> Result<Tensor, TensorError> {
    let mut tensor = Tensor::zeros(dtype, shape)?;
    let mut random = Random::default();
    let mut next = || random.uniform();
    match dtype {
        DType::F32 => tensor.as_mut_slice::<f32>()?.fill_with(&mut next),
        DType::F64 => tensor.as_mut_slice::<f64>()?.fill_with(|| f64::from(next())),
        DType::F16 => tensor.as_mut_slice()?.fill_with(|| half::f16::from_f32(next())),
        DType::BF16 => tensor.as_mut_slice()?.fill_with(|| half::bf16::from_f32(next())),
        _ => {}
    }
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::tensor::{Dim, SymShape, TensorType};

    fn spec(dtype: DType, dims: Option<Vec<Dim>>) -> ValueSpec {
        ValueSpec::tensor("x", TensorType { dtype, shape: dims.map(SymShape) })
    }

    #[test]
    fn made_up_inputs_fit_the_model() {
        let dims = || Some(vec![Dim::Symbol("n".into()), Dim::Known(3), Dim::Unknown]);
        let made =
            make(&spec(DType::F32, dims()), 4, &Dims::default()).expect("the rank is known").tensor;
        assert_eq!(made.shape().dims(), [4, 3, 1]);
        let values = made.as_slice::<f32>().expect("f32");
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        assert!(values.windows(2).any(|pair| pair[0] != pair[1]), "they are random");
        assert_eq!(
            make(&spec(DType::F32, dims()), 4, &Dims::default()).expect("as before").tensor,
            made
        );

        let zeros =
            make(&spec(DType::I64, dims()), 1, &Dims::default()).expect("the rank is known").tensor;
        assert!(zeros.as_slice::<i64>().expect("i64").iter().all(|&v| v == 0));
        for (shape, batch, hint) in
            [(None, 1, "give it with --input x=FILE.npy"), (dims(), 1 << 58, SMALLER)]
        {
            let failure =
                make(&spec(DType::F32, shape), batch, &Dims::default()).expect_err("too little");
            assert_eq!((&*failure.code, failure.hint.as_deref()), ("input_shape", Some(hint)));
        }
    }

    #[test]
    fn made_up_inputs_have_the_batch_of_the_given_ones() {
        let input = |name, dims| {
            ValueSpec::tensor(name, TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) })
        };
        let open = || Dim::Symbol("n".into());
        let specs = [
            input("fixed", vec![Dim::Known(2)]),
            input("x", vec![open(), Dim::Known(3)]),
            input("y", vec![open()]),
        ];
        let given = |name, dims: &[usize]| {
            NamedTensor::new(name, Tensor::zeros(DType::F32, dims).expect("small"))
        };
        let given = vec![given("fixed", &[2]), given("x", &[4, 3])];
        let (all, _) = complete(given, &specs, None, &Dims::default()).expect("ranks are known");
        assert_eq!(all[2].tensor.shape().dims(), [4]);
    }

    #[test]
    fn a_fixed_batch_is_not_overruled() {
        let input = |n| vec![NamedTensor::new("x", Tensor::zeros(DType::F32, [n]).expect("small"))];
        assert_eq!(check_batch(Some(4), &input(4)).ok(), Some(4));
        assert_eq!(check_batch(None, &input(2)).ok(), Some(2));
        assert_eq!(check_batch(Some(4), &input(1)).expect_err("1 ≠ 4").code, "batch_fixed");
    }
}
