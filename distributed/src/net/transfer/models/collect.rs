//! The file in which a model's bytes are collected: a later attempt continues it.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for an earlier attempt to notice its end and release the file.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// A file that grows, and the hash of its content.
pub(super) struct Collector {
    path: PathBuf,
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl Collector {
    /// Opens the file, and reads what is in it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = File::options();
        let file = options.read(true).append(true).create(true).open(path)?;
        lock(&file)?;
        let mut collector = Self { path: path.to_owned(), file, hash: Sha256::new(), bytes: 0 };
        let mut buffer = vec![0; 1 << 20];
        loop {
            let n = collector.file.read(&mut buffer)?;
            let Some(read) = buffer.get(..n).filter(|read| !read.is_empty()) else { break };
            collector.count(read);
        }
        Ok(collector)
    }

    /// Bytes in the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }

    /// Appends bytes that were received.
    pub(super) fn add(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.count(bytes);
        Ok(())
    }

    /// Empties the file, whose content is of no use.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        (self.hash, self.bytes) = (Sha256::new(), 0);
        Ok(())
    }

    /// Writes everything through to the disk and returns its digest.
    pub(super) fn digest(&self) -> io::Result<String> {
        self.file.sync_all()?;
        Ok(hex::encode(self.hash.clone().finalize()))
    }
}

fn lock(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + TAKE_OVER;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process collects the same model"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
