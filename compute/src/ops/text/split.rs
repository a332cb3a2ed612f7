//! Splits strings into parts.

use super::expect_strings;
use crate::args::{output, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `StringSplit`: the parts of each string along a new last axis, filled up with empty strings,
/// and how many parts each has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StringSplit {
    /// The delimiter between parts; if absent, any run of white space.
    pub delimiter: Option<String>,
    /// Most cuts of a string, from the front.
    pub cuts_max: Option<usize>,
}

impl StringSplit {
    fn parts<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let most = self.cuts_max.map_or(usize::MAX, |cuts| cuts.saturating_add(1));
        if text.is_empty() {
            return Vec::new();
        }
        if let Some(delimiter) = &self.delimiter {
            return text.splitn(most, delimiter.as_str()).collect();
        }
        let mut parts = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let end = rest.find(char::is_whitespace).filter(|_| parts.len() + 1 < most);
            match end {
                None => {
                    parts.push(rest);
                    break;
                }
                Some(end) => {
                    parts.push(&rest[..end]);
                    rest = rest[end..].trim_start();
                }
            }
        }
        // The uncut rest keeps its inner white space only.
        if let Some(last) = parts.last_mut() {
            *last = last.trim_end();
        }
        parts
    }
}

impl Op for StringSplit {
    fn name(&self) -> &'static str {
        "StringSplit"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        expect_strings(0, x)?;
        let counts = x.sym_shape().map(<[_]>::to_vec);
        let parts = counts.clone().map(|mut dims| {
            dims.push(Dim::Unknown);
            dims
        });
        let mut outputs = output(DType::Str, parts);
        outputs.extend(output(DType::I64, counts));
        Ok(outputs)
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let x = required(inputs, 0)?;
        let all: Vec<Vec<&str>> = x.strings()?.into_iter().map(|text| self.parts(text)).collect();
        let widest = all.iter().map(Vec::len).max().unwrap_or(0);
        // One long string among many short ones can need more memory than there is: an error.
        let mut cells = Vec::new();
        let bytes = || lgp_memory::Error::OutOfMemory { bytes: widest.saturating_mul(all.len()) };
        let count = widest.checked_mul(all.len()).ok_or_else(bytes)?;
        cells.try_reserve_exact(count).map_err(|_| Error::from(bytes()))?;
        for parts in &all {
            cells.extend_from_slice(parts);
            cells.extend(std::iter::repeat_n("", widest - parts.len()));
        }
        let counts: Vec<i64> =
            all.iter().map(|parts| i64::try_from(parts.len()).unwrap_or(i64::MAX)).collect();
        let mut shape = x.shape().to_vec();
        shape.push(widest);
        let counts = Tensor::from_slice(x.shape().clone(), &counts)?;
        Ok(vec![Tensor::from_strings(shape, &cells)?, counts])
    }
}
