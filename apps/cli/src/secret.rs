//! Secrets that are given otherwise than on the command line, which other accounts see.

use crate::failure::{Failure, Result};
use crate::files;
use std::io::Read;
use std::path::Path;

/// Longer ones are none.
const BYTES_MAX: u64 = 4096;

/// What a file holds, without spaces around it.
///
/// # Errors
/// When it cannot be read or is too long, and `bad_secret` where it is no text.
pub(crate) fn from_file(path: &Path) -> Result<String> {
    trimmed(files::read_bounded(path, BYTES_MAX)?, &path.display().to_string())
}

/// What stdin holds, without spaces around it.
///
/// # Errors
/// As [`from_file`].
pub(crate) fn from_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| Failure::new("io", format!("cannot read stdin: {error}")))?;
    trimmed(bytes, "stdin")
}

fn trimmed(bytes: Vec<u8>, place: &str) -> Result<String> {
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Failure::new("bad_secret", format!("{place} holds no text")))?;
    Ok(text.trim().to_owned())
}
