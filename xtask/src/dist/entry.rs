//! A file that is to go into a package.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A file: its path in the package, its content and its mode.
pub(super) struct Entry {
    /// Path from the package's root.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
}

impl Entry {
    /// A file that every account can read.
    pub(super) fn file(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), mode: 0o644 }
    }

    /// A file that every account can run.
    pub(super) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { mode: 0o755, ..Self::file(path, bytes) }
    }

    /// A readable copy of a file in the tree.
    pub(super) fn copy(path: impl Into<String>, from: &Path) -> Result<Self> {
        let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        Ok(Self::file(path, bytes))
    }

    /// Writes the file below `root`, whatever the umask.
    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let mut folder = root.to_owned();
        let (above, _) = self.path.rsplit_once('/').unwrap_or_default();
        for part in above.split('/') {
            folder.push(part);
            fs::create_dir_all(&folder)?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        }
        let path = root.join(&self.path);
        fs::write(&path, &self.bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(self.mode))?;
        Ok(())
    }
}
