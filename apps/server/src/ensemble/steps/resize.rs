//! Resizes images to one size, bilinearly, without keeping proportions.
#![deny(clippy::as_conversions)]

use super::{BuiltIn, Checked, Given, Kind, Made, PIXELS_MAX, Value, check_pixels};
use crate::fault::Fault;
use lgp_common::vision::{Filter, Pixels, resize, resize_bytes};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resize {
    width: u32,
    height: u32,
}

impl Checked for Resize {
    fn check(&self) -> Result<(), String> {
        let Self { width, height } = self;
        match self.pixels() {
            1..=PIXELS_MAX => Ok(()),
            _ => Err(format!(
                "width and height are {width} and {height}, expected 1 to {PIXELS_MAX} pixels"
            )),
        }
    }
}

impl Resize {
    fn pixels(&self) -> u64 {
        u64::from(self.width).saturating_mul(u64::from(self.height))
    }
}

impl BuiltIn for Resize {
    fn needs(&self) -> &'static [&'static str] {
        &["pictures"]
    }

    fn kinds(&self, given: &Given<Kind>) -> Result<Made<Kind>, String> {
        let Kind::Pictures { count, channels, .. } = given.pictures("pictures")?.clone() else {
            return Ok(Vec::new());
        };
        let size = Some((self.width, self.height));
        Ok(vec![("pictures", Kind::Pictures { count, size, channels })])
    }

    fn room(&self, given: &Given<Value>) -> Result<usize, Fault> {
        let all = given.need("pictures")?.pictures()?;
        let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
        let pixels = self.pixels().saturating_mul(count);
        let label = format!("{}, resized,", given.label("pictures"));
        check_pixels(&label, all.len(), pixels)?;
        let channels = all.first().map_or(0, |one| one.channels().count());
        let to = (self.width, self.height);
        // Memory for resizing one image, and for a copy of it if another step also reads it.
        let beside = |one: &Pixels| {
            let bytes = resize_bytes((one.width(), one.height()), to);
            bytes.saturating_add(one.data().len())
        };
        let besides = all.iter().map(beside).max();
        let pixels = usize::try_from(pixels).map_err(Fault::internal)?;
        Ok(pixels.saturating_mul(channels).saturating_add(besides.unwrap_or(0)))
    }

    fn run(&self, mut given: Given<Value>, _: &[String]) -> Result<Made<Value>, Fault> {
        let Value::Pictures(all) = given.take("pictures")? else {
            return Err(Fault::internal("resize was given no pictures"));
        };
        let label = given.label("pictures").to_owned();
        let one = |(at, pixels): (usize, Pixels)| {
            resize(pixels, self.width, self.height, Filter::Bilinear)
                .map_err(|error| Fault::bad_input(format!("{label}, picture {at}: {error}")))
        };
        let all: Result<Vec<_>, _> = match Arc::try_unwrap(all) {
            Ok(own) => own.into_iter().enumerate().map(one).collect(),
            // One after another, because there is room for one copy.
            Err(shared) => shared.iter().cloned().enumerate().map(one).collect(),
        };
        Ok(vec![("pictures", Value::Pictures(Arc::new(all?)))])
    }
}
