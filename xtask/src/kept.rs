//! Slow results that depend only on their inputs, cached below target.

use crate::cmd;
use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// A folder of results, each in a file named by the digest of its inputs.
pub(crate) struct Kept(PathBuf);

/// The name of one result.
#[derive(Hash)]
pub(crate) struct Key(u64);

impl Key {
    /// The key for all inputs of a result.
    pub(crate) fn new(inputs: impl Hash) -> Self {
        let mut digest = DefaultHasher::new();
        inputs.hash(&mut digest);
        Self(digest.finish())
    }
}

impl Kept {
    /// The results of the check `name`.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let folder = cmd::root().join("target/xtask").join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// The result, if it is there and readable.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &Key) -> Option<T> {
        serde_json::from_slice(&std::fs::read(self.path(key)).ok()?).ok()
    }

    /// Keeps a result.
    pub(crate) fn put(&self, key: &Key, result: &impl Serialize) -> Result<()> {
        Ok(std::fs::write(self.path(key), serde_json::to_vec(result)?)?)
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.0.join(format!("{:016x}.json", key.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_under_its_inputs_alone() {
        let kept = Kept::open("kept-test").unwrap();
        let key = Key::new(("source", ["-D", "N=4"]));
        kept.put(&key, &[1, 2]).unwrap();
        assert_eq!(kept.get(&Key::new(("source", ["-D", "N=4"]))), Some([1, 2]));
        assert_eq!(kept.get::<[u32; 2]>(&Key::new(("source", ["-D", "N=5"]))), None);
    }
}
