//! Triton's extension `classification`: the highest-scored classes of an output, as text `SCORE:INDEX` or
//! `SCORE:INDEX:LABEL`.

use super::datatype;
use crate::fault::Fault;
use half::{bf16, f16};
use lgp_common::vision::top_k;
use lgp_sdk::tensor::{DType, NamedTensor, Tensor};
use std::borrow::Cow;

/// The `count` highest-scored classes of each row, highest first. If the output has more than one dimension, the
/// first counts rows, and the result is a tensor of strings `[rows, count]`; else `[count]`.
///
/// # Errors
/// 400 for an output that is not floating-point.
pub(super) fn classify(
    output: &NamedTensor,
    count: usize,
    labels: &[String],
) -> Result<NamedTensor, Fault> {
    let NamedTensor { name, tensor, .. } = output;
    let scores = scores(name, tensor)?;
    let dims = tensor.shape().dims();
    let rows = if dims.len() > 1 { dims.first().copied().unwrap_or(1) } else { 1 };
    let classes = scores.len().checked_div(rows).unwrap_or(0);
    let count = count.min(classes);
    let mut texts = Vec::new();
    // `max` avoids chunks of size 0, which panic.
    for row in scores.chunks(classes.max(1)) {
        let best = top_k(row, count).into_iter();
        texts.extend(best.map(|(index, score)| match labels.get(index) {
            Some(label) => format!("{score}:{index}:{label}"),
            None => format!("{score}:{index}"),
        }));
    }
    let shape = if dims.len() > 1 { vec![rows, count] } else { vec![count] };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let tensor = Tensor::from_strings(shape, &texts).map_err(Fault::internal)?;
    Ok(NamedTensor::new(name.clone(), tensor))
}

fn scores<'a>(name: &str, tensor: &'a Tensor) -> Result<Cow<'a, [f32]>, Fault> {
    floats(tensor).ok_or_else(|| {
        let datatype = datatype::name(tensor.dtype());
        Fault::bad_input(format!(
            "output '{name}' is {datatype}: classification is offered for FP32, FP16 and BF16"
        ))
    })
}

/// Floating-point numbers as f32; `None` for other datatypes.
pub(crate) fn floats(tensor: &Tensor) -> Option<Cow<'_, [f32]>> {
    match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().ok().map(Cow::Borrowed),
        DType::F16 => {
            let all = tensor.as_slice::<f16>().ok()?;
            Some(all.iter().map(|v| v.to_f32()).collect())
        }
        DType::BF16 => {
            let all = tensor.as_slice::<bf16>().ok()?;
            Some(all.iter().map(|v| v.to_f32()).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tensor: &Tensor) -> Vec<String> {
        let bytes = tensor.packed().into_owned();
        let mut rest = &bytes[..];
        let mut all = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (text, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
            all.push(String::from_utf8(text.to_vec()).expect("text"));
            rest = behind;
        }
        all
    }

    #[test]
    fn the_best_of_each_row_are_named() {
        let labels = ["cat".to_owned(), "dog".to_owned()];
        let scores = [0.25_f32, 0.5, 0.125, 3.0, -1.0, 2.5];
        for (shape, count, expected_shape, expected) in [
            (vec![2, 3], 2, vec![2, 2], vec!["0.5:1:dog", "0.25:0:cat", "3:0:cat", "2.5:2"]),
            (vec![1, 6], 1, vec![1, 1], vec!["3:3"]),
            (vec![6], 2, vec![2], vec!["3:3", "2.5:5"]),
            (
                vec![2, 3, 1],
                9,
                vec![2, 3],
                vec!["0.5:1:dog", "0.25:0:cat", "0.125:2", "3:0:cat", "2.5:2", "-1:1:dog"],
            ),
        ] {
            let tensor = Tensor::from_slice(shape.clone(), &scores).expect("they fit");
            let best = classify(&NamedTensor::new("y", tensor), count, &labels).expect("numbers");
            assert_eq!(best.tensor.shape().dims(), expected_shape, "{shape:?}");
            assert_eq!(texts(&best.tensor), expected, "{shape:?}");
        }
        for shape in [vec![0, 3], vec![2, 0], vec![0]] {
            let none = Tensor::from_slice::<f32>(shape, &[]).expect("nothing");
            classify(&NamedTensor::new("y", none), 1, &labels).expect("no rows or no classes");
        }
        let half = Tensor::from_slice(vec![2], &[f16::from_f32(1.0), f16::from_f32(2.0)]);
        let best = classify(&NamedTensor::new("y", half.expect("they fit")), 1, &[]).expect("half");
        assert_eq!(texts(&best.tensor), ["2:1"]);
        let whole = Tensor::from_slice(vec![2], &[1i64, 2]).expect("they fit");
        let fault = classify(&NamedTensor::new("y", whole), 1, &[]).expect_err("no scores");
        assert!(fault.message.contains("INT64"), "{}", fault.message);
    }
}
