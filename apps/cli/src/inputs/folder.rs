//! The files of a folder that an input takes, and those left out.

use crate::failure::{Failure, Result};
use crate::output;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::DType;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Endings of files that are taken from folders.
const ENDINGS: [&str; 5] = ["png", "jpg", "jpeg", "webp", "npy"];

/// The contents of a folder.
pub(super) struct InFolder {
    pub(super) files: Vec<PathBuf>,
    pub(super) others: Others,
}

/// The files left out: their number and kinds.
#[derive(Default)]
pub(super) struct Others {
    count: usize,
    kinds: BTreeSet<String>,
}

impl Others {
    fn add(&mut self, kind: String) {
        self.count += 1;
        self.kinds.insert(kind);
    }

    /// A note on the files left out.
    pub(super) fn note(&self, folder: &Path) -> Option<String> {
        const KINDS_SHOWN: usize = 5;
        let (others, were) = match self.count {
            0 => return None,
            1 => ("other", "was"),
            _ => ("others", "were"),
        };
        let mut kinds: Vec<&str> =
            self.kinds.iter().take(KINDS_SHOWN).map(String::as_str).collect();
        if self.kinds.len() > KINDS_SHOWN {
            kinds.push("…");
        }
        let (count, folder) = (self.count, folder.display());
        let text = format!("{count} {others} in {folder} {were} left out ({})", kinds.join(", "));
        Some(output::plain(&text).into_owned())
    }
}

/// Endings of files that an input takes from folders.
pub(super) fn endings(input: &ValueSpec) -> &'static [&'static str] {
    if input.ty.dtype == DType::Str { &["json"] } else { &ENDINGS }
}

/// The files of a folder that an input takes, sorted by name. Folders inside count as left out; hidden files are
/// ignored. Invalid files with the right ending are included, so that their rows report the error.
pub(super) fn files(folder: &Path, input: &ValueSpec) -> Result<InFolder> {
    let failed = |error| Failure::file("read the folder", folder, &error);
    let endings = endings(input);
    let mut files = Vec::new();
    let mut others = Others::default();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_hidden {
            continue;
        }
        match ending {
            _ if path.is_dir() => others.add("folder".to_owned()),
            Some(ending) if endings.contains(&&*ending) => files.push(path),
            Some(ending) => others.add(format!(".{ending}")),
            None => others.add("no ending".to_owned()),
        }
    }
    files.sort_unstable();
    match files.is_empty() {
        true => {
            let endings = endings.join(", ");
            let message = format!("{} has no file ending in {endings}", folder.display());
            Err(Failure::new("input_folder", message)
                .hint("files of folders within it are not looked at"))
        }
        false => Ok(InFolder { files, others }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{Given, given, read_each};
    use lgp_common::vision::Scaling;
    use lgp_sdk::tensor::TensorType;

    #[test]
    fn what_a_folder_has_besides_is_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["a.npy", ".hidden", "b.BMP", "c.bmp", "README"] {
            std::fs::write(path(name), "").expect("ours");
        }
        std::fs::create_dir(path("deeper.png")).expect("ours");
        std::os::unix::fs::symlink("nowhere", path("gone.npy")).expect("ours");
        let _socket = std::os::unix::net::UnixListener::bind(path("odd.png")).expect("ours");
        let here = folder.path().display().to_string();
        let ty = TensorType { dtype: DType::F32, shape: None };
        let (specs, mut told) = ([ValueSpec::tensor("x", ty)], Vec::new());
        let given = given(std::slice::from_ref(&here), &specs, |note| told.push(note));
        let Given::Each(input, files) = given.expect("it has files") else {
            panic!("a folder is many files");
        };
        assert_eq!(files, [path("a.npy"), path("gone.npy"), path("odd.png")]);
        assert_eq!(told, [format!("4 others in {here} were left out (.bmp, folder, no ending)")]);
        for (file, code) in [(&files[1], "file_not_found"), (&files[2], "not_a_file")] {
            let failure = read_each(input, file, &Scaling::default()).expect_err("it is no file");
            assert_eq!(failure.code, code, "{failure}");
        }
        assert_eq!(Others::default().note(folder.path()), None);
    }
}
