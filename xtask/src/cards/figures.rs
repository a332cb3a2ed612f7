//! What Mesa's compiler says of a kernel, and by which interface.

use super::code::Code;
use anyhow::Result;
use serde::{Deserialize, Serialize};

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
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::OpenCl => "cl",
            Self::Vulkan => "k",
        }
    }
}

/// One kernel by one way: the figures, or why there are none.
pub(super) type Answer = Result<Figures, String>;
