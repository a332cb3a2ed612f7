//! Reads a model's config file.

use super::{BYTES_MAX, ModelConfig, PBTXT, TOML, place, refused};
use crate::deployment::{DeployError, triton};
use lgp_common::plainly;
use lgp_inference::{Error as ModelError, Repository};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

impl ModelConfig {
    /// Reads the config file of a model; the default if there is none. Does not compare it with the model.
    ///
    /// # Errors
    /// [`DeployError::Config`] for a file that cannot be parsed, is larger than 64 KiB or asks for an unsupported
    /// feature that would change answers, and if both files exist; [`ModelError::Io`] for a file that cannot be read
    /// now.
    pub fn of(repository: &Repository, name: &str) -> Result<Self, DeployError> {
        if !Repository::is_name(name) {
            return Ok(Self::default());
        }
        let folder = repository.root().join(name);
        let failed = |file| move |reason| refused(name, file, reason);
        let read = |file| match text(&folder.join(file)) {
            Ok(text) => text.map_err(failed(file)),
            Err(source) => {
                Err(ModelError::Io { action: "read", path: folder.join(file), source }.into())
            }
        };
        let (pbtxt, toml) = (read(PBTXT)?, read(TOML)?);
        match (pbtxt, toml) {
            (None, None) => Ok(Self::default()),
            (Some(text), None) => triton::read(name, &text)
                .map(|config| Self { file: PBTXT, ..config })
                .map_err(failed(PBTXT)),
            (None, Some(text)) => own(&text).map_err(failed(TOML)),
            (Some(_), Some(_)) => {
                let what = format!("{TOML} lies beside it, expected one of them: keep one");
                Err(refused(name, PBTXT, what))
            }
        }
    }
}

/// Parses `config.toml`, which has the fields of [`Deployment`](crate::Deployment).
fn own(text: &str) -> Result<ModelConfig, String> {
    let deployment = toml::from_str(text).map_err(|error| {
        let at = error.span().map(|span| place(text, span.start)).unwrap_or_default();
        format!("{at}{}", plainly(&error.message().replace('\n', ", ")))
    })?;
    Ok(ModelConfig { deployment, file: TOML, ..ModelConfig::default() })
}

/// The text of a file, `None` if it does not exist, or the reason why it is not read.
fn text(path: &Path) -> io::Result<Result<Option<String>, String>> {
    let too_large = |bytes| Ok(Err(format!("it has {bytes} bytes, expected {BYTES_MAX} at most")));
    // Opening a pipe would block until it has a writer.
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
        Err(error) => return Err(error),
        Ok(found) if !found.is_file() => return Ok(Err("it is no file".to_owned())),
        Ok(found) if found.len() > BYTES_MAX => return too_large(found.len()),
        Ok(_) => {}
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
        file => file?,
    };
    let mut text = String::new();
    // The file may have grown since its length was checked.
    match file.take(BYTES_MAX + 1).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(Err(error.to_string())),
        Err(error) => return Err(error),
    }
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if bytes > BYTES_MAX { too_large(bytes) } else { Ok(Ok(Some(text))) }
}
