//! `--calibration` and `--labels`: the inputs on which a model is calibrated and judged.

use crate::failure::{Failure, Result};
use crate::inputs::{self, Given};
use crate::{files, npy};
use lgp_common::vision::Scaling;
use lgp_research::compression::RunInputs;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::NamedTensor;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most bytes of all samples: more would not make better ranges.
const BYTES_MAX: u64 = 4 << 30;
/// The most bytes of a file of labels.
const LABELS_BYTES_MAX: u64 = 64 << 20;

/// The runs of a folder or a file, and the name of the file of each.
pub(crate) struct Runs {
    pub(crate) runs: Vec<RunInputs>,
    /// Without the folder.
    pub(crate) names: Vec<String>,
}

/// Reads a folder of `.npz` files, or, for a model with one input, of `.npy` files and images; or one such file.
/// `tell` gets a note on files of a folder that are left out.
///
/// # Errors
/// `file_not_found`, `input_folder` for a folder without usable files, `calibration_too_large`, and those of single
/// files.
pub(crate) fn read(
    path: &Path,
    specs: &[ValueSpec],
    scaling: &Scaling,
    tell: impl FnMut(String),
) -> Result<Runs> {
    let archives = archives(path)?;
    let found: Vec<PathBuf> = match archives.is_empty() {
        false => archives,
        true => match inputs::given(&[path.display().to_string()], specs, tell)? {
            Given::Once(files) => files.into_iter().map(|(_, file)| file).collect(),
            Given::Each(_, files) => files,
        },
    };
    let (mut runs, mut names, mut bytes) = (Vec::new(), Vec::new(), 0u64);
    for file in found {
        let run = match (is_archive(&file), specs) {
            (true, _) => archive(&file)?,
            (false, [only]) => vec![inputs::read_each(only, &file, scaling)?],
            (false, _) => {
                let message = format!("{} is no .npz file", file.display());
                return Err(Failure::new("input_folder", message)
                    .hint("a model with several inputs takes .npz files, with an array for each"));
            }
        };
        let own: usize = run.iter().map(|input| input.tensor.as_bytes().len()).sum();
        bytes = bytes.saturating_add(u64::try_from(own).unwrap_or(u64::MAX));
        if bytes > BYTES_MAX {
            let message = format!("{} holds more than 4 GiB of samples", path.display());
            return Err(Failure::new("calibration_too_large", message)
                .hint("some hundred samples are enough"));
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        names.push(name);
        runs.push(run);
    }
    Ok(Runs { runs, names })
}

fn is_archive(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npz"))
}

/// The `.npz` file itself, or those of a folder, sorted; empty where there are none.
fn archives(path: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| Failure::file("read", path, &error);
    if !path.metadata().map_err(failed)?.is_dir() {
        return Ok(if is_archive(path) { vec![path.to_owned()] } else { Vec::new() });
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if is_archive(&file) && file.is_file() {
            found.push(file);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The arrays of a `.npz` file: a zip archive of `.npy` files named after the inputs.
fn archive(path: &Path) -> Result<RunInputs> {
    let bad = |what: String| {
        Failure::new("npz_invalid", format!("{} is not usable: {what}", path.display()))
    };
    let file: File = files::open_regular(path)?;
    let mut zip = zip::ZipArchive::new(file).map_err(|error| bad(error.to_string()))?;
    let (mut arrays, mut room) = (Vec::with_capacity(zip.len().min(64)), BYTES_MAX);
    for at in 0..zip.len() {
        let entry = zip.by_index(at).map_err(|error| bad(error.to_string()))?;
        let name = entry.name().map_err(|error| bad(error.to_string()))?;
        let name = name.trim_end_matches(".npy").to_owned();
        let mut bytes = Vec::new();
        // The size that the archive names is not believed.
        let read = entry.take(room + 1).read_to_end(&mut bytes);
        let read = read.map_err(|error| bad(error.to_string()))?;
        room = u64::try_from(read)
            .ok()
            .and_then(|read| room.checked_sub(read))
            .ok_or_else(|| bad("it unpacks to more than 4 GiB".to_owned()))?;
        let tensor = npy::of_bytes(&bytes, &format!("'{name}' in {}", path.display()))?;
        arrays.push(NamedTensor::new(name, tensor));
    }
    Ok(arrays)
}

/// The class of each row. A CSV file has a class on each line, in the order of the rows; or a file's name and its
/// class, where each file is one row. A first line without a number is a heading.
///
/// # Errors
/// `labels_unusable`, with the line.
pub(crate) fn labels(path: &Path, names: &[String]) -> Result<Vec<usize>> {
    let bad = |what: String| {
        Failure::new("labels_unusable", format!("{} is not usable: {what}", path.display())).hint(
            "--labels takes a CSV file with the number of a class on each line, or FILE,CLASS",
        )
    };
    let bytes = files::read_bounded(path, LABELS_BYTES_MAX)?;
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes.as_slice());
    let (mut plain, mut named) = (Vec::new(), HashMap::new());
    for (line, record) in reader.records().enumerate() {
        let record = record.map_err(|error| bad(error.to_string()))?;
        let last = record.get(record.len().saturating_sub(1)).unwrap_or_default().trim();
        let class = match last.parse::<usize>() {
            Ok(class) => class,
            Err(_) if line == 0 => continue,
            Err(_) => return Err(bad(format!("line {} ends in '{last}'", line + 1))),
        };
        match (record.len(), record.get(0)) {
            (1, _) => plain.push(class),
            (2, Some(name)) => drop(named.insert(name.trim().to_owned(), class)),
            (columns, _) => {
                return Err(bad(format!("line {} has {columns} columns", line + 1)));
            }
        }
    }
    match (plain.is_empty(), named.is_empty()) {
        (_, true) => Ok(plain),
        (true, false) => names
            .iter()
            .map(|name| named.get(name).copied())
            .zip(names)
            .map(|(class, name)| class.ok_or_else(|| bad(format!("it has no line for {name}"))))
            .collect(),
        (false, false) => Err(bad("some lines name a file and some do not".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_lines_or_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("labels.csv");
        let names = ["b.npy".to_owned(), "a.npy".to_owned()];
        let read = |text: &str| {
            std::fs::write(&path, text).expect("ours");
            labels(&path, &names)
        };
        assert_eq!(read("3\n1\n").expect("plain"), [3, 1]);
        assert_eq!(read("class\n3\n").expect("a heading"), [3]);
        assert_eq!(read("file,class\na.npy,4\nb.npy,5\n").expect("named"), [5, 4]);
        for (text, wanted) in [
            ("3\nx\n", "line 2 ends in 'x'"),
            ("3\n-1\n", "line 2 ends in '-1'"),
            ("a.npy,4\n", "it has no line for b.npy"),
            ("1,2,3\n", "line 1 has 3 columns"),
            ("3\na.npy,4\n", "some lines name a file"),
        ] {
            let failure = read(text).expect_err(text);
            assert!(failure.message.contains(wanted), "{failure}");
        }
    }

    #[test]
    fn an_archive_that_is_none_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.npz");
        std::fs::write(&path, "no zip").expect("ours");
        let failure = archive(&path).expect_err("no zip");
        assert_eq!(failure.code, "npz_invalid");
    }
}
