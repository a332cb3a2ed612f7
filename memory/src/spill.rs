//! Tensors on disk, for data that does not fit the host's RAM and is read rarely or in order.

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The alignment of tensors in the file: a multiple of any system's page size.
const PAGE_BYTES: usize = 64 << 10;

/// An unnamed file for tensors. They are mapped: the system reads the used pages, caches them while
/// the RAM is not needed otherwise, and evicts the least recently used.
#[derive(Debug)]
pub struct Spill(Mutex<(File, usize)>);

impl Spill {
    /// An empty file in a folder. It is deleted with its last tensor, even if the program crashes.
    ///
    /// # Errors
    /// [`Error::Spill`].
    pub fn new(folder: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(folder).map_err(|error| Error::spill(&error))?;
        Ok(Self(Mutex::new((file, 0))))
    }

    /// Bytes in the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Moves a tensor to the disk. Its copy in RAM is freed with its last handle.
    ///
    /// # Errors
    /// [`Error::Spill`]; [`Error::Strings`] for strings.
    pub fn put(&self, tensor: &Tensor) -> Result<Tensor> {
        let bytes = tensor.as_bytes();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, end) = &mut *state;
        let start = *end;
        let padding = vec![0; bytes.len().next_multiple_of(PAGE_BYTES) - bytes.len()];
        let at = SeekFrom::Start(u64::try_from(start).unwrap_or(u64::MAX));
        let written = file
            .seek(at)
            .and_then(|_| file.write_all(bytes))
            .and_then(|()| file.write_all(&padding));
        written.map_err(|error| Error::spill(&error))?;
        *end += bytes.len() + padding.len();
        // SAFETY: the file has no name and its handle stays here, so only this function writes to
        // it, and only behind the bytes written before.
        let data = unsafe { Buffer::mapped(file, start, bytes.len()) }?;
        drop(state);
        Tensor::from_buffer(tensor.dtype(), tensor.shape().clone(), data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn tensors_on_disk_have_their_elements() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::new(folder.path()).unwrap();
        let tensors: Vec<Tensor> = [1usize, 100_000, 0, 16_384]
            .map(|n| Tensor::from_slice([n], &vec![n as f32; n]).unwrap())
            .into();
        let on_disk: Vec<Tensor> = tensors.iter().map(|t| spill.put(t).unwrap()).collect();
        assert_eq!(on_disk, tensors);
        assert_eq!(spill.bytes(), (1 + 7 + 1) * PAGE_BYTES);
        drop(spill);
        let mut own = on_disk[1].clone();
        own.as_mut_slice::<f32>().unwrap()[0] = 7.;
        assert_eq!(on_disk, tensors, "the file is nobody's to change");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        let strings = Tensor::zeros(DType::Str, [1]).unwrap();
        assert!(Spill::new(folder.path()).unwrap().put(&strings).is_err());
        assert!(Spill::new(&folder.path().join("none")).is_err());
    }
}
