//! Operators on strings.

use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    CaseChange, NGrams, RegexFullMatch, StringConcat, StringNormalizer, StringSplit,
    TfIdfVectorizer, TfIdfWeighting,
};

pub(crate) fn concat(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(StringConcat)
}

pub(crate) fn split(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let delimiter = cx.text("delimiter")?.filter(|d| !d.is_empty()).map(str::to_owned);
    let cuts_max = cx.size("maxsplit")?;
    cx.map(StringSplit { delimiter, cuts_max })
}

pub(crate) fn regex_full_match(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let pattern = cx.text("pattern")?.ok_or("attribute 'pattern' is missing")?;
    let op = RegexFullMatch::new(pattern).map_err(|e| e.to_string())?;
    cx.map(op)
}

pub(crate) fn normalizer(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // Case changes by Unicode's rules, which all but a few locales follow.
    cx.ignore(&["locale"]);
    let case = match cx.text("case_change_action")? {
        None | Some("NONE") => CaseChange::None,
        Some("LOWER") => CaseChange::Lower,
        Some("UPPER") => CaseChange::Upper,
        Some(other) => {
            return Err(unsupported("case_change_action", other, &["NONE", "LOWER", "UPPER"]));
        }
    };
    let op = StringNormalizer {
        case,
        case_sensitive: cx.flag("is_case_sensitive")?.unwrap_or(false),
        stop_words: cx.texts("stopwords")?.to_vec(),
    };
    cx.map(op)
}

pub(crate) fn tf_idf(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let weighting = match cx.text("mode")? {
        Some("TF") => TfIdfWeighting::Tf,
        Some("IDF") => TfIdfWeighting::Idf,
        Some("TFIDF") => TfIdfWeighting::TfIdf,
        other => return Err(unsupported("mode", other.unwrap_or(""), &["TF", "IDF", "TFIDF"])),
    };
    let length = |n: Option<usize>| n.ok_or("the lengths of n-grams are missing");
    let texts = cx.texts("pool_strings")?.to_vec();
    let ints = cx.ints("pool_int64s")?;
    let op = TfIdfVectorizer {
        weighting,
        lengths: (length(cx.size("min_gram_length")?)?, length(cx.size("max_gram_length")?)?),
        skips_max: cx.size("max_skip_count")?.unwrap_or(0),
        counts: cx.sizes("ngram_counts")?,
        columns: cx.sizes("ngram_indexes")?,
        pool: match ints {
            Some(ints) if texts.is_empty() => NGrams::Ints(ints),
            _ => NGrams::Texts(texts),
        },
        weights: cx.floats("weights")?.unwrap_or_default(),
    };
    let op = op.checked().map_err(|e| e.to_string())?;
    cx.map(op)
}
