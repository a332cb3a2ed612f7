//! Converts images to one FP32 tensor: `(value × scale − mean) / std`, channels first or last.
#![deny(clippy::as_conversions)]

use super::{BuiltIn, Checked, Given, Kind, Made, Value, tensor};
use crate::ensemble::kind::side_dims;
use crate::ensemble::value::common_size;
use crate::fault::Fault;
use lgp_common::vision::{Order, Scaling, normalise};
use lgp_sdk::tensor::{DType, Dim};
use serde::Deserialize;

/// Bytes of the result for each byte of an image.
const WIDER: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Normalise {
    #[serde(default)]
    layout: Layout,
    scale: Option<f32>,
    #[serde(default)]
    mean: Vec<f32>,
    #[serde(default)]
    std: Vec<f32>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Layout {
    #[default]
    Nchw,
    Nhwc,
}

impl Checked for Normalise {}

impl Normalise {
    fn scaling(&self) -> Scaling {
        let plain = Scaling::default();
        let (mean, std) = (self.mean.clone(), self.std.clone());
        Scaling { scale: self.scale.unwrap_or(plain.scale), mean, std }
    }

    /// The dimensions of a result.
    fn arranged<T>(&self, count: T, [width, height, channels]: [T; 3]) -> Vec<T> {
        match self.layout {
            Layout::Nchw => vec![count, channels, height, width],
            Layout::Nhwc => vec![count, height, width, channels],
        }
    }
}

impl BuiltIn for Normalise {
    fn needs(&self) -> &'static [&'static str] {
        &["pictures"]
    }

    fn kinds(&self, given: &Given<Kind>) -> Result<Made<Kind>, String> {
        let Kind::Pictures { count, size, channels } = given.pictures("pictures")?.clone() else {
            return Ok(Vec::new());
        };
        self.scaling().check(channels.count()).map_err(|error| error.to_string())?;
        let [width, height] = side_dims(size);
        let dims = self.arranged(count, [width, height, Dim::Known(channels.count())]);
        Ok(vec![("tensor", Kind::tensor(DType::F32, dims))])
    }

    fn room(&self, given: &Given<Value>) -> Result<usize, Fault> {
        Ok(given.need("pictures")?.bytes().saturating_mul(WIDER))
    }

    fn run(&self, given: Given<Value>, _: &[String]) -> Result<Made<Value>, Fault> {
        let all = given.need("pictures")?.pictures()?;
        let sides = common_size(all)?;
        let order = match self.layout {
            Layout::Nchw => Order::Nchw,
            Layout::Nhwc => Order::Nhwc,
        };
        let scaling = self.scaling();
        let mut numbers = Vec::new();
        for pixels in all {
            numbers.extend(normalise(pixels, &scaling, order).map_err(Fault::internal)?);
        }
        Ok(vec![("tensor", tensor(self.arranged(all.len(), sides), &numbers)?)])
    }
}
