//! Weights that lie in files beside the model. The model names the file, so the name is not
//! trusted: the file must lie beneath the model's folder, also after symbolic links.

use super::proto::StringStringEntryProto;
use crate::error::{Error, Result};
use lgp_memory::Buffer;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// Where a tensor's bytes lie.
#[derive(Debug)]
pub(crate) struct Location<'a> {
    tensor: &'a str,
    path: &'a str,
    offset: u64,
    length: Option<u64>,
}

impl<'a> Location<'a> {
    pub(crate) fn parse(tensor: &'a str, entries: &'a [StringStringEntryProto]) -> Result<Self> {
        let get = |key: &str| {
            entries.iter().find(|e| e.key.as_deref() == Some(key)).map(|e| e.value().trim())
        };
        let path = get("location").unwrap_or_default();
        let mut this = Self { tensor, path, offset: 0, length: None };
        let number = |key: &str| match get(key) {
            None => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| this.error(format!("{key} is '{text}', expected a number of bytes"))),
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        (this.offset, this.length) = (offset, length);
        Ok(this)
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::ExternalData {
            tensor: self.tensor.to_owned(),
            location: self.path.to_owned(),
            message: message.into(),
        }
    }

    /// The file as the model names it.
    pub(crate) fn relative(&self) -> &Path {
        Path::new(self.path)
    }

    /// The file, provided that it lies beneath `base`.
    pub(crate) fn resolve(&self, base: Option<&Path>) -> Result<PathBuf> {
        let Some(base) = base else {
            return Err(self.error("the model was read from memory, so it has no folder"));
        };
        let relative = Path::new(self.path);
        if self.path.is_empty() {
            return Err(self.error("the location is empty, expected a file name"));
        }
        if self.path.contains('\0') {
            return Err(self.error("expected the name of a file, which has no zero byte"));
        }
        // A backslash separates folders on some systems only; no exporter writes one.
        if self.path.contains('\\')
            || !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
        {
            return Err(self.error("expected a relative path without '..'"));
        }
        let base = base.canonicalize().map_err(Error::io("read", base))?;
        let file = base
            .join(relative)
            .canonicalize()
            .map_err(|e| self.error(format!("cannot be read: {e}")))?;
        if !file.starts_with(&base) {
            return Err(self.error("leads out of the model's folder"));
        }
        Ok(file)
    }

    /// Reads the `expected` bytes of the tensor.
    pub(crate) fn read(&self, base: Option<&Path>, expected: usize) -> Result<Buffer> {
        let path = self.resolve(base)?;
        let failed = |e: std::io::Error| self.error(format!("cannot be read: {e}"));
        // Checked before opening: opening a pipe would wait for its writer.
        let metadata = path.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(self.error("is not a file"));
        }
        let expected_len = u64::try_from(expected).unwrap_or(u64::MAX);
        if let Some(length) = self.length.filter(|&l| l != expected_len) {
            return Err(self.error(format!("length is {length}, but the shape takes {expected}")));
        }
        let end = self.offset.checked_add(expected_len);
        if end.is_none_or(|end| end > metadata.len()) {
            return Err(self.error(format!(
                "the file has {} bytes, expected {expected} from offset {}",
                metadata.len(),
                self.offset
            )));
        }
        let mut file = File::open(&path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.offset)).map_err(failed)?;
        let mut buffer = Buffer::zeroed(expected)?;
        file.read_exact(&mut buffer).map_err(failed)?;
        Ok(buffer)
    }
}
