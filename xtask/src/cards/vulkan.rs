//! Parses what `hal/examples/aco.rs` prints of kernels that Mesa's Vulkan compiled.

use super::code;
use super::figures::Figures;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::HashMap;

/// A line.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    error: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    statistics: HashMap<String, u64>,
    #[serde(default)]
    assembly: String,
}

/// The name of a line.
#[derive(Deserialize)]
struct Named<'a> {
    name: &'a str,
}

/// The figures by kernel, or why there are none. Other lines are what the driver prints.
pub(super) fn parse(output: &str) -> HashMap<&str, Result<Figures>> {
    let lines = output.lines().filter(|line| line.starts_with('{'));
    let named = lines.filter_map(|line| {
        let Named { name } = serde_json::from_str(line).ok()?;
        Some((name, figures(line)))
    });
    named.collect()
}

fn figures(line: &str) -> Result<Figures> {
    let Line { error, statistics, assembly } = serde_json::from_str(line)?;
    if let Some(error) = error {
        bail!("does not compile: {error}");
    }
    let read = |name: &str| {
        statistics.get(name).copied().with_context(|| format!("no statistic {name:?}"))
    };
    let small = |name: &str| -> Result<u32> {
        u32::try_from(read(name)?).with_context(|| format!("{name} is beyond all sense"))
    };
    Ok(Figures {
        vgprs: small("VGPRs")?,
        sgprs: small("SGPRs")?,
        lds_bytes: small("LDS size")?,
        scratch_bytes: small("Scratch size")?,
        spills: small("Spilled VGPRs")? + small("Spilled SGPRs")?,
        waves: small("Subgroups per SIMD")?,
        latency: Some(read("Latency")?),
        inverse_throughput: Some(read("Inverse Throughput")?),
        code: code::read(&assembly),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of Mesa 25.0.7, shortened, and a line of the driver's own.
    const OUTPUT: &str = r#"ac_compute_device_uuid's output is based on invalid pci bus info.
{"assembly":"BB0:\n\tv_mul_f32_e32 v1, 0.5, v1                                   ; 0a0202f0\n\ts_endpgm\n","name":"fits","statistics":{"Instructions":14,"Inverse Throughput":79,"LDS size":512,"Latency":628,"SGPRs":16,"Scratch size":0,"Spilled SGPRs":0,"Spilled VGPRs":2,"Subgroups per SIMD":8,"VGPRs":4}}
{"error":"line 2: no such type \"half\"","name":"broken"}
{"assembly":"","name":"short","statistics":{"VGPRs":4}}
"#;

    #[test]
    fn lines_are_read_by_name() {
        let found = parse(OUTPUT);
        let fits = found["fits"].as_ref().unwrap();
        assert_eq!((fits.vgprs, fits.sgprs, fits.lds_bytes, fits.spills), (4, 16, 512, 2));
        assert_eq!((fits.latency, fits.inverse_throughput), (Some(628), Some(79)));
        assert_eq!((fits.waves, fits.code.instructions), (8, 2));
        for (name, wanted) in [("broken", "does not compile: line 2"), ("short", "no statistic")] {
            let error = found[name].as_ref().unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        assert_eq!(found.len(), 3);
    }
}
