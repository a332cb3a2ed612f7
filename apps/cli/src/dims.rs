//! Sizes for a model's open dimensions.

use crate::failure::{Failure, Result};
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{Dim, Shape};

/// The hint where an input is too large.
pub(crate) const SMALLER: &str = "give smaller sizes with --batch or --dim";

/// The flag of commands that make inputs up.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Dims {
    /// The size of an open dimension by its name in the model; those without one are 1
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = named)]
    named: Vec<(String, usize)>,
}

impl Dims {
    /// The shapes of a model's inputs. A named dimension takes its given size, any other open leading dimension is the
    /// batch, and the rest is 1.
    ///
    /// # Errors
    /// When an input's rank is unknown, or no open dimension has a given name.
    pub(crate) fn shapes(&self, inputs: &[ValueSpec], batch: usize) -> Result<Vec<Shape>> {
        self.check(inputs)?;
        inputs.iter().map(|input| self.shape(input, batch)).collect()
    }

    /// Refuses a name that no open dimension has.
    pub(crate) fn check(&self, inputs: &[ValueSpec]) -> Result<()> {
        let open = || inputs.iter().flat_map(dims).filter_map(symbol);
        if let Some((name, _)) = self.named.iter().find(|(name, _)| !open().any(|s| s == name)) {
            let mut known: Vec<&str> = open().collect();
            known.sort_unstable();
            known.dedup();
            let message = format!("no input has an open dimension '{name}'");
            let hint = match known.is_empty() {
                true => "the model names none: leave --dim out".to_owned(),
                false => format!("the model names these: {}", known.join(", ")),
            };
            return Err(Failure::new("input_shape", message).hint(hint));
        }
        Ok(())
    }

    /// The shape of one input, as [`Dims::shapes`] has it.
    pub(crate) fn shape(&self, input: &ValueSpec, batch: usize) -> Result<Shape> {
        if input.ty.shape.is_none() {
            let message =
                format!("the model does not say how many dimensions input '{}' has", input.name);
            return Err(Failure::new("input_shape", message));
        }
        let sizes = dims(input).iter().enumerate().map(|(axis, dim)| {
            let size = dim.known().or_else(|| self.size(dim));
            size.unwrap_or(if axis == 0 { batch } else { 1 })
        });
        let shape = Shape::new(sizes.collect::<Vec<_>>());
        if shape.byte_len(input.ty.dtype).is_err() {
            let message = format!(
                "input '{}' of shape {:?} has more bytes than can be addressed",
                input.name,
                shape.dims()
            );
            return Err(Failure::new("input_shape", message).hint(SMALLER));
        }
        Ok(shape)
    }

    /// The open dimensions of an input, with their axes, that are neither given nor the batch.
    pub(crate) fn taken_as_one<'a>(&self, input: &'a ValueSpec) -> Vec<(usize, &'a Dim)> {
        let behind = dims(input).iter().enumerate().skip(1);
        behind.filter(|(_, dim)| dim.known().is_none() && self.size(dim).is_none()).collect()
    }

    /// The size given for a dimension, the last if there are several.
    fn size(&self, dim: &Dim) -> Option<usize> {
        let name = symbol(dim)?;
        self.named.iter().rev().find(|(given, _)| given == name).map(|(_, size)| *size)
    }

    /// The batch in [`Dims::shapes`]: the size given for the first input's leading dimension by name, else `wanted`.
    pub(crate) fn batch(&self, inputs: &[ValueSpec], wanted: usize) -> usize {
        let leading = inputs.first().and_then(|input| dims(input).first());
        leading.and_then(|dim| self.size(dim)).unwrap_or(wanted)
    }

    /// Whether the batch is for the caller to choose.
    pub(crate) fn leave_batch_open(&self, inputs: &[ValueSpec]) -> bool {
        let open = |input: &ValueSpec| {
            dims(input).first().is_some_and(|dim| dim.known().is_none() && self.size(dim).is_none())
        };
        !inputs.is_empty() && inputs.iter().all(open)
    }
}

fn dims(input: &ValueSpec) -> &[Dim] {
    input.ty.shape.as_ref().map_or(&[], |shape| &shape.0)
}

fn symbol(dim: &Dim) -> Option<&str> {
    if let Dim::Symbol(name) = dim { Some(name) } else { None }
}

/// `NAME=SIZE`.
fn named(text: &str) -> std::result::Result<(String, usize), String> {
    let parsed = text.rsplit_once('=').and_then(|(name, size)| Some((name, size.parse().ok()?)));
    match parsed {
        Some((name, size)) if !name.is_empty() => Ok((name.to_owned(), size)),
        _ => Err(format!("'{text}' is not a dimension, expected NAME=SIZE such as sequence=128")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::tensor::{DType, SymShape, TensorType};

    fn input(dims: &[Dim]) -> ValueSpec {
        let shape = Some(SymShape(dims.to_vec()));
        ValueSpec::tensor("x", TensorType { dtype: DType::F32, shape })
    }

    #[test]
    fn names_come_before_the_batch_and_both_before_1() {
        let of = |name: &str| Dim::Symbol(name.into());
        let x = input(&[of("n"), of("length"), Dim::Known(3), Dim::Unknown]);
        let cases: [(&[&str], &[usize], bool); 4] = [
            (&[], &[4, 1, 3, 1], true),
            (&["length=7"], &[4, 7, 3, 1], true),
            (&["length=7", "n=2", "length=5"], &[2, 5, 3, 1], false),
            (&["depth=1"], &[], true),
        ];
        for (given, want, open) in cases {
            let named = given.iter().map(|text| named(text).expect("it is NAME=SIZE"));
            let dims = Dims { named: named.collect() };
            let shapes = dims.shapes(std::slice::from_ref(&x), 4);
            assert_eq!(shapes.map_or(Vec::new(), |s| s[0].to_vec()), want, "{given:?}");
            assert_eq!(dims.leave_batch_open(std::slice::from_ref(&x)), open, "{given:?}");
        }
        for wrong in ["", "n", "n=", "=3", "n=-1"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
        for (x, hint) in [
            (input(&[of("n"), of("length")]), "the model names these: length, n"),
            (input(&[Dim::Known(1), Dim::Unknown]), "the model names none: leave --dim out"),
        ] {
            let dims = Dims { named: vec![("depth".to_owned(), 1)] };
            let failure = dims.check(std::slice::from_ref(&x)).expect_err("there is no depth");
            assert_eq!(failure.hint.as_deref(), Some(hint));
        }
    }
}
