//! Compares the caller's inputs with those that the model expects.

use crate::error::{Error, Result};
use crate::model::{ValueSpec, names};
use lgp_memory::{Datum, Dim, SymShape, TensorView, ValueKind};
use std::collections::HashMap;

/// The given tensors in the order of `specs`.
///
/// # Errors
/// Wrong names and types, with the given and the expected ones.
pub(crate) fn bind<'a>(
    specs: &[ValueSpec],
    given: &[(&str, TensorView<'a>)],
) -> Result<Vec<TensorView<'a>>> {
    let mut slots: Vec<Option<&TensorView<'a>>> = vec![None; specs.len()];
    for (name, view) in given {
        let Some(position) = specs.iter().position(|s| s.name == *name) else {
            return Err(Error::UnknownInput { given: (*name).to_owned(), expected: names(specs) });
        };
        if slots[position].replace(view).is_some() {
            return Err(Error::DuplicateInput { name: (*name).to_owned() });
        }
    }
    let mut sizes = HashMap::new();
    let mut bound = Vec::with_capacity(specs.len());
    for (spec, slot) in specs.iter().zip(slots) {
        let Some(view) = slot else {
            return Err(Error::MissingInput { name: spec.name.clone(), ty: spec.ty.clone() });
        };
        if !spec.kind.holds_tensors() {
            return Err(Error::NotATensor {
                what: "input",
                name: spec.name.clone(),
                kind: spec.kind.name(),
            });
        }
        if view.dtype() != spec.ty.dtype {
            return Err(Error::InputDType {
                name: spec.name.clone(),
                expected: spec.ty.dtype,
                given: view.dtype(),
            });
        }
        if let Some(shape) = &spec.ty.shape {
            check_shape(&spec.name, shape, view.shape(), &mut sizes)?;
        }
        bound.push(view.clone());
    }
    Ok(bound)
}

/// The given values of any kind in the order of `specs`.
///
/// # Errors
/// As [`bind`], and values of another kind than the model declares.
pub(crate) fn bind_data(specs: &[ValueSpec], given: Vec<(&str, Datum)>) -> Result<Vec<Datum>> {
    let mut slots: Vec<Option<Datum>> = vec![None; specs.len()];
    let mut sizes = HashMap::new();
    for (name, value) in given {
        let Some(position) = specs.iter().position(|s| s.name == name) else {
            return Err(Error::UnknownInput { given: name.to_owned(), expected: names(specs) });
        };
        let spec = &specs[position];
        if !spec.kind.holds(&value) {
            let (given, expected) = (value.kind(), spec.kind.describe(&spec.ty));
            return Err(Error::InputKind { name: name.to_owned(), given, expected });
        }
        check_elements(spec, &value, &mut sizes)?;
        if slots[position].replace(value).is_some() {
            return Err(Error::DuplicateInput { name: name.to_owned() });
        }
    }
    let missing =
        |spec: &ValueSpec| Error::MissingInput { name: spec.name.clone(), ty: spec.ty.clone() };
    specs.iter().zip(slots).map(|(spec, slot)| slot.ok_or_else(|| missing(spec))).collect()
}

/// Checks the dtype of all tensors in a value, and the shape of a value that is a tensor itself.
fn check_elements<'s>(
    spec: &'s ValueSpec,
    value: &Datum,
    sizes: &mut HashMap<&'s str, (usize, &'s str)>,
) -> Result<()> {
    match value {
        Datum::Tensor(t) | Datum::Map { values: t, .. } if t.dtype() != spec.ty.dtype => {
            Err(Error::InputDType {
                name: spec.name.clone(),
                expected: spec.ty.dtype,
                given: t.dtype(),
            })
        }
        Datum::Tensor(t) => match &spec.ty.shape {
            Some(shape) if spec.kind != ValueKind::Sequence => {
                check_shape(&spec.name, shape, t.shape(), sizes)
            }
            _ => Ok(()),
        },
        Datum::Sequence(items) => {
            items.iter().try_for_each(|item| check_elements(spec, item, &mut HashMap::new()))
        }
        Datum::Map { .. } | Datum::Absent => Ok(()),
    }
}

/// Checks the rank, the fixed dimensions, and that each symbol has one size in all inputs.
fn check_shape<'s>(
    name: &'s str,
    expected: &'s SymShape,
    given: &[usize],
    sizes: &mut HashMap<&'s str, (usize, &'s str)>,
) -> Result<()> {
    let fail = |reason: String| {
        Err(Error::InputShape {
            name: name.to_owned(),
            expected: expected.to_string(),
            given: given.to_vec(),
            reason: Some(reason),
        })
    };
    if expected.rank() != given.len() {
        return fail(format!("rank is {}, expected {}", given.len(), expected.rank()));
    }
    for (axis, (dim, &size)) in expected.0.iter().zip(given).enumerate() {
        match dim {
            Dim::Known(n) if *n != size => {
                return fail(format!("dimension {axis} is {size}, expected {n}"));
            }
            Dim::Symbol(symbol) => {
                let &mut (first, by) = sizes.entry(symbol).or_insert((size, name));
                if first != size {
                    return fail(format!(
                        "dimension {axis} ('{symbol}') is {size}, but input '{by}' has {first}"
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_memory::{DType, TensorType};

    fn specs() -> Vec<ValueSpec> {
        let spec = |name: &str, dtype, dims| {
            ValueSpec::tensor(name, TensorType { dtype, shape: Some(SymShape(dims)) })
        };
        let n = || Dim::Symbol("n".into());
        vec![
            spec("image", DType::F32, vec![n(), Dim::Known(1), Dim::Unknown]),
            spec("label", DType::I64, vec![n()]),
        ]
    }

    fn floats(shape: &[usize]) -> TensorView<'static> {
        static DATA: [f32; 64] = [0.; 64];
        TensorView::from_slice(shape, &DATA[..shape.iter().product()]).unwrap()
    }

    fn labels(n: usize) -> TensorView<'static> {
        static DATA: [i64; 8] = [0; 8];
        TensorView::from_slice([n], &DATA[..n]).unwrap()
    }

    #[test]
    fn inputs_come_in_any_order() {
        let bound = bind(&specs(), &[("label", labels(2)), ("image", floats(&[2, 1, 5]))]).unwrap();
        assert_eq!(bound[0].shape().dims(), [2, 1, 5]);
        assert_eq!(bound[1].dtype(), DType::I64);
    }

    #[test]
    fn wrong_inputs_are_named_with_what_was_expected() {
        let label = || ("label", labels(2));
        let cases: Vec<(Vec<(&str, TensorView<'_>)>, &str)> = vec![
            (
                vec![("pixels", floats(&[1, 1, 1])), label()],
                "unknown input 'pixels', expected 'image', 'label'",
            ),
            (vec![label()], "missing input 'image', expected f32 [n,1,?]"),
            (vec![label(), label()], "input 'label' was given more than once"),
            (vec![("image", labels(2)), label()], "input 'image' has dtype i64, expected f32"),
            (
                vec![("image", floats(&[2, 1])), label()],
                "input 'image' has shape [2, 1], expected [n,1,?]: rank is 2, expected 3",
            ),
            (
                vec![("image", floats(&[2, 3, 4])), label()],
                "input 'image' has shape [2, 3, 4], expected [n,1,?]: dimension 1 is 3, expected 1",
            ),
            (
                vec![("image", floats(&[3, 1, 4])), label()],
                "input 'label' has shape [2], expected [n]: dimension 0 ('n') is 2, but input \
                 'image' has 3",
            ),
        ];
        for (given, message) in cases {
            assert_eq!(bind(&specs(), &given).unwrap_err().to_string(), message);
        }
    }
}
