//! The inputs that the server fills for a stateful model.

use super::*;
use crate::deployment::{SequenceControl, SequenceState};
use lgp_sdk::tensor::TensorType;

fn spec(name: &str, dtype: DType, dims: &[Dim]) -> ValueSpec {
    ValueSpec::tensor(name, TensorType { dtype, shape: Some(SymShape(dims.to_vec())) })
}

fn open(symbol: &str) -> Dim {
    Dim::Symbol(symbol.into())
}

fn model(controls: &[(&str, DType, ControlKind)]) -> Stateful {
    let mut inputs = vec![
        spec("x", DType::F32, &[open("n"), Dim::Known(2)]),
        spec("s", DType::F32, &[open("n"), open("m"), Dim::Unknown, Dim::Known(3)]),
    ];
    inputs.extend(controls.iter().map(|(name, dtype, _)| spec(name, *dtype, &[open("n")])));
    let outputs = vec![
        spec("y", DType::F32, &[open("n"), Dim::Known(2)]),
        spec("t", DType::F32, &[open("n"), open("m"), Dim::Unknown, Dim::Known(3)]),
    ];
    let controls =
        controls.iter().map(|&(input, _, kind)| SequenceControl { input: input.to_owned(), kind });
    let states = vec![SequenceState { input: "s".to_owned(), output: "t".to_owned() }];
    let idle_ms = std::num::NonZeroU64::MIN;
    let wish = Wish { idle_ms, states, controls: controls.collect() };
    Stateful::new("m", wish, inputs, outputs)
}

fn x(rows: usize) -> [NamedTensor; 1] {
    [NamedTensor::new("x", Tensor::zeros(DType::F32, [rows, 2]).expect("small"))]
}

fn asked(id: SequenceId) -> Asked {
    Asked { id, starts: true, ends: false }
}

#[test]
fn zeros_are_as_long_as_what_is_given_or_one() {
    let model = model(&[]);
    let first = model.first(&x(5)).expect("its inputs are there");
    assert_eq!(first, [("s".to_owned(), DType::F32, Shape::from([5, 1, 1, 3]))]);
    let names = |specs: Vec<ValueSpec>| specs.into_iter().map(|s| s.name).collect::<Vec<_>>();
    assert_eq!(names(model.visible_inputs()), ["x"]);
    assert_eq!(names(model.visible_outputs()), ["y"]);

    let output = |name: &str, value: f32| {
        NamedTensor::new(name, Tensor::from_slice([1], &[value]).expect("small"))
    };
    let mut outputs = vec![output("y", 1.0), output("t", 2.0)];
    assert_eq!(model.taken(&mut outputs), Ok(vec![output("s", 2.0)]));
    assert_eq!(outputs, [output("y", 1.0)]);
    assert!(model.taken(&mut outputs).is_err(), "its state is not there");
}

#[test]
fn a_model_is_told_in_the_types_of_its_inputs() {
    use ControlKind::{CorrelationId, End, Ready, Start};
    let told = |dtype, kind, id: SequenceId| {
        let model = model(&[("c", dtype, kind)]);
        assert!(model.check().is_ok(), "{dtype}");
        let mut told = model.told(&x(2), &asked(id)).map_err(|fault| fault.message)?;
        Ok::<_, String>(told.pop().expect("one").tensor)
    };
    let one = || SequenceId::Number(1);
    for (kind, value) in [(Start, true), (End, false), (Ready, true)] {
        let number = u8::from(value);
        let floats = told(DType::F32, kind, one()).expect("it can be told");
        assert_eq!(floats.as_slice::<f32>().expect("floats"), [f32::from(number); 2]);
        let whole = told(DType::I32, kind, one()).expect("it can be told");
        assert_eq!(whole.as_slice::<i32>().expect("integers"), [i32::from(number); 2]);
        let bools = told(DType::Bool, kind, one()).expect("it can be told");
        assert_eq!(bools.as_slice::<bool>().expect("bools"), [value; 2]);
    }
    let most = SequenceId::Number(u64::MAX);
    let id = told(DType::U64, CorrelationId, most.clone()).expect("it can be told");
    assert_eq!(id.as_slice::<u64>().expect("integers"), [u64::MAX; 2]);
    for (dtype, largest) in [
        (DType::I64, i64::MAX.unsigned_abs()),
        (DType::U32, u64::from(u32::MAX)),
        (DType::I32, u64::from(i32::MAX.unsigned_abs())),
    ] {
        let id = told(dtype, CorrelationId, SequenceId::Number(largest)).expect("it can be told");
        assert_eq!((id.dtype(), id.len()), (dtype, 2));
        let refused = told(dtype, CorrelationId, SequenceId::Number(largest + 1));
        assert!(refused.expect_err("too large").contains("input 'c'"), "{dtype}");
    }
    let text = SequenceId::Text("a".to_owned());
    let id = told(DType::Str, CorrelationId, text.clone()).expect("it can be told");
    assert_eq!(id.strings().expect("strings"), ["a"; 2]);
    for (dtype, id) in [(DType::Str, most), (DType::U64, text)] {
        let refused = told(dtype, CorrelationId, id).expect_err("of another kind");
        assert!(refused.contains("sequence_id"), "{refused}");
    }
}

#[test]
fn what_a_model_is_told_is_bounded() {
    let model = model(&[("c", DType::F32, ControlKind::Ready)]);
    let most = CONTROL_ELEMENTS_MAX;
    let asked = asked(SequenceId::Number(1));
    assert_eq!(model.told(&x(most), &asked).expect("it fits")[0].tensor.len(), most);
    let fault = model.told(&x(most + 1), &asked).expect_err("too many rows");
    assert!(fault.status == 400 && fault.message.contains("'c'"), "{}", fault.message);
}
