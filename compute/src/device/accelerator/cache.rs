//! Compiled programs on disk, so that the next process need not compile them; and the recipes that
//! were measured to be fastest on a device.
//!
//! A program's file is named by the digest of everything that the program depends on: the source
//! with the device's prelude, the compiler's options, the device and its driver. The file begins
//! with a digest of this name and the program. A file whose digest does not match counts as
//! missing.

#[cfg(test)]
mod tests;

use super::{Accelerator, lock};
use crate::error::{Error, Result};
use lgp_hal::{Device, Program, with_prelude};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The most bytes of all programs in a folder, which hold thousands of them.
const BYTES_MAX: u64 = 256 << 20;
/// The largest list of choices that is read.
const CHOICES_BYTES_MAX: u64 = 16 << 20;
/// The extension of a program's file.
const PROGRAM: &str = "program";
/// Bytes of a digest.
const DIGEST: usize = 32;

/// Measured choices by name. For recipes, the name is the digest of the recipe that the cost model
/// prefers, and the choice is the digest of the fastest one. Callers keep choices of their own
/// beside these. Another computation, or another way to compute it, has another digest, so an old
/// entry is never used for it.
pub(super) type Choices = BTreeMap<String, String>;

/// A folder of programs, for one device and its driver.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    bytes_max: u64,
    /// Digest of the device and its driver, as part of each program's name.
    device: [u8; DIGEST],
}

impl Accelerator {
    /// Keeps compiled programs and the choices of [`Accelerator::tune`] in a folder from now on,
    /// and loads the programs and choices that the folder already has. A missing folder is made.
    /// Processes and devices may share a folder. Only the first folder that is given counts.
    ///
    /// # Errors
    /// [`Error::Cache`]: the folder cannot be made or written, or it does not belong to this user
    /// alone. Programs are then compiled as without a folder.
    pub fn keep_in(&self, folder: &Path) -> Result<()> {
        let cache = Cache::open(folder, &*self.0.device)?;
        let choices = cache.choices();
        if self.0.cache.set(cache).is_ok() {
            lock(&self.0.choices).extend(choices);
        }
        Ok(())
    }
}

impl Cache {
    /// The folder of the programs.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The programs in `folder` for `device`.
    ///
    /// # Errors
    /// [`Error::Cache`].
    fn open(folder: &Path, device: &dyn Device) -> Result<Self> {
        let refuse = |reason: String| Error::Cache { folder: folder.to_owned(), reason };
        create(folder).and_then(|()| own(folder)).map_err(|error| refuse(error.to_string()))?;
        let device = digest(&[device.name().as_bytes(), device.caps().driver.as_bytes()]);
        Ok(Self { folder: folder.to_owned(), bytes_max: BYTES_MAX, device })
    }

    /// The program of a source, loaded or else compiled and kept.
    ///
    /// # Errors
    /// The compiler's error. A program that cannot be kept is no error: the next process compiles
    /// it again.
    pub(super) fn program(&self, device: &dyn Device, source: &str) -> Result<Arc<dyn Program>> {
        const OPTIONS: &str = "";
        let text = with_prelude(device.id().backend, source);
        let key = digest(&[&self.device, text.as_bytes(), OPTIONS.as_bytes()]);
        if let Some(binary) = self.get(&key) {
            // SAFETY: these are the bytes of a `Program::binary`: the digest shows that `put` wrote
            // just these bytes for this source, device and driver. The folder belonged to this user
            // alone when it was opened. This user, like anyone who may write to the folders above,
            // could as well replace the running program itself.
            if let Ok(program) = unsafe { device.load(&binary) } {
                return Ok(program);
            }
        }
        let program = device.compile(source, OPTIONS)?;
        if let Some(binary) = program.binary() {
            // A full disk is no reason not to run.
            let _ = self.put(&key, &binary);
        }
        Ok(program)
    }

    /// The choices that were written for this device; none without their file. A recipe is chosen
    /// by digest among the recipes that this program makes itself, so a wrong digest chooses none.
    fn choices(&self) -> Choices {
        let text = read(&self.choices_path(), CHOICES_BYTES_MAX);
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Writes a choice for this device, and keeps the choices that other processes have written.
    ///
    /// # Errors
    /// [`Error::Cache`].
    pub(super) fn put_choice(&self, name: String, chosen: String) -> Result<()> {
        let mut choices = self.choices();
        choices.insert(name, chosen);
        let text = serde_json::to_vec_pretty(&choices).map_err(io::Error::from);
        let written = text.and_then(|text| self.write(&self.choices_path(), &[&text]));
        let refuse = |error: io::Error| Error::Cache {
            folder: self.folder.clone(),
            reason: error.to_string(),
        };
        written.map_err(refuse)
    }

    fn choices_path(&self) -> PathBuf {
        self.folder.join(hex(&self.device)).with_extension("json")
    }

    fn path(&self, key: &[u8; DIGEST]) -> PathBuf {
        self.folder.join(hex(key)).with_extension(PROGRAM)
    }

    /// The program that was put under this key, if its file is whole.
    fn get(&self, key: &[u8; DIGEST]) -> Option<Vec<u8>> {
        let mut bytes = read(&self.path(key), self.bytes_max)?;
        let (sum, binary) = bytes.split_first_chunk::<DIGEST>()?;
        let whole = *sum == digest(&[key, binary]);
        whole.then(|| bytes.split_off(DIGEST))
    }

    /// Writes a program, and deletes the oldest ones if the folder is too large.
    fn put(&self, key: &[u8; DIGEST], binary: &[u8]) -> io::Result<()> {
        self.write(&self.path(key), &[&digest(&[key, binary]), binary])?;
        self.trim()
    }

    /// Writes a file that appears whole or not at all.
    fn write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.persist(path)?;
        Ok(())
    }

    fn trim(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            // Another process may delete the file at the same time.
            if path.extension().is_some_and(|it| it == PROGRAM)
                && let Ok(metadata) = fs::metadata(&path)
            {
                let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                files.push((written, metadata.len(), path));
            }
        }
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        files.sort();
        for (_, size, path) in files {
            if bytes <= self.bytes_max {
                break;
            }
            bytes -= size;
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// A file of at most so many bytes.
fn read(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let fits = fs::metadata(path).ok()?.len() <= bytes_max;
    fits.then(|| fs::read(path).ok()).flatten()
}

/// The digest of parts and their lengths: it changes if a byte moves from one part to the next.
pub(super) fn digest(parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a folder that other users cannot write to, and its missing parents.
fn create(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Checks that only this user can write to a folder.
fn own(folder: &Path) -> io::Result<()> {
    let mine = tempfile::NamedTempFile::new_in(folder)?;
    let foreign = foreign(&fs::metadata(folder)?, &mine.as_file().metadata()?);
    foreign.map_or(Ok(()), |reason| Err(io::Error::other(reason)))
}

/// The reason why other users than the owner of the file `mine` can write to a folder, if they can.
#[cfg(unix)]
fn foreign(folder: &Metadata, mine: &Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let mode = folder.mode() & 0o777;
    if folder.uid() != mine.uid() {
        return Some(format!("it belongs to user {}, expected {}", folder.uid(), mine.uid()));
    }
    (mode & 0o022 != 0).then(|| format!("its mode is {mode:o}, expected that others cannot write"))
}

/// On other systems the folders of a user are not open to other users.
#[cfg(not(unix))]
fn foreign(_folder: &Metadata, _mine: &Metadata) -> Option<String> {
    None
}
