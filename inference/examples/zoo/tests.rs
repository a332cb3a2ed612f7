//! Every family in its small form, written and read again, answers what it is asked.

use crate::FAMILIES;
use crate::nets::{Random, Size};
use lgp_inference::{Model, Result, Session, SessionOptions, ValueSpec};
use lgp_memory::{DType, Dim, NamedTensor, Tensor, TensorView};

/// Two samples, and five of everything else that is open; sums are written out in names.
fn size(dim: &Dim) -> usize {
    match dim {
        Dim::Known(n) => *n,
        Dim::Symbol(name) => name
            .split(" + ")
            .map(|part| if part == "batch" { 2 } else { part.parse().unwrap_or(5) })
            .sum(),
        Dim::Unknown => 1,
    }
}

/// Random numbers and tokens; nothing is masked.
fn inputs(specs: &[ValueSpec], seed: u64) -> Result<Vec<NamedTensor>> {
    let mut random = Random::new(seed);
    let mut inputs = Vec::new();
    for spec in specs {
        let shape = spec.ty.shape.as_ref().expect("inputs have shapes");
        let dims: Vec<usize> = shape.0.iter().map(size).collect();
        let tensor = if spec.ty.dtype == DType::F32 {
            random.tensor(&dims, 2., 0.)?
        } else {
            let numbers = random.tensor(&dims, 45., 45.)?;
            let whole = numbers.as_slice::<f32>()?.iter();
            let mask = spec.name.contains("mask");
            let whole: Vec<i64> = whole.map(|n| if mask { 1 } else { n.floor() as i64 }).collect();
            Tensor::from_slice(dims, &whole)?
        };
        inputs.push(NamedTensor::new(spec.name.clone(), tensor));
    }
    Ok(inputs)
}

fn run(session: &Session, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|x| (x.name.as_str(), x.tensor.view())).collect();
    session.run(&views)
}

/// The largest difference over the largest magnitude.
fn difference(given: &Tensor, wanted: &Tensor) -> Result<f32> {
    assert_eq!(given.shape(), wanted.shape());
    let (given, wanted) = (given.as_slice::<f32>()?, wanted.as_slice::<f32>()?);
    let largest = wanted.iter().fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
    Ok(given.iter().zip(wanted).fold(0f32, |most, (a, b)| most.max((a - b).abs())) / largest)
}

#[test]
fn every_family_answers_what_it_is_asked() -> Result<()> {
    for (name, net) in FAMILIES {
        let model = Model::from_bytes(&net(Size::Tiny)?.to_onnx()?, None)?;
        let one = Session::new(&model, SessionOptions::with_threads(1))?;
        let three = Session::new(&model, SessionOptions::with_threads(3))?;
        let asked = inputs(one.inputs(), 1)?;
        let answers = run(&one, &asked)?;
        assert!(answers != run(&one, &inputs(one.inputs(), 2)?)?, "{name} answers all the same");
        // A byte that is rounded the other way moves those behind it.
        let limit = if name.ends_with("_qdq") { 0.05 } else { 1e-4 };
        for (answer, again) in answers.iter().zip(&run(&three, &asked)?) {
            let values = answer.tensor.as_slice::<f32>()?;
            let finite = !values.is_empty() && values.iter().all(|v| v.is_finite());
            assert!(finite && values.iter().any(|&v| v != 0.), "{name}: {}", answer.name);
            let off = difference(&again.tensor, &answer.tensor)?;
            assert!(off <= limit, "{name}: {} is {off} off", answer.name);
        }
    }
    Ok(())
}
