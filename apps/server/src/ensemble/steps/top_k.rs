//! The highest-scored classes of each row, highest first.

use super::{
    BuiltIn, Checked, Given, Kind, Made, ModelName, Value, floats, label, model_name, rows, tensor,
    texts, with_labels,
};
use crate::fault::Fault;
use lgp_common::vision::top_k;
use lgp_sdk::tensor::{DType, Dim};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopK {
    k: usize,
    /// The model whose `labels.txt` names the classes.
    #[serde(default, deserialize_with = "model_name")]
    labels: Option<ModelName>,
}

impl Checked for TopK {
    fn check(&self) -> Result<(), String> {
        match self.k {
            0 => Err("k is 0, expected 1 or more".to_owned()),
            _ => Ok(()),
        }
    }
}

impl BuiltIn for TopK {
    fn needs(&self) -> &'static [&'static str] {
        &["scores"]
    }

    fn labels(&self) -> Option<&ModelName> {
        self.labels.as_ref()
    }

    fn kinds(&self, given: &Given<Kind>) -> Result<Made<Kind>, String> {
        let dims = given.floats("scores")?;
        let classes = |rest: &[Dim]| {
            let known = rest.iter().map(Dim::known).try_fold(1usize, |all, n| all.checked_mul(n?));
            known.map_or(Dim::Unknown, |classes| Dim::Known(classes.min(self.k)))
        };
        let made = |dtype| match dims.as_deref() {
            None => Kind::Tensor(lgp_sdk::tensor::TensorType { dtype, shape: None }),
            Some([rows, rest @ ..]) if !rest.is_empty() => {
                Kind::tensor(dtype, vec![rows.clone(), classes(rest)])
            }
            Some(row) => Kind::tensor(dtype, vec![classes(row)]),
        };
        let mut all = vec![("score", made(DType::F32)), ("index", made(DType::I64))];
        with_labels(&mut all, "label", self.labels.is_some(), made(DType::Str));
        Ok(all)
    }

    fn run(&self, given: Given<Value>, labels: &[String]) -> Result<Made<Value>, Fault> {
        let scores = given.need("scores")?.tensor()?;
        let (dims, values) = (scores.shape().dims(), floats(&scores)?);
        let rows = rows(dims);
        let classes = values.len().checked_div(rows).unwrap_or(0);
        let k = self.k.min(classes);
        let shape = if dims.len() > 1 { vec![rows, k] } else { vec![k] };
        let best: Vec<(usize, f32)> =
            values.chunks(classes.max(1)).flat_map(|row| top_k(row, k)).collect();
        let scores: Vec<f32> = best.iter().map(|(_, score)| *score).collect();
        let indices: Vec<i64> =
            best.iter().map(|(index, _)| i64::try_from(*index).unwrap_or(i64::MAX)).collect();
        let mut made = vec![
            ("score", tensor(shape.clone(), &scores)?),
            ("index", tensor(shape.clone(), &indices)?),
        ];
        if self.labels.is_some() {
            let names: Vec<String> = best.iter().map(|(index, _)| label(labels, *index)).collect();
            made.push(("label", texts(shape, &names)?));
        }
        Ok(made)
    }
}
