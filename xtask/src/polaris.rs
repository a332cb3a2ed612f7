//! Checks that every kernel fits the platform's cards, by clang's figures; no card is needed.

mod compile;
mod remarks;

use crate::apt;
use crate::kernels::{Kernels, Variant};
use anyhow::{Result, bail};
use compile::Figures;
pub(crate) use compile::{CLANG, LIBRARY};
use serde::Serialize;

/// Sea Islands, Polaris, Vega 10 and Vega 20.
const CHIPS: &[&str] = &["gfx701", "gfx803", "gfx900", "gfx906"];
/// The local memory of a work-group on every card since Southern Islands.
const LDS_BYTES_MAX: u32 = 32 << 10;
const GROUP_MAX: u32 = 256;
/// With fewer waves a SIMD waits for memory more than it calculates.
const HOT_WAVES_MIN: u32 = 3;
/// One kernel on one chip.
#[derive(Debug, Serialize)]
struct Kernel {
    name: String,
    chip: &'static str,
    #[serde(flatten)]
    figures: Figures,
    /// Work-items of a work-group.
    group: u32,
    waves_per_simd: u32,
    hot: bool,
}

/// All kernels on all chips.
#[derive(Serialize)]
struct Check {
    kernels: Vec<Kernel>,
    #[serde(skip)]
    violations: Vec<String>,
}

/// Prints the figures of the engine's kernels. A kernel that breaks a rule is an error.
pub(crate) fn run(json: bool) -> Result<()> {
    apt::clang()?;
    let check = Check::new(&Kernels::of_engine()?, CHIPS)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&check)?);
    } else {
        print!("{}", table(&check.kernels));
    }
    for violation in &check.violations {
        eprintln!("{violation}");
    }
    if !check.violations.is_empty() {
        bail!("{} violations in what kernels take", check.violations.len());
    }
    Ok(())
}

impl Check {
    fn new(kernels: &Kernels, chips: &[&'static str]) -> Result<Self> {
        let mut compiled = Vec::new();
        let mut violations = Vec::new();
        for (variant, chip, figures) in compile::all(kernels, chips)? {
            match figures {
                Ok(figures) => {
                    let kernel = Kernel::new(variant, chip, figures);
                    violations.extend(kernel.violations());
                    compiled.push(kernel);
                }
                Err(error) => violations.push(format!("{} on {chip}: {error:#}", variant.name)),
            }
        }
        Ok(Self { kernels: compiled, violations })
    }
}

impl Kernel {
    fn new(variant: &Variant, chip: &'static str, figures: Figures) -> Self {
        let &Variant { group, hot, .. } = variant;
        let waves_per_simd = figures.resources.waves(group);
        Self { name: variant.name.clone(), chip, figures, group, waves_per_simd, hot }
    }

    /// The rules that the kernel breaks.
    fn violations(&self) -> Vec<String> {
        let Figures { resources, calls } = self.figures;
        let rules = [
            (
                resources.scratch_bytes > 0,
                format!("{} B of scratch, none wanted", resources.scratch_bytes),
            ),
            (
                resources.vgpr_spills > 0,
                format!("{} VGPRs spilled, none wanted", resources.vgpr_spills),
            ),
            (
                resources.sgpr_spills > 0,
                format!("{} SGPRs spilled, none wanted", resources.sgpr_spills),
            ),
            (calls > 0, format!("{calls} calls, all functions wanted inline")),
            (
                resources.lds_bytes > LDS_BYTES_MAX,
                format!(
                    "{} B of local memory, at most {LDS_BYTES_MAX} wanted",
                    resources.lds_bytes
                ),
            ),
            (
                self.group > GROUP_MAX,
                format!("{} work-items in a group, at most {GROUP_MAX} wanted", self.group),
            ),
            (
                self.hot && self.waves_per_simd < HOT_WAVES_MIN,
                format!("{} waves, at least {HOT_WAVES_MIN} wanted", self.waves_per_simd),
            ),
        ];
        let broken = rules.into_iter().filter(|(broken, _)| *broken);
        broken.map(|(_, what)| format!("{} on {}: {what}", self.name, self.chip)).collect()
    }
}

/// The kernels as lines of text.
fn table(kernels: &[Kernel]) -> String {
    let width = kernels.iter().map(|kernel| kernel.name.len()).max().unwrap_or(0);
    let mut text =
        format!("{:width$}  chip    VGPRs  SGPRs    LDS  scratch  spills  waves  hot\n", "name");
    for Kernel { name, chip, figures, waves_per_simd, hot, .. } in kernels {
        let of = &figures.resources;
        let (vgprs, sgprs, lds, scratch) = (of.vgprs, of.sgprs, of.lds_bytes, of.scratch_bytes);
        let spills = of.vgpr_spills + of.sgpr_spills;
        let hot = if *hot { "hot" } else { "" };
        let line = format!(
            "{name:width$}  {chip}  {vgprs:5}  {sgprs:5}  {lds:5}  {scratch:7}  {spills:6}  \
             {waves_per_simd:5}  {hot}"
        );
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::remarks::Resources;
    use super::*;

    /// A kernel that just keeps all rules.
    fn kernel() -> Kernel {
        let resources = Resources {
            vgprs: 84,
            sgprs: 96,
            lds_bytes: LDS_BYTES_MAX,
            scratch_bytes: 0,
            vgpr_spills: 0,
            sgpr_spills: 0,
            occupancy: 3,
        };
        let figures = Figures { resources, calls: 0 };
        let name = "gemm".to_owned();
        Kernel { name, chip: "gfx803", figures, group: GROUP_MAX, waves_per_simd: 3, hot: true }
    }

    #[test]
    fn each_rule_complains() {
        assert_eq!(kernel().violations(), [""; 0]);
        type Case = (fn(&mut Kernel), &'static str);
        let cases: &[Case] = &[
            (|k| k.figures.resources.scratch_bytes = 4, "4 B of scratch, none wanted"),
            (|k| k.figures.resources.vgpr_spills = 2, "2 VGPRs spilled, none wanted"),
            (|k| k.figures.resources.sgpr_spills = 1, "1 SGPRs spilled, none wanted"),
            (|k| k.figures.calls = 1, "1 calls, all functions wanted inline"),
            (|k| k.figures.resources.lds_bytes += 4, "32772 B of local memory, at most 32768"),
            (|k| k.group = 257, "257 work-items in a group, at most 256 wanted"),
            (|k| k.waves_per_simd = 2, "2 waves, at least 3 wanted"),
        ];
        for (break_it, wanted) in cases {
            let mut kernel = kernel();
            break_it(&mut kernel);
            let found = kernel.violations();
            let wanted = format!("gemm on gfx803: {wanted}");
            assert!(found.len() == 1 && found[0].starts_with(&wanted), "{found:?}, {wanted}");
        }
        let cold = Kernel { hot: false, waves_per_simd: 1, ..kernel() };
        assert_eq!(cold.violations(), [""; 0]);
    }

    #[test]
    fn json_keeps_its_keys() {
        let check = Check { kernels: vec![kernel()], violations: Vec::new() };
        let json = serde_json::to_value(&check).unwrap();
        let wanted = serde_json::json!({
            "name": "gemm", "chip": "gfx803", "vgprs": 84, "sgprs": 96, "lds_bytes": 32768,
            "scratch_bytes": 0, "vgpr_spills": 0, "waves_per_simd": 3, "hot": true,
        });
        for (key, value) in wanted.as_object().unwrap() {
            assert_eq!(&json["kernels"][0][key], value, "{key}");
        }
    }

    #[test]
    fn lines_of_the_table_stand_below_each_other() {
        let text = table(&[kernel()]);
        let wanted = "name  chip    VGPRs  SGPRs    LDS  scratch  spills  waves  hot\n\
                      gemm  gfx803     84     96  32768        0       0      3  hot\n";
        assert_eq!(text, wanted);
    }
}
