//! A program's requirements on the system, from its ELF headers.

use anyhow::{Context, Result, ensure};
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// glibc's own libraries, and GCC's for unwinding stacks, which comes with every glibc.
const BASE: [&str; 7] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

/// The contents of the headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Elf {
    /// The loader; none for a statically linked program.
    pub(crate) interpreter: Option<String>,
    /// Libraries that are loaded before the program runs.
    pub(crate) needed: Vec<String>,
    /// The oldest glibc that has all symbols, as in `(2, 34)`.
    pub(crate) glibc: Option<(u32, u32)>,
}

impl Elf {
    /// Reads the headers of a program.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let data =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&data).with_context(|| format!("{} is no program", path.display()))
    }

    fn parse(data: &[u8]) -> Result<Self> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut interpreter = None;
        for segment in header.program_headers(endian, data)? {
            interpreter = interpreter.or(segment.interpreter(endian, data)?.map(text));
        }
        let sections = header.sections(endian, data)?;
        let mut needed = Vec::new();
        if let Some((entries, link)) = sections.dynamic(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            for entry in entries.iter().filter(|it| it.tag(endian) == DT_NEEDED) {
                needed.push(text(entry.string(endian, strings)?));
            }
        }
        let mut versions = BTreeSet::new();
        if let Some((mut libraries, link)) = sections.gnu_verneed(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            while let Some((_, mut symbols)) = libraries.next()? {
                while let Some(symbol) = symbols.next()? {
                    versions.extend(glibc_version(&text(symbol.name(endian, strings)?)));
                }
            }
        }
        Ok(Self { interpreter, needed, glibc: versions.last().copied() })
    }

    /// # Errors
    /// Where the program would not start on a system that has glibc and nothing else.
    pub(crate) fn check_base(&self) -> Result<()> {
        let other: Vec<&String> =
            self.needed.iter().filter(|name| !BASE.contains(&name.as_str())).collect();
        ensure!(other.is_empty(), "the program is linked with {other:?}, expected glibc alone");
        ensure!(self.glibc.is_some(), "the program names no version of glibc");
        Ok(())
    }

    /// # Errors
    /// Where the program would not start on a system that has no libraries.
    pub(crate) fn check_static(&self) -> Result<()> {
        let Self { interpreter, needed, .. } = self;
        let none = interpreter.is_none() && needed.is_empty();
        ensure!(none, "the program is not static: it has {interpreter:?} load {needed:?}");
        Ok(())
    }
}

impl fmt::Display for Elf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.interpreter, self.glibc) {
            (None, _) => f.write_str("static"),
            (Some(_), Some((major, minor))) => write!(f, "glibc {major}.{minor} or later"),
            (Some(loader), None) => write!(f, "loaded by {loader}"),
        }
    }
}

/// The version in a symbol of glibc, as in `GLIBC_2.34`; `GLIBC_PRIVATE` has none.
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut parts = name.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_what_it_needs() {
        let own = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        own.check_base().unwrap();
        assert!(own.needed.contains(&"libc.so.6".to_owned()), "{own:?}");
        assert!(own.check_static().unwrap_err().to_string().contains("not static"));
        let needed = vec!["libc.so.6".to_owned(), "libssl.so.3".to_owned()];
        let said = Elf { needed, ..own }.check_base().unwrap_err().to_string();
        assert!(said.contains("libssl.so.3") && !said.contains("libc.so.6"), "{said}");
        assert!(Elf::parse(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let names = ["GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_PRIVATE", "GCC_3.0"];
        let newest = names.iter().filter_map(|name| glibc_version(name)).max();
        assert_eq!(newest, Some((2, 34)));
    }
}
