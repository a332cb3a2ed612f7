//! Converts scores to probabilities that sum to 1 in each row.

use super::{BuiltIn, Checked, Given, Kind, Made, Value, floats, rows, tensor};
use crate::fault::Fault;
use lgp_common::vision::softmax;
use lgp_sdk::tensor::{DType, SymShape, TensorType};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Softmax {}

impl Checked for Softmax {}

impl BuiltIn for Softmax {
    fn needs(&self) -> &'static [&'static str] {
        &["scores"]
    }

    fn kinds(&self, given: &Given<Kind>) -> Result<Made<Kind>, String> {
        let shape = given.floats("scores")?.map(SymShape);
        Ok(vec![("scores", Kind::Tensor(TensorType { dtype: DType::F32, shape }))])
    }

    fn run(&self, given: Given<Value>, _: &[String]) -> Result<Made<Value>, Fault> {
        let scores = given.need("scores")?.tensor()?;
        let (dims, values) = (scores.shape().dims(), floats(&scores)?);
        let classes = values.len().checked_div(rows(dims)).unwrap_or(0);
        let shares: Vec<f32> = values.chunks(classes.max(1)).flat_map(softmax).collect();
        Ok(vec![("scores", tensor(dims.to_vec(), &shares)?)])
    }
}
