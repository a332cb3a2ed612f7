//! Secrets that are given otherwise than on the command line, which other accounts see.

use crate::failure::{Failure, Result};
use crate::files;
use std::path::Path;

/// Longer ones are none.
const BYTES_MAX: u64 = 4096;

/// What a file holds, without spaces around it. `what` begins the word about one that cannot be read.
///
/// # Errors
/// When it cannot be read or is too long, and `bad_secret` where it is no text.
pub(crate) fn from_file(what: &str, path: &Path) -> Result<String> {
    trimmed(files::read_for(what, path, BYTES_MAX)?, &path.display().to_string())
}

/// What stdin holds, without spaces around it.
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
