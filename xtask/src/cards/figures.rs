//! What Mesa's compiler says of a kernel, by the interface through which it is asked.

use super::code::Code;
use super::install::Mesa;
use super::{opencl, vulkan};
use crate::cmd;
use crate::kept::{Kept, Key};
use crate::kernels::{Kernels, Variant};
use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;

/// What turns the compiler's output into figures: a change makes kept results invalid.
const READERS: &[&str] = &[
    include_str!("figures.rs"),
    include_str!("install.rs"),
    include_str!("compile.c"),
    include_str!("opencl.rs"),
    include_str!("vulkan.rs"),
    include_str!("code.rs"),
    include_str!("instructions.rs"),
];
/// The chip of an RX 580.
const CHIP: &str = "polaris10";

/// The resources and code of one kernel.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) vgprs: u32,
    pub(super) sgprs: u32,
    pub(super) lds_bytes: u32,
    /// For a wave: spills, and arrays outside registers.
    pub(super) scratch_bytes: u32,
    pub(super) spills: u32,
    /// Waves of a SIMD, at most eight here.
    pub(super) waves: u32,
    /// What the compiler expects, in cycles; OpenCL does not tell it.
    pub(super) latency: Option<u64>,
    pub(super) inverse_throughput: Option<u64>,
    pub(super) code: Code,
}

/// The interface through which the compiler is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    OpenCl,
    Vulkan,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::OpenCl, Self::Vulkan];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpenCl => "OpenCL",
            Self::Vulkan => "Vulkan",
        }
    }

    /// The ending of the sources that it takes.
    fn extension(self) -> &'static str {
        match self {
            Self::OpenCl => "cl",
            Self::Vulkan => "k",
        }
    }
}

/// The compiler, and what it has said before.
pub(super) struct Compiler {
    mesa: Mesa,
    pub(super) version: String,
    asker: PathBuf,
    kept: Kept,
}

/// One kernel by one way: the figures, or why there are none.
pub(super) type Answer = Result<Figures, String>;

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
