//! Chooses the loaded versions of a model: by its deployment, or those that were loaded last.

use lgp_inference::{Error as ModelError, Repository};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

/// The file in the model's folder with the versions that were loaded last.
const FILE: &str = "loaded.json";
/// The most versions that a policy may list.
const LISTED_MAX: usize = 64;

/// Which versions of a model to load, with Triton's names for the policies.
///
/// ```
/// use lgp_server::VersionPolicy;
///
/// let policy: VersionPolicy = "latest:2".parse()?;
/// assert_eq!(policy.choose(&[1, 2, 5]), [2, 5]);
/// assert_eq!("1,3".parse::<VersionPolicy>()?.choose(&[1, 2, 3]), [1, 3]);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionPolicy {
    /// All versions.
    All,
    /// The newest versions, of this number.
    Latest(NonZeroU32),
    /// These versions.
    Listed(Vec<u64>),
}

impl VersionPolicy {
    /// The versions to load, out of `versions`, which are sorted oldest first.
    #[must_use]
    pub fn choose(&self, versions: &[u64]) -> Vec<u64> {
        match self {
            Self::All => versions.to_vec(),
            Self::Latest(count) => {
                let count = usize::try_from(count.get()).unwrap_or(usize::MAX);
                versions[versions.len().saturating_sub(count)..].to_vec()
            }
            Self::Listed(listed) => {
                versions.iter().copied().filter(|version| listed.contains(version)).collect()
            }
        }
    }
}

impl FromStr for VersionPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("'{text}' is no version policy, expected all, latest:N or 1,3");
        if text == "all" {
            return Ok(Self::All);
        }
        if let Some(count) = text.strip_prefix("latest:") {
            return count.parse().map(Self::Latest).map_err(|_| refused());
        }
        let listed: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
        match listed {
            Ok(listed) if !listed.contains(&0) && listed.len() <= LISTED_MAX => {
                Ok(Self::Listed(listed))
            }
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for VersionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Latest(count) => write!(f, "latest:{count}"),
            Self::Listed(listed) => {
                let listed: Vec<String> = listed.iter().map(u64::to_string).collect();
                f.write_str(&listed.join(","))
            }
        }
    }
}

impl Serialize for VersionPolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VersionPolicy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The loaded versions of a model at the last write.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    /// The versions that were loaded, oldest first.
    pub loaded: Vec<u64>,
    /// All versions that existed then; other ones are newer.
    pub known: Vec<u64>,
}

/// The versions of a model that were loaded last; `None` if none were recorded.
///
/// # Errors
/// [`ModelError::Io`] for a file that cannot be read or parsed.
pub fn last_loaded(repository: &Repository, name: &str) -> Result<Option<Loaded>, ModelError> {
    let path = path(repository, name);
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| ModelError::Io {
            action: "read",
            path,
            source: e.into(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ModelError::Io { action: "read", path, source }),
    }
}

/// Records the loaded versions of a registered model for the next start.
///
/// # Errors
/// [`ModelError::Io`]; the earlier record then remains.
pub fn keep_loaded(repository: &Repository, name: &str, loaded: &Loaded) -> Result<(), ModelError> {
    let path = path(repository, name);
    let failed = |source| ModelError::Io { action: "write", path: path.clone(), source };
    let mut file = tempfile::NamedTempFile::new_in(repository.root().join(name)).map_err(failed)?;
    serde_json::to_writer(&mut file, loaded).map_err(|e| failed(e.into()))?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(&path).map(drop).map_err(|error| failed(error.error))
}

fn path(repository: &Repository, name: &str) -> PathBuf {
    repository.root().join(name).join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::testing::repository;

    #[test]
    fn policies_are_read_written_and_choose() {
        for (text, chosen) in [
            ("all", vec![1, 2, 4]),
            ("latest:1", vec![4]),
            ("latest:2", vec![2, 4]),
            ("latest:9", vec![1, 2, 4]),
            ("4,1,7", vec![1, 4]),
        ] {
            let policy: VersionPolicy = text.parse().expect(text);
            assert_eq!((policy.to_string().as_str(), policy.choose(&[1, 2, 4])), (text, chosen));
            let json = serde_json::to_string(&policy).expect("a string");
            assert_eq!(serde_json::from_str::<VersionPolicy>(&json).expect("ours"), policy);
        }
        for text in ["", "latest", "latest:0", "latest:-1", "0", "1,,2", "1;2", "newest"] {
            let error = text.parse::<VersionPolicy>().expect_err(text);
            assert!(error.contains("expected all, latest:N or 1,3"), "{error}");
        }
    }

    #[test]
    fn what_was_loaded_is_kept_beside_the_model() {
        let (_folder, repository, model) = repository();
        assert_eq!(last_loaded(&repository, &model.name).expect("nothing yet"), None);
        for versions in [&[1, 3][..], &[]] {
            let loaded = Loaded { loaded: versions.to_vec(), known: vec![1, 2, 3] };
            keep_loaded(&repository, &model.name, &loaded).expect("its folder is there");
            assert_eq!(last_loaded(&repository, &model.name).expect("kept"), Some(loaded));
        }
        assert_eq!(repository.list().expect("ours").len(), 1, "the file is no version");
        assert!(keep_loaded(&repository, "nope", &Loaded::default()).is_err());
        std::fs::write(path(&repository, &model.name), "{").expect("ours");
        assert!(last_loaded(&repository, &model.name).is_err());
    }
}
