//! Sequences of tensors.

mod convert;
#[cfg(test)]
mod tests;

pub use convert::{ConcatFromSequence, SplitToSequence};

use crate::args::required;
use crate::error::{Error, Result, wrong_kind};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Datum, Shape, Tensor, TensorType, TensorView, ValueKind};

/// One output: a sequence of tensors of one dtype.
fn sequence_of(dtype: DType) -> Vec<ValueInfo> {
    vec![ValueInfo::holding(ValueKind::Sequence, TensorType { dtype, shape: None })]
}

/// Fails unless an input is a sequence.
fn expect_sequence(input: usize, info: &ValueInfo) -> Result<()> {
    match info.kind {
        ValueKind::Sequence | ValueKind::OptionalSequence | ValueKind::SequenceOfMaps => Ok(()),
        other => Err(wrong_kind(input, other.name(), "a sequence")),
    }
}

/// The elements of an input that is a sequence.
fn items(input: Option<Datum>) -> Result<Vec<Datum>> {
    match input {
        Some(Datum::Sequence(items)) => Ok(items),
        Some(other) => Err(wrong_kind(0, other.kind(), "a sequence")),
        None => Err(Error::invalid("input 0 is missing")),
    }
}

/// An input that is a tensor.
fn tensor(i: usize, input: &Datum) -> Result<&Tensor> {
    input.tensor().ok_or_else(|| wrong_kind(i, input.kind(), "a tensor"))
}

/// A position in a sequence of `length`, counted from the back where it is negative; at most
/// `most`.
fn position(index: &Datum, length: usize, most: usize) -> Result<usize> {
    let tensor = tensor(1, index)?;
    let index = match (tensor.dtype(), tensor.len()) {
        (DType::I64, 1) => tensor.as_slice::<i64>()?[0],
        (DType::I32, 1) => i64::from(tensor.as_slice::<i32>()?[0]),
        (dtype, n) => {
            let message = format!("the position is {n} elements of {dtype}, expected one i64");
            return Err(Error::invalid(message));
        }
    };
    let from_front = if index < 0 {
        i64::try_from(length).ok().and_then(|n| index.checked_add(n))
    } else {
        Some(index)
    };
    from_front.and_then(|i| usize::try_from(i).ok()).filter(|&i| i <= most).ok_or_else(|| {
        Error::invalid(format!("position {index} is outside a sequence of {length}"))
    })
}

/// The methods that operators on other values than plain tensors share.
macro_rules! data_only {
    ($name:literal, $arity:expr) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn arity(&self) -> std::ops::RangeInclusive<usize> {
            $arity
        }

        fn compute(&self, _: &Context, _: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
            Err(Error::unsupported("tensors alone"))
        }

        fn takes_data(&self) -> bool {
            true
        }
    };
}
pub(crate) use data_only;

/// `SequenceConstruct`: any number of tensors of one dtype become a sequence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceConstruct;

impl Op for SequenceConstruct {
    data_only!("SequenceConstruct", 1..=usize::MAX);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let first = required(inputs, 0)?;
        Ok(sequence_of(first.ty.dtype))
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let items: Option<Vec<Datum>> = inputs.into_iter().collect();
        let missing = || Error::invalid("an element is missing");
        Ok(vec![Datum::Sequence(items.ok_or_else(missing)?)])
    }
}

/// `SequenceEmpty`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceEmpty {
    /// The dtype of the tensors that the sequence may hold.
    pub dtype: DType,
}

impl Op for SequenceEmpty {
    data_only!("SequenceEmpty", 0..=0);

    fn infer_types(&self, _: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        Ok(sequence_of(self.dtype))
    }

    fn compute_data(&self, _: &Context, _: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        Ok(vec![Datum::Sequence(Vec::new())])
    }
}

/// `SequenceLength`: the number of elements as an i64 scalar.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceLength;

impl Op for SequenceLength {
    data_only!("SequenceLength", 1..=1);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        expect_sequence(0, required(inputs, 0)?)?;
        Ok(vec![ValueInfo::of(TensorType::concrete(DType::I64, &Shape::default()))])
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let items = items(inputs.into_iter().next().flatten())?;
        Ok(vec![Tensor::scalar(i64::try_from(items.len()).unwrap_or(i64::MAX))?.into()])
    }
}

/// `SequenceAt`: the element at a position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceAt;

impl Op for SequenceAt {
    data_only!("SequenceAt", 2..=2);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let sequence = required(inputs, 0)?;
        expect_sequence(0, sequence)?;
        let kind = match sequence.kind {
            ValueKind::SequenceOfMaps => ValueKind::Map,
            _ => ValueKind::Tensor,
        };
        Ok(vec![ValueInfo::holding(kind, TensorType { shape: None, ..sequence.ty.clone() })])
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let mut inputs = inputs.into_iter();
        let mut items = items(inputs.next().flatten())?;
        let index = inputs.next().flatten();
        let index = index.ok_or_else(|| Error::invalid("the position is missing"))?;
        let most = items.len().checked_sub(1);
        let most = most.ok_or_else(|| Error::invalid("the sequence is empty"))?;
        let at = position(&index, items.len(), most)?;
        Ok(vec![items.swap_remove(at)])
    }
}

/// `SequenceInsert`: inputs sequence, tensor and position (the end without one).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceInsert;

impl Op for SequenceInsert {
    data_only!("SequenceInsert", 2..=3);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        expect_sequence(0, required(inputs, 0)?)?;
        // An empty sequence may not know its dtype yet.
        Ok(sequence_of(required(inputs, 1)?.ty.dtype))
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let mut inputs = inputs.into_iter();
        let mut items = items(inputs.next().flatten())?;
        let item = inputs.next().flatten();
        let item = item.ok_or_else(|| Error::invalid("input 1 is missing"))?;
        let at = match inputs.next().flatten() {
            Some(index) => position(&index, items.len(), items.len())?,
            None => items.len(),
        };
        items.insert(at, item);
        Ok(vec![Datum::Sequence(items)])
    }
}

/// `SequenceErase`: inputs sequence and position (the end without one).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceErase;

impl Op for SequenceErase {
    data_only!("SequenceErase", 1..=2);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let sequence = required(inputs, 0)?;
        expect_sequence(0, sequence)?;
        Ok(vec![ValueInfo::holding(sequence.kind, sequence.ty.clone())])
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let mut inputs = inputs.into_iter();
        let mut items = items(inputs.next().flatten())?;
        let most = items.len().checked_sub(1);
        let most = most.ok_or_else(|| Error::invalid("the sequence is empty"))?;
        let at = match inputs.next().flatten() {
            Some(index) => position(&index, items.len(), most)?,
            None => most,
        };
        items.remove(at);
        Ok(vec![Datum::Sequence(items)])
    }
}
