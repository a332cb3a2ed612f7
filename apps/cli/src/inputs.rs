//! `--input NAME=FILE`: finds the model's input that is meant and reads the file for it.

use crate::failure::{Failure, Result};
use crate::npy;
use crate::picture;
use crate::values;
use lgp_sdk::vision::Scaling;
use lgp_sdk::{NamedTensor, Tensor, ValueSpec};
use std::path::Path;

/// Reads every `NAME=FILE`; `NAME=` may be left out where the model has one input.
///
/// `model` is the model's own file, beside which its config may lie.
///
/// # Errors
/// `input_name` for a name that the model does not have; those of [`npy`] and [`picture`].
pub(crate) fn read(
    given: &[String],
    expected: &[ValueSpec],
    scaling: &Scaling,
) -> Result<Vec<NamedTensor>> {
    given
        .iter()
        .map(|text| {
            let (input, file) = find(text, expected)?;
            let tensor = match kind(file) {
                Kind::Npy => npy::read(file)?,
                Kind::Strings => strings(file)?,
                Kind::Picture => picture::read(file, &input.name, &input.ty, scaling)?,
            };
            Ok(NamedTensor::new(input.name.clone(), tensor))
        })
        .collect()
}

enum Kind {
    Npy,
    Strings,
    Picture,
}

/// Strings from a file that has nested JSON lists of them.
fn strings(file: &Path) -> Result<Tensor> {
    let bytes = std::fs::read(file).map_err(|error| Failure::file("read", file, &error))?;
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

fn find<'a>(text: &'a str, expected: &'a [ValueSpec]) -> Result<(&'a ValueSpec, &'a Path)> {
    if let Some((name, file)) = text.split_once('=')
        && let Some(input) = expected.iter().find(|input| input.name == name)
    {
        return Ok((input, Path::new(file)));
    }
    let names = || expected.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(", ");
    match (expected, text.split_once('=')) {
        // A file's own name may have a '=' in it.
        ([only], name) if name.is_none() || Path::new(text).exists() => Ok((only, Path::new(text))),
        (_, Some((name, _))) => Err(Failure::new(
            "input_name",
            format!("the model has no input '{name}', expected {}", names()),
        )),
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
    use lgp_sdk::{DType, TensorType};

    fn specs(names: &[&str]) -> Vec<ValueSpec> {
        let ty = TensorType { dtype: DType::F32, shape: None };
        names.iter().map(|name| ValueSpec::tensor(*name, ty.clone())).collect()
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
