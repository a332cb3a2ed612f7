//! The resources of kernels on Polaris as compiled by Mesa, the driver of most users of old cards; no card is needed.

mod install;
mod stats;

use crate::kernels::Kernels;
use crate::polaris::HOT_WAVES_MIN;
use anyhow::{Result, bail};
use install::Mesa;
use stats::Stats;

/// Prints the figures of the engine's kernels. A kernel with scratch or spills, or a hot one with too few waves, is an
/// error.
pub(crate) fn run() -> Result<()> {
    let mesa = Mesa::install()?;
    let kernels = Kernels::of_engine()?;
    let output = mesa.compile(&kernels.folder)?;
    println!("Mesa {}, radeonsi for Polaris 10", mesa.version()?);
    let width = kernels.variants.iter().map(|variant| variant.name.len()).max().unwrap_or(0);
    println!("{:width$}  VGPRs  SGPRs    LDS  scratch  spills  waves  hot", "name");
    let mut violations = Vec::new();
    for variant in &kernels.variants {
        match stats::parse(&output, &variant.name) {
            Ok(stats) => {
                let Stats { vgprs, sgprs, lds_bytes, scratch_bytes, spills, waves } = stats;
                let hot = if variant.hot { "  hot" } else { "" };
                println!(
                    "{:width$}  {vgprs:5}  {sgprs:5}  {lds_bytes:5}  {scratch_bytes:7}  \
                     {spills:6}  {waves:5}{hot}",
                    variant.name
                );
                let what = violation(&stats, variant.hot);
                violations.extend(what.map(|what| format!("{}: {what}", variant.name)));
            }
            Err(error) => violations.push(format!("{}: {error:#}", variant.name)),
        }
    }
    violations.iter().for_each(|violation| eprintln!("{violation}"));
    if !violations.is_empty() {
        bail!("{} violations in what kernels take", violations.len());
    }
    Ok(())
}

/// The first rule that a kernel breaks.
fn violation(stats: &Stats, hot: bool) -> Option<String> {
    let Stats { scratch_bytes, spills, waves, .. } = stats;
    if *scratch_bytes > 0 {
        return Some(format!("{scratch_bytes} B of scratch a wave, none wanted"));
    }
    if *spills > 0 {
        return Some(format!("{spills} registers spilled, none wanted"));
    }
    (hot && *waves < HOT_WAVES_MIN)
        .then(|| format!("{waves} waves, at least {HOT_WAVES_MIN} wanted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_complains() {
        let fits =
            Stats { vgprs: 84, sgprs: 48, lds_bytes: 0, scratch_bytes: 0, spills: 0, waves: 3 };
        assert_eq!(violation(&fits, true), None);
        let cases = [
            (Stats { scratch_bytes: 256, ..fits }, Some("256 B of scratch a wave, none wanted")),
            (Stats { spills: 2, ..fits }, Some("2 registers spilled, none wanted")),
            (Stats { waves: 2, ..fits }, Some("2 waves, at least 3 wanted")),
        ];
        for (stats, wanted) in cases {
            assert_eq!(violation(&stats, true).as_deref(), wanted);
        }
        assert_eq!(violation(&Stats { waves: 2, ..fits }, false), None);
    }
}
