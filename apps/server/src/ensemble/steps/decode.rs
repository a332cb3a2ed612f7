//! Decodes PNG, JPEG and WebP images into upright pixels, transparent ones blended with white.
#![deny(clippy::as_conversions)]

use super::{BuiltIn, Checked, Given, Kind, Made, Value, check_pixels};
use crate::fault::Fault;
use lgp_common::vision::{Channels, DecodeLimits, VisionError, decode, dimensions};
use lgp_sdk::tensor::{DType, Dim, TensorType};
use serde::Deserialize;
use std::sync::Arc;

/// The most bytes of a pixel during decoding.
const PIXEL_BYTES: u64 = 8;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decode {
    /// 1 is grey, 3 is red, green and blue, 4 adds alpha.
    #[serde(default = "rgb")]
    channels: usize,
}

fn rgb() -> usize {
    Channels::Rgb.count()
}

impl Checked for Decode {
    fn check(&self) -> Result<(), String> {
        self.channels().map(drop)
    }
}

impl Decode {
    fn channels(&self) -> Result<Channels, String> {
        let given = self.channels;
        Channels::of(given).ok_or_else(|| format!("channels is {given}, expected 1, 3 or 4"))
    }
}

impl BuiltIn for Decode {
    fn needs(&self) -> &'static [&'static str] {
        &["image"]
    }

    fn kinds(&self, given: &Given<Kind>) -> Result<Made<Kind>, String> {
        let image = given.need("image")?;
        let encoded = TensorType { dtype: DType::Str, shape: None };
        image.fits(&encoded).map_err(|reason| format!("input 'image': {reason}"))?;
        let dims = image.as_tensor().shape.map(|shape| shape.0);
        let count = match dims.as_deref() {
            Some([]) => Dim::Known(1),
            Some([count]) => count.clone(),
            _ => Dim::Unknown,
        };
        Ok(vec![("pictures", Kind::Pictures { count, size: None, channels: self.channels()? })])
    }

    fn room(&self, given: &Given<Value>) -> Result<usize, Fault> {
        let (label, elements) = (given.label("image"), given.need("image")?.elements()?);
        check_pixels(label, elements.len(), 0)?;
        let mut pixels: u64 = 0;
        for (at, element) in elements.iter().enumerate() {
            let size = dimensions(element, &DecodeLimits::default());
            let (width, height) = size.map_err(|error| broken(label, at, &error))?;
            pixels = pixels.saturating_add(u64::from(width).saturating_mul(u64::from(height)));
        }
        check_pixels(label, elements.len(), pixels)?;
        usize::try_from(pixels.saturating_mul(PIXEL_BYTES)).map_err(Fault::internal)
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn run(&self, given: Given<Value>, _: &[String]) -> Result<Made<Value>, Fault> {
        let (label, elements) = (given.label("image"), given.need("image")?.elements()?);
        let channels = self.channels().map_err(Fault::internal)?;
        let one = |(at, element): (usize, &axum::body::Bytes)| {
            decode(element, channels, &DecodeLimits::default())
                .map_err(|error| broken(label, at, &error))
        };
        let all = elements.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(vec![("pictures", Value::Pictures(Arc::new(all)))])
    }
}

fn broken(label: &str, at: usize, error: &VisionError) -> Fault {
    Fault::bad_input(format!("{label}, picture {at}: {error}"))
}
