//! The files of a machine that joins a cluster, and how the machine gets its identity.

use crate::failure::{Failure, NEW_TOKEN, Result};
use crate::folder;
use lgp_distributed::{CaHash, Coordinators, JoinRefusal, WorkerId};
use lgp_sdk::cluster::{Error as ClusterError, Identity, JoinToken, join};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// The folder of the machine's identity.
pub(crate) fn identity_folder(data: &Path) -> PathBuf {
    data.join("identity")
}

/// Deletes the machine's identity.
///
/// # Errors
/// When the folder cannot be deleted.
pub(crate) fn forget(data: &Path) -> Result<()> {
    let folder = identity_folder(data);
    std::fs::remove_dir_all(&folder).map_err(|error| Failure::file("delete", &folder, &error))
}

/// Takes a data folder over, until the answer is dropped.
///
/// # Errors
/// `already_running` when another worker uses it, `folder_of_coordinator` when a coordinator does.
pub(crate) fn own(data: &Path) -> Result<File> {
    if folder::is_coordinators(data) {
        let message = format!(
            "data folder {} is a coordinator's, expected one that only this worker uses",
            data.display()
        );
        return Err(Failure::new("folder_of_coordinator", message)
            .hint("choose another --data folder, or leave the flag out"));
    }
    folder::make(data)?;
    let path = data.join("joined.lock");
    let lock = File::options().write(true).create(true).truncate(false).open(&path);
    let lock = lock.map_err(|error| Failure::file("open", &path, &error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let message = format!("a worker already runs on data folder {}", data.display());
            Err(Failure::new("already_running", message)
                .hint("give this one another --data folder"))
        }
        Err(TryLockError::Error(error)) => Err(Failure::file("lock", &path, &error)),
    }
}

/// The identity that the machine asks for, and its token.
pub(crate) struct Wanted {
    token: Option<JoinToken>,
    /// The name that was asked for, if any was.
    name: Option<WorkerId>,
}

impl Wanted {
    /// # Errors
    /// `usage` for an invalid name.
    pub(crate) fn new(token: Option<JoinToken>, name: Option<&str>) -> Result<Self> {
        let name = name.map(str::parse).transpose();
        let name = name.map_err(|error: ClusterError| Failure::usage(error.to_string()))?;
        Ok(Self { token, name })
    }

    /// The hash by which the cluster's authority is recognised.
    ///
    /// # Errors
    /// `usage` without a token.
    pub(crate) fn authority(&self) -> Result<CaHash> {
        let token = self.token.as_ref();
        token.map(JoinToken::authority).ok_or_else(|| Failure::usage("a token is missing"))
    }

    /// Whether the machine has a kept identity that fits.
    pub(crate) fn has_joined(&self, data: &Path) -> bool {
        let kept = Identity::load(&identity_folder(data));
        matches!(kept, Ok(Some(kept)) if matches!(self.fits(&kept), Ok(None)))
    }

    /// The kept identity if it fits, else a new one for the token. True for a new one. A kept identity may have
    /// expired: the coordinator decides by its own clock whether to renew it.
    ///
    /// # Errors
    /// `token_missing`, or why the coordinator refuses.
    pub(crate) async fn identity(
        &self,
        at: &Coordinators,
        data: &Path,
    ) -> Result<(Identity, bool)> {
        let folder = identity_folder(data);
        let kept = match (Identity::load(&folder), &self.token) {
            (Ok(kept), _) => kept,
            // A damaged identity is replaced, if there is a token.
            (Err(error @ ClusterError::Damaged { .. }), Some(_)) => {
                tracing::warn!(%error, "joining anew");
                None
            }
            (Err(error), _) => return Err(error.into()),
        };
        let why = match kept {
            Some(kept) => match self.fits(&kept)? {
                None => return Ok((kept, false)),
                Some(why) => why,
            },
            None => Failure::new("token_missing", "this machine has not joined a cluster yet"),
        };
        let Some(token) = &self.token else {
            return Err(why.hint(NEW_TOKEN));
        };
        Ok((self.anew(at, token, data).await?, true))
    }

    /// A new identity for the token that replaces the useless kept one; `None` without a token.
    ///
    /// # Errors
    /// Why the coordinator refuses.
    pub(crate) async fn replaced(
        &self,
        at: &Coordinators,
        data: &Path,
    ) -> Result<Option<Identity>> {
        match &self.token {
            Some(token) => self.anew(at, token, data).await.map(Some),
            None => Ok(None),
        }
    }

    async fn anew(&self, at: &Coordinators, token: &JoinToken, data: &Path) -> Result<Identity> {
        let identity = self.enrol(at, token).await?;
        identity.save(&identity_folder(data))?;
        Ok(identity)
    }

    /// Why a kept identity does not fit; `None` where it fits.
    fn fits(&self, kept: &Identity) -> Result<Option<Failure>> {
        let other_name = self.name.as_ref().is_some_and(|name| *name != kept.name);
        let authority = kept.ca_hash()?;
        let other_cluster = self.token.as_ref().is_some_and(|t| t.authority() != authority);
        if other_name || other_cluster {
            let message = format!("this machine joined as {}, not under this name", kept.name);
            return Ok(Some(Failure::new("token_missing", message)));
        }
        Ok(None)
    }

    async fn enrol(&self, at: &Coordinators, token: &JoinToken) -> Result<Identity> {
        if let Some(name) = &self.name {
            return Ok(join(at.clone(), token, name).await?);
        }
        let machine = machine_name();
        let named = |text: &str| text.parse::<WorkerId>().map_err(Failure::internal);
        match join(at.clone(), token, &named(&machine)?).await {
            // Machines set up alike have the same name, and no user chose it.
            Err(ClusterError::JoinRefused { refusal: JoinRefusal::NameTaken { .. }, .. }) => {
                let other = format!("{machine}-{}", std::process::id());
                Ok(join(at.clone(), token, &named(&other)?).await?)
            }
            joined => Ok(joined?),
        }
    }
}

/// The machine's name as workers are named.
fn machine_name() -> String {
    as_worker_name(&rustix::system::uname().nodename().to_string_lossy())
}

fn as_worker_name(host: &str) -> String {
    let first = host.split('.').next().unwrap_or_default().to_lowercase();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    // Short enough for a number to follow.
    let name: String = first.chars().map(plain).take(40).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "worker".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_names_that_workers_may_have() {
        for (host, name) in [
            ("Render-Box.lan", "render-box"),
            ("my_pc", "my-pc"),
            ("-x-", "x"),
            ("", "worker"),
            ("ÄÖ", "worker"),
            (&"a".repeat(64), &"a".repeat(40)),
        ] {
            assert_eq!(as_worker_name(host), name);
            assert!(as_worker_name(host).parse::<WorkerId>().is_ok());
        }
        assert!(machine_name().parse::<WorkerId>().is_ok());
    }

    #[test]
    fn a_folder_has_one_worker() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let owned = own(folder.path()).expect("free");
        assert_eq!(own(folder.path()).expect_err("taken").code, "already_running");
        drop(owned);
        own(folder.path()).expect("free again");
    }

    #[test]
    fn a_worker_takes_no_coordinators_folder() {
        for mark in ["pki", "coordinator.lock"] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            std::fs::create_dir(folder.path().join(mark)).expect("the folder is ours");
            let refused = own(folder.path()).expect_err("it is taken");
            assert_eq!(refused.code, "folder_of_coordinator");
            assert!(refused.message.contains(&*folder.path().to_string_lossy()), "{refused}");
            assert!(!folder.path().join("joined.lock").exists(), "nothing was changed");
        }
    }
}
