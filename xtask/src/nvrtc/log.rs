//! Parses the resources of kernels from the assembler's part of NVRTC's log.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The resources of one kernel on one chip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Resources {
    /// Registers of a work-item.
    pub(super) registers: u32,
    /// Bytes of registers that are spilled to memory, counted by stores.
    pub(super) spill_bytes: u32,
    /// Memory of a work-item that is no register: spills, and arrays that are indexed.
    pub(super) stack_bytes: u32,
}

impl Resources {
    /// Parses the log's part about the entry point `kernel`.
    pub(super) fn parse(log: &str, kernel: &str) -> Result<Self> {
        let entry = format!("Compiling entry function '{kernel}'");
        let own = log.lines().skip_while(|line| !line.contains(&entry)).skip(1);
        let own = own.take_while(|line| !line.contains("Compiling entry function"));
        let own: Vec<&str> = own.collect();
        let read = |unit: &str| {
            let found = own.iter().find_map(|line| number_before(line, unit));
            found.with_context(|| format!("the log says nothing of {unit:?} of {kernel:?}"))
        };
        Ok(Self {
            registers: read(" registers")?,
            spill_bytes: read(" bytes spill stores")?,
            stack_bytes: read(" bytes stack frame")?,
        })
    }
}

fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of NVRTC 12.9.86: two kernels in a source.
    const LOG: &str = "\
nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'fits' for 'sm_61'
ptxas info    : Function properties for fits
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers, 340 bytes cmem[0]
ptxas info    : Compile time = 3.211 ms
ptxas info    : Compiling entry function 'spills' for 'sm_61'
ptxas info    : Function properties for spills
ptxas         .     5272 bytes stack frame, 9016 bytes spill stores, 9812 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 5272 bytes cumulative stack size, 340 bytes cmem[0]
ptxas info    : Compile time = 595.211 ms
";

    #[test]
    fn each_entry_has_its_own_figures() {
        let fits = Resources { registers: 18, spill_bytes: 0, stack_bytes: 0 };
        assert_eq!(Resources::parse(LOG, "fits").unwrap(), fits);
        let spills = Resources { registers: 32, spill_bytes: 9016, stack_bytes: 5272 };
        assert_eq!(Resources::parse(LOG, "spills").unwrap(), spills);
        assert!(Resources::parse(LOG, "spill").is_err());
    }
}
