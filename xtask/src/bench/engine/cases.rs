//! What is compared: networks, precisions, threads and batches, with the goals set for each.

use super::process::Engine;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Numbers of images or sentences that run at once.
pub(super) const BATCHES: [usize; 2] = [1, 8];
/// Tokens of a sentence.
const SEQUENCE: usize = 128;

/// A model of the zoo.
pub(super) struct Net {
    /// The zoo's name for it.
    pub(super) file: &'static str,
    /// What it is called in tables.
    pub(super) title: &'static str,
    /// Part of the names of its cases.
    pub(super) short: &'static str,
    /// The most of ONNX Runtime's time that ours should take.
    pub(super) goal: f64,
    /// Whether it is also run in bf16, and the most of OpenVINO's time that this should take.
    pub(super) fast: Option<Option<f64>>,
}

/// Every model.
pub(super) const NETS: [Net; 6] = [
    net("resnet50", "ResNet-50, f32", "resnet50-f32", 0.8, Some(Some(1.))),
    net("mobilenetv2", "MobileNetV2, f32", "mobilenetv2-f32", 0.9, Some(None)),
    net("bert", "BERT-base, 128 tokens, f32", "bert-f32", 0.9, Some(None)),
    net("resnet50_qdq", "ResNet-50, QDQ int8", "resnet50-int8", 0.95, None),
    net("mobilenetv2_qdq", "MobileNetV2, QDQ int8", "mobilenetv2-int8", 1., None),
    net("bert_int8", "BERT-base, 128 tokens, dynamic int8", "bert-int8", 0.9, None),
];

const fn net(
    file: &'static str,
    title: &'static str,
    short: &'static str,
    goal: f64,
    fast: Option<Option<f64>>,
) -> Net {
    Net { file, title, short, goal, fast }
}

impl Net {
    /// The name under which its loading is measured.
    pub(super) fn load_name(&self) -> String {
        format!("{}-load", self.short)
    }

    /// The model's file.
    pub(super) fn model(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.onnx", self.file))
    }

    /// Inputs as the protocol names them.
    pub(super) fn inputs(&self, folder: &Path, batch: usize) -> Vec<String> {
        let input = |(name, dtype, dims, _): (&str, &str, String, Vec<u8>)| {
            format!("{name}:{dtype}:{dims}:{}", self.input_file(folder, name, batch).display())
        };
        self.data(batch).into_iter().map(input).collect()
    }

    pub(super) fn write_inputs(&self, folder: &Path, batch: usize) -> Result<()> {
        for (name, _, _, bytes) in self.data(batch) {
            std::fs::write(self.input_file(folder, name, batch), bytes)?;
        }
        Ok(())
    }

    fn input_file(&self, folder: &Path, name: &str, batch: usize) -> PathBuf {
        let kind = if self.file.starts_with("bert") { "text" } else { "image" };
        folder.join(format!("{kind}-{name}-{batch}.in"))
    }

    /// Name, type, dimensions and bytes of each input: pixels or tokens at random, and sentences of
    /// which the last words are padding.
    fn data(&self, batch: usize) -> Vec<(&'static str, &'static str, String, Vec<u8>)> {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random >> 40
        };
        if !self.file.starts_with("bert") {
            let pixels = (0..batch * 3 * 224 * 224).map(|_| next() as f32 / (1 << 22) as f32 - 2.);
            let bytes = pixels.flat_map(f32::to_le_bytes).collect();
            return vec![("input", "f32", format!("{batch}x3x224x224"), bytes)];
        }
        let ints = |name, value: &mut dyn FnMut(usize, usize) -> i64| {
            let at = (0..batch).flat_map(|row| (0..SEQUENCE).map(move |column| (row, column)));
            let bytes = at.flat_map(|(row, column)| value(row, column).to_le_bytes()).collect();
            (name, "i64", format!("{batch}x{SEQUENCE}"), bytes)
        };
        let words = |row: usize| SEQUENCE - 8 * (row % 4 + 1);
        vec![
            ints("input_ids", &mut |_, _| next() as i64 % 30_000),
            ints("attention_mask", &mut |row, column| i64::from(column < words(row))),
            ints("token_type_ids", &mut |_, column| i64::from(column >= SEQUENCE / 2)),
        ]
    }
}

/// A model with all that is chosen for a run.
pub(super) struct Case {
    pub(super) net: &'static Net,
    /// In bf16.
    pub(super) fast: bool,
    pub(super) threads: usize,
    pub(super) batch: usize,
}

/// Every case, in the order of the table.
pub(super) fn all() -> impl Iterator<Item = Case> {
    let kinds = NETS.iter().map(|net| (net, false));
    let kinds = kinds.chain(NETS.iter().filter(|net| net.fast.is_some()).map(|net| (net, true)));
    kinds.flat_map(|(net, fast)| {
        [1, 2].into_iter().flat_map(move |threads| {
            BATCHES.into_iter().map(move |batch| Case { net, fast, threads, batch })
        })
    })
}

impl Case {
    /// `NET-PRECISION-THREADS-BATCH`.
    pub(super) fn name(&self) -> String {
        let Self { net, threads, batch, .. } = self;
        let short = if self.fast { net.short.replace("f32", "bf16") } else { net.short.to_owned() };
        format!("{short}-t{threads}-b{batch}")
    }

    /// What it is called in tables.
    pub(super) fn title(&self) -> String {
        if self.fast { self.net.title.replace("f32", "bf16") } else { self.net.title.to_owned() }
    }

    /// Who takes part. In bf16 ONNX Runtime only gives the outputs to compare with.
    pub(super) fn engines(&self) -> impl Iterator<Item = Engine> {
        let fast = self.fast;
        Engine::ALL.into_iter().filter(move |e| !fast || !matches!(e, Engine::Rten | Engine::Tract))
    }

    /// Whom the goal is about, and the most of its time that ours should take.
    pub(super) fn goal(&self) -> (Engine, Option<f64>) {
        match (self.fast, self.net.fast) {
            (true, goal) => (Engine::OpenVino, goal.flatten()),
            (false, _) => (Engine::OnnxRuntime, Some(self.net.goal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_inputs_fit_their_dimensions() {
        let mut names: Vec<String> = all().map(|case| case.name()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (36, 36));
        for net in &NETS {
            for (name, dtype, dims, bytes) in net.data(8) {
                let count: usize = dims.split('x').map(|d| d.parse::<usize>().unwrap()).product();
                let size = if dtype == "f32" { 4 } else { 8 };
                assert_eq!(bytes.len(), count * size, "{} {name}", net.file);
            }
        }
    }
}
