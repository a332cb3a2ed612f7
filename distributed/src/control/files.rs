//! Files that only their owner may read: keys and hashes of secrets. They appear complete or not at
//! all, and are durable before the program relies on them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Creates a folder that only its owner may enter. A folder that exists already is an error.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Replaces a file's content in one step.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let staging = staging_beside(path);
    let written = create_private(&staging, bytes).and_then(|()| std::fs::rename(&staging, path));
    if written.is_err() {
        // The staging file may not exist.
        let _ = std::fs::remove_file(&staging);
    }
    written?;
    sync_folder(folder)
}

/// Writes a new file through to the disk.
pub(crate) fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Opens a file for locking, and creates it if it does not exist.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a rename in the folder survive a power cut.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// A random hidden name in the same folder.
pub(crate) fn staging_beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    path.with_file_name(format!(".{name}-{:016x}", rand::random::<u64>()))
}

/// Reads a file that is no longer than `bytes_max`.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|given| given <= bytes_max) {
        return Ok(bytes);
    }
    let what = format!("longer than {bytes_max} bytes, the most that it can have");
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Removes the access of other users, which a copy or a restored backup may have granted. The file
/// may have been read meanwhile, so the log reports it.
pub(crate) fn keep_private(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            tracing::warn!(path = %path.display(), mode = format!("{:o}", mode & 0o777),
                "others could read this file; from now on only its owner can");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o700))?;
        }
    }
    Ok(())
}
