//! Takes bytes from the front of a file, and tells the missing part if the file ends too early.

use super::Fail;
use std::ops::Range;

/// A place in a file.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes before this place.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes from this place on.
    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Where the next `len` bytes lie in the file.
    pub(super) fn skip(&mut self, len: usize) -> Result<Range<usize>, Fail> {
        match self.at.checked_add(len).filter(|&end| end <= self.bytes.len()) {
            Some(end) => {
                let range = self.at..end;
                self.at = end;
                Ok(range)
            }
            None => Err(Fail::Bad(format!(
                "it ends {} bytes after byte {}, expected {len} more",
                self.left(),
                self.at
            ))),
        }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Fail> {
        let range = self.skip(len)?;
        Ok(self.bytes.get(range).unwrap_or_default())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fail> {
        self.take(N)?.try_into().map_err(|_| Fail::from("it ends too early"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fail> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fail> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fail> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of 64 bits.
    pub(super) fn count(&mut self) -> Result<usize, Fail> {
        let count = self.u64()?;
        usize::try_from(count).map_err(|_| Fail::Bad(format!("a count of {count} is too large")))
    }

    /// Bytes before the next line feed, which is skipped.
    pub(super) fn line(&mut self) -> Result<&'a [u8], Fail> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(len) = rest.iter().position(|&b| b == b'\n') else {
            return Err(Fail::from("it ends within a line"));
        };
        let line = self.take(len)?;
        self.skip(1)?;
        Ok(line)
    }
}

/// A file's text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Fail> {
    std::str::from_utf8(bytes).map_err(|_| Fail::from("a text is not UTF-8"))
}
