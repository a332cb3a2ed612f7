//! Parses what Mesa's OpenCL prints of compiled kernels: statistics and machine code.

use super::code;
use super::figures::Figures;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;

const STATS: &str = "*** SHADER STATS";

/// The figures by kernel, or why there are none. The output of each begins with the line `== NAME`.
pub(super) fn parse(output: &str) -> HashMap<&str, Result<Figures>> {
    let parts = output.split("\n== ").skip(usize::from(!output.starts_with("== ")));
    let parts = parts.filter_map(|part| part.trim_start_matches("== ").split_once('\n'));
    parts.map(|(name, own)| (name, kernel(name, own))).collect()
}

/// The driver may compile a kernel several times; the version with the fewest waves and the most scratch counts.
fn kernel(name: &str, output: &str) -> Result<Figures> {
    if let Some(line) = output.lines().find(|line| line.starts_with("does not compile: ")) {
        bail!("{line}");
    }
    let listings = output.split(STATS);
    let versions = listings.clone().zip(listings.skip(1));
    let versions = versions.map(|(listing, stats)| version(listing, stats));
    let versions = versions.collect::<Result<Vec<Figures>>>()?;
    let worst =
        versions.into_iter().max_by_key(|stats| (stats.scratch_bytes, 8 - stats.waves.min(8)));
    worst.with_context(|| format!("nothing was printed of {name}"))
}

/// One version: its listing, which other lines may precede, and the lines of its statistics.
fn version(listing: &str, stats: &str) -> Result<Figures> {
    let lines: Vec<&str> = stats.lines().collect();
    let read = |name: &str| {
        let value = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = value.with_context(|| format!("no line on {name:?}"))?;
        let number = value.split(' ').next().unwrap_or(value);
        number.parse::<u32>().with_context(|| format!("{name} is {value:?}, expected a number"))
    };
    let code = code::read(listing);
    Ok(Figures {
        vgprs: read("VGPRS")?,
        sgprs: read("SGPRS")?,
        lds_bytes: read("LDS")?,
        scratch_bytes: read("Scratch")?,
        spills: read("Spilled VGPRs")? + read("Spilled SGPRs")?,
        waves: read("Max Waves")?,
        latency: None,
        inverse_throughput: None,
        code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of Mesa 25.0.7, shortened: a kernel compiled twice, one with an array outside
    /// registers, and one that is not OpenCL C.
    const OUTPUT: &str = "\
DRM_IOCTL_GET_CAP: unhandled 0x10
== fits
Shader main disassembly:
 BB0:
\tv_mul_f32_e32 v1, 0.5, v1                                   ; 0a0202f0
\ts_endpgm                                                    ; bf810000
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
Shader main disassembly:
 BB0:
\ts_endpgm                                                    ; bf810000
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
        let found = parse(OUTPUT);
        let fits = found["fits"].as_ref().unwrap();
        let resources = (fits.vgprs, fits.sgprs, fits.lds_bytes, fits.scratch_bytes);
        assert_eq!(resources, (40, 16, 512, 0));
        assert_eq!((fits.spills, fits.waves, fits.code.instructions), (1, 6, 1));
        let gemm = found["gemm"].as_ref().unwrap();
        assert_eq!((gemm.scratch_bytes, gemm.waves), (18432, 5));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let found = parse(OUTPUT);
        for (name, wanted) in [("broken", "does not compile"), ("silent", "nothing was")] {
            let error = found[name].as_ref().unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        assert!(!found.contains_key("gem"));
        assert!(parse("== gemm\n").contains_key("gemm"));
    }
}
