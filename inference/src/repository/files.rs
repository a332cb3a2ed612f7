//! Copies and hashes the files of a stored model, and writes them through to the disk.

use super::MODEL_FILE;
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Files that hold a model's weights: each path beneath the model's folder, and the file's path.
pub(super) type External = BTreeMap<PathBuf, PathBuf>;

/// The entry's file in its version's folder.
pub(super) const ENTRY_FILE: &str = "entry.json";

const CHUNK_BYTES: usize = 1 << 20;

/// Writes model and weights into an empty folder. Returns their hash.
pub(super) fn copy(folder: &Path, model: &[u8], external: &External) -> Result<String> {
    write(&folder.join(MODEL_FILE), model)?;
    let mut hash = Sha256::new_with_prefix(model);
    for (relative, source) in external {
        let reserved = [MODEL_FILE, ENTRY_FILE].iter().any(|name| relative == Path::new(name));
        if reserved {
            return Err(Error::ExternalData {
                tensor: String::new(),
                location: relative.display().to_string(),
                message: "the name is the repository's own, rename the file".into(),
            });
        }
        let target = folder.join(relative);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        let mut out = File::create(&target).map_err(Error::io("write", &target))?;
        each_chunk(source, |chunk| {
            hash.update(chunk);
            out.write_all(chunk).map_err(Error::io("write", &target))
        })?;
        out.sync_all().map_err(Error::io("write", &target))?;
    }
    Ok(hex(hash))
}

/// The hash of model and weights.
pub(super) fn digest(model: &[u8], external: &External) -> Result<String> {
    let mut hash = Sha256::new_with_prefix(model);
    for source in external.values() {
        each_chunk(source, |chunk| {
            hash.update(chunk);
            Ok(())
        })?;
    }
    Ok(hex(hash))
}

/// Writes a file through to the disk.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(Error::io("write", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io("write", path))
}

/// Makes a rename in the folder survive a power cut, where the system can.
pub(super) fn sync(folder: &Path) {
    let _ = File::open(folder).and_then(|f| f.sync_all());
}

fn each_chunk(source: &Path, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut file = File::open(source).map_err(Error::io("read", source))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let n = file.read(&mut buffer).map_err(Error::io("read", source))?;
        if n == 0 {
            return Ok(());
        }
        take(&buffer[..n])?;
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
