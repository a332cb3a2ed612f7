//! Reads the digits data: gzipped rows of 64 pixels (0–16) and a label.

use crate::error::{Error, Result};
use flate2::read::GzDecoder;
use std::io::Read;

/// Width and height of an image.
pub const SIDE: usize = 8;
/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;
/// The number of digits.
pub const CLASSES: usize = 10;

/// The largest pixel value.
const INK: u8 = 16;
/// One of so many rows belongs to the test part.
const TEST_EVERY: usize = 5;

/// Images with their labels. Each image has `PIXELS` pixels from 0 to 16, row-major.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DigitSet {
    /// All pixels, image after image.
    pub pixels: Vec<f32>,
    /// The digit that each image shows, 0–9.
    pub labels: Vec<u8>,
}

impl DigitSet {
    /// Reads gzipped CSV and splits it: rows whose index is a multiple of five are the test part.
    /// Returns `(train, test)`.
    ///
    /// # Errors
    /// Data that is not gzip or not CSV, a row without exactly 65 fields, a value out of range.
    pub fn read_split(gzipped: impl Read) -> Result<(Self, Self)> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(GzDecoder::new(gzipped));
        let (mut train, mut test) = (Self::default(), Self::default());
        for (row, record) in reader.records().enumerate() {
            let record = record?;
            let part = if row % TEST_EVERY == 0 { &mut test } else { &mut train };
            part.push(row, &record)?;
        }
        Ok((train, test))
    }

    /// The number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of image `index`, or `None` past the end.
    #[must_use]
    pub fn image(&self, index: usize) -> Option<&[f32]> {
        self.pixels.chunks_exact(PIXELS).nth(index)
    }

    fn push(&mut self, row: usize, record: &csv::StringRecord) -> Result<()> {
        if record.len() != PIXELS + 1 {
            let found = format!("{} fields", record.len());
            return Err(Error::Row { row, found, expected: "64 pixels and a label" });
        }
        for (at, field) in record.iter().enumerate() {
            let (max, expected) = if at < PIXELS {
                (INK, "a pixel from 0 to 16")
            } else {
                (9, "a label from 0 to 9")
            };
            let value = field.trim().parse::<u8>().ok().filter(|value| *value <= max);
            let value =
                value.ok_or_else(|| Error::Row { row, found: format!("{field:?}"), expected })?;
            if at < PIXELS {
                self.pixels.push(f32::from(value));
            } else {
                self.labels.push(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn row(pixel: u8, label: &str) -> String {
        format!("{}{label}\n", format!("{pixel},").repeat(PIXELS))
    }

    #[test]
    fn every_fifth_row_is_test() {
        let text: String = (0..11_u8).map(|i| row(i, &(i % 10).to_string())).collect();
        let (train, test) = DigitSet::read_split(gzip(&text).as_slice()).unwrap();
        assert_eq!(test.labels, [0, 5, 0]);
        assert_eq!(train.labels, [1, 2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(test.image(1).unwrap(), [5.0; PIXELS]);
        assert_eq!(test.image(3), None);
    }

    #[test]
    fn the_bundled_data_has_the_known_size() {
        let bytes = include_bytes!("../../../apps/cli/assets/digits/digits.csv.gz");
        let (train, test) = DigitSet::read_split(bytes.as_slice()).unwrap();
        assert_eq!((train.len(), test.len()), (1437, 360));
    }

    #[test]
    fn bad_rows_are_named() {
        let cases = [
            (row(0, "1") + "1,2,3\n", "row 1 of the digits data: 3 fields, expected 64 pixels"),
            ("1,2,3\n".to_owned(), "row 0 of the digits data: 3 fields"),
            (row(17, "1"), "\"17\", expected a pixel from 0 to 16"),
            (row(3, "12"), "\"12\", expected a label from 0 to 9"),
            (row(3, "seven"), "\"seven\", expected a label"),
        ];
        for (text, wanted) in cases {
            let error = DigitSet::read_split(gzip(&text).as_slice()).unwrap_err();
            let mut message = error.to_string();
            if let Some(source) = std::error::Error::source(&error) {
                message += &source.to_string();
            }
            assert!(message.contains(wanted), "{message:?} lacks {wanted:?}");
        }
        assert!(DigitSet::read_split(b"not gzip".as_slice()).is_err());
    }
}
