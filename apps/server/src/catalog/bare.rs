//! Folders with a config file but no model, and unreadable folders, so that the index reports them. The former come
//! from repositories whose models have other file formats.

use super::found::{Found, said, unusable};
use crate::deployment::ModelConfig;
use crate::ensemble;
use crate::fault::Fault;
use lgp_sdk::model::{Error as ModelError, Repository};

/// The version and error of a folder without a model; `None` if it has a model or an ensemble, or if nothing shows
/// that it should be a model's.
pub(super) fn bare(repository: &Repository, name: &str) -> Option<(u64, Fault)> {
    if let Err(error @ ModelError::Io { .. }) = repository.versions_of(name) {
        return Some((1, unusable(&error)));
    }
    let folder = repository.root().join(name);
    let has = |file: &str| folder.join(file).is_file();
    let file = ModelConfig::FILES.into_iter().find(|file| has(file))?;
    if !Repository::is_name(name) || has(ensemble::FILE) || repository.versions_of(name).is_ok() {
        return None;
    }
    let items = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let number = |name: std::ffi::OsString| name.to_str()?.parse().ok().filter(|n: &u64| *n > 0);
    let version = items.filter_map(|item| number(item.file_name())).max().unwrap_or(1);
    let told = match said(repository, name) {
        Ok(said) => said.err(),
        Err(error) => Some(error.to_string()),
    };
    let reason = told.unwrap_or_else(|| {
        format!("{file} of model '{name}': it has no version, expected {name}/{version}/model.onnx")
    });
    Some((version, Fault::not_found("unknown_model", reason)))
}

/// Like [`bare`], for all folders.
pub(super) fn all(repository: &Repository) -> Vec<Found> {
    let items = std::fs::read_dir(repository.root()).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        items.filter_map(|item| item.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let found = |name: String| {
        let (version, fault) = bare(repository, &name)?;
        Some((name, version, Err(fault)))
    };
    names.into_iter().filter_map(found).collect()
}
