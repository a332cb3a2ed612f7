//! A session's outputs: their types, as exact as inference makes them, and their values as tensors.

use crate::error::{Error, Result};
use crate::model::ValueSpec;
use lgp_compute::ValueInfo;
use lgp_memory::{Datum, Dim, NamedTensor, SymShape, TensorType, ValueKind};

/// The declared type of an output, with the details that were inferred.
///
/// # Errors
/// A declaration that contradicts the inferred type.
pub(crate) fn refined(declared: &ValueSpec, inferred: Option<&ValueInfo>) -> Result<ValueSpec> {
    let Some(ValueInfo { ty: inferred, kind, .. }) = inferred else {
        return Ok(declared.clone());
    };
    let optional = |k| match k {
        ValueKind::Tensor => ValueKind::Optional,
        ValueKind::Sequence => ValueKind::OptionalSequence,
        other => other,
    };
    // Only a run shows whether an optional value is present.
    let uncertain = *kind == optional(declared.kind);
    if declared.kind != *kind && declared.kind != optional(*kind) && !uncertain {
        return Err(Error::graph(format!(
            "output '{}' is declared {}, but its value is {}",
            declared.name,
            declared.kind.describe(&declared.ty),
            kind.describe(inferred)
        )));
    }
    if inferred.dtype != declared.ty.dtype {
        return Err(Error::graph(format!(
            "output '{}' is declared {}, but its value is {}",
            declared.name, declared.ty.dtype, inferred.dtype
        )));
    }
    let shape = match (&declared.ty.shape, &inferred.shape) {
        (Some(a), Some(b)) if a.rank() == b.rank() => {
            let dims = a.0.iter().zip(&b.0).map(|(a, b)| match (a, b) {
                (Dim::Known(_) | Dim::Symbol(_), Dim::Unknown)
                | (Dim::Symbol(_), Dim::Symbol(_)) => a,
                _ => b,
            });
            Some(SymShape(dims.cloned().collect()))
        }
        (declared, None) => declared.clone(),
        (_, inferred) => inferred.clone(),
    };
    let ty = TensorType { dtype: inferred.dtype, shape };
    let kind = if uncertain { *kind } else { declared.kind };
    Ok(ValueSpec { name: declared.name.clone(), ty, kind })
}

/// The outputs of a run as tensors, for a caller that expects only these.
///
/// # Errors
/// [`Error::NotATensor`].
pub(crate) fn tensors(outputs: Vec<(String, Datum)>) -> Result<Vec<NamedTensor>> {
    let outputs = outputs.into_iter().map(|(name, value)| match value {
        Datum::Tensor(tensor) => Ok(NamedTensor::new(name, tensor)),
        other => Err(Error::NotATensor { what: "output", name, kind: other.kind() }),
    });
    outputs.collect()
}
