//! Maps: rows of scores by class, and vectors of a map's values.

#[cfg(test)]
mod tests;

use crate::args::required;
use crate::error::{Error, Result, wrong_kind};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::sequence::data_only;
use crate::ops::{Cast, Concat, Gather, IndexOf};
use lgp_memory::{DType, Datum, Shape, Tensor, TensorType, TensorView, ValueKind};

/// `ZipMap`: a map for each row of an f32 matrix, from the given keys to the row's columns. A
/// vector is one row.
#[derive(Debug, Clone, PartialEq)]
pub struct ZipMap {
    /// As many keys as there are columns: i64 or strings, of rank 1.
    pub keys: Tensor,
}

impl Op for ZipMap {
    data_only!("ZipMap", 1..=1);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let dtype = required(inputs, 0)?.ty.dtype;
        let ty = TensorType { dtype, shape: None };
        Ok(vec![ValueInfo::holding(ValueKind::SequenceOfMaps, ty)])
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let x = match inputs.first() {
            Some(Some(Datum::Tensor(x))) => x,
            Some(Some(other)) => return Err(wrong_kind(0, other.kind(), "a tensor")),
            _ => return Err(Error::invalid("input 0 is missing")),
        };
        let columns = self.keys.len();
        let fits = matches!(x.shape().rank(), 1 | 2) && x.shape().last() == Some(&columns);
        if !fits || columns == 0 {
            let shape = x.shape();
            let message = format!("the input has shape {shape:?}, expected {columns} columns");
            return Err(Error::invalid(message));
        }
        let scores = x.as_slice::<f32>()?;
        let mut maps = Vec::with_capacity(scores.len() / columns);
        for row in scores.chunks_exact(columns) {
            let values = Tensor::from_slice([columns], row)?;
            maps.push(Datum::Map { keys: self.keys.clone(), values });
        }
        Ok(vec![Datum::Sequence(maps)])
    }
}

/// `CastMap`: a map's values as a matrix of one row, ordered by their keys, which are i64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CastMap {
    /// The output's dtype.
    pub to: DType,
    /// Number of columns; column `i` has the value of key `i`, or 0 without it. If absent, there is
    /// a column for each key of the map.
    pub width: Option<usize>,
}

/// `DictVectorizer`: a map's values as a matrix of one row, each in its key's column. A column
/// whose key the map lacks is 0, or empty; keys without a column are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DictVectorizer {
    columns: IndexOf,
    width: usize,
}

impl DictVectorizer {
    /// The operator for the columns' keys: i64 or strings.
    ///
    /// # Errors
    /// Keys of another dtype.
    pub fn new(keys: &Tensor) -> Result<Self> {
        Ok(Self { columns: IndexOf::new(keys)?, width: keys.len() })
    }
}

/// The keys and values of the one input.
fn map_of(inputs: Vec<Option<Datum>>) -> Result<(Tensor, Tensor)> {
    match inputs.into_iter().next().flatten() {
        Some(Datum::Map { keys, values }) => Ok((keys, values)),
        Some(other) => Err(wrong_kind(0, other.kind(), "a map")),
        None => Err(Error::invalid("input 0 is missing")),
    }
}

fn infer_row(inputs: &[Option<&ValueInfo>], to: Option<DType>) -> Result<Vec<ValueInfo>> {
    let x = required(inputs, 0)?;
    if x.kind != ValueKind::Map {
        return Err(wrong_kind(0, x.kind.name(), "a map"));
    }
    let dtype = to.unwrap_or(x.ty.dtype);
    Ok(vec![ValueInfo::of(TensorType { dtype, shape: None })])
}

/// A row of the values with these numbers, one for each column; the number of values stands for 0.
fn row(ctx: &Context, values: &Tensor, columns: &[i64]) -> Result<Tensor> {
    let nothing = Tensor::zeros(values.dtype(), [1])?;
    let one = |mut out: Vec<Tensor>| out.pop().ok_or_else(|| Error::invalid("there is no output"));
    let both = [Some(values.view()), Some(nothing.view())];
    let all = one(crate::launch(&Concat { axis: 0 }, ctx, &both)?)?;
    let columns = Tensor::from_slice(Shape::from(vec![1, columns.len()]), columns)?;
    one(crate::launch(&Gather { axis: 0 }, ctx, &[Some(all.view()), Some(columns.view())])?)
}

fn number(i: usize) -> i64 {
    i64::try_from(i).unwrap_or(i64::MAX)
}

impl Op for CastMap {
    data_only!("CastMap", 1..=1);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        infer_row(inputs, Some(self.to))
    }

    fn compute_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let (keys, values) = map_of(inputs)?;
        let keys = keys.as_slice::<i64>()?;
        let columns = match self.width {
            None => {
                let mut order: Vec<usize> = (0..keys.len()).collect();
                order.sort_by_key(|&i| keys[i]);
                order.into_iter().map(number).collect()
            }
            Some(width) => {
                let mut columns = Vec::new();
                columns.try_reserve_exact(width).map_err(|_| {
                    Error::invalid(format!("{width} columns are more than memory has"))
                })?;
                columns.resize(width, number(keys.len()));
                for (i, &key) in keys.iter().enumerate() {
                    let column = usize::try_from(key).ok().and_then(|key| columns.get_mut(key));
                    let column = column.ok_or_else(|| {
                        let message = format!("key {key} is outside of {width} columns");
                        Error::invalid(message)
                    })?;
                    *column = number(i);
                }
                columns
            }
        };
        // Values are cast before zeros fill the other columns, which as text would be no numbers.
        let values = Cast { to: self.to }.run(ctx, &[Some(values.view())])?;
        let values = values.first().ok_or_else(|| Error::invalid("no values"))?;
        Ok(vec![row(ctx, values, &columns)?.into()])
    }
}

impl Op for DictVectorizer {
    data_only!("DictVectorizer", 1..=1);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        infer_row(inputs, None)
    }

    fn compute_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let (keys, values) = map_of(inputs)?;
        let found = self.columns.run(ctx, &[Some(keys.view())])?;
        let mut columns = vec![number(values.len()); self.width];
        for found in &found {
            for (i, &at) in found.as_slice::<i64>()?.iter().enumerate() {
                if let Some(column) = usize::try_from(at).ok().and_then(|at| columns.get_mut(at)) {
                    *column = number(i);
                }
            }
        }
        Ok(vec![row(ctx, &values, &columns)?.into()])
    }
}
