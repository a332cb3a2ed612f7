//! stub
use lgp_sdk::ModelError as Error;
use lgp_sdk::*;
use std::path::Path;
pub struct Repository;
pub struct RepositoryEntry {
    pub name: String,
    pub version: u64,
    pub sha256: String,
    pub inputs: Vec<ValueSpec>,
    pub outputs: Vec<ValueSpec>,
    pub path: std::path::PathBuf,
}
impl Repository {
    pub fn get(&self, _n: &str, _v: Option<u64>) -> Result<RepositoryEntry, Error> {
        loop {}
    }
    pub fn list(&self) -> Result<Vec<RepositoryEntry>, Error> {
        loop {}
    }
    pub fn add(&self, _n: &str, _p: &Path) -> Result<RepositoryEntry, Error> {
        loop {}
    }
    pub fn remove(&self, _n: &str) -> Result<(), Error> {
        loop {}
    }
    pub fn remove_version(&self, _n: &str, _v: u64) -> Result<(), Error> {
        loop {}
    }
}
