//! Counts of known sequences of words.

use crate::Axes;
use crate::args::{output, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::tree_ensemble::row_axes;
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// The value that is written for an n-gram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TfIdfWeighting {
    /// Its count.
    Tf,
    /// Its weight, if it occurs at all.
    Idf,
    /// Its count times its weight.
    TfIdf,
}

/// The n-grams that are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NGrams {
    /// N-grams of whole numbers.
    Ints(Vec<i64>),
    /// N-grams of words.
    Texts(Vec<String>),
}

/// `TfIdfVectorizer`: for each row of i32, i64 or strings, `[c]` or `[n, c]`, the counts of known
/// n-grams as f32. Opset 9 of ONNX.
#[derive(Debug, Clone, PartialEq)]
pub struct TfIdfVectorizer {
    /// The value that is written for an n-gram.
    pub weighting: TfIdfWeighting,
    /// Least and largest length of the n-grams that are counted.
    pub lengths: (usize, usize),
    /// Most words that are skipped between two words of an n-gram.
    pub skips_max: usize,
    /// The positions in the pool where the n-grams of length 1, 2 and so on begin.
    pub counts: Vec<usize>,
    /// The column of each n-gram.
    pub columns: Vec<usize>,
    /// The n-grams, one after the other.
    pub pool: NGrams,
    /// The weight of each column; empty means all 1.
    pub weights: Vec<f32>,
}

/// Columns beyond this are no vocabulary but an attack on memory.
const COLUMNS_MAX: usize = 1 << 28;

const NAME: &str = "TfIdfVectorizer";

impl TfIdfVectorizer {
    /// # Errors
    /// When the pool, its beginnings and the columns do not fit each other.
    pub fn checked(self) -> Result<Self> {
        let pool = match &self.pool {
            NGrams::Ints(pool) => pool.len(),
            NGrams::Texts(pool) => pool.len(),
        };
        let wrong = |message: String| Err(Error::invalid(message).of(NAME));
        let (least, most) = self.lengths;
        if least == 0 || most < least || most > self.counts.len() {
            let known = self.counts.len();
            return wrong(format!("n-grams of {least} to {most} words, expected 1 to {known}"));
        }
        if !self.counts.is_sorted() || self.counts.last().is_some_and(|&last| last > pool) {
            let counts = &self.counts;
            return wrong(format!("n-grams begin at {counts:?} in a pool of {pool}"));
        }
        let mut grams = 0usize;
        for (i, &begin) in self.counts.iter().enumerate() {
            let end = self.counts.get(i + 1).copied().unwrap_or(pool);
            if (end - begin) % (i + 1) != 0 {
                return wrong(format!("{} words are no n-grams of {}", end - begin, i + 1));
            }
            grams += (end - begin) / (i + 1);
        }
        if grams != self.columns.len() {
            return wrong(format!("{} columns are given for {grams} n-grams", self.columns.len()));
        }
        if self.columns.iter().any(|&c| c >= COLUMNS_MAX) {
            return wrong(format!("a column is {COLUMNS_MAX} or more"));
        }
        Ok(self)
    }

    fn width(&self) -> usize {
        self.columns.iter().max().map_or(0, |&last| last + 1)
    }

    /// The column of each n-gram of a pool.
    fn index<'p, T: Eq + std::hash::Hash>(&self, pool: &'p [T]) -> HashMap<&'p [T], usize> {
        let mut index = HashMap::new();
        let mut columns = self.columns.iter();
        for (i, &begin) in self.counts.iter().enumerate() {
            let end = self.counts.get(i + 1).copied().unwrap_or(pool.len());
            for (gram, &column) in pool[begin..end].chunks_exact(i + 1).zip(columns.by_ref()) {
                index.insert(gram, column);
            }
        }
        index
    }

    fn count<T: Eq + std::hash::Hash + Clone>(
        &self,
        index: &HashMap<&[T], usize>,
        row: &[T],
        out: &mut [f32],
    ) {
        let (least, most) = self.lengths;
        let mut gram = Vec::with_capacity(most);
        for length in least..=most {
            // An n-gram of a single word has nothing to skip.
            let skips = if length == 1 { 0 } else { self.skips_max.min(row.len()) };
            for step in 1..=skips + 1 {
                let Some(reach) = (length - 1).checked_mul(step) else { continue };
                for start in 0..row.len().saturating_sub(reach) {
                    gram.clear();
                    gram.extend(row[start..].iter().step_by(step).take(length).cloned());
                    if let Some(&column) = index.get(gram.as_slice()) {
                        out[column] += 1.;
                    }
                }
            }
        }
        for (column, out) in out.iter_mut().enumerate() {
            let weight = self.weights.get(column).copied().unwrap_or(1.);
            *out = match self.weighting {
                TfIdfWeighting::Tf => *out,
                TfIdfWeighting::Idf if *out > 0. => weight,
                TfIdfWeighting::Idf => 0.,
                TfIdfWeighting::TfIdf => *out * weight,
            };
        }
    }

    fn rows<T: Eq + std::hash::Hash + Clone>(&self, pool: &[T], x: &[T], out: &mut [f32]) {
        let index = self.index(pool);
        out.fill(0.);
        let width = self.width();
        if width == 0 {
            return;
        }
        let rows = out.len() / width;
        let length = x.len().checked_div(rows).unwrap_or(0);
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            self.count(&index, &x[i * length..][..length], out);
        }
    }
}

impl Op for TfIdfVectorizer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let fits = match self.pool {
            NGrams::Ints(_) => matches!(x.ty.dtype, DType::I32 | DType::I64),
            NGrams::Texts(_) => x.ty.dtype == DType::Str,
        };
        if !fits {
            return Err(crate::error::wrong_dtype(0, x.ty.dtype));
        }
        let width = Dim::Known(self.width());
        let shape = match x.sym_shape() {
            None => None,
            Some([_]) => Some(vec![width]),
            Some([n, _]) => Some(vec![n.clone(), width]),
            Some(_) => {
                let message = format!("input 0 is {}, expected rank 1 or 2", x.ty);
                return Err(Error::invalid(message));
            }
        };
        Ok(output(DType::F32, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        row_axes(inputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = crate::args::concrete_one(self, inputs)?;
        let mut out = ctx.alloc(dtype, shape)?;
        let x = required(inputs, 0)?;
        let cells = out.as_mut_slice::<f32>()?;
        match &self.pool {
            NGrams::Texts(pool) => {
                let pool: Vec<&str> = pool.iter().map(String::as_str).collect();
                self.rows(&pool, &x.strings()?, cells);
            }
            NGrams::Ints(pool) => {
                let x = crate::args::integers(&x.to_tensor()?)?;
                self.rows(pool, &x, cells);
            }
        }
        Ok(vec![out])
    }
}
