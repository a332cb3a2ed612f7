//! Converts texts into token ids with the tokenizer beside a model.

use super::beside::{settings, unusable, wrong_model};
use crate::catalog::ModelEntry;
use crate::fault::Fault;
use crate::oip;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Dim, NamedTensor, Tensor};
use serde::Deserialize;
use tokenizers::{PaddingParams, PaddingStrategy, Tokenizer, TruncationParams};

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_SETTINGS: &str = "tokenizer_config.json";
const MODEL_SETTINGS: &str = "config.json";
/// The largest tokenizer file; those of languages with many characters have 30 MB.
const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
/// The default number of tokens in a text.
const LENGTH: usize = 77;
const LENGTH_MAX: usize = 8192;
/// The input that marks tokens other than padding.
const MASK: &str = "attention_mask";

/// A tokenizer that pads or cuts every text to the same length.
pub(super) struct Tokens {
    tokenizer: Tokenizer,
    canonical: bool,
}

/// The text settings within those of the whole model.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ModelSettings {
    text_cfg: TextSettings,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TextSettings {
    context_length: Option<usize>,
    tokenizer_kwargs: Option<TokenizerKwargs>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerKwargs {
    clean: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerSettings {
    pad_token: Option<Token>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Plain(String),
    Described { content: String },
}

impl Tokens {
    /// Reads `tokenizer.json` and the settings beside a model.
    ///
    /// # Errors
    /// If a file is missing or cannot be used.
    pub(super) fn read(entry: &ModelEntry) -> Result<Self, Fault> {
        let text = entry.beside(TOKENIZER, TOKENIZER_BYTES_MAX);
        let text = text.map_err(|error| unusable(entry, TOKENIZER, error))?;
        let text = text.ok_or_else(|| unusable(entry, TOKENIZER, "there is no such file"))?;
        let tokenizer: Result<Tokenizer, _> = text.parse();
        let ModelSettings { text_cfg } = settings(entry, MODEL_SETTINGS)?.unwrap_or_default();
        let clean = text_cfg.tokenizer_kwargs.and_then(|kwargs| kwargs.clean);
        let canonical = clean.as_deref() == Some("canonicalize");
        let mut tokenizer = tokenizer.map_err(|error| unusable(entry, TOKENIZER, error))?;
        let length = length(entry, text_cfg.context_length)?;
        let padding = padding(entry, &tokenizer, length)?;
        tokenizer.with_padding(Some(padding));
        let truncation = TruncationParams { max_length: length, ..TruncationParams::default() };
        let set = tokenizer.with_truncation(Some(truncation)).map(drop);
        set.map_err(|error| unusable(entry, TOKENIZER, error))?;
        Ok(Self { tokenizer, canonical })
    }

    /// The inputs of a model for a text, with a prefix that is not cleaned.
    ///
    /// # Errors
    /// If the model takes other inputs.
    pub(super) fn inputs(
        &self,
        entry: &ModelEntry,
        (prefix, text): (&str, &str),
    ) -> Result<Vec<NamedTensor>, Fault> {
        let whole = prefix.to_owned() + &cleaned(text, self.canonical);
        let encoded = self.tokenizer.encode(whole, true);
        let encoded = encoded.map_err(|error| unusable(entry, TOKENIZER, error))?;
        let input = |spec: &ValueSpec| {
            let of_mask = spec.name == MASK;
            let values = if of_mask { encoded.get_attention_mask() } else { encoded.get_ids() };
            let shape = vec![1, values.len()];
            let tensor = match spec.ty.dtype {
                DType::I32 => {
                    let values: Result<Vec<i32>, _> =
                        values.iter().map(|&value| i32::try_from(value)).collect();
                    Tensor::from_slice(shape, &values.map_err(Fault::internal)?)
                }
                DType::I64 => {
                    let values: Vec<i64> = values.iter().map(|&value| value.into()).collect();
                    Tensor::from_slice(shape, &values)
                }
                other => {
                    let (name, given) = (&spec.name, oip::datatype_name(other));
                    let what = format!("its input '{name}' is {given}, expected INT32 or INT64");
                    return Err(wrong_model(entry, what));
                }
            };
            Ok(NamedTensor::new(&spec.name, tensor.map_err(Fault::internal)?))
        };
        entry.inputs().iter().map(input).collect()
    }
}

/// The number of tokens in a text: from the input's shape, or else from the model's settings.
fn length(entry: &ModelEntry, told: Option<usize>) -> Result<usize, Fault> {
    let shape = entry.inputs().first().and_then(|spec| spec.ty.shape.as_ref());
    let own = shape.and_then(|shape| shape.0.last()).and_then(Dim::known);
    let length = own.or(told).unwrap_or(LENGTH);
    match (1..=LENGTH_MAX).contains(&length) {
        true => Ok(length),
        false => {
            let what = format!("context_length is {length}, expected 1 to {LENGTH_MAX}");
            Err(unusable(entry, MODEL_SETTINGS, what))
        }
    }
}

/// The padding of short texts: with the token in the settings, or else that of the tokenizer, or else the first
/// token.
fn padding(
    entry: &ModelEntry,
    tokenizer: &Tokenizer,
    length: usize,
) -> Result<PaddingParams, Fault> {
    let TokenizerSettings { pad_token } = settings(entry, TOKENIZER_SETTINGS)?.unwrap_or_default();
    let own = tokenizer.get_padding().cloned().unwrap_or_default();
    let mut padding =
        PaddingParams { strategy: PaddingStrategy::Fixed(length), pad_to_multiple_of: None, ..own };
    if let Some(Token::Plain(token) | Token::Described { content: token }) = pad_token {
        padding.pad_id = tokenizer.token_to_id(&token).ok_or_else(|| {
            let what = format!("pad_token is '{token}', expected one that {TOKENIZER} has");
            unusable(entry, TOKENIZER_SETTINGS, what)
        })?;
        padding.pad_token = token;
    }
    Ok(padding)
}

/// Normalises whitespace to single spaces. If the model was trained so, also removes punctuation and lower-cases.
fn cleaned(text: &str, canonical: bool) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match canonical {
        true => text.replace(|c: char| c.is_ascii_punctuation(), "").to_lowercase(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cleaned_as_a_model_knows_them() {
        for (canonical, expected) in [(false, "A dog's Ünder-dog!"), (true, "a dogs ünderdog")] {
            assert_eq!(cleaned("  A dog's\n\tÜnder-dog! ", canonical), expected);
        }
    }
}
