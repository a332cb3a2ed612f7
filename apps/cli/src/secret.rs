//! Secrets from other sources than the command line, which other accounts can see.

use crate::failure::{Failure, Result};
use crate::files;
use std::path::Path;

/// Longer texts are no secrets.
const BYTES_MAX: u64 = 4096;

/// The trimmed content of a file. `what` begins the message of an error.
///
/// # Errors
/// When the file cannot be read or is too long; `bad_secret` where it is no text.
pub(crate) fn from_file(what: &str, path: &Path) -> Result<String> {
    trimmed(files::read_for(what, path, BYTES_MAX)?, &path.display().to_string())
}

/// The trimmed content of stdin.
///
/// # Errors
/// As [`from_file`].
pub(crate) fn from_stdin() -> Result<String> {
    let name = "stdin";
    trimmed(files::take_bounded(std::io::stdin().lock(), Path::new(name), BYTES_MAX)?, name)
}

fn trimmed(bytes: Vec<u8>, place: &str) -> Result<String> {
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Failure::new("bad_secret", format!("{place} holds no text")))?;
    Ok(text.trim().to_owned())
}
