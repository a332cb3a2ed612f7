//! Values that may be absent.

use crate::args::{optional, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::sequence::data_only;
use lgp_memory::{DType, Datum, Shape, Tensor, TensorType, TensorView, ValueKind};

/// `Optional`: its input, or an absent value without an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Optional {
    /// The kind of value without an input.
    pub kind: ValueKind,
    /// The type of the tensors that the value may hold.
    pub ty: TensorType,
}

impl Op for Optional {
    data_only!("Optional", 0..=1);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (kind, ty) = match optional(inputs, 0) {
            Some(given) if given.kind == ValueKind::Sequence => {
                (ValueKind::OptionalSequence, given.ty.clone())
            }
            Some(given) => (ValueKind::Optional, given.ty.clone()),
            None => (self.kind, self.ty.clone()),
        };
        Ok(vec![ValueInfo::holding(kind, ty)])
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        Ok(vec![inputs.into_iter().next().flatten().unwrap_or(Datum::Absent)])
    }
}

/// `OptionalHasElement`: whether a value is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OptionalHasElement;

impl Op for OptionalHasElement {
    data_only!("OptionalHasElement", 0..=1);

    fn infer_types(&self, _: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        Ok(vec![ValueInfo::of(TensorType::concrete(DType::Bool, &Shape::default()))])
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let value = inputs.into_iter().next().flatten();
        let there = value.is_some_and(|value| value != Datum::Absent);
        Ok(vec![Tensor::scalar(there)?.into()])
    }
}

/// `OptionalGetElement`: the value that is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OptionalGetElement;

impl Op for OptionalGetElement {
    data_only!("OptionalGetElement", 1..=1);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let given = required(inputs, 0)?;
        let kind = match given.kind {
            ValueKind::Optional => ValueKind::Tensor,
            ValueKind::OptionalSequence => ValueKind::Sequence,
            other => other,
        };
        Ok(vec![ValueInfo::holding(kind, given.ty.clone())])
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        match inputs.into_iter().next().flatten() {
            None | Some(Datum::Absent) => Err(Error::invalid("the optional is absent")),
            Some(value) => Ok(vec![value]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_has_no_element() {
        let ctx = Context::new(1);
        let absent = Optional {
            kind: ValueKind::Optional,
            ty: TensorType { dtype: DType::F32, shape: None },
        };
        let nothing = absent.run_data(&ctx, vec![]).unwrap().remove(0);
        let five = Datum::Tensor(Tensor::scalar(5i32).unwrap());
        for (value, there) in [(nothing, false), (five, true)] {
            let has = OptionalHasElement.run_data(&ctx, vec![Some(value.clone())]).unwrap();
            assert_eq!(has[0], Tensor::scalar(there).unwrap().into());
            let got = OptionalGetElement.run_data(&ctx, vec![Some(value.clone())]);
            assert_eq!(got.is_ok_and(|got| got[0] == value), there);
        }
    }
}
