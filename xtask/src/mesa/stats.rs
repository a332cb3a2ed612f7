//! Parses the statistics that Mesa's driver prints for compiled kernels.

use anyhow::{Context, Result, bail};

/// The resources of one kernel as compiled by Mesa.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stats {
    pub(super) vgprs: u32,
    pub(super) sgprs: u32,
    pub(super) lds_bytes: u32,
    /// For a wave: spills, and arrays outside registers.
    pub(super) scratch_bytes: u32,
    pub(super) spills: u32,
    /// Waves of a SIMD, at most eight here.
    pub(super) waves: u32,
}

/// The statistics between the line `== NAME` and the next such line. The driver may compile a
/// kernel several times; the version with the fewest waves and the most scratch counts.
pub(super) fn parse(output: &str, name: &str) -> Result<Stats> {
    let heading = format!("== {name}");
    let own = output.lines().skip_while(|line| *line != heading).skip(1);
    let own: Vec<&str> = own.take_while(|line| !line.starts_with("== ")).collect();
    if let Some(line) = own.iter().find(|line| line.starts_with("does not compile: ")) {
        bail!("{line}");
    }
    let blocks = own.split(|line| line.starts_with("*** SHADER STATS")).skip(1);
    let blocks = blocks.map(block).collect::<Result<Vec<Stats>>>()?;
    let worst =
        blocks.into_iter().max_by_key(|stats| (stats.scratch_bytes, 8 - stats.waves.min(8)));
    worst.with_context(|| format!("nothing was printed of {name}"))
}

fn block(lines: &[&str]) -> Result<Stats> {
    let read = |name: &str| {
        let value = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = value.with_context(|| format!("no line on {name:?}"))?;
        let number = value.split(' ').next().unwrap_or(value);
        number.parse::<u32>().with_context(|| format!("{name} is {value:?}, expected a number"))
    };
    Ok(Stats {
        vgprs: read("VGPRS")?,
        sgprs: read("SGPRS")?,
        lds_bytes: read("LDS")?,
        scratch_bytes: read("Scratch")?,
        spills: read("Spilled VGPRs")? + read("Spilled SGPRs")?,
        waves: read("Max Waves")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of Mesa 25.0.7, shortened: a kernel compiled twice, one with an array outside
    /// registers, and one that is not OpenCL C.
    const OUTPUT: &str = "\
== fits
Shader main disassembly:
*** SHADER STATS ***
SGPRS: 16
VGPRS: 32
Spilled SGPRs: 0
Spilled VGPRs: 0
Private memory VGPRs: 0
Code Size: 1344 bytes
LDS: 0 bytes
Scratch: 0 bytes per wave
Max Waves: 8
********************
*** SHADER STATS ***
SGPRS: 16
VGPRS: 40
Spilled SGPRs: 0
Spilled VGPRs: 1
Private memory VGPRs: 0
Code Size: 1320 bytes
LDS: 512 bytes
Scratch: 0 bytes per wave
Max Waves: 6
********************
== gemm
*** SHADER STATS ***
SGPRS: 64
VGPRS: 48
Spilled SGPRs: 0
Spilled VGPRs: 0
Private memory VGPRs: 72
Code Size: 24968 bytes
LDS: 8192 bytes
Scratch: 18432 bytes per wave
Max Waves: 5
********************
== broken
does not compile: input.cl:2:50: error: use of undeclared identifier
== silent
";

    #[test]
    fn the_worst_of_a_kernel_counts() {
        let fits = parse(OUTPUT, "fits").unwrap();
        let wanted =
            Stats { vgprs: 40, sgprs: 16, lds_bytes: 512, scratch_bytes: 0, spills: 1, waves: 6 };
        assert_eq!(fits, wanted);
        let gemm = parse(OUTPUT, "gemm").unwrap();
        assert_eq!((gemm.scratch_bytes, gemm.waves), (18432, 5));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        for (name, wanted) in
            [("broken", "does not compile"), ("silent", "nothing was"), ("gem", "nothing was")]
        {
            let error = parse(OUTPUT, name).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
