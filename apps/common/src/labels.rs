//! Names of a model's classes, and the scaling of its image inputs. They come from `MODEL.toml` beside
//! `MODEL.onnx`, a text file with a name a line, or the model's metadata.

use crate::errors::plainly;
use crate::vision::Scaling;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes.
const BYTES_MAX: u64 = 4 << 20;
/// The default file of class names, as in Triton's repositories.
const USUAL: &str = "labels.txt";
/// Metadata keys under which exporters store class names in an ONNX file.
const NOTES: [&str; 3] = ["names", "labels", "classes"];

/// An error of the file beside a model, or of a file of class names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file's content is invalid.
    #[error("{} is not usable: {what}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with the content.
        what: String,
    },
}

/// The content of `MODEL.toml` beside `MODEL.onnx`: `scale`, `mean` and `std` of images, and `labels`, a list of
/// names or the name of a file with a name a line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Beside {
    /// How pixel values are scaled.
    pub scaling: Scaling,
    /// The names of the model's classes, if the file has them.
    pub labels: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "labels is a list of names, or the name of a file beside the model")]
enum Labels {
    Names(Vec<String>),
    File(String),
}

impl Beside {
    /// Reads the file beside a model; the defaults if there is none.
    ///
    /// ```
    /// let folder = tempfile::tempdir()?;
    /// std::fs::write(folder.path().join("pets.toml"), "labels = ['cat', 'dog']")?;
    /// let beside = lgp_common::Beside::of(&folder.path().join("pets.onnx"))?;
    /// assert_eq!(beside.labels.expect("it names them")[1], "dog");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LabelsError`], which names the key, for a file that exists and is invalid.
    pub fn of(model: &Path) -> Result<Self, LabelsError> {
        let path = model.with_extension("toml");
        let Some(text) = read(&path)? else { return Ok(Self::default()) };
        let invalid = |what: String| LabelsError::Invalid { path: path.clone(), what };
        let told = |error: toml::de::Error| invalid(plainly(error.message().trim()));
        let mut table: toml::Table = toml::from_str(&text).map_err(told)?;
        let labels = table.remove("labels").map(toml::Value::try_into).transpose().map_err(told)?;
        let scaling: Scaling = table.try_into().map_err(told)?;
        if scaling.std.contains(&0.0) {
            return Err(invalid("std has a 0, expected numbers to divide by".to_owned()));
        }
        let labels =
            match labels {
                None => None,
                Some(Labels::Names(names)) => Some(names),
                Some(Labels::File(name)) => {
                    let file = model.with_file_name(&name);
                    let names = read(&file)?.map(|text| lines(&text));
                    Some(names.ok_or_else(|| {
                        invalid(format!("labels names {name}, which is not there"))
                    })?)
                }
            };
        Ok(Self { scaling, labels })
    }
}

/// The names of a model's classes, in the order of their indices: the labels of `MODEL.toml`; else the lines of
/// `file`, or of `labels.txt`, beside the model or in its parent folder as in Triton's repositories; else the
/// model's metadata, such as Ultralytics' `names`; else none.
///
/// # Errors
/// [`LabelsError`] for files that exist and cannot be used.
pub fn class_names(
    model: &Path,
    file: Option<&str>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<String>, LabelsError> {
    if let Some(names) = Beside::of(model)?.labels {
        return Ok(names);
    }
    let folder = model.parent().unwrap_or(model);
    for folder in [Some(folder), folder.parent()].into_iter().flatten() {
        if let Some(text) = read(&folder.join(file.unwrap_or(USUAL)))? {
            return Ok(lines(&text));
        }
    }
    Ok(noted(metadata).unwrap_or_default())
}

/// The names in a model's metadata: a Python dictionary or list, or the same in JSON.
fn noted(metadata: &BTreeMap<String, String>) -> Option<Vec<String>> {
    NOTES.iter().find_map(|key| parse(metadata.get(*key)?))
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The text of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, LabelsError> {
    let failed = |source| LabelsError::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > BYTES_MAX {
        true => Err(failed(ErrorKind::FileTooLarge.into())),
        false => Ok(Some(text)),
    }
}

/// `{0: 'person', 1: "dog's"}`, `['person', 'dog']` and the same in JSON, whose keys are strings. The indices must
/// run from 0 without a gap.
fn parse(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('[') {
        let mut rest = inner.trim_start();
        let mut names = Vec::new();
        while !rest.starts_with(']') {
            let (name, behind) = quoted(rest)?;
            names.push(name);
            rest = separated(behind, ']')?;
        }
        return Some(names).filter(|names| !names.is_empty());
    }
    let mut rest = text.strip_prefix('{')?.trim_start();
    let mut names = BTreeMap::new();
    while !rest.starts_with('}') {
        let (key, behind) = match quoted(rest) {
            Some(key) => key,
            None => {
                let (key, _) = rest.split_once(':')?;
                (key.to_owned(), rest.get(key.len()..)?)
            }
        };
        let (name, behind) = quoted(behind.trim_start().strip_prefix(':')?.trim_start())?;
        names.insert(key.trim().parse::<usize>().ok()?, name);
        rest = separated(behind, '}')?;
    }
    let is_whole = names.keys().enumerate().all(|(at, key)| at == *key);
    (is_whole && !names.is_empty()).then(|| names.into_values().collect())
}

/// The text after a comma, or from the closing bracket on.
fn separated(text: &str, closing: char) -> Option<&str> {
    let text = text.trim_start();
    match text.strip_prefix(',') {
        Some(rest) => Some(rest.trim_start()),
        None => text.starts_with(closing).then_some(text),
    }
}

/// A string in single or double quotes, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut name = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(match letters.next()?.1 {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            letter if letter == quote => return Some((name, text.get(at + 1..)?)),
            letter => name.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_exporters_write_them() {
        for (text, expected) in [
            ("{0: 'person', 1: \"dog's\"}", Some(vec!["person", "dog's"])),
            ("{'1': 'b', '0': 'a',}", Some(vec!["a", "b"])),
            (r#"{"0": "it is \"so\"", "1": "größe"}"#, Some(vec!["it is \"so\"", "größe"])),
            ("['a', 'b']", Some(vec!["a", "b"])),
            (r#"["a, b", "]"]"#, Some(vec!["a, b", "]"])),
            // After a gap, each name would belong to another class.
            ("{0: 'a', 2: 'c'}", None),
            ("{99999999999999999999: 'a'}", None),
            ("{0: 'a'", None),
            ("{0 'a'}", None),
            ("['a' 'b']", None),
            ("[]", None),
            ("cat", None),
            ("{", None),
            ("'", None),
            ("", None),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_lies_nearest_names_the_classes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let version = folder.path().join("m/1");
        std::fs::create_dir_all(&version).expect("ours");
        let model = version.join("model.onnx");
        let notes = BTreeMap::from([("names".to_owned(), "{0: 'noted'}".to_owned())]);
        let first = |file| class_names(&model, file, &notes).expect("ours").first().cloned();
        let write = |path: &str, text: &str| {
            std::fs::write(folder.path().join(path), text).expect("ours");
        };
        assert_eq!(first(None).as_deref(), Some("noted"));
        write("m/labels.txt", "above\n");
        assert_eq!(first(None).as_deref(), Some("above"));
        write("m/1/own.txt", "named\r\nb\r\n");
        assert_eq!(first(Some("own.txt")).as_deref(), Some("named"));
        write("m/1/model.toml", "labels = ['config']\nscale = 1.0");
        assert_eq!(first(Some("own.txt")).as_deref(), Some("config"));
        write("m/1/model.toml", "labels = 'own.txt'");
        assert_eq!(Beside::of(&model).expect("ours").labels.expect("names"), ["named", "b"]);
        for (text, part) in [
            ("labels = 3", "a list of names"),
            ("labels = 'none.txt'", "none.txt, which is not there"),
            ("stdd = [1.0]", "stdd"),
            ("std = [0.0]", "std has a 0"),
            ("scale = 'x'", "expected a number"),
        ] {
            write("m/1/model.toml", text);
            let error = Beside::of(&model).expect_err("it is wrong").to_string();
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
        assert_eq!(
            class_names(Path::new("/none/m.onnx"), None, &BTreeMap::new()).ok(),
            Some(vec![])
        );
    }
}
