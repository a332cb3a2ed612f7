//! The authority in the data folder: one private file in a folder of its own.
//!
//! The folder appears with the file in it, so a folder without a whole file was damaged later. Then
//! no new authority is made: workers that joined would no longer recognise their cluster.

use super::{CaHash, LIFE_MAX, Pki, Revoked, pki_error};
use crate::clock::now_s;
use crate::control::authority::{Authority, Folder, Lead};
use crate::control::files;
use crate::control::moving::marker;
use crate::control::persisted::Persisted;
use crate::control::shared::{self, Control};
use crate::error::{Error, Result};
use rcgen::PublicKeyData;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use x509_parser::parse_x509_certificate;

/// The document of revoked certificates.
pub(super) const REVOKED: &str = "revoked.json";
const REVOKED_REMEDY: &str = "restore it from a backup, or delete it, which lets in who was revoked until their certificates \
     expire, and has members join anew whose certificates expire before they are renewed";
/// The certificate, followed by its key, PEM.
const AUTHORITY_FILE: &str = "authority.pem";
const BYTES_MAX: u64 = 64 << 10;

impl Pki {
    /// Opens the authority in a folder such as `DATA/pki`. If the folder is missing, makes it with
    /// a new authority in it. Only the owner can read the folder.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the folder has no whole authority, with what to do;
    /// [`Error::File`]; [`Error::Pki`].
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_on(folder, None)
    }

    /// As [`Pki::open`], where the control plane has the documents beside the authority, such as
    /// tokens and revocations. On first use, the folder's documents are copied there. They are read
    /// now: a coordinator that led and will lead again must open them anew.
    ///
    /// # Errors
    /// As [`Pki::open`], and [`Error::File`] where the control plane cannot be used;
    /// [`Error::Incomplete`], [`Error::Moved`].
    pub fn open_on(folder: &Path, control: Option<&Control>) -> Result<Self> {
        let is_new = match std::fs::symlink_metadata(folder) {
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(Error::file("read", folder, error)),
        };
        if is_new {
            make(folder)?;
        }
        let loaded = load(folder, control);
        if is_new && control.is_some() && loaded.is_err() {
            // The cluster may have an authority already, whose copy belongs there.
            let _ = std::fs::remove_dir_all(folder);
        }
        loaded
    }
}

fn make(folder: &Path) -> Result<()> {
    let pki = Pki::generate()?;
    let text = format!("{}{}", pki.ca_pem(), pki.authority.issuer.key().serialize_pem());
    let revoked = serde_json::to_vec_pretty(&Revoked::default()).map_err(pki_error)?;
    match make_with(folder, &text, (REVOKED, &revoked)) {
        // Another process was faster; its authority is as good.
        Err(Error::File { source, .. })
            if matches!(source.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) =>
        {
            Ok(())
        }
        made => made,
    }
}

fn damaged(folder: &Path, reason: String) -> Error {
    Error::Damaged {
        path: folder.join(AUTHORITY_FILE),
        reason,
        remedy: format!(
            "restore it from a backup; or, to begin a new cluster that every machine joins anew, \
             delete the folder {}",
            folder.display()
        ),
    }
}

/// The text of the authority's certificate and key in a folder, and the fingerprint that the
/// members know it by.
///
/// # Errors
/// As [`Pki::open`].
pub(crate) fn read_authority(folder: &Path) -> Result<(String, String)> {
    let path = folder.join(AUTHORITY_FILE);
    let damaged = |reason: String| damaged(folder, reason);
    for private in [folder, &path] {
        files::keep_private(private).map_err(|error| match error.kind() {
            ErrorKind::NotFound => damaged("it is missing".to_owned()),
            _ => Error::file("read", private, error),
        })?;
    }
    let bytes = files::read_bounded(&path, BYTES_MAX).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => damaged(error.to_string()),
        _ => Error::file("read", &path, error),
    })?;
    let text = String::from_utf8(bytes).map_err(|_| damaged("it is not text".to_owned()))?;
    let ca = CertificateDer::from_pem_slice(text.as_bytes()).map_err(pki_error);
    let ca = ca.map_err(|error| damaged(error.to_string()))?;
    Ok((text, CaHash::of(&ca).to_string()))
}

/// Makes a folder, which appears whole, with an authority's certificate and key and one document.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn make_with(folder: &Path, authority: &str, document: (&str, &[u8])) -> Result<()> {
    let staging = files::staging_beside(folder);
    let made = files::make_private_folder(&staging)
        .and_then(|()| files::create_private(&staging.join(AUTHORITY_FILE), authority.as_bytes()))
        .and_then(|()| files::create_private(&staging.join(document.0), document.1))
        .and_then(|()| files::sync_folder(&staging))
        .and_then(|()| std::fs::rename(&staging, folder))
        .and_then(|()| folder.parent().map_or(Ok(()), files::sync_folder));
    made.map_err(|error| {
        // The staging folder may not exist.
        let _ = std::fs::remove_dir_all(&staging);
        Error::file("make", folder, error)
    })
}

fn load(folder: &Path, control: Option<&Control>) -> Result<Pki> {
    let (text, fingerprint) = read_authority(folder)?;
    // Without the file, the lives of issued certificates are unknown: a revocation is then kept as
    // long as any certificate could live.
    let absent = Revoked {
        longest_life_s: LIFE_MAX.as_secs().saturating_add(1),
        members: Vec::new(),
        // The members are unknown, too: no expired certificate is renewed.
        forgotten_s: now_s(),
    };
    let lead = Arc::new(Lead::new(shared::authority(control, folder, &fingerprint)?));
    marker::refuse(lead.authority())?;
    if control.is_some() && lead.authority().read(REVOKED)?.is_none() {
        // Documents that were moved elsewhere are not copied.
        marker::refuse(&Folder::new(folder))?;
        take_along(&lead, folder)?;
    }
    let is_absent = lead.authority().read(REVOKED)?.is_none();
    let revoked = Persisted::open(&lead, REVOKED, REVOKED_REMEDY, absent)?;
    if is_absent {
        // Write the current time now, so that the next start does not take a later one.
        revoked.change(|_| Ok::<_, Error>(()))??;
    }
    parse(&text, (lead, revoked)).map_err(|error| damaged(folder, error.to_string()))
}

/// Copies the documents of a folder to an authority that has none.
fn take_along(lead: &Lead, folder: &Path) -> Result<()> {
    let from = Folder::new(folder);
    let mut names = from.documents()?;
    names.retain(|name| name != REVOKED && name != marker::MARKER);
    // This document comes last: it shows that all others are there.
    names.push(REVOKED.to_owned());
    for name in names {
        if let Some(bytes) = from.read(&name)? {
            lead.write(&name, &bytes)?;
        }
    }
    Ok(())
}

fn parse(text: &str, kept: (Arc<Lead>, Persisted<Revoked>)) -> Result<Pki> {
    let end = "-----END CERTIFICATE-----\n";
    let at = text.find(end).ok_or_else(|| pki_error("the certificate is not whole"))?;
    let (ca_pem, key_pem) = text.split_at(at + end.len());
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(pki_error)?;
    let pki = Pki::from_parts(ca, ca_pem.to_owned(), key_pem, kept)?;
    let (_, parsed) = parse_x509_certificate(&pki.authority.ca).map_err(pki_error)?;
    // The certificate is self-signed, so this notices every bit that changed.
    parsed.verify_signature(None).map_err(pki_error)?;
    let key = pki.authority.issuer.key().der_bytes();
    if parsed.public_key().subject_public_key.data != key || !parsed.is_ca() {
        return Err(pki_error("the key does not belong to the certificate"));
    }
    Ok(pki)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::identity::certificate::Member;
    use crate::net::identity::role::Role;
    use std::time::Duration;

    fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pki = folder.path().join("pki");
        (folder, pki)
    }

    #[test]
    fn an_authority_is_kept_and_recognised() {
        let (_guard, folder) = folder();
        let first = Pki::open(&folder).expect("a new one");
        let again = Pki::open(&folder).expect("the same");
        assert_eq!(first.hash(), again.hash());
        assert_eq!(first.ca_pem(), again.ca_pem());
        assert_ne!(first.hash(), Pki::generate().expect("random numbers").hash());
        let names = std::fs::read_dir(folder.parent().expect("inside")).expect("ours");
        assert_eq!(names.count(), 1, "nothing else is left");
    }

    #[test]
    fn what_was_revoked_stays_revoked() {
        let (_guard, folder) = folder();
        let pki = Pki::open(&folder).expect("a new one");
        let name = || "w".parse().expect("a name");
        // Made a while ago.
        let member =
            Member { role: Role::Worker, name: name(), issued_s: now_s() - 10, until_s: u64::MAX };
        assert!(!pki.is_revoked(&member));
        let (revoked, kept) = pki.revoke(Role::Worker, name()).expect("room");
        kept.expect("the folder is ours");
        let again = Pki::open(&folder).expect("the same");
        assert!(pki.is_revoked(&member) && again.is_revoked(&member));
        assert_eq!(again.revoked(), [revoked]);
        // A certificate that lives longer than any before is remembered, too.
        let long = again.with_certificate_life(Duration::from_secs(1_000_000));
        long.issue_worker("v").expect("a name");
        let path = folder.join(REVOKED);
        let text = std::fs::read_to_string(&path).expect("ours");
        assert!(text.contains("1000001"), "{text}");
        std::fs::write(&path, &text[1..]).expect("ours");
        assert!(matches!(Pki::open(&folder), Err(Error::Damaged { .. })));
    }

    #[test]
    fn a_revocation_that_cannot_be_written_down_holds_all_the_same() {
        let (guard, folder) = folder();
        let pki = Pki::open(&folder).expect("a new one");
        let name = || "w".parse().expect("a name");
        let member =
            Member { role: Role::Worker, name: name(), issued_s: now_s() - 10, until_s: u64::MAX };
        drop(guard);
        let (_, kept) = pki.revoke(Role::Worker, name()).expect("room");
        assert!(matches!(kept, Err(Error::File { .. })), "{kept:?}");
        assert!(pki.is_revoked(&member));
    }

    #[test]
    fn a_clock_that_was_set_back_leaves_no_certificate_good() {
        let pki = Pki::generate().expect("random numbers");
        let name = || "w".parse().expect("a name");
        let (_, csr) = crate::net::identity::pki::request().expect("random numbers");
        let later = std::time::SystemTime::now() + Duration::from_secs(3600);
        pki.sign(Role::Worker, &name(), &csr, later).expect("signed");
        let issued_s = now_s() + 3600;
        pki.revoke(Role::Worker, name()).expect("room").1.expect("in memory");
        assert!(pki.is_revoked(&Member {
            role: Role::Worker,
            name: name(),
            issued_s: issued_s - 2,
            until_s: u64::MAX,
        }));
        let now = std::time::SystemTime::now();
        assert!(pki.is_too_early(Role::Worker, &name(), now));
        let after = later + Duration::from_secs(2);
        assert!(!pki.is_too_early(Role::Worker, &name(), after));
    }

    #[test]
    fn without_its_file_a_revocation_is_kept_as_long_as_any_certificate_lives() {
        let (_guard, folder) = folder();
        Pki::open(&folder).expect("a new one");
        let kept = || Pki::open(&folder).expect("whole").authority.revoked.read().clone();
        assert_eq!(kept().longest_life_s, 0, "no certificate was made yet");
        std::fs::remove_file(folder.join(REVOKED)).expect("ours");
        let lost = kept();
        assert!(lost.longest_life_s > LIFE_MAX.as_secs());
        assert!(lost.forgotten_s.abs_diff(now_s()) < 60, "what expires from now on is renewed");
        std::thread::sleep(Duration::from_millis(1_100));
        assert_eq!(kept().forgotten_s, lost.forgotten_s, "and it is not asked again");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let (_guard, folder) = folder();
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        let file = folder.join(AUTHORITY_FILE);
        Pki::open(&folder).expect("a new one");
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
        // Permissions as a careless copy leaves them.
        for (path, wide) in [(&folder, 0o755), (&file, 0o664)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(wide)).expect("ours");
        }
        Pki::open(&folder).expect("the same");
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn a_damaged_authority_is_refused_and_left_alone() {
        let (_guard, folder) = folder();
        Pki::open(&folder).expect("a new one");
        let file = folder.join(AUTHORITY_FILE);
        let whole = std::fs::read(&file).expect("ours");
        let mut cases: Vec<Vec<u8>> =
            (0..whole.len() - 1).step_by(23).map(|cut| whole[..cut].to_vec()).collect();
        // A changed letter inside the base64 of the certificate, at several places.
        for at in (40..400).step_by(37) {
            let mut bytes = whole.clone();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            cases.push(bytes);
        }
        cases.push(vec![0xff; 100]);
        cases.push([&whole[..], &vec![b' '; 70_000]].concat());
        let other = Pki::generate().expect("random numbers");
        let key = other.authority.issuer.key().serialize_pem();
        let text = String::from_utf8(whole.clone()).expect("text");
        let certificate = text.split("-----BEGIN PRIVATE").next().expect("the first part");
        cases.push([certificate.as_bytes(), key.as_bytes()].concat());
        for bytes in cases {
            std::fs::write(&file, &bytes).expect("ours");
            let error = Pki::open(&folder).expect_err("damaged");
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            let message = error.to_string();
            assert!(message.contains("authority.pem") && message.contains("backup"), "{message}");
            assert_eq!(std::fs::read(&file).expect("ours"), bytes, "it is left as it was");
        }
        std::fs::remove_file(&file).expect("ours");
        assert!(matches!(Pki::open(&folder), Err(Error::Damaged { .. })));
        assert!(!file.exists(), "no new authority in the place of a lost one");
    }
}
