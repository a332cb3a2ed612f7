//! Writes a model's outputs: tensors as `.npy` files, values that those cannot hold as JSON.

use crate::failure::{Failure, Result};
use crate::files::{self, Staged};
use crate::output;
use crate::{npy, values};
use lgp_sdk::tensor::{DType, Datum, Tensor};
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// An output, or a tensor of an output, and its file.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    name: String,
    /// `tensor`, `sequence`, `map` or `absent`.
    kind: &'static str,
    /// Of a tensor.
    dtype: Option<&'static str>,
    /// Of a tensor.
    shape: Option<Vec<usize>>,
    /// The number of values in a sequence or map. The tensors of a sequence follow as entries `NAME.0` and so on, each
    /// with its own file.
    items: Option<usize>,
    file: Option<String>,
    #[serde(skip)]
    preview: String,
}

impl Written {
    fn tensor(name: &str, tensor: &Tensor, preview: String) -> Self {
        Self {
            name: name.to_owned(),
            kind: "tensor",
            dtype: Some(tensor.dtype().name()),
            shape: Some(tensor.shape().to_vec()),
            items: None,
            file: None,
            preview,
        }
    }

    fn other(name: &str, kind: &'static str, items: usize) -> Self {
        let (name, items, preview) = (name.to_owned(), Some(items), String::new());
        Self { name, kind, dtype: None, shape: None, items, file: None, preview }
    }
}

/// Writes every output, or none if one cannot be written. The files move to their places once all are written; if the
/// system refuses a move, the files moved before stay.
///
/// # Errors
/// `output_dtype`, with the output's name; when the folder or a file cannot be written.
pub(crate) fn write(folder: &Path, outputs: &[(String, Datum)]) -> Result<Vec<Written>> {
    write_as(folder, "", outputs)
}

/// As [`write`], with `prefix` before each file name.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_as(
    folder: &Path,
    prefix: &str,
    outputs: &[(String, Datum)],
) -> Result<Vec<Written>> {
    files::make_folder(folder)?;
    let mut folder = Folder::new(folder, prefix);
    for (name, value) in outputs {
        folder.value(name, value)?;
    }
    folder.staged.into_iter().try_for_each(Staged::place)?;
    Ok(folder.written)
}

/// One line per written output, and one for its file.
pub(crate) fn lines(outputs: &[Written]) -> String {
    outputs.iter().fold(String::new(), |all, output| {
        let Written { name, kind, preview, .. } = output;
        let what = match (output.dtype, &output.shape, output.items) {
            (Some(dtype), Some(shape), _) => format!("{dtype} {shape:?}  {preview}"),
            (_, _, Some(items)) if *kind != "absent" => format!("{kind} of {items}"),
            _ => (*kind).to_owned(),
        };
        let file = output.file.as_ref().map_or_else(String::new, |file| format!("  -> {file}\n"));
        all + &format!("{}  {what}\n{file}", output::plain(name))
    })
}

/// Outputs that are shown but not written; for sequences and maps their lengths.
pub(crate) fn shown(outputs: &[(String, Datum)]) -> Vec<Written> {
    let shown = outputs.iter().map(|(name, value)| match value {
        Datum::Tensor(tensor) => Written::tensor(name, tensor, preview(tensor)),
        Datum::Sequence(items) => Written::other(name, "sequence", items.len()),
        Datum::Map { keys, .. } => Written::other(name, "map", keys.len()),
        Datum::Absent => Written::other(name, "absent", 0),
    });
    shown.collect()
}

/// Outputs on one line: the file, or else the value's description.
pub(crate) fn briefly(outputs: &[Written]) -> String {
    let each = outputs.iter().map(|output| match (&output.file, &output.shape) {
        (Some(file), _) => file.clone(),
        (None, Some(shape)) => format!("{} {shape:?} {}", output.name, output.preview),
        (None, None) => format!("{} {}", output.name, output.kind),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// The output folder, the files written so far, and the taken names.
struct Folder<'a> {
    path: &'a Path,
    prefix: &'a str,
    taken: HashSet<String>,
    staged: Vec<Staged>,
    written: Vec<Written>,
}

impl<'a> Folder<'a> {
    fn new(path: &'a Path, prefix: &'a str) -> Self {
        Self { path, prefix, taken: HashSet::new(), staged: Vec::new(), written: Vec::new() }
    }

    fn value(&mut self, name: &str, value: &Datum) -> Result<()> {
        match value {
            Datum::Tensor(tensor) => self.tensor(name, tensor),
            Datum::Sequence(items) if items.iter().all(|item| item.tensor().is_some()) => {
                self.written.push(Written::other(name, "sequence", items.len()));
                let mut tensors = items.iter().filter_map(Datum::tensor).enumerate();
                tensors.try_for_each(|(i, item)| self.tensor(&format!("{name}.{i}"), item))
            }
            Datum::Sequence(items) => {
                self.json(Written::other(name, "sequence", items.len()), &values::json(value))
            }
            Datum::Map { keys, .. } => {
                self.json(Written::other(name, "map", keys.len()), &values::json(value))
            }
            Datum::Absent => {
                self.written.push(Written::other(name, "absent", 0));
                Ok(())
            }
        }
    }

    /// Numbers as `NAME.npy`, strings as `NAME.json`.
    fn tensor(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let written = Written::tensor(name, tensor, preview(tensor));
        if tensor.dtype() == DType::Str {
            return self.json(written, &values::tensor(tensor));
        }
        let bytes = npy::encode(tensor).map_err(|_| {
            let dtype = tensor.dtype();
            let message = format!("output '{name}' is {dtype}, which no .npy file can hold");
            Failure::new("output_dtype", message)
                .hint("have the model turn it into f32 at its end, with an operator Cast")
        })?;
        self.file(written, "npy", &bytes)
    }

    fn json(&mut self, written: Written, value: &serde_json::Value) -> Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(Failure::internal)?;
        self.file(written, "json", text.as_bytes())
    }

    /// Stages a file named after the output, with `_` for every character outside `[A-Za-z0-9._-]`.
    fn file(&mut self, mut written: Written, extension: &str, bytes: &[u8]) -> Result<()> {
        let own = file_stem(&written.name);
        let mut stem = own.clone();
        let mut same = 1;
        // Two names that differ only in such characters must not overwrite each other.
        while !self.taken.insert(stem.clone()) {
            stem = if same == 1 { format!("{own}_") } else { format!("{own}_{same}") };
            same += 1;
        }
        let path: PathBuf = self.path.join(format!("{}{stem}.{extension}", self.prefix));
        written.file = Some(path.display().to_string());
        self.staged.push(Staged::new(&path, bytes)?);
        self.written.push(written);
        Ok(())
    }
}

/// A file name for an output, short enough for any file system.
fn file_stem(name: &str) -> String {
    shortened(name, 200)
}

/// A prefix for the outputs of each of several files: the file's stem, else its whole name, else its name and a number,
/// so that no two are equal.
pub(crate) fn prefixes(files: &[PathBuf]) -> Vec<String> {
    const CHARACTERS_MAX: usize = 40;
    let mut taken = HashSet::new();
    let part = |part: Option<&OsStr>| {
        shortened(&part.unwrap_or_default().to_string_lossy(), CHARACTERS_MAX)
    };
    let prefix = |file: &PathBuf| {
        let (stem, name) = (part(file.file_stem()), part(file.file_name()));
        let numbered = (2..).map(|n: usize| format!("{name}-{n}"));
        // The numbers are endless, so one is free.
        let free = [stem, name.clone()].into_iter().chain(numbered).find(|it| !taken.contains(it));
        let free = free.unwrap_or_default();
        taken.insert(free.clone());
        format!("{free}.")
    };
    files.iter().map(prefix).collect()
}

/// At most `characters_max` characters, with `_` for every one outside `[A-Za-z0-9._-]`.
fn shortened(name: &str, characters_max: usize) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.chars().take(characters_max).map(|c| if keep(c) { c } else { '_' }).collect()
}

/// The first few values of a tensor of the usual dtypes.
fn preview(tensor: &Tensor) -> String {
    const MOST: usize = 10;
    let texts: Vec<String> = match tensor.dtype() {
        DType::F32 => tensor
            .as_slice::<f32>()
            .map(|values| values.iter().take(MOST).map(|v| format!("{v:.4}")).collect()),
        DType::I64 => tensor
            .as_slice::<i64>()
            .map(|values| values.iter().take(MOST).map(ToString::to_string).collect()),
        _ => return String::new(),
    }
    .unwrap_or_default();
    let more = if tensor.len() > MOST { " …" } else { "" };
    texts.join(" ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Datum {
        Datum::Tensor(Tensor::scalar(1f32).expect("one element"))
    }

    fn named<const N: usize>(outputs: [(&str, Datum); N]) -> [(String, Datum); N] {
        outputs.map(|(name, value)| (name.to_owned(), value))
    }

    fn file(written: &Written) -> Option<&str> {
        written.file.as_deref().and_then(|file| file.rsplit('/').next())
    }

    #[test]
    fn outputs_never_leave_their_folder_nor_overwrite_each_other() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let names = ["logits", "a/b", "a:b", "../../x", "..", "größe"];
        let outputs = named(names.map(|name| (name, one())));
        let written = write(&folder.path().join("new"), &outputs).expect("the folder is ours");
        let files: Vec<&str> = written.iter().filter_map(file).collect();
        assert_eq!(
            files,
            ["logits.npy", "a_b.npy", "a_b_.npy", ".._.._x.npy", "...npy", "gr__e.npy"]
        );
        let there = std::fs::read_dir(folder.path().join("new")).expect("it is there");
        assert_eq!(there.count(), names.len());
    }

    /// File systems limit names to 255 bytes.
    #[test]
    fn many_outputs_may_begin_alike() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let outputs: Vec<_> =
            (0..300).map(|i| (format!("{}{i}", "x".repeat(200)), one())).collect();
        let written = write(folder.path(), &outputs).expect("the names are short enough");
        let files: HashSet<&str> = written.iter().filter_map(file).collect();
        assert_eq!(files.len(), 300);
    }

    #[test]
    fn every_output_is_reported_whatever_it_is() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let map = Datum::Map {
            keys: Tensor::from_slice([1], &[7i64]).expect("one key"),
            values: Tensor::from_slice([1], &[0.5f32]).expect("one value"),
        };
        let outputs = named([
            ("parts", Datum::Sequence(vec![one(), one()])),
            ("empty", Datum::Sequence(vec![])),
            ("odds", Datum::Sequence(vec![map])),
            ("nothing", Datum::Absent),
        ]);
        let written = write(folder.path(), &outputs).expect("the folder is ours");
        let entries: Vec<_> =
            written.iter().map(|w| (w.name.as_str(), w.kind, w.items, file(w))).collect();
        let expected = [
            ("parts", "sequence", Some(2), None),
            ("parts.0", "tensor", None, Some("parts.0.npy")),
            ("parts.1", "tensor", None, Some("parts.1.npy")),
            ("empty", "sequence", Some(0), None),
            ("odds", "sequence", Some(1), Some("odds.json")),
            ("nothing", "absent", Some(0), None),
        ];
        assert_eq!(entries, expected);
        let text = lines(&written);
        assert!(text.contains("empty  sequence of 0\n") && text.contains("nothing  absent\n"));
        let odds = std::fs::read_to_string(folder.path().join("odds.json")).expect("written");
        let odds: serde_json::Value = serde_json::from_str(&odds).expect("JSON");
        assert_eq!(odds, serde_json::json!([{ "7": 0.5 }]));
    }

    #[test]
    fn files_of_one_name_do_not_overwrite_each_other() {
        let files = ["a/cat.jpg", "b/cat.png", "c/cat.png", "größe.jpg", "cat.png.npy"];
        let found = prefixes(&files.map(PathBuf::from));
        assert_eq!(found, ["cat.", "cat.png.", "cat.png-2.", "gr__e.", "cat.png.npy."]);
    }

    #[test]
    fn one_that_cannot_be_written_leaves_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("bad.npy")).expect("the folder is ours");
        let outputs = named([("good", one()), ("bad", one())]);
        let failure = write(folder.path(), &outputs).expect_err("a folder is in the way");
        assert!(failure.message.contains("bad.npy"), "{failure}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 1);
    }
}
