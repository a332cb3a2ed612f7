//! The key of the data folder's owner: a file that only the owner can read.

use super::keys::{Secret, digest};
use crate::error::{Error, Result};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use subtle::ConstantTimeEq;

/// An id that `keys create` never makes.
const ID: &str = "local";
/// Longer files do not hold a key.
const BYTES_MAX: u64 = 256;

/// The key in the file `local.key` of a data folder; its holder may do everything.
#[derive(Clone)]
pub struct LocalKey {
    text: String,
    sha256: [u8; 32],
}

impl LocalKey {
    /// The id in logs of its calls.
    pub(super) const ID: &'static str = ID;

    /// The key in a file. Makes a new one if there is none, or if anyone but its owner could have
    /// read it.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be read or written, [`Error::Random`] if the system
    /// provides no random numbers.
    pub fn ensure(path: &Path) -> Result<Self> {
        let failed = |what| move |source| Error::File { what, path: path.to_owned(), source };
        match read_private(path) {
            Ok(Some(text)) => return Ok(Self::of(text)),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read")(error)),
        }
        let key = Self::of(Secret::new()?.text(ID));
        let folder = path.parent().unwrap_or(Path::new("."));
        let write = || -> std::io::Result<()> {
            // Temporary files are readable by their owner only.
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(key.text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(failed("write"))?;
        Ok(key)
    }

    fn of(text: String) -> Self {
        let sha256 = digest(&text);
        Self { text, sha256 }
    }

    /// The key's text, for `Authorization: Bearer …`.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is(&self, text: &str) -> bool {
        Secret::is_key(text, ID) && digest(text).ct_eq(&self.sha256).into()
    }
}

/// Whether a file with these permissions and this owner is accessible to `account` only.
fn is_private(mode: u32, owner: u32, account: u32) -> bool {
    mode & 0o077 == 0 && owner == account
}

/// The key in a file; `None` if others could have read or written it, or it holds no key.
fn read_private(path: &Path) -> std::io::Result<Option<String>> {
    let file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    let mut text = String::new();
    let account = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || !is_private(metadata.mode(), metadata.uid(), account) {
        return Ok(None);
    }
    match file.take(BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(None),
        Err(error) => return Err(error),
    }
    let text = text.trim();
    Ok(Secret::is_key(text, ID).then(|| text.to_owned()))
}

impl fmt::Debug for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_of_another_account_is_none() {
        for (mode, owner, expected) in
            [(0o600, 7, true), (0o400, 7, true), (0o600, 0, false), (0o640, 7, false)]
        {
            assert_eq!(is_private(mode, owner, 7), expected, "{mode:o} of {owner}");
        }
    }

    #[test]
    fn the_file_is_its_owners_alone_and_stays_as_long_as_it_is() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("local.key");
        let first = LocalKey::ensure(&path).expect("ours");
        assert_eq!(path.metadata().expect("made").mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).expect("ours"), first.text());
        assert_eq!(LocalKey::ensure(&path).expect("ours").text(), first.text());
        assert!(first.is(first.text()) && !first.is("lgp_local_00") && !first.is(""));
        assert!(!format!("{first:?}").contains("lgp_"));

        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("ours");
        let second = LocalKey::ensure(&path).expect("ours");
        assert_ne!(second.text(), first.text(), "others could have read it");
        assert_eq!(path.metadata().expect("made").mode() & 0o777, 0o600);
        for damaged in [&b""[..], b"lgp_local_", b"\xff", &[b'a'; 1000]] {
            std::fs::write(&path, damaged).expect("ours");
            assert!(Secret::is_key(LocalKey::ensure(&path).expect("ours").text(), ID));
        }
    }
}
