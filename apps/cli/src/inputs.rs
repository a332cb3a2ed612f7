//! `--input NAME=FILE`: finds the model's input of that name and reads the file for it.

mod folder;
mod made;

pub(crate) use made::complete;

use crate::failure::{Failure, Result};
use crate::files;
use crate::near::near;
use crate::npy;
use crate::picture;
use crate::values;
use lgp_common::vision::Scaling;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, NamedTensor, Tensor};
use std::path::{Path, PathBuf};

/// The files for a model's inputs.
#[derive(Debug)]
pub(crate) enum Given<'a> {
    /// A file for each input, for one run.
    Once(Vec<(&'a ValueSpec, PathBuf)>),
    /// Files for the model's only input, with one run each.
    Each(&'a ValueSpec, Vec<PathBuf>),
}

/// Finds the input for each `NAME=FILE`. A model with one input needs no `NAME=` and takes several files and folders of
/// files; `tell` gets a note on files of a folder that are left out.
///
/// # Errors
/// `input_name` for an unknown input; `input_folder` for a folder without usable files, or for a model with several
/// inputs.
pub(crate) fn given<'a>(
    texts: &[String],
    expected: &'a [ValueSpec],
    mut tell: impl FnMut(String),
) -> Result<Given<'a>> {
    let found: Vec<_> = texts.iter().map(|text| find(text, expected)).collect::<Result<_>>()?;
    let [only] = expected else {
        if let Some((_, folder)) = found.iter().find(|(_, file)| file.is_dir()) {
            let message = format!(
                "{} is a folder, and the model has {} inputs: expected a file for each",
                folder.display(),
                expected.len()
            );
            return Err(Failure::new("input_folder", message));
        }
        return Ok(Given::Once(owned(found)));
    };
    if found.len() <= 1 && !found.iter().any(|(_, file)| file.is_dir()) {
        return Ok(Given::Once(owned(found)));
    }
    let mut files = Vec::new();
    for (_, file) in found {
        match file.is_dir() {
            true => {
                let found = folder::files(file, only)?;
                if let Some(others) = found.others.note(file) {
                    tell(others);
                }
                files.extend(found.files);
            }
            false => files.push(file.to_owned()),
        }
    }
    Ok(Given::Each(only, files))
}

fn owned<'a>(found: Vec<(&'a ValueSpec, &Path)>) -> Vec<(&'a ValueSpec, PathBuf)> {
    found.into_iter().map(|(input, file)| (input, file.to_owned())).collect()
}

/// Reads a file for each input, for one run.
///
/// # Errors
/// As [`given`]; `input_name` for several files of one input; those of [`npy`] and [`picture`].
pub(crate) fn read(
    texts: &[String],
    expected: &[ValueSpec],
    scaling: &Scaling,
) -> Result<Vec<NamedTensor>> {
    match given(texts, expected, |_| ())? {
        Given::Once(files) => read_all(&files, scaling),
        Given::Each(input, files) => {
            let (count, name) = (files.len(), &input.name);
            let message = format!("input '{name}' is given {count} files, expected one");
            Err(Failure::new("input_name", message)
                .hint("run and submit take many files and folders"))
        }
    }
}

/// Reads the file of each input.
///
/// # Errors
/// Those of [`npy`] and [`picture`].
pub(crate) fn read_all(
    files: &[(&ValueSpec, PathBuf)],
    scaling: &Scaling,
) -> Result<Vec<NamedTensor>> {
    files.iter().map(|(input, file)| read_one(input, file, scaling)).collect()
}

/// Reads one of many files for an input. A path with a file's ending that is no regular file is not opened: a pipe may
/// never get a writer.
///
/// # Errors
/// `not_a_file`; those of [`read_one`].
pub(crate) fn read_each(input: &ValueSpec, file: &Path, scaling: &Scaling) -> Result<NamedTensor> {
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    let is_named = ending.is_some_and(|ending| folder::endings(input).contains(&&*ending));
    if is_named && file.metadata().is_ok_and(|found| !found.is_file()) {
        let message = format!("{} is a folder, pipe or device, expected a file", file.display());
        return Err(Failure::new("not_a_file", message));
    }
    read_one(input, file, scaling)
}

/// Reads a file for an input.
///
/// # Errors
/// Those of [`npy`] and [`picture`].
pub(crate) fn read_one(input: &ValueSpec, file: &Path, scaling: &Scaling) -> Result<NamedTensor> {
    let tensor = match kind(file) {
        Kind::Npy => npy::read(file)?,
        Kind::Strings => strings(file)?,
        Kind::Picture => picture::read(file, &input.name, &input.ty, scaling)?,
    };
    if tensor.dtype() != input.ty.dtype {
        let (name, given, wanted) = (&input.name, tensor.dtype(), input.ty.dtype);
        let message = format!("input '{name}' is {given} in {}, expected {wanted}", file.display());
        let failure = Failure::new("input_dtype", message);
        return Err(match numpy_name(wanted) {
            Some(numpy) => failure.hint(format!(
                "convert it in Python: numpy.save('{0}', numpy.load('{0}').astype('{numpy}'))",
                file.display()
            )),
            None => failure,
        });
    }
    Ok(NamedTensor::new(input.name.clone(), tensor))
}

/// numpy's name of a type, if it has one.
fn numpy_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::F16 => "float16",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
        _ => return None,
    })
}

/// Largest file of strings that is read, in bytes.
const STRINGS_BYTES_MAX: u64 = 1 << 30;

enum Kind {
    Npy,
    Strings,
    Picture,
}

/// Strings from a file of nested JSON lists.
fn strings(file: &Path) -> Result<Tensor> {
    let bytes = files::take_bounded(files::open_regular(file)?, file, STRINGS_BYTES_MAX)?;
    let value = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
    value.and_then(|value| values::strings(&value)).map_err(|what| {
        let message = format!("{} holds no strings: {what}", file.display());
        Failure::new("input_strings", message).hint("write a JSON list of strings: [\"a\", \"b\"]")
    })
}

fn kind(file: &Path) -> Kind {
    match file.extension() {
        Some(extension) if extension.eq_ignore_ascii_case("npy") => Kind::Npy,
        Some(extension) if extension.eq_ignore_ascii_case("json") => Kind::Strings,
        _ => Kind::Picture,
    }
}

fn find<'a, 'b>(text: &'b str, expected: &'a [ValueSpec]) -> Result<(&'a ValueSpec, &'b Path)> {
    if let Some((name, file)) = text.split_once('=')
        && let Some(input) = expected.iter().find(|input| input.name == name)
    {
        return Ok((input, Path::new(file)));
    }
    let names = || expected.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(", ");
    match (expected, text.split_once('=')) {
        // A file name may contain '='.
        ([only], name) if name.is_none() || Path::new(text).exists() => Ok((only, Path::new(text))),
        (_, Some((name, _))) => {
            let message = format!("the model has no input '{name}', expected {}", names());
            let meant = near(name, expected.iter().map(|input| input.name.as_str()));
            let failure = Failure::new("input_name", message);
            Err(match meant {
                Some(meant) => failure.hint(format!("did you mean '{meant}'?")),
                None => failure,
            })
        }
        (_, None) => Err(Failure::new(
            "input_name",
            format!("--input {text} does not say for which input: {}", names()),
        )
        .hint("write --input NAME=FILE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::tensor::{DType, TensorType};

    fn specs(names: &[&str]) -> Vec<ValueSpec> {
        let ty = TensorType { dtype: DType::F32, shape: None };
        names.iter().map(|name| ValueSpec::tensor(*name, ty.clone())).collect()
    }

    #[test]
    fn a_model_with_one_input_takes_folders_and_many_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["b.PNG", "a.npy", ".hidden.png", "notes.txt"] {
            std::fs::write(folder.path().join(name), "").expect("ours");
        }
        std::fs::create_dir(folder.path().join("deeper.png")).expect("ours");
        let here = folder.path().display().to_string();
        let one = specs(&["x"]);
        let each = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            match given(&texts, &one, |_| ()).expect("the input is there") {
                Given::Once(files) => (false, files.len()),
                Given::Each(_, files) => {
                    assert!(files.iter().all(|file| !file.ends_with("notes.txt")), "{files:?}");
                    (true, files.len())
                }
            }
        };
        assert_eq!(each(&["a.npy"]), (false, 1));
        assert_eq!(each(&[]), (false, 0));
        assert_eq!(each(&["a.npy", "x=b.png"]), (true, 2));
        assert_eq!(each(&[&here]), (true, 2));
        assert_eq!(each(&[&format!("x={here}"), "c.png"]), (true, 3));
        let empty = folder.path().join("deeper.png").display().to_string();
        for (text, names) in [(&empty, &["x"][..]), (&format!("y={here}"), &["x", "y"])] {
            let failure = given(std::slice::from_ref(text), &specs(names), |_| ()).expect_err(text);
            assert_eq!(failure.code, "input_folder", "{text}");
        }
    }

    #[test]
    fn names_find_their_input() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let odd = folder.path().join("a=b.npy");
        std::fs::write(&odd, "").expect("ours");
        let odd = odd.display().to_string();
        for (text, names, name, file) in [
            ("x=a.npy", &["x"][..], "x", "a.npy"),
            ("a.npy", &["x"], "x", "a.npy"),
            ("y=a.npy", &["x", "y"], "y", "a.npy"),
            ("x=a=b.png", &["x"], "x", "a=b.png"),
            (&odd, &["x"], "x", &odd),
        ] {
            let specs = specs(names);
            let (input, path) = find(text, &specs).expect("the input is there");
            assert_eq!((input.name.as_str(), path), (name, Path::new(file)));
        }
        for (text, names, part) in [
            ("z=a.npy", &["x"][..], "no input 'z', expected x"),
            ("a.npy", &["x", "y"], "does not say for which input: x, y"),
        ] {
            let failure = find(text, &specs(names)).expect_err("there is no such input");
            assert_eq!(failure.code, "input_name");
            assert!(failure.message.contains(part), "{:?}", failure.message);
        }
    }
}
