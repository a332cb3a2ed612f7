//! Files that appear whole or not at all.

use crate::failure::{Failure, Result};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that is whole, but not yet where it belongs. Dropped, it is gone.
pub(crate) struct Staged {
    file: NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// Writes a file beside its place, whose folder must be there.
    ///
    /// # Errors
    /// When the file cannot be written, or a folder has its name.
    pub(crate) fn new(path: &Path, bytes: &[u8]) -> Result<Self> {
        let failed = |error: std::io::Error| Failure::file("write", path, &error);
        if path.is_dir() {
            return Err(failed(std::io::ErrorKind::IsADirectory.into()));
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Others may look at it too, if the system's mask lets them.
        let mut file = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Moves the file to its place, where it replaces another one.
    ///
    /// # Errors
    /// What the system has against it.
    pub(crate) fn place(self) -> Result<()> {
        let path = self.path;
        self.file.persist(&path).map_err(|e| Failure::file("write", &path, &e.error))?;
        Ok(())
    }
}

/// Makes a folder and what is above it, where they are not there yet.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path)
        .map_err(|error| Failure::file("make the output folder", path, &error))
}
