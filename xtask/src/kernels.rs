//! The sources of the kernels that the engine may launch: `NAME.cl`, `NAME.cu` and `NAME.k` in a folder, with
//! `variants.tsv` saying how each is compiled and what one launch does.

use crate::cmd;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};

/// The networks, and the bundled model, in whose shapes kernels are compiled; the first also in batches.
const NETWORKS: &[&str] = &["resnet50", "mobilenetv2", "bert"];
const BATCH: &str = "16";
const DIGITS: &str = "apps/cli/assets/digits/digits.onnx";

/// One specialisation of a kernel: a line of `variants.tsv`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Variant {
    /// A unique name, which is also the stem of its files.
    pub(crate) name: String,
    /// The entry point.
    pub(crate) kernel: String,
    /// Work-items of a work-group.
    pub(crate) group: u32,
    /// Whether the kernel determines a run's time.
    pub(crate) hot: bool,
    /// The launches by networks.
    #[serde(deserialize_with = "launches")]
    pub(crate) launches: Vec<Launches>,
}

/// Equal launches of a kernel by a network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Launches {
    pub(crate) network: String,
    pub(crate) times: f64,
    /// Floating-point operations of each.
    pub(crate) flops: f64,
    /// Bytes that each must read and write.
    pub(crate) bytes: f64,
    /// Work-groups of each.
    pub(crate) groups: f64,
}

/// The folder of sources, and the variants.
pub(crate) struct Kernels {
    pub(crate) folder: PathBuf,
    pub(crate) variants: Vec<Variant>,
}

impl Kernels {
    /// Writes and reads the engine's kernels.
    pub(crate) fn of_engine() -> Result<Self> {
        let folder = cmd::root().join("target/xtask/kernels");
        // Variants that no longer exist must be removed.
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let examples = cmd::programs()?.join("examples");
        let zoo = cmd::root().join("target/xtask/kernel-networks");
        let written = cmd::stdout(cmd::command(examples.join("zoo")).arg(zoo).args(NETWORKS))?;
        ensure!(written.ok, "the reference networks cannot be written");
        let mut kernels = cmd::command(examples.join("kernels"));
        let batches = written.output.lines().take(1).map(|path| format!("{path}@{BATCH}"));
        cmd::run(kernels.arg(&folder).args(written.output.lines()).arg(DIGITS).args(batches))?;
        Self::read(&folder)
    }

    /// The fixture of `check`: kernels that break its rules, and one that does not.
    pub(crate) fn of_fixture(check: &str) -> Result<Self> {
        Self::read(&cmd::root().join("xtask/fixtures").join(check))
    }

    fn read(folder: &Path) -> Result<Self> {
        let table = folder.join("variants.tsv");
        let text = std::fs::read_to_string(&table)
            .with_context(|| format!("cannot read {}", table.display()))?;
        let variants = parse(&text).with_context(|| table.display().to_string())?;
        Ok(Self { folder: folder.to_owned(), variants })
    }

    /// The text of a variant's source in the language of `extension`.
    pub(crate) fn source(&self, variant: &Variant, extension: &str) -> Result<String> {
        let path = self.folder.join(format!("{}.{extension}", variant.name));
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

fn parse(text: &str) -> Result<Vec<Variant>> {
    let mut reader =
        csv::ReaderBuilder::new().delimiter(b'\t').quoting(false).from_reader(text.as_bytes());
    let variants = reader.deserialize().collect::<Result<Vec<Variant>, _>>()?;
    ensure!(!variants.is_empty(), "no kernel, expected at least one");
    let mut names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("{:?} is there twice, expected names to be unique", pair[0]);
    }
    Ok(variants)
}

/// Parses `resnet50:3:2e8:1e6:49,bert:1:0:64:1`: three launches of 2e8 operations, 1e6 bytes and 49 work-groups, then
/// one.
fn launches<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Launches>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let read = |entry: &str| {
        let mut parts = entry.split(':');
        let network = parts.next()?.to_owned();
        let mut number = || parts.next()?.parse().ok();
        let (times, flops, bytes, groups) = (number()?, number()?, number()?, number()?);
        Some(Launches { network, times, flops, bytes, groups })
    };
    let wanted = "NETWORK:TIMES:FLOPS:BYTES:GROUPS";
    let refuse = |entry| serde::de::Error::custom(format!("{entry:?}, expected {wanted}"));
    let entries = text.split(',').filter(|entry| !entry.is_empty());
    entries.map(|entry| read(entry).ok_or_else(|| refuse(entry))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "name\tkernel\tgroup\thot\tlaunches\n";

    #[test]
    fn variants_are_read() {
        let line = "gemm_4\tgemm\t256\ttrue\tresnet50 1x3:3:2e9:4096:49,bert:1:0:8:1\n";
        let plain = "fill\tfill\t64\tfalse\t\n";
        let variants = parse(&format!("{HEADER}{line}{plain}")).unwrap();
        let launches = |network: &str, times, flops, bytes, groups| {
            let network = network.to_owned();
            Launches { network, times, flops, bytes, groups }
        };
        let gemm = Variant {
            name: "gemm_4".into(),
            kernel: "gemm".into(),
            group: 256,
            hot: true,
            launches: vec![
                launches("resnet50 1x3", 3., 2e9, 4096., 49.),
                launches("bert", 1., 0., 8., 1.),
            ],
        };
        assert_eq!(variants[0], gemm);
        assert!(variants[1].launches.is_empty());
    }

    #[test]
    fn broken_tables_are_refused() {
        let fill = "fill\tfill\t64\tfalse\t\n";
        let cases = [
            (HEADER.to_owned(), "no kernel"),
            (format!("{HEADER}{fill}{fill}"), "\"fill\" is there twice"),
            (format!("{HEADER}a\ta\t64\tmaybe\t\n"), "not `true` or `false`"),
            (format!("{HEADER}a\ta\t64\ttrue\tbert:x\n"), "\"bert:x\", expected NETWORK:TIMES"),
            ("name\tkernel\n a\ta\n".to_owned(), "missing field"),
        ];
        for (text, wanted) in cases {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(wanted), "{error:?}, expected {wanted:?}");
        }
    }
}
