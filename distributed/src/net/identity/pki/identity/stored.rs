//! The identity in a party's folder.

use super::{Identity, pki_error};
use crate::control::files;
use crate::error::{Error, Result};
use crate::net::identity::role::Protocol;
use crate::net::identity::tls;
use std::io::ErrorKind;
use std::path::Path;

const IDENTITY_FILE: &str = "identity.json";
const BYTES_MAX: u64 = 64 << 10;

impl Identity {
    /// Saves the identity in a folder, in place of an earlier one. Only the owner can read it.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn save(&self, folder: &Path) -> Result<()> {
        if let Err(error) = files::make_private_folder(folder)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(Error::file("make", folder, error));
        }
        let path = folder.join(IDENTITY_FILE);
        let text = serde_json::to_vec_pretty(self).map_err(pki_error)?;
        files::write_private(&path, &text).map_err(|error| Error::file("write", path, error))
    }

    /// The identity in a folder, if one was saved there.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it does not parse; [`Error::File`].
    pub fn load(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(IDENTITY_FILE);
        let bytes = match files::read_bounded(&path, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("read", path, error)),
        };
        files::keep_private(&path).map_err(|error| Error::file("read", &path, error))?;
        let damaged = |reason: String| Error::Damaged {
            path: path.clone(),
            reason,
            remedy: "delete it and join anew with a token".to_owned(),
        };
        let identity: Self = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        // Whether the parts work together shows here, not at the first connection.
        tls::client(&identity, Protocol::Work).map_err(|e| damaged(e.to_string()))?;
        identity.validity().map_err(|e| damaged(e.to_string()))?;
        Ok(Some(identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pki;

    #[test]
    fn an_identity_is_kept_in_private_and_refused_when_damaged() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path().join("identity");
        assert!(Identity::load(&folder).expect("no error").is_none());
        let identity = Pki::generate().and_then(|pki| pki.issue_worker("w")).expect("sound");
        identity.save(&folder).expect("ours");
        let kept = Identity::load(&folder).expect("sound").expect("saved");
        assert_eq!((kept.name, kept.key_pem), (identity.name, identity.key_pem));
        let path = folder.join(IDENTITY_FILE);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
            assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
        }
        let whole = std::fs::read(&path).expect("ours");
        for cut in (0..whole.len()).step_by(61) {
            std::fs::write(&path, &whole[..cut]).expect("ours");
            assert!(matches!(Identity::load(&folder), Err(Error::Damaged { .. })), "cut at {cut}");
        }
    }
}
