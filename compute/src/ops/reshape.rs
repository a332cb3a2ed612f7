//! The same elements under another shape.

use crate::Axes;
use crate::args::{concrete_one, optional, output_moved, rank, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, SymShape, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Reshape`: inputs data and the shape (i64, rank 1). One entry may be -1 and is computed from the
/// other sizes. An entry of 0 copies the input's dimension, unless `allow_zero`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reshape {
    /// Takes 0 as a size of zero.
    pub allow_zero: bool,
}

/// An entry of the wanted shape.
enum Entry {
    Size(Dim),
    /// The input's dimension at the same place.
    Copy,
    /// Computed from the other sizes.
    Rest,
}

impl Reshape {
    /// The wanted shape; `None` when not even its rank is known.
    fn entries(&self, target: &ValueInfo) -> Result<Option<Vec<Entry>>> {
        let known = |n: usize| {
            if n == 0 && !self.allow_zero { Entry::Copy } else { Entry::Size(Dim::Known(n)) }
        };
        if let Some(sizes) = target.ints("the shape")? {
            let entries = sizes.iter().map(|&n| match usize::try_from(n) {
                Ok(n) => Ok(known(n)),
                Err(_) if n == -1 => Ok(Entry::Rest),
                Err(_) => Err(Error::invalid(format!(
                    "the shape is {sizes:?}, expected no entry below -1"
                ))),
            });
            let entries = entries.collect::<Result<Vec<_>>>()?;
            if entries.iter().filter(|e| matches!(e, Entry::Rest)).count() > 1 {
                let message = format!("the shape is {sizes:?}, expected at most one -1");
                return Err(Error::invalid(message));
            }
            return Ok(Some(entries));
        }
        let contents = target.contents().or_else(|| {
            let length = target.sym_shape()?.first()?.known()?;
            // No tensor has a higher rank.
            (length <= 64).then(|| vec![Dim::Unknown; length])
        });
        let Some(contents) = contents else { return Ok(None) };
        // The other sizes give a single unknown entry, whether it is -1, a copy or a size.
        let single = contents.iter().filter(|d| **d == Dim::Unknown).count() == 1;
        let entry = |dim: Dim| match dim {
            Dim::Known(n) => known(n),
            Dim::Unknown if single => Entry::Rest,
            dim => Entry::Size(dim),
        };
        Ok(Some(contents.into_iter().map(entry).collect()))
    }

    fn shape(&self, x: Option<&[Dim]>, entries: &[Entry]) -> Result<Vec<Dim>> {
        let mut out = Vec::with_capacity(entries.len());
        let mut rest = None;
        for (i, entry) in entries.iter().enumerate() {
            out.push(match (entry, x) {
                (Entry::Size(dim), _) => dim.clone(),
                (Entry::Rest, _) => {
                    rest = Some(i);
                    Dim::Unknown
                }
                (Entry::Copy, None) => Dim::Unknown,
                (Entry::Copy, Some(x)) => x.get(i).cloned().ok_or_else(|| {
                    let message = format!("entry {i} is 0, but the input has rank {}", x.len());
                    Error::invalid(message)
                })?,
            });
        }
        let Some(x) = x else { return Ok(out) };
        if let Some(i) = rest {
            let others: Vec<Dim> =
                out.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, d)| d.clone()).collect();
            out[i] = dims::quotient(x, &others)?;
        }
        let (from, to) = (dims::product(x)?, dims::product(&out)?);
        if dims::expect("", &from, &to).is_err() {
            let (from, to) = (SymShape(x.to_vec()), SymShape(out));
            let message = format!("cannot reshape {from} to {to}: the element counts differ");
            return Err(Error::invalid(message));
        }
        Ok(out)
    }
}

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "Reshape"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, target) = (required(inputs, 0)?, required(inputs, 1)?);
        rank("the shape", target, 1)?;
        let entries = self.entries(target)?;
        let shape = entries.map(|e| self.shape(x.sym_shape(), &e)).transpose()?;
        output_moved(self, inputs, 0..1, shape)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        match (optional(inputs, 0), outputs.first()) {
            (Some(x), Some(out)) => Axes::reshaped(x, out),
            _ => Axes::new(),
        }
    }

    fn moves(&self) -> bool {
        true
    }

    fn passes_memory_on(&self) -> bool {
        true
    }

    fn shape_input(&self) -> Option<usize> {
        Some(1)
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (_, shape) = concrete_one(self, inputs)?;
        Ok(vec![required(inputs, 0)?.to_tensor()?.reshape(shape)?])
    }
}
