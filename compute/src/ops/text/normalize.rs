//! Upper or lower case, and words that are left out.

use super::expect_strings;
use crate::args::{output, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// What happens to the case of letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names are ONNX's own")]
pub enum CaseChange {
    #[default]
    None,
    Lower,
    Upper,
}

impl CaseChange {
    fn apply(self, text: &str) -> String {
        match self {
            Self::None => text.to_owned(),
            Self::Lower => text.to_lowercase(),
            Self::Upper => text.to_uppercase(),
        }
    }
}

/// `StringNormalizer`: a tensor `[c]` or `[1, c]` of words without those that are stop words, in
/// the given case. If no word is left, the output is one empty word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StringNormalizer {
    /// The case of the result.
    pub case: CaseChange,
    /// Whether stop words must have the same case.
    pub case_sensitive: bool,
    /// Words that are left out.
    pub stop_words: Vec<String>,
}

impl Op for StringNormalizer {
    fn name(&self) -> &'static str {
        "StringNormalizer"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        expect_strings(0, x)?;
        let shape = match x.sym_shape() {
            None => None,
            Some([_]) => Some(vec![Dim::Unknown]),
            Some([Dim::Known(1) | Dim::Unknown | Dim::Symbol(_), _]) => {
                Some(vec![Dim::Known(1), Dim::Unknown])
            }
            Some(_) => {
                let message = format!("the words are {}, expected [c] or [1,c]", x.ty);
                return Err(Error::invalid(message));
            }
        };
        Ok(output(DType::Str, shape))
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let x = required(inputs, 0)?;
        let dims = x.shape().dims();
        if !matches!(dims, [_] | [1, _]) {
            let message = format!("the words have shape {dims:?}, expected [c] or [1,c]");
            return Err(Error::invalid(message));
        }
        let fold = |text: &str| {
            if self.case_sensitive { text.to_owned() } else { text.to_lowercase() }
        };
        let stop: std::collections::HashSet<String> =
            self.stop_words.iter().map(|word| fold(word)).collect();
        let words = x.strings()?.into_iter().filter(|word| !stop.contains(&fold(word)));
        let mut words: Vec<String> = words.map(|word| self.case.apply(word)).collect();
        if words.is_empty() {
            words.push(String::new());
        }
        let mut shape = dims.to_vec();
        if let Some(last) = shape.last_mut() {
            *last = words.len();
        }
        Ok(vec![Tensor::from_strings(shape, &words)?])
    }
}
