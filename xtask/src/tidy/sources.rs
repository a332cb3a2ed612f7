//! The rules for every Rust file: it states its purpose, stays short, is named after its module,
//! and leaves backends' features and unsafe code to the layers that own them.

use super::File;

/// A file longer than this is several files.
const LINES_MAX: usize = 800;
/// The one file that may ask which backends are compiled in.
const BACKENDS: &str = "hal/src/backend.rs";
/// The layers that touch memory and devices, and may contain unsafe code.
const UNSAFE: &[&str] = &["hal/", "memory/", "compute/"];

/// Complaints about all Rust files; `features` are those that bring backends.
pub(super) fn check(files: &[File], features: &[String]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    let own = rust.filter(|file| !generated(file));
    own.flat_map(|file| check_file(file, features)).collect()
}

fn check_file(file: &File, features: &[String]) -> Vec<String> {
    let File { path, text } = file;
    let mut complaints = Vec::new();
    if !text.starts_with("//! ") {
        complaints.push(format!("{path}: does not open with //! and what it is for"));
    }
    // Beside tests cargo takes every file for a test of its own, except a folder's `mod.rs`.
    if path.ends_with("/mod.rs") && !path.contains("/tests/") {
        let folder = path.trim_end_matches("/mod.rs");
        complaints.push(format!("{path}: is to be {folder}.rs, beside the folder of its parts"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        complaints.push(format!("{path}: {lines} lines, at most {LINES_MAX} wanted"));
    }
    for feature in features {
        if path != BACKENDS
            && code(text).any(|line| line.contains(&format!("feature = \"{feature}\"")))
        {
            complaints.push(format!("{path}: asks for feature {feature}; only {BACKENDS} does"));
        }
    }
    if !UNSAFE.iter().any(|layer| path.starts_with(layer)) {
        let root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        if root && !text.contains("#![forbid(unsafe_code)]") {
            complaints.push(format!("{path}: lacks #![forbid(unsafe_code)]"));
        }
        if code(text).any(is_unsafe) {
            complaints
                .push(format!("{path}: has unsafe code, which only hal, memory and compute may"));
        }
    }
    complaints
}

/// Whether the file is generated, as its top then says.
fn generated(file: &File) -> bool {
    file.text.lines().take(5).any(|line| line.contains("@generated"))
}

/// The lines that are not comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"))
}

fn is_unsafe(line: &str) -> bool {
    let after = |keyword| line.split(keyword).skip(1);
    after("unsafe ").any(|rest| ["{", "fn", "impl", "extern"].iter().any(|k| rest.starts_with(k)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&[File { path: path.into(), text: text.into() }], &["rocm".to_owned()])
    }

    #[test]
    fn each_rule_complains() {
        let long = format!("//! Long.\n{}", "\n".repeat(LINES_MAX));
        // Split, so that this file does not complain of itself.
        let asks = format!("//! Asks.\n#[cfg(feature = {}rocm\")]\nfn f() {{}}\n", '"');
        let dares = format!("//! Dares.\nfn f() {{ {} {{}} }}\n", "unsafe");
        let cases: &[(&str, &str, Option<&str>)] = &[
            ("memory/src/a.rs", "//! Fine.\n", None),
            ("memory/src/a.rs", "fn f() {}\n", Some("does not open with //!")),
            ("memory/src/a.rs", &long, Some("801 lines, at most 800")),
            ("memory/src/a.rs", &format!("//! @generated\n{long}"), None),
            ("memory/src/a.rs", &asks, Some("asks for feature rocm")),
            (BACKENDS, &asks, None),
            ("compute/src/a.rs", &dares, None),
            ("inference/src/a.rs", &dares, Some("has unsafe code")),
            ("inference/src/a/mod.rs", "//! A.\n", Some("is to be inference/src/a.rs")),
            ("inference/src/a.rs", "//! A.\n", None),
            ("inference/tests/it/a/mod.rs", "//! A.\n", None),
            ("inference/src/a.rs", &format!("//! No.\n// {} {{}}\n", "unsafe"), None),
            ("inference/src/lib.rs", "//! Lib.\n", Some("lacks #![forbid")),
            ("inference/src/lib.rs", "//! Lib.\n#![forbid(unsafe_code)]\n", None),
        ];
        for (path, text, wanted) in cases {
            let found = complaints(path, text);
            match wanted {
                None => assert!(found.is_empty(), "{found:?}"),
                Some(part) => assert!(found.len() == 1 && found[0].contains(part), "{found:?}"),
            }
        }
    }

    #[test]
    fn other_files_are_left_alone() {
        assert!(complaints("README.md", "no module docs").is_empty());
    }
}
