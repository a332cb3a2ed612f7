//! Compiles every variant for every chip on all cores, and keeps the results.

use super::remarks::Resources;
use crate::cmd;
use crate::kept::{Kept, Key};
use crate::kernels::{Kernels, Variant};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sources that turn compiler output into figures: a change makes kept results invalid.
const READERS: &[&str] = &[include_str!("remarks.rs"), include_str!("compile.rs")];
/// The chip follows.
const FLAGS: &[&str] = &[
    "-x",
    "cl",
    "-cl-std=CL1.2",
    "-Xclang",
    "-finclude-default-header",
    "-target",
    "amdgcn-amd-amdhsa",
    "-O3",
    "-Rpass-analysis=kernel-resource-usage",
    "-fno-caret-diagnostics",
];
pub(crate) const CLANG: &str = "clang-19";
/// The OpenCL functions' bodies, in the folder of Debian's rocm-device-libs.
pub(crate) const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode";

/// The compiler's figures for one kernel on one chip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    #[serde(flatten)]
    pub(super) resources: Resources,
    /// The number of function calls; with any call, the counted registers are incomplete.
    pub(super) calls: usize,
}

/// The figures of every variant on every chip, variant by variant; for what does not compile, why.
pub(super) fn all<'a>(
    kernels: &'a Kernels,
    chips: &[&'static str],
) -> Result<Vec<(&'a Variant, &'static str, Result<Figures>)>> {
    let compiler = Compiler::find()?;
    let pairs = kernels.variants.iter().flat_map(|v| chips.iter().map(move |chip| (v, *chip)));
    let jobs: Vec<_> = pairs.collect();
    let words = FLAGS.join(" ");
    eprintln!("$ {CLANG} {words} -mcpu=CHIP NAME.cl ({} times)", jobs.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some((variant, chip)) = jobs.get(index)
        {
            done.push((index, compiler.figures(kernels, variant, chip)));
        }
        done
    };
    let workers = std::thread::available_parallelism()?.get();
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        // A worker that panicked has printed why; its kernels are then missing.
        workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect::<Vec<_>>()
    });
    ensure!(done.len() == jobs.len(), "a worker panicked");
    done.sort_by_key(|(index, _)| *index);
    let figures = done.into_iter().map(|(_, figures)| figures);
    Ok(jobs.into_iter().zip(figures).map(|((variant, chip), f)| (variant, chip, f)).collect())
}

struct Compiler {
    version: String,
    kept: Kept,
}

impl Compiler {
    fn find() -> Result<Self> {
        let version = cmd::capture(cmd::command(CLANG).arg("--version"))?.output;
        Ok(Self { version, kept: Kept::open("polaris")? })
    }

    fn figures(&self, kernels: &Kernels, variant: &Variant, chip: &str) -> Result<Figures> {
        let source = kernels.source(variant, "cl")?;
        let compiler = (&self.version, FLAGS, READERS, chip);
        let key = Key::new((compiler, &source, &variant.kernel));
        if let Some(figures) = self.kept.get(&key) {
            return Ok(figures);
        }
        let figures = compile(&source, variant, chip)?;
        self.kept.put(&key, &figures)?;
        Ok(figures)
    }
}

fn compile(source: &str, variant: &Variant, chip: &str) -> Result<Figures> {
    let mut clang = Command::new(CLANG);
    clang.args(FLAGS).arg(format!("-mcpu={chip}"));
    clang.arg(format!("--rocm-device-lib-path={LIBRARY}"));
    clang.args(["-S", "-o", "-", "-"]);
    clang.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = clang.spawn().with_context(|| format!("cannot run {CLANG}"))?;
    // Clang reads to the end before it prints, so that neither waits for the other.
    let mut input = child.stdin.take().context("clang has no standard input")?;
    input.write_all(source.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    let remarks = String::from_utf8_lossy(&output.stderr);
    let error = remarks.lines().find(|line| line.contains("error: ")).unwrap_or("no reason given");
    ensure!(output.status.success(), "does not compile: {error}");
    let resources = Resources::parse(&remarks, &variant.kernel)?;
    let calls = calls(&String::from_utf8_lossy(&output.stdout), &variant.kernel);
    Ok(Figures { resources, calls })
}

/// Calls in the assembly of the function `kernel`.
fn calls(assembly: &str, kernel: &str) -> usize {
    let label = format!("{kernel}:");
    let own = assembly.lines().skip_while(|line| !line.starts_with(&label));
    let own = own.take_while(|line| !line.starts_with(".Lfunc_end"));
    own.filter(|line| line.contains("s_swappc")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened from output of clang 19.1.7 for gfx803.
    const ASSEMBLY: &str = "\
other:
\ts_swappc_b64 s[30:31], s[4:5]
.Lfunc_end0:
gemm:                                   ; @gemm
\tv_mac_f32_e32 v5, v5, v19
\ts_endpgm
.Lfunc_end1:
";

    #[test]
    fn calls_are_counted_by_function() {
        assert_eq!((calls(ASSEMBLY, "other"), calls(ASSEMBLY, "gemm")), (1, 0));
    }
}
