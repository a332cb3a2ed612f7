//! Asks Mesa's compiler, and keeps what it has said.

use super::figures::{Answer, Figures, Way};
use super::install::Mesa;
use super::{opencl, vulkan};
use crate::cmd;
use crate::kept::{Kept, Key};
use crate::kernels::{Kernels, Variant};
use anyhow::{Context, Result, anyhow};
use std::collections::HashMap;
use std::path::PathBuf;

/// What turns the compiler's output into figures: a change makes kept results invalid.
const READERS: &[&str] = &[
    include_str!("figures.rs"),
    include_str!("compiler.rs"),
    include_str!("install.rs"),
    include_str!("compile.c"),
    include_str!("opencl.rs"),
    include_str!("vulkan.rs"),
    include_str!("code.rs"),
    include_str!("instructions.rs"),
];
/// The chip of an RX 580.
const CHIP: &str = "polaris10";

/// The compiler, and what it has said before.
pub(super) struct Compiler {
    mesa: Mesa,
    pub(super) version: String,
    asker: PathBuf,
    kept: Kept,
}

impl Compiler {
    pub(super) fn new() -> Result<Self> {
        let mesa = Mesa::install()?;
        let version = mesa.version()?;
        let asker = cmd::programs()?.join("examples/aco");
        Ok(Self { mesa, version, asker, kept: Kept::open("cards")? })
    }

    /// Asks for every variant, in their order.
    pub(super) fn ask(&self, kernels: &Kernels, way: Way) -> Result<Vec<Answer>> {
        let asker = match way {
            Way::OpenCl => Vec::new(),
            // The language's compiler is in the program.
            Way::Vulkan => std::fs::read(&self.asker)
                .with_context(|| format!("cannot read {}", self.asker.display()))?,
        };
        let asker = Key::new(asker);
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for variant in &kernels.variants {
            let source = kernels.source(variant, way.extension())?;
            let key = Key::new((way, &self.version, READERS, &asker, &source, &variant.kernel));
            let kept: Option<Answer> = self.kept.get(&key);
            if kept.is_none() {
                missing.push((variant, source, key, answers.len()));
            }
            answers.push(kept.unwrap_or_else(|| Err("was not asked".to_owned())));
        }
        if missing.is_empty() {
            return Ok(answers);
        }
        let mut files: Vec<(String, String)> = Vec::new();
        let mut table = "name\tkernel\tgroup\n".to_owned();
        for (Variant { name, kernel, group, .. }, source, ..) in &missing {
            table += &format!("{name}\t{kernel}\t{group}\n");
            files.push((format!("{name}.{}", way.extension()), source.clone()));
        }
        files.push(("variants.tsv".to_owned(), table));
        let output = match way {
            Way::OpenCl => self.mesa.opencl(&files)?,
            Way::Vulkan => self.mesa.vulkan(&self.asker, CHIP, &files)?,
        };
        let mut found: HashMap<&str, Result<Figures>> = match way {
            Way::OpenCl => opencl::parse(&output),
            Way::Vulkan => vulkan::parse(&output),
        };
        for (variant, _, key, at) in missing {
            let answer = found.remove(variant.name.as_str());
            let answer = answer.unwrap_or_else(|| Err(anyhow!("nothing was printed of it")));
            answers[at] = answer.map_err(|error| format!("{error:#}"));
            self.kept.put(&key, &answers[at])?;
        }
        Ok(answers)
    }
}
